"""The tables say what was agreed, they are free of contradictions, and the registry does what they say."""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest
from helpers import (
    Host,
    abort,
    beat,
    done,
    error,
    finish,
    join,
    kv,
    live_records,
    lose,
    output,
    register,
    reject,
    seal,
    start,
    tick,
)

from cfg_fsm import tables
from cfg_fsm.engine import handlers
from cfg_fsm.engine.machines import COMPANION_MACHINE, MACHINES, PARENT_MACHINE
from cfg_fsm.engine.validate import (
    validate,
    validate_classification,
    validate_coupling,
    validate_rows,
)
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.events import EVENT_MODELS, type_of
from cfg_fsm.states import CompanionState, FailureReason, MachineKind, ParentState, RejectedReason, Trigger
from cfg_fsm.tables import ABSENT, CLASSIFICATION, Choice, Classification, Quantifier, Row, Verdict

# ---------------------------------------------------------------------------
# What was agreed, transcribed
# ---------------------------------------------------------------------------

COMPANION_TABLE = """
start    registered running                      running
complete registered running                      done
fail     registered running                      failed
clean    done failed                             cleaned
"""

PARENT_TABLE = """
start    registered running                      running
defer    registered running deferred             deferred
defer    forwarded[streaming]                    deferred
forward  deferred                                forwarded
finish   registered running forwarded            done
fail     registered running deferred forwarded   failed
clean    done failed                             cleaned
"""

REASONS = """
error aborted companion_failed companion_aborted replica_lost deferred_deadline silent start_deadline
total_deadline forward_rejected superseded parent_ended
"""

LIVE = ("registered", "running", "deferred", "forwarded")

#: Where each event is accepted: states of a parent, states of a companion.
ACCEPTED = {
    "parent_registered": ("done failed cleaned", "failed cleaned"),
    "companion_registered": ("registered running deferred forwarded", ""),
    "companions_sealed": ("registered running deferred forwarded", ""),
    "request_started": ("registered running", "registered running"),
    "request_progressed": ("registered running", "running"),
    "kv_ready": ("registered running", "running"),
    "parent_output_ready": ("registered running deferred forwarded", ""),
    "companion_output_ready": ("", "registered running"),
    "request_failed": ("registered running deferred forwarded", "registered running"),
    "requests_aborted": ("registered running deferred forwarded", "registered running"),
    "replica_lost": ("running", "running"),
    "forward_rejected": ("forwarded", ""),
    "parent_finished": ("registered running forwarded", ""),
    "clock_ticked": (
        "registered running deferred forwarded done failed cleaned",
        "registered running done failed cleaned",
    ),
}


def rows_of(text: str) -> list[tuple[str, str, str, str | None]]:
    rows = []
    for line in text.strip().splitlines():
        trigger, *sources, dest = line.split()
        for source in sources:
            state, _, guard = source.rstrip("]").partition("[")
            rows.append((trigger, state, dest, guard or None))
    return rows


TABLES = {tables.PARENT: rows_of(PARENT_TABLE), tables.COMPANION: rows_of(COMPANION_TABLE)}


@pytest.mark.parametrize("kind", MachineKind)
def test_the_rows_are_the_agreed_ones(kind):
    rows = [(str(row.trigger), str(row.source), str(row.dest), row.guard) for row in tables.ROWS[kind]]
    assert sorted(rows, key=str) == sorted(TABLES[kind], key=str)


@pytest.mark.parametrize("kind", MachineKind)
def test_the_live_machine_has_exactly_the_agreed_rows(kind):
    rows = [
        (
            name,
            transition.source,
            transition.dest,
            transition.conditions[0].func if transition.conditions else None,
        )
        for name, event in MACHINES[kind].events.items()
        for transitions in event.transitions.values()
        for transition in transitions
    ]
    assert sorted(rows, key=str) == sorted(TABLES[kind], key=str)


def test_the_live_machines_have_the_agreed_states_and_no_others():
    assert list(PARENT_MACHINE.states) == [*LIVE, "done", "failed", "cleaned"]
    assert list(COMPANION_MACHINE.states) == ["registered", "running", "done", "failed", "cleaned"]


def test_the_failure_reasons_are_the_agreed_ones():
    assert [str(reason) for reason in FailureReason] == REASONS.split()


def test_the_coupling_rows_are_the_agreed_ones():
    rows = {
        (
            tuple(map(str, row.parent)),
            row.sealed,
            row.quantifier,
            tuple(map(str, row.companions)),
            row.fires,
            str(row.trigger),
            row.reason,
        )
        for row in tables.COUPLING_ROWS
    }
    assert rows == {
        (("deferred",), True, Quantifier.EVERY, ("done",), "parent", "forward", None),
        (LIVE, False, Quantifier.ANY, ("failed",), "parent", "fail", None),
        (
            ("done", "failed"),
            False,
            Quantifier.EACH,
            ("registered", "running"),
            "companion",
            "fail",
            "parent_ended",
        ),
        (("done", "failed"), False, Quantifier.EVERY, ("done", "failed"), "group", "clean", None),
    }
    assert len(tables.COUPLING_ROWS) == 4


def test_the_deadline_rows_stand_in_the_order_in_which_ties_are_decided():
    assert [
        (row.limit, str(row.machine), tuple(map(str, row.states)), row.reason) for row in tables.DEADLINE_ROWS
    ] == [
        ("deferred_s", "parent", ("deferred",), "deferred_deadline"),
        ("total_s", "parent", LIVE, "total_deadline"),
        ("start_s", "companion", ("registered",), "start_deadline"),
        ("silent_s", "companion", ("running",), "silent"),
    ]


@pytest.mark.parametrize("event", ACCEPTED)
def test_each_event_is_accepted_in_the_agreed_states(event):
    def accepted(cells):
        moves = {Verdict.MOVES, Verdict.STAYS}
        return {str(state) for state, cell in cells.items() if any(choice.verdict in moves for choice in cell)}

    parent, companion = ACCEPTED[event]
    assert accepted(CLASSIFICATION[event].parent) == set(parent.split())
    assert accepted(CLASSIFICATION[event].companion) == set(companion.split())


# ---------------------------------------------------------------------------
# Every pair of event and state
# ---------------------------------------------------------------------------

EVENTS = tuple(type_of(model) for model in EVENT_MODELS)
STATES = (
    *(("parent", str(state)) for state in ParentState),
    *(("companion", str(state)) for state in CompanionState),
    (ABSENT, ABSENT),
)
#: States in which nothing rests: the coupling rows clean them in the step that enters them.
PASSING = (("parent", "done"), ("parent", "failed"), ("companion", "failed"))
RESTING = tuple(place for place in STATES if place not in PASSING)


def cell_of(event: str, kind: str, state: str) -> tables.Cell:
    columns = CLASSIFICATION[event]
    if kind == ABSENT:
        return columns.absent
    return (columns.parent if kind == "parent" else columns.companion)[state]


def test_every_pair_of_event_and_state_is_classified():
    assert set(CLASSIFICATION) == set(EVENTS)
    assert len(EVENTS) == 14
    assert len(STATES) == 13
    cells = [cell_of(event, kind, state) for event in EVENTS for kind, state in STATES]
    assert len(cells) == 182
    assert all(cells)
    held = [
        len(columns.parent) + len(columns.companion) + len([columns.absent]) for columns in CLASSIFICATION.values()
    ]
    assert sum(held) == 182


@pytest.mark.parametrize("event", EVENTS)
def test_a_state_in_which_nothing_rests_means_what_cleaned_means(event):
    for kind, state in PASSING:
        cell, cleaned = cell_of(event, kind, state), cell_of(event, kind, "cleaned")
        assert cell == cleaned, f"{kind} {state}"


class Attempt(NamedTuple):
    """One way of sending an event to a request in a state."""

    event: Any
    holds: frozenset[str] = frozenset()
    """Guards that hold in it."""
    sealed: bool = True
    streaming: bool = False


def attempts(event: str, kind: str, state: str) -> Iterator[Attempt]:
    """Every way that makes a difference. The request is ``p`` (parent) or ``a`` (companion), else ``x``."""
    who = {"parent": "p", "companion": "a"}.get(kind, "x")
    live_parent = kind == "parent" and state != "cleaned"
    open_companion = kind == "companion" and state in ("registered", "running")
    if event == "parent_registered":
        if live_parent:
            yield Attempt(register("p", {"neg": "a", "img": "b"}), frozenset({"same_registration"}))
            yield Attempt(register("p", {"neg": "a"}))
            yield Attempt(register("p", None))
            yield Attempt(register("p", {"neg": "a", "img": "b"}, streaming=True))
            yield Attempt(register("p", {"neg": "a", "img": "b"}, life=7))
        else:
            ended = state == "cleaned" or kind == ABSENT
            yield Attempt(register(who, {"neg": "n"}, life=7), frozenset({"admissible"} if ended else ()))
            yield Attempt(register(who, {"neg": who}, life=7))
    elif event == "companion_registered":
        yield Attempt(join(who, "neg", "a"), frozenset({"known_pair"} if live_parent else ()))
        yield Attempt(join(who, "new", "n"))
        if live_parent and state != "forwarded":
            yield Attempt(join("p", "new", "n"), frozenset({"joins", "unsealed"}), sealed=False)
            yield Attempt(join("p", "neg", "n"), frozenset({"unsealed"}), sealed=False)
            yield Attempt(join("p", "neg", "a"), frozenset({"known_pair", "unsealed"}), sealed=False)
    elif event == "companions_sealed":
        yield Attempt(seal(who))
        if live_parent and state != "forwarded":
            yield Attempt(seal("p"), frozenset({"unsealed"}), sealed=False)
    elif event == "parent_output_ready":
        yield Attempt(output(who))
        yield Attempt(output(who, segment=True), frozenset({"streaming"}), streaming=True)
    elif event == "companion_output_ready":
        for how in ("stop", "length"):
            yield Attempt(done(who, finish=how))
        for how in ("abort", "error"):
            yield Attempt(done(who, finish=how), frozenset({"failed_finish"}))
    elif event == "replica_lost":
        yield Attempt(lose(0, stage=3), frozenset({"bound"} if state == "running" else ()))
        yield Attempt(lose(0, stage=4))
        yield Attempt(lose(1, stage=3))
    elif event == "clock_ticked":
        yield Attempt(tick(9.0))
        yield Attempt(tick(10.0), frozenset({"due"} if live_parent or open_companion else ()))
    else:
        make = {
            "request_started": start,
            "request_progressed": beat,
            "kv_ready": kv,
            "request_failed": error,
            "requests_aborted": abort,
            "forward_rejected": reject,
            "parent_finished": finish,
        }[event]
        yield Attempt(make(who))


def bring(kind: str, state: str, attempt: Attempt) -> Host:
    """A host whose request is in that state, all of it done by events, at time 0.

    ``p`` has the companions ``a`` and ``b``; ``b`` stays open as long as the state allows it. ``x`` is unknown.
    """
    limits: dict[str, Any] = {}
    if attempt.event.type == "clock_ticked":
        limits = {
            "parent": {"total_s": 10},
            "companion": {"silent_s": 10} if state == "running" else {"start_s": 10},
        }.get(kind, {})
        if (kind, state) == ("companion", "done"):
            limits = {"silent_s": 10}
    host = Host(**limits)
    if kind == ABSENT:
        return host
    companions = {"neg": "a", "img": "b"}
    if attempt.sealed:
        host.send(register("p", companions, streaming=attempt.streaming))
    else:
        host.send(register("p"), *(join("p", role, companion) for role, companion in companions.items()))
    steps = {
        ("parent", "registered"): [],
        ("parent", "running"): [start("p", 0, stage=3)],
        ("parent", "deferred"): [start("p", 0, stage=3), output("p")],
        ("parent", "forwarded"): [start("p", 0, stage=3), output("p"), done("a"), done("b")],
        ("parent", "cleaned"): [start("p", 0, stage=3), output("p"), done("a"), done("b"), finish("p")],
        ("companion", "registered"): [],
        ("companion", "running"): [start("a", 0, stage=3)],
        ("companion", "done"): [start("a", 0, stage=3), done("a")],
        ("companion", "cleaned"): [start("a", 0, stage=3), done("a"), done("b"), output("p"), finish("p")],
    }[kind, state]
    for step in steps:
        assert host.send(step).disposition == "accepted"
    return host


def choice_for(event: str, kind: str, state: str, attempt: Attempt) -> Choice:
    cell = cell_of(event, kind, state)
    return next(choice for choice in cell if choice.guard is None or choice.guard in attempt.holds)


@pytest.mark.parametrize(("kind", "state"), RESTING, ids="-".join)
@pytest.mark.parametrize("event", EVENTS)
def test_the_registry_does_what_the_classification_says(event, kind, state):
    who = {"parent": "p", "companion": "a"}.get(kind, "x")
    for attempt in attempts(event, kind, state):
        host = bring(kind, state, attempt)
        at_rest = None if state in ("cleaned", ABSENT) else state
        assert host.state(who) == at_rest
        before, recorded = host.registry.requests(), len(host.records)

        answer = host.send(attempt.event)

        choice = choice_for(event, kind, state, attempt)
        moved = [
            (record.trigger, record.source, record.dest)
            for record in host.records[recorded:]
            if record.kind in ("transition", "created") and record.request_id == who
        ]
        if choice.verdict is Verdict.MOVES:
            assert answer.disposition == "accepted"
            if choice.trigger is None:
                assert moved == [(None, None, "registered")]
                assert host.view(who).machine == "parent"
            else:
                row = next(
                    row
                    for row in tables.ROWS[MachineKind(kind)]
                    if (row.trigger, row.source) == (choice.trigger, state)
                )
                assert moved[0] == (row.trigger, row.source, row.dest)
        elif choice.verdict is Verdict.STAYS:
            assert answer.disposition == "accepted"
            assert moved == []
            assert host.state(who) == at_rest
        else:
            assert answer.disposition == choice.verdict.value
            if event == "requests_aborted":  # it is about several ids: what became of each is in the answer
                assert answer.reason == "nothing_ended"
                outcome = "unknown" if kind == ABSENT else "already_ended"
                assert [action.to_dict() for action in answer.actions] == [
                    {"type": "acknowledge_abort", "outcomes": {who: outcome}}
                ]
            else:
                assert answer.reason == choice.reason or (
                    choice.reason is None and answer.reason in RejectedReason
                )
                expected = choice.answer if host.state(getattr(attempt.event, "companion_id", who)) is None else ()
                assert [action.type for action in answer.actions] == list(expected)
            assert moved == []
            after = host.registry.requests()
            assert [view.to_dict() for view in after] == [view.to_dict() for view in before]


def test_every_choice_is_taken_that_can_be():
    taken = {
        (event, kind, state, choice_for(event, kind, state, attempt))
        for event in EVENTS
        for kind, state in RESTING
        for attempt in attempts(event, kind, state)
    }
    every = {
        (event, kind, state, choice)
        for event in EVENTS
        for kind, state in RESTING
        for choice in cell_of(event, kind, state)
    }
    assert taken <= every
    # Only a sealed group is forwarded, so a forwarded one is never unsealed.
    assert {(event, kind, state, choice.guard) for event, kind, state, choice in every - taken} == {
        ("companion_registered", "parent", "forwarded", "joins"),
        ("companion_registered", "parent", "forwarded", "unsealed"),
        ("companions_sealed", "parent", "forwarded", "unsealed"),
    }


def test_every_guard_is_used_and_has_an_implementation():
    used = {
        choice.guard
        for event, (kind, state) in product(EVENTS, STATES)
        for choice in cell_of(event, kind, state)
        if choice.guard is not None
    }
    assert used == set(tables.GUARDS)
    assert set(handlers.GUARDS) == set(tables.GUARDS)


@pytest.mark.parametrize(("kind", "state"), [place for place in RESTING if place[1] not in ("cleaned", ABSENT)])
def test_the_guard_for_deadlines_says_what_the_heap_of_deadlines_does(kind, state):
    for attempt in attempts("clock_ticked", kind, state):
        host = bring(kind, state, attempt)
        host.send(beat("nobody", at=attempt.event.at))  # time goes on, and nobody looks at the deadlines yet
        record = live_records(host.registry)["p" if kind == "parent" else "a"]
        assert handlers.GUARDS["due"](host.registry._ledger, record, attempt.event) is ("due" in attempt.holds)


def test_a_guard_of_a_row_is_an_attribute_of_its_record():
    host = Host()
    host.send(register("p", {"neg": "a"}))
    records = {record.machine: record for record in live_records(host.registry).values()}
    for kind in MachineKind:
        for row in tables.ROWS[kind]:
            assert row.guard is None or isinstance(getattr(records[kind.value], row.guard), bool)


# ---------------------------------------------------------------------------
# Contradictions are found at import
# ---------------------------------------------------------------------------

A_TO_B = Row(Trigger.START, "a", "b")
B_TO_C = Row(Trigger.CLEAN, "b", "c")


def refusal(check, *arguments):
    with pytest.raises(InvalidDefinition) as caught:
        check(*arguments)
    return caught.value


def test_the_tables_are_valid():
    validate()
    validate_rows(tables.PARENT, ("a", "b", "c"), (A_TO_B, B_TO_C), "a", "c")


def test_a_row_from_an_unknown_state_is_refused():
    wrong = refusal(validate_rows, tables.PARENT, ("a", "b", "c"), (A_TO_B, Row(Trigger.FAIL, "z", "c")), "a", "c")
    assert (wrong.machine, wrong.state, wrong.trigger) == ("parent", "z", "fail")
    assert "'z'" in str(wrong)


def test_a_row_to_an_unknown_state_is_refused():
    wrong = refusal(validate_rows, tables.COMPANION, ("a", "b"), (A_TO_B, Row(Trigger.CLEAN, "b", "z")), "a", "b")
    assert (wrong.machine, wrong.state, wrong.trigger) == ("companion", "z", "clean")


@pytest.mark.parametrize(("initial", "final"), [("z", "c"), ("a", "z")])
def test_an_unknown_first_or_last_state_is_refused(initial, final):
    wrong = refusal(validate_rows, tables.PARENT, ("a", "b", "c"), (A_TO_B, B_TO_C), initial, final)
    assert (wrong.machine, wrong.state, wrong.trigger) == ("parent", "z", None)


@pytest.mark.parametrize(
    "second", [A_TO_B, Row(Trigger.START, "a", "c"), Row(Trigger.START, "a", "b", "streaming")]
)
def test_a_second_row_for_a_trigger_and_state_is_refused(second):
    wrong = refusal(validate_rows, tables.PARENT, ("a", "b", "c"), (A_TO_B, B_TO_C, second), "a", "c")
    assert (wrong.machine, wrong.state, wrong.trigger) == ("parent", "a", "start")


def test_a_state_that_cannot_be_reached_is_refused():
    rows = (A_TO_B, B_TO_C, Row(Trigger.FAIL, "d", "c"))
    wrong = refusal(validate_rows, tables.PARENT, ("a", "b", "c", "d"), rows, "a", "c")
    assert (wrong.machine, wrong.state) == ("parent", "d")
    assert "reached" in str(wrong)


def test_a_state_without_a_way_to_cleaned_is_refused():
    rows = (A_TO_B, B_TO_C, Row(Trigger.FAIL, "a", "d"), Row(Trigger.DEFER, "d", "d"))
    wrong = refusal(validate_rows, tables.PARENT, ("a", "b", "c", "d"), rows, "a", "c")
    assert (wrong.machine, wrong.state) == ("parent", "d")
    assert "way to c" in str(wrong)


@pytest.mark.parametrize("kind", MachineKind)
def test_the_agreed_rows_less_any_last_way_to_cleaned_are_refused(kind):
    rows = [row for row in tables.ROWS[kind] if row.source != "failed"]
    wrong = refusal(validate_rows, kind, tables.STATES[kind], rows, tables.INITIAL[kind], tables.FINAL[kind])
    assert (wrong.machine, wrong.state) == (kind, "failed")


def tampered(event: str, **columns: Any) -> dict[str, Classification]:
    return {**CLASSIFICATION, event: CLASSIFICATION[event]._replace(**columns)}


@pytest.mark.parametrize(("column", "kind"), [("parent", tables.PARENT), ("companion", tables.COMPANION)])
def test_a_missing_pair_is_refused(column, kind):
    for event, state in product(EVENTS, tables.STATES[kind]):
        cells = {s: cell for s, cell in getattr(CLASSIFICATION[event], column).items() if s != state}
        wrong = refusal(validate_classification, tampered(event, **{column: cells}), tables.ROWS)
        assert (wrong.machine, wrong.state) == (kind, state)
        assert event in str(wrong)
        assert "missing" in str(wrong)


def test_a_pair_with_an_unknown_state_is_refused():
    cells = {**CLASSIFICATION["kv_ready"].companion, "forwarded": (Choice(Verdict.STAYS),)}
    wrong = refusal(validate_classification, tampered("kv_ready", companion=cells), tables.ROWS)
    assert (wrong.machine, wrong.state) == ("companion", "forwarded")
    assert "unknown state" in str(wrong)


def test_an_unknown_guard_is_refused():
    cell = (Choice(Verdict.STAYS, guard="full_moon"), Choice(Verdict.STAYS))
    wrong = refusal(validate_classification, tampered("kv_ready", absent=cell), tables.ROWS)
    assert "'full_moon'" in str(wrong)


@pytest.mark.parametrize(
    "cell",
    [
        (),
        (Choice(Verdict.STAYS, guard="streaming"),),
        (Choice(Verdict.STAYS), Choice(Verdict.STAYS)),
    ],
    ids=["empty", "only guarded", "a choice that is never reached"],
)
def test_a_cell_must_end_in_its_one_choice_without_a_guard(cell):
    cells = {**CLASSIFICATION["kv_ready"].parent, "deferred": cell}
    wrong = refusal(validate_classification, tampered("kv_ready", parent=cells), tables.ROWS)
    assert "kv_ready" in str(wrong)


def test_a_move_without_its_row_is_refused():
    cells = {**CLASSIFICATION["kv_ready"].companion, "done": (Choice(Verdict.MOVES, Trigger.COMPLETE),)}
    wrong = refusal(validate_classification, tampered("kv_ready", companion=cells), tables.ROWS)
    assert (wrong.machine, wrong.state, wrong.trigger) == ("companion", "done", "complete")


@pytest.mark.parametrize("kind", MachineKind)
def test_no_row_that_an_event_needs_can_be_taken_away_unnoticed(kind):
    needed = {
        (choice.trigger, state)
        for columns in CLASSIFICATION.values()
        for state, cell in (columns.parent if kind is tables.PARENT else columns.companion).items()
        for choice in cell
        if choice.trigger is not None
    }
    for gone in tables.ROWS[kind]:
        rows = {**tables.ROWS, kind: [row for row in tables.ROWS[kind] if row is not gone]}
        if (gone.trigger, gone.source) in needed:
            wrong = refusal(validate_classification, CLASSIFICATION, rows)
            assert (wrong.machine, wrong.state, wrong.trigger) == (kind, gone.source, gone.trigger)
        else:
            validate_classification(CLASSIFICATION, rows)
            wrong = refusal(validate_coupling, tables.COUPLING_ROWS, tables.DEADLINE_ROWS, rows)
            assert (wrong.machine, wrong.state, wrong.trigger) == (kind, gone.source, gone.trigger)


@pytest.mark.parametrize(("column", "kind"), [("parent", "parent"), ("companions", "companion")])
def test_a_coupling_row_with_an_unknown_state_is_refused(column, kind):
    row = tables.COUPLING_ROWS[0]._replace(**{column: ("lost",)})
    wrong = refusal(validate_coupling, [row], (), tables.ROWS)
    assert (wrong.machine, wrong.state) == (kind, "lost")
    assert row.name in str(wrong)


def test_a_coupling_row_that_fires_a_trigger_without_a_row_is_refused():
    row = tables.COUPLING_ROWS[0]._replace(trigger=Trigger.FINISH)
    wrong = refusal(validate_coupling, [row], (), tables.ROWS)
    assert (wrong.machine, wrong.state, wrong.trigger) == ("parent", "deferred", "finish")


def test_a_deadline_in_a_state_that_cannot_fail_is_refused():
    row = tables.DEADLINE_ROWS[0]._replace(states=("done",))
    wrong = refusal(validate_coupling, (), [row], tables.ROWS)
    assert (wrong.machine, wrong.state, wrong.trigger) == ("parent", "done", "fail")


def test_a_state_that_is_classified_twice_is_refused():
    with pytest.raises(ValueError, match="registered is classified twice"):
        tables._spread({("registered",): Choice(Verdict.STAYS), ("running", "registered"): Choice(Verdict.STAYS)})


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("ROWS", {**tables.ROWS, tables.PARENT: (*tables.PARENT_ROWS, tables.PARENT_ROWS[0])}, "registered"),
        ("ROWS", {**tables.ROWS, tables.COMPANION: tables.COMPANION_ROWS[:-1]}, "failed"),
        ("INITIAL", {**tables.INITIAL, tables.PARENT: "born"}, "born"),
        ("FINAL", {**tables.FINAL, tables.COMPANION: "gone"}, "gone"),
        ("CLASSIFICATION", tampered("kv_ready", parent={}), "registered"),
        ("COUPLING_ROWS", (tables.COUPLING_ROWS[0]._replace(companions=("lost",)),), "lost"),
        ("DEADLINE_ROWS", (tables.DEADLINE_ROWS[0]._replace(states=("lost",)),), "lost"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_validation_looks_at_every_table(monkeypatch, name, value, state):
    monkeypatch.setattr(tables, name, value)
    assert refusal(validate).state == state
