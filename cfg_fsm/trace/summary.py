"""The summary of a run, and the same as text for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from cfg_fsm.lines import printable, short


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a run. Plain numbers, strings, lists and dictionaries."""

    parents: dict[str, int]
    """``registered``, ``forwarded`` (at least once), ``finished``, ``failed``, ``aborted`` (by the client) and
    ``live``. ``registered`` is the sum of the last four."""
    failures: dict[str, dict[str, Any]]
    """Those that ``failed`` counts, by reason: ``{"count", "example"}``, the example is a parent's id."""
    aborts: dict[str, Any]
    """Those that ``aborted`` counts, likewise; the example is ``None`` if there are none."""
    ignored: dict[str, dict[str, Any]]
    """By reason: ``{"count", "line"}``, the line is where the first one stands."""
    rejected: dict[str, dict[str, Any]]
    """Likewise."""
    join_wait: dict[str, Any]
    """How long bundles were waited for: from the parent's first output of a wait to the forward.

    ``forwards`` counts all; ``at_once`` those whose bundle was complete when the parent's output came, so that
    there was no wait; ``waited`` the others. ``p50_s, p90_s, p99_s, max_s``, in seconds of the trace, are taken
    over those that waited (nearest rank: a value that occurred), and are ``None`` if none did. ``slowest``: the
    parent that waited longest, the first of them, or ``None``."""
    live: dict[str, Any]
    """``{"parents", "companions", "oldest"}``: requests left over, and the live parents that have been longest
    in their state as ``{"request_id", "state", "age_s", "missing", "sealed"}``."""
    actions: dict[str, int]
    """By type."""
    events: int
    """Events of the trace that were dispatched."""
    ticks: int
    """Ticks of the clock that the run put between them."""
    bad_lines: dict[str, Any]
    """``{"count", "first"}`` of the lines that were skipped; each example is ``file:line: why``."""
    clock: dict[str, dict[str, Any]]
    """Times that are odd: ``behind`` (an event before the time of the one before it), ``jump`` (the time goes on
    by more than a day) and ``undated`` (an event without ``at`` while limits in time are set), each
    ``{"count", "line", "by_s"}`` with the first such event. Empty if there are none."""
    audit_errors: int
    """Records that an observer failed to take."""
    seconds: float
    """Wall time of the run."""
    events_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """The same as one dictionary, times and rates rounded to six places: microseconds."""
        return {name: _rounded(getattr(self, name)) for name in self.__slots__}


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {name: _rounded(one) for name, one in value.items()}
        case list():
            return [_rounded(one) for one in value]
    return value


# -- as text --------------------------------------------------------------------------------------------------


_LONG = 120
_FEW = 10
"""How many missing companions are named."""
_Row = tuple[str, ...]
_Section = tuple[str, _Row, list[_Row]]
"""Title, heads of the columns, rows. Without rows it is left out."""


def _sections(summary: Summary) -> Iterator[_Section]:
    parents = {**summary.parents, "aborted by the client": summary.parents["aborted"]}
    order = ("registered", "forwarded", "finished", "failed", "aborted by the client", "live")
    yield "Parents", ("outcome", "parents"), [(name, f"{parents[name]:,}") for name in order]
    failures = dict(summary.failures)
    if summary.aborts["count"]:
        failures["aborted by the client"] = summary.aborts
    yield (
        "Failures and aborts" if summary.aborts["count"] else "Failures",
        ("reason", "parents", "for example"),
        [(reason, f"{one['count']:,}", _name(str(one["example"]))) for reason, one in failures.items()],
    )
    for title, refused in (("Ignored events", summary.ignored), ("Rejected events", summary.rejected)):
        rows: list[_Row] = [(reason, f"{one['count']:,}", str(one["line"])) for reason, one in refused.items()]
        yield title, ("reason", "events", "first in line"), rows
    wait = summary.join_wait
    labels = {"forwards": "forwards", "at_once": "at once", "waited": "after a wait"}
    rows = [(label, f"{wait[key]:,}", "") for key, label in labels.items()]
    for key in wait:
        if key.endswith("_s") and wait[key] is not None:
            who = _name(wait["slowest"]) if key == "max_s" else ""
            rows.append((f"wait {key[:-2]}", f"{wait[key]:.3f} s", who))
    yield "Join wait", ("", "", ""), rows
    yield "Actions", ("type", "actions"), [(name, f"{count:,}") for name, count in summary.actions.items()]
    live = [_count(summary.live["parents"], "parent"), _count(summary.live["companions"], "companion")]
    yield (
        f"Still live ({' and '.join(live)}), the oldest",
        ("parent", "state", "for", "waiting for"),
        [
            (_name(one["request_id"]), one["state"], f"{one['age_s']:.3f} s", _awaited(one))
            for one in summary.live["oldest"]
        ],
    )
    bad: list[_Row] = [(printable(line),) for line in summary.bad_lines["first"]]
    yield f"Skipped lines ({summary.bad_lines['count']:,}), the first", ("",), bad


def _name(name: str) -> str:
    """As it is shown; where it is very long, its beginning: the columns are as wide as the widest."""
    return short(name, _LONG)


def _awaited(one: dict[str, Any]) -> str:
    awaited = [f"{_name(role)} ({_name(name)})" for role, name in islice(one["missing"].items(), _FEW)]
    if len(one["missing"]) > _FEW:
        awaited.append(f"and {len(one['missing']) - _FEW:,} more")
    return ", ".join(awaited + ([] if one["sealed"] else ["sealing"])) or "-"


_ODD_TIMES = {
    "jump": "goes on by {:,.3f} s at once: if its clock has another unit than the others', deadlines ended"
    " parents there and none comes after it, and waits are not to be trusted",
    "behind": "lies {:,.3f} s before the event ahead of it: it is taken to happen at that time, so waits that"
    " begin or end there are too short",
    "undated": "has no `at` while limits in time are set: it is taken to happen at the time of the event before,"
    " so deadlines that count from it come too early",
}


def render(summary: Summary, terminal: bool) -> str:
    """The summary as text: rich tables for a terminal, else aligned columns without colour."""
    sections = [section for section in _sections(summary) if section[2]]
    took = f"{summary.seconds:.2f} s" if summary.seconds >= 1 else f"{_three(summary.seconds * 1000)} ms"
    last = (
        f"{_count(summary.events, 'event')}, {_count(summary.ticks, 'clock tick')} played, in {took}: "
        f"{_three(summary.events_per_second)} events/s"
    )
    for kind, what in _ODD_TIMES.items():
        if kind in summary.clock:
            odd = summary.clock[kind]
            last += (
                f"\nline {odd['line']} {what.format(odd['by_s'])} ({_count(odd['count'], 'such event')} in all)"
            )
    if summary.audit_errors:
        last += f"\n{_count(summary.audit_errors, 'audit record')} could not be written"
    if terminal:
        return _tables(sections) + last
    return "\n\n".join([*(_columns(*section) for section in sections), last])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _three(number: float) -> str:
    """The number with three significant digits."""
    places = 2 - math.floor(math.log10(number)) if number > 0 else 0
    return f"{round(number, places):,.{max(0, places)}f}"


def _is_number(column: int, heads: _Row) -> bool:
    """Whether a column holds numbers, which stand at the right: the second, but not that of the live parents."""
    return column == 1 and len(heads) < 4


def _columns(title: str, heads: _Row, rows: list[_Row]) -> str:
    table = [heads, *rows] if any(heads) else rows
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    lines = [
        "  ".join(
            f"{cell:>{width}}" if _is_number(i, heads) else f"{cell:<{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _tables(sections: list[_Section]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    with console.capture() as capture:
        for title, heads, rows in sections:
            table = Table(title=Text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, show_header=any(heads))
            for i, head in enumerate(heads):
                justify: Literal["right", "left"] = "right" if _is_number(i, heads) else "left"
                table.add_column(Text(head), justify=justify, overflow="fold")
            for row in rows:
                table.add_row(*(Text(cell) for cell in row))
            console.print(table)
    return capture.get()
