"""Each contradiction in the tables is refused by name. (``test_changed_tables`` tries it at import.)"""

import runpy

import pytest

from cfg_fsm import events as ev
from cfg_fsm import tables
from cfg_fsm.engine import group, handlers, messages, resolved, routes
from cfg_fsm.engine.group import ROW_EFFECTS
from cfg_fsm.engine.validate import validate_classification, validate_coupling, validate_ticks
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.states import FailureReason, IgnoredReason, RejectedReason, Trigger
from cfg_fsm.tables import CLASSIFICATION, Choice, Quantifier, Verdict

STAYS, IGNORED, REJECTED = Verdict.STAYS, Verdict.IGNORED, Verdict.REJECTED


def refused(match):
    return pytest.raises(InvalidDefinition, match=match)


def with_cells(event, column, **cells):
    """The classification with other cells of an event."""
    columns = CLASSIFICATION[event]
    return {**CLASSIFICATION, event: columns._replace(**{column: {**getattr(columns, column), **cells}})}


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (Choice(STAYS, Trigger.FAIL), "'stays' has a trigger, fail"),
        (Choice(STAYS, None, IgnoredReason.ENDED), "'stays' has a reason or an answer"),
        (Choice(STAYS, answer=("abort_requests",)), "'stays' has a reason or an answer"),
        (Choice(IGNORED), "'ignored' has no reason"),
        (Choice(IGNORED, None, RejectedReason.SEALED), "'ignored' has the reason sealed"),
        (Choice(REJECTED, None, IgnoredReason.ENDED), "'rejected' has the reason ended"),
    ],
)
def test_a_choice_must_fit_its_verdict(choice, why):
    with refused(f"kv_ready: a choice that is {why}"):
        validate_classification(
            with_cells("kv_ready", "parent", deferred=(choice,), running=(choice,)), tables.ROWS
        )


@pytest.mark.parametrize(
    ("column", "state", "choice", "why"),
    [
        ("parent", "cleaned", Choice(STAYS), "'stays' is not for parent cleaned"),
        ("companion", "running", Choice(Verdict.MOVES), "'moves' is not for companion running"),
    ],
)
def test_where_nobody_lives_nothing_moves_and_where_somebody_lives_nobody_is_made(column, state, choice, why):
    with refused(f"kv_ready: {why}"):
        validate_classification(with_cells("kv_ready", column, **{state: (choice,)}), tables.ROWS)


@pytest.mark.parametrize(
    ("row", "change", "why"),
    [
        (1, {"quantifier": Quantifier.EVERY}, "companion_failed: fail cannot follow from 'every companion'"),
        (2, {"reason": None}, "parent_ended: a reason is for the failure of companions"),
        (0, {"reason": FailureReason.ERROR}, "bundle_complete: a reason is for the failure of companions"),
    ],
)
def test_a_coupling_row_must_know_whom_it_fires_on_and_why(row, change, why):
    with refused(why):
        validate_coupling([tables.COUPLING_ROWS[row]._replace(**change)], (), tables.ROWS)


def test_a_deadline_row_names_a_limit_in_time():
    with refused("confirm_s: there is no such limit in time"):
        validate_coupling((), [tables.DEADLINE_ROWS[0]._replace(limit="confirm_s")], tables.ROWS)


def test_ticks_fail_where_a_deadline_counts_and_nowhere_else():
    ticked = CLASSIFICATION["clock_ticked"]
    with refused("clock_ticked: companion running fails without a deadline row"):
        validate_ticks(ticked, tables.DEADLINE_ROWS[:-1])
    with refused("clock_ticked: companion done has a deadline row and does not fail"):
        validate_ticks(ticked, [*tables.DEADLINE_ROWS, tables.DEADLINE_ROWS[-1]._replace(states=("done",))])


def test_a_coupling_row_has_an_effect_and_an_effect_a_row():
    some = dict(list(ROW_EFFECTS.items())[1:])
    with refused("bundle_complete: there is no effect for forward of the parent"):
        resolved.bind_effects(some)
    with refused("no coupling row fires start of the companion"):
        resolved.bind_effects({**ROW_EFFECTS, ("companion", Trigger.START): ROW_EFFECTS["group", Trigger.CLEAN]})


def test_a_cell_has_an_effect_and_an_effect_a_cell(monkeypatch):
    with refused("kv_ready: there is no effect for start"):
        routes.Option("kv_ready", Choice(Verdict.MOVES, Trigger.START))
    monkeypatch.setitem(handlers.EFFECTS, ("kv_ready", Trigger.START), handlers.EFFECTS["kv_ready", None])
    with refused("kv_ready: no cell brings the effect for start"):
        routes._check_effects()


def test_a_refusal_brings_an_abort_or_a_release():
    with refused("kv_ready: a refusal cannot bring 'forward_parent'"):
        routes.Option("kv_ready", Choice(IGNORED, None, IgnoredReason.ENDED, answer=("forward_parent",)))


@pytest.mark.parametrize(
    ("event", "guard", "state"),
    [("kv_ready", "streaming", "running"), ("parent_output_ready", "streaming", "cleaned")],
    ids=["of another event", "where nobody lives"],
)
def test_a_guard_can_be_asked_where_it_is_asked(monkeypatch, event, guard, state):
    last = CLASSIFICATION[event].parent[state]
    guarded = (last[-1]._replace(guard=guard), *last)
    monkeypatch.setattr(tables, "CLASSIFICATION", with_cells(event, "parent", **{state: guarded}))
    with refused(f"{event}: the guard '{guard}' cannot be asked here"):
        routes._check_guards()


def test_an_event_is_about_whom_its_fields_name(monkeypatch):
    with refused("clock_ticked: it is not about the request it names"):
        routes.Named(ev.ClockTicked)
    changed = CLASSIFICATION["clock_ticked"]._replace(about=tables.Subjects.BOUND)
    monkeypatch.setitem(tables.CLASSIFICATION, "clock_ticked", changed)
    with refused("clock_ticked: it is not about every request that is bound"):
        routes.Several(ev.ClockTicked)


def test_a_record_has_what_the_rows_name(monkeypatch):
    monkeypatch.setattr(tables, "DEADLINE_ROWS", (tables.DEADLINE_ROWS[0]._replace(since="born_at"),))
    with refused("parent: its record has no 'born_at'"):
        group._check_attributes()


def test_a_deadline_has_a_sentence(monkeypatch):
    monkeypatch.setattr(tables, "DEADLINE_ROWS", (tables.DEADLINE_ROWS[0]._replace(reason=FailureReason.ERROR),))
    with refused("deferred_s: there is no sentence for error"):
        runpy.run_path(messages.__file__)
