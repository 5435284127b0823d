"""Ours against the original, call by call: equal, except where a row of one table says exactly how it differs.

``TABLE`` holds the permitted differences. A row does not excuse a wrong result; it says what the original would
have answered had its fault not been there, mostly by keeping from it the one call that it must not get.
``Guarded`` is the original with the rows applied, and to that ours is equal in every result, always.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections import Counter
from typing import Any, NamedTuple

import budget
import pytest
from budget import part_of
from helpers import Payload
from hypothesis import given, settings
from paths import DATA
from real_tracker import ANY_CALLS, IDS, METHODS, QUERIES, Call, Clock, calls_number, make, original_class

from cfg_fsm import Limits
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker
from tests.bench import original

#: In every comparison here: how long a parent may stay deferred, and how long an ended id is remembered.
LIMIT_S = 3.0
REMEMBERED_S = 8.0


# -- the original, guarded -----------------------------------------------------------------------------------


class Row:
    """One permitted difference. By default it permits nothing."""

    name: str
    #: Calls in which this row, and no other, makes the difference.
    shows: list[Call]

    def withholds(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> bool:
        """Whether the original must not get this call; its result is ``None`` then."""
        return False

    def before(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> None:
        """Take notes, or repair the original, before it gets the call."""

    def after(self, guard: Guarded, method: str, args: tuple[Any, ...], result: Any) -> Any:
        """The result as it should have been."""
        return result

    def sees(self, guard: Guarded, seen: dict[str, Any]) -> None:
        """What an operator should have seen, beyond what the original can tell."""


class Guarded:
    """The original with rows of the table applied to it. Without rows it is the original."""

    def __init__(self, table: tuple[type[Row], ...], clock: Clock) -> None:
        self.original = original_class()()
        self.clock = clock
        self.rows = [row() for row in table]
        self.applied: Counter[str] = Counter()
        self.superseded: dict[str, list[str]] = {}
        self.ended_at: dict[str, float] = {}
        self.deferred_at: dict[str, float] = {}
        self.opened: dict[str, int] = {}

    def __getattr__(self, method: str) -> Any:
        return lambda *args: self._make(method, args)

    def _make(self, method: str, args: tuple[Any, ...]) -> Any:
        for row in self.rows:
            if row.withholds(self, method, args):
                self.applied[row.name] += 1
                return None
        for row in self.rows:
            row.before(self, method, args)
        result = [] if method == "pop_expired_parents" else getattr(self.original, method)(*args)
        for row in self.rows:
            amended = row.after(self, method, args, result)
            self.applied[row.name] += amended is not result
            result = amended
        self._take_notes()
        return result

    def _take_notes(self) -> None:
        """When each parent that is pending was deferred, and the order in which the live ones came."""
        pending = self.original._pending_parents
        self.deferred_at = {parent: self.deferred_at.get(parent, self.clock.now) for parent in pending}
        live = dict.fromkeys((*self.original._companion_map, *pending))
        number = max(self.opened.values(), default=0)
        self.opened = {parent: self.opened.get(parent, number + 1) for parent in live}

    def is_live_parent(self, request_id: str) -> bool:
        return request_id in self.opened

    def roles(self, parent_id: str) -> dict[str, str]:
        return dict(self.original.get_companion_request_ids(parent_id))

    def goes_with(self, parent_id: str) -> list[str]:
        """What the cleanup of this parent returns."""
        return [*self.roles(parent_id).values(), *self.superseded.get(parent_id, [])]

    def ends(self, method: str, args: tuple[Any, ...]) -> list[str]:
        """The groups that the call ends, in the order in which it names them."""
        named = args[0] if method == "abort_parents" else [args[0]] if method == "cleanup_parent" else []
        return [parent for parent in dict.fromkeys(named) if self.is_live_parent(parent)]

    def seen(self) -> dict[str, Any]:
        """What an operator can see of it."""
        original = self.original
        seen = {
            "deferred": set(original._pending_parents),
            "companions": {parent: self.roles(parent) for parent in self.opened},
            "missing": {
                parent: {role: c for role, c in self.roles(parent).items() if not original.is_companion_done(c)}
                for parent in self.opened
            },
            "done without output": 0,
            "next deadline": None,
        }
        for row in self.rows:
            row.sees(self, seen)
        return seen


# -- the table -----------------------------------------------------------------------------------------------


class RoleTakenOver(Row):
    """The old companion leaves every map at once. Its id comes back with the group's, after the companions',
    unless it was used again since."""

    name = "role registered again with another id"
    shows = [
        ("register_companion", ("p", "neg", "c")),
        ("register_companion", ("p", "neg", "d")),
        ("is_companion", ("c",)),
        ("cleanup_parent", ("p",)),
        ("is_companion", ("c",)),
    ]

    def before(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> None:
        if method == "register_companion":
            parent, role, companion = args
            old = guard.roles(parent).get(role)
            if old not in (None, companion):
                guard.superseded.setdefault(parent, []).append(old)
                guard.original._companion_ids.discard(old)
                guard.original._companion_to_parent.pop(old, None)
                guard.original._companion_outputs.pop(old, None)
                guard.original._done[parent].discard(old)
                guard.applied[self.name] += 1
        comes_alive = {"register_companion": args[::2], "register_parent": args, "defer_parent": args[:1]}
        for request_id in comes_alive.get(method, ()):
            for ids in guard.superseded.values():
                if request_id in ids:
                    ids.remove(request_id)

    def after(self, guard: Guarded, method: str, args: tuple[Any, ...], result: Any) -> Any:
        more = [old for parent in guard.ends(method, args) for old in guard.superseded.pop(parent, [])]
        if method == "abort_parents":
            more = [old for old in more if old not in args[0]]
        return [*result, *more] if more else result


class CompanionTwice(Row):
    """Such a registration does nothing at all."""

    name = "companion id under two parents or in two roles"
    shows = [
        ("register_companion", ("p", "neg", "c")),
        ("register_companion", ("q", "neg", "c")),
        ("register_companion", ("p", "img", "c")),
        ("get_parent_id", ("c",)),
        ("has_companions", ("q",)),
        ("cleanup_parent", ("q",)),
        ("is_companion", ("c",)),
        ("all_companions_done", ("p",)),
        ("cleanup_parent", ("p",)),
    ]

    def withholds(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> bool:
        if method != "register_companion":
            return False
        parent, role, companion = args
        return guard.original.is_companion(companion) and guard.roles(parent).get(role) != companion


class ParentAndCompanion(Row):
    """Such a registration does nothing at all, nor does a defer under a companion's id."""

    name = "parent id that is a companion's, or the reverse"
    shows = [
        ("register_companion", ("p", "neg", "c")),
        ("register_parent", ("c",)),
        ("register_companion", ("c", "neg", "d")),
        ("register_companion", ("q", "neg", "p")),
        ("register_companion", ("q", "neg", "q")),
        ("defer_parent", ("c", Payload(), 0)),
        ("has_companions", ("c",)),
        ("is_companion", ("p",)),
        ("pop_pending_parent", ("c",)),
    ]

    def withholds(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> bool:
        is_companion = guard.original.is_companion
        if method in ("register_parent", "defer_parent"):
            return is_companion(args[0])
        if method == "register_companion":
            parent, _, companion = args
            return is_companion(parent) or guard.is_live_parent(companion) or parent == companion
        return False


class OutputOfNobody(Row):
    """Such an output is not kept."""

    name = "output of an unknown or cleaned id"
    shows = [
        ("set_companion_output", ("c", Payload())),
        ("register_companion", ("p", "neg", "c")),
        ("get_companion_outputs", ("p",)),
    ]

    def withholds(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> bool:
        return method == "set_companion_output" and not guard.original.is_companion(args[0])


class DeferAfterTheEnd(Row):
    """Such a defer is not kept, as long as the end of the group is remembered."""

    name = "defer of a parent whose group ended"
    shows = [
        ("register_companion", ("p", "neg", "c")),
        ("cleanup_parent", ("p",)),
        ("defer_parent", ("p", Payload(), 0)),
        ("pop_pending_parent", ("p",)),
    ]

    def withholds(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> bool:
        if method != "defer_parent" or guard.is_live_parent(args[0]) or args[0] not in guard.ended_at:
            return False
        return guard.clock.now < guard.ended_at[args[0]] + REMEMBERED_S

    def before(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> None:
        for parent in guard.ends(method, args):
            if guard.original.has_companions(parent):
                guard.ended_at[parent] = guard.clock.now


class DoneWithoutOutput(Row):
    """No result differs; but it is seen that such a companion's output is missing."""

    name = "completed without an output"
    shows = [("register_companion", ("p", "neg", "c")), ("on_companion_completed", ("c",))]

    def sees(self, guard: Guarded, seen: dict[str, Any]) -> None:
        outputs = guard.original._companion_outputs
        for parent in guard.opened:
            for role, companion in guard.roles(parent).items():
                if guard.original.is_companion_done(companion) and outputs.get(companion) is None:
                    seen["missing"][parent][role] = companion
                    seen["done without output"] += 1
                    guard.applied[self.name] += 1


class SecondOutput(Row):
    """The second output of a companion is not kept; nothing (``None``) is no output."""

    name = "second output of a companion"
    shows = [
        ("register_companion", ("p", "neg", "c")),
        ("set_companion_output", ("c", Payload())),
        ("set_companion_output", ("c", Payload())),
        ("get_companion_outputs", ("p",)),
    ]

    def withholds(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> bool:
        return (
            method == "set_companion_output"
            and guard.original.is_companion(args[0])
            and guard.original._companion_outputs.get(args[0]) is not None
        )


class DictionaryOfTheCallers(Row):
    """The result is equal when it is returned; later it stays as it was."""

    name = "roles handed out by get_companion_request_ids"
    shows = [
        ("register_companion", ("p", "neg", "c")),
        ("get_companion_request_ids", ("p",)),
        ("register_companion", ("p", "img", "d")),
    ]

    def after(self, guard: Guarded, method: str, args: tuple[Any, ...], result: Any) -> Any:
        return dict(result) if method == "get_companion_request_ids" else result


class OrderOfAbort(Row):
    """The same ids; those that come with several parents stand in the order in which the parents were given."""

    name = "order of abort_parents"
    many = [f"parent {number}" for number in range(20)]
    shows = [
        *(("register_companion", (parent, "neg", f"companion of {parent}")) for parent in many),
        ("abort_parents", (many,)),
        *(("register_companion", (parent, "neg", f"companion of {parent}")) for parent in many),
        ("abort_parents", (many[::-1],)),
    ]

    def before(self, guard: Guarded, method: str, args: tuple[Any, ...]) -> None:
        self.by_parent = [guard.goes_with(parent) for parent in guard.ends(method, args)]

    def after(self, guard: Guarded, method: str, args: tuple[Any, ...], result: Any) -> Any:
        if method != "abort_parents" or sum(bool(ids) for ids in self.by_parent) < 2:
            return result
        with_parents = dict.fromkeys(request_id for ids in self.by_parent for request_id in ids)
        ordered = [*args[0], *(request_id for request_id in with_parents if request_id not in args[0])]
        return ordered if sorted(ordered) == sorted(result) else result


class Deadline(Row):
    """There is a deadline for a deferred parent."""

    name = "deferred for ever"
    shows = [
        ("register_companion", ("p", "neg", "c")),
        ("defer_parent", ("p", Payload(), 0)),
        ("wait", (LIMIT_S,)),
        ("pop_expired_parents", (None,)),
        ("pop_pending_parent", ("p",)),
    ]

    def after(self, guard: Guarded, method: str, args: tuple[Any, ...], result: Any) -> Any:
        if method != "pop_expired_parents":
            return result
        timeout_s = LIMIT_S if args[0] is None else args[0]
        due = [
            (deferred_at, guard.opened[parent], parent)
            for parent, deferred_at in guard.deferred_at.items()
            if deferred_at + timeout_s <= guard.clock.now
        ]
        return [
            (parent, {**guard.original.pop_pending_parent(parent), "deferred_at": deferred_at})
            for deferred_at, _, parent in sorted(due)
        ]

    def sees(self, guard: Guarded, seen: dict[str, Any]) -> None:
        if guard.deferred_at:
            seen["next deadline"] = min(guard.deferred_at.values()) + LIMIT_S
            guard.applied[self.name] += 1


#: Every permitted difference, in the order of the docstring of the class.
TABLE: tuple[type[Row], ...] = (
    RoleTakenOver,
    CompanionTwice,
    ParentAndCompanion,
    OutputOfNobody,
    DeferAfterTheEnd,
    DoneWithoutOutput,
    SecondOutput,
    DictionaryOfTheCallers,
    OrderOfAbort,
    Deadline,
)


# -- the comparison ------------------------------------------------------------------------------------------


class Raised(NamedTuple):
    """Stands for a result where the original raised."""

    what: str


class Comparison:
    """Ours and the original, guarded by ``table``, under the same calls."""

    def __init__(self, table: tuple[type[Row], ...] = TABLE, *, observed: bool = False) -> None:
        self.clock = Clock()
        self.ours = CfgCompanionTracker(
            clock=self.clock,
            limits=Limits(deferred_s=LIMIT_S, tombstone_s=REMEMBERED_S),
            observers=[lambda record: None] if observed else (),
        )
        self.guarded = Guarded(table, self.clock)
        self.results: list[tuple[Any, Any]] = []

    def results_differ(self, calls: list[Call]) -> str | None:
        """The first difference in a result, when it was returned or later; ``None``: all are equal."""
        for number, call in enumerate(calls):
            ours = make(self.ours, self.clock, call)  # what ours raises is no result
            if call[0] == "wait":
                continue
            try:
                guarded = make(self.guarded, self.clock, call)
            except AssertionError as error:
                guarded = Raised(str(error))
            if ours != guarded:
                return f"call {number} {call}: ours {ours!r}, the original {guarded!r}"
            self.results.append((ours, guarded))
            for query in QUERIES:
                for request_id in IDS:
                    ours = getattr(self.ours, query)(request_id)
                    guarded = getattr(self.guarded.original, query)(request_id)
                    if ours != guarded:
                        after = f"after call {number} {call}: {query}({request_id!r})"
                        return f"{after}: ours {ours!r}, the original {guarded!r}"
        for ours, guarded in self.results:
            if ours != guarded:
                return f"later: ours {ours!r}, the original {guarded!r}"
        return None

    def views_differ(self, calls: list[Call]) -> str | None:
        """The first difference in what an operator sees after a call; ``None``: there is none."""
        for number, call in enumerate(calls):
            make(self.ours, self.clock, call)
            if call[0] == "wait":
                continue
            make(self.guarded, self.clock, call)
            ours, guarded = self.seen(), self.guarded.seen()
            if ours != guarded:
                return f"after call {number} {call}: ours {ours}, the original {guarded}"
        return None

    def seen(self) -> dict[str, Any]:
        """What an operator can see of ours."""
        views = self.ours.requests()
        counters = self.ours.counters()
        parents = [view.request_id for view in views if view.machine == "parent"]
        companions = [view for view in views if view.machine == "companion"]
        assert (counters["live_parents"], counters["live_companions"]) == (len(parents), len(companions))
        deferred = {view.request_id for view in views if view.state == "deferred"}
        assert counters["deferred"] == len(deferred)
        return {
            "deferred": deferred,
            "companions": {
                parent: {view.role: view.request_id for view in companions if view.parent_id == parent}
                for parent in parents
            },
            "missing": {view.request_id: view.missing for view in views if view.machine == "parent"},
            "done without output": counters["done_without_output"],
            "next deadline": self.ours.next_deadline(),
        }


def difference(table: tuple[type[Row], ...], calls: list[Call]) -> str | None:
    """The first difference of either kind."""
    return Comparison(table).results_differ(calls) or Comparison(table).views_differ(calls)


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """Refusals are logged, here by the thousand."""
    caplog.set_level(logging.ERROR, logger="cfg_fsm")


# -- recorded calls ------------------------------------------------------------------------------------------


def recorded(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "how_many"),
    [("omni-small.calls.jsonl", 1_432), ("omni-large.calls.jsonl.gz", 71_812)],
    ids=["small", "large"],
)
def test_every_recorded_call_has_the_recorded_result(name, how_many):
    calls = recorded(name)
    assert len(calls) == how_many
    original, clock = original_class()(), Clock()
    ours = CfgCompanionTracker(clock=clock)
    for number, call in enumerate(calls):
        clock.now = call["at"]
        results = [getattr(t, call["method"])(*call["args"], **call["kwargs"]) for t in (ours, original)]
        assert results == [call["returns"]] * 2, f"call {number}: {call}"
    live = {view.request_id for view in ours.requests()}
    assert live == {*original._companion_map, *original._pending_parents, *original._companion_ids}
    assert ours.counters()["live"] == len(live)


# -- random calls --------------------------------------------------------------------------------------------


@settings(max_examples=part_of(300))
@given(ANY_CALLS)
def test_every_result_of_any_calls_is_equal_but_for_the_table(calls):
    assert Comparison().results_differ(calls) is None


@settings(max_examples=part_of(200))
@given(ANY_CALLS)
def test_what_an_operator_sees_after_any_call_is_equal_but_for_the_table(calls):
    assert Comparison().views_differ(calls) is None


def test_so_it_is_for_many_long_lists_of_calls_which_meet_every_row_of_the_table():
    applied: Counter[str] = Counter()
    for seed in range(part_of(1_000)):
        comparison = Comparison(observed=seed % 2 == 0)
        assert comparison.results_differ(calls_number(seed)) is None, f"seed {seed}"
        applied.update(comparison.guarded.applied)
    for seed in range(1_000, 1_000 + part_of(300)):
        comparison = Comparison(observed=seed % 2 == 0)
        assert comparison.views_differ(calls_number(seed)) is None, f"seed {seed}"
        applied.update(comparison.guarded.applied)
    enough = 100 if budget.full else 20
    assert {row.name: applied[row.name] >= enough for row in TABLE} == {row.name: True for row in TABLE}


@settings(max_examples=part_of(200))
@given(ANY_CALLS)
def test_no_calls_raise_into_the_orchestrator(calls):
    """Not even where the original does."""
    clock, ours = Clock(), CfgCompanionTracker(observers=[lambda record: None])
    for call in calls:
        make(ours, clock, call)


def test_where_the_original_raises_ours_goes_on():
    calls: list[Call] = [
        ("register_companion", ("p", "neg", "c")),
        ("register_companion", ("p", "neg", "d")),
        ("cleanup_parent", ("p",)),
    ]
    last: Call = ("on_companion_completed", ("c",))
    original, ours, clock = original_class()(), CfgCompanionTracker(), Clock()
    for call in calls:
        make(original, clock, call)
        make(ours, clock, call)
    with pytest.raises(AssertionError):
        make(original, clock, last)
    assert make(ours, clock, last) is None


# -- the table itself ----------------------------------------------------------------------------------------


def first_column_of_the_docstring() -> str:
    """The first column of the docstring's table, as one line."""
    lines = (CfgCompanionTracker.__doc__ or "").splitlines()
    top, head, bottom = (number for number, line in enumerate(lines) if line.strip().startswith("===="))
    assert head == top + 2
    indent = len(lines[top]) - len(lines[top].lstrip())
    width = len(lines[top].split()[0])
    cells = (line[indent : indent + width].strip().replace("``", "") for line in lines[head + 1 : bottom])
    return " ".join(cell for cell in cells if cell)


def test_the_table_has_the_rows_of_the_docstring():
    assert first_column_of_the_docstring() == " ".join(row.name for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_row_is_needed_and_is_enough_for_its_calls(row):
    others = tuple(other for other in TABLE if other is not row)
    assert difference((), row.shows) is not None, "ours and the original as it is do not differ"
    assert difference(others, row.shows) is not None, "the other rows permit the difference as well"
    assert difference((row,), row.shows) is None
    assert difference(TABLE, row.shows) is None


def test_calls_that_no_row_is_about_reach_the_original_as_they_are():
    """An ordinary request, and one that is aborted: every result is the original's own."""
    calls = [
        ("register_companion", ("p", "neg", "c")),
        ("register_companion", ("p", "img", "d")),
        ("has_companions", ("p",)),
        ("all_companions_done", ("p",)),
        ("defer_parent", ("p", Payload(), 0)),
        ("set_companion_output", ("c", Payload())),
        ("on_companion_completed", ("c",)),
        ("set_companion_output", ("d", Payload())),
        ("on_companion_completed", ("d",)),
        ("pop_pending_parent", ("p",)),
        ("get_companion_outputs", ("p",)),
        ("cleanup_parent", ("c",)),
        ("cleanup_parent", ("p",)),
        ("cleanup_parent", ("p",)),
        ("register_companion", ("q", "neg", "c")),
        ("abort_parents", (["q", "elsewhere", "c"],)),
        ("abort_parents", (["q"],)),
        *((method, (request_id,)) for method in ("is_companion", "get_parent_id") for request_id in IDS),
    ]
    assert Comparison(()).results_differ(calls) is None
    comparison = Comparison()
    assert comparison.results_differ(calls) is None
    assert not +comparison.guarded.applied


def test_there_are_fifteen_methods_and_they_are_those_of_the_original():
    methods = {name for name in vars(original_class()) if not name.startswith("_")}
    assert methods == set(METHODS)
    assert len(METHODS) == 15


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("true", pytest.fail.Exception), ("", pytest.skip.Exception), (None, pytest.skip.Exception)],
)
def test_without_the_wheel_comparisons_are_skipped_but_fail_where_changes_are_checked(monkeypatch, ci, outcome):
    original.original_class.cache_clear()
    monkeypatch.setattr(original, "DISTRIBUTION", "no-such-distribution-as-this")
    monkeypatch.delenv("CI", raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="make setup"):
        original_class()
