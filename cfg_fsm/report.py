"""The summary of a run as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from cfg_fsm.runner import Summary
from cfg_fsm.traces import printable

_Row = tuple[str, ...]
_Section = tuple[str, _Row, list[_Row]]
"""Title, heads of the columns, rows. Without rows it is left out."""


def _sections(summary: Summary) -> Iterator[_Section]:
    parents = {**summary.parents, "aborted by the client": summary.parents["aborted"]}
    order = ("registered", "forwarded", "finished", "failed", "aborted by the client", "live")
    yield "Parents", ("outcome", "parents"), [(name, f"{parents[name]:,}") for name in order]
    yield (
        "Failures",
        ("reason", "parents", "for example"),
        [
            (reason, f"{one['count']:,}", printable(str(one["example"])))
            for reason, one in summary.failures.items()
        ],
    )
    for title, refused in (("Ignored events", summary.ignored), ("Rejected events", summary.rejected)):
        rows: list[_Row] = [(reason, f"{one['count']:,}", str(one["line"])) for reason, one in refused.items()]
        yield title, ("reason", "events", "first in line"), rows
    wait = summary.join_wait
    labels = {"forwards": "forwards", "at_once": "at once", "waited": "after a wait"}
    rows = [(label, f"{wait[key]:,}") for key, label in labels.items()]
    rows += [
        (f"wait {key[:-2]}", f"{wait[key]:.3f} s") for key in wait if key.endswith("_s") and wait[key] is not None
    ]
    yield "Join wait", ("", ""), rows
    yield "Actions", ("type", "actions"), [(name, f"{count:,}") for name, count in summary.actions.items()]
    live = [
        f"{summary.live[kind]:,} {kind if summary.live[kind] != 1 else kind[:-1]}"
        for kind in ("parents", "companions")
    ]
    yield (
        f"Still live ({' and '.join(live)}), the oldest",
        ("parent", "state", "for", "waiting for"),
        [
            (printable(one["request_id"]), one["state"], f"{one['age_s']:.3f} s", _awaited(one))
            for one in summary.live["oldest"]
        ],
    )
    bad: list[_Row] = [(line,) for line in summary.bad_lines["first"]]
    yield f"Skipped lines ({summary.bad_lines['count']:,}), the first", ("",), bad


def _awaited(one: dict[str, Any]) -> str:
    awaited = [f"{printable(role)} ({printable(name)})" for role, name in one["missing"].items()]
    return ", ".join(awaited + ([] if one["sealed"] else ["sealing"])) or "-"


def render(summary: Summary, terminal: bool) -> str:
    """The summary as text: rich tables for a terminal, else aligned columns without colour."""
    sections = [section for section in _sections(summary) if section[2]]
    last = (
        f"{summary.events:,} events and {summary.ticks:,} clock ticks in {summary.seconds:.2f} s: "
        f"{summary.events_per_second:,.0f} events/s"
    )
    if summary.audit_errors:
        last += f"\n{summary.audit_errors:,} audit records could not be written"
    if terminal:
        return _tables(sections) + last
    return "\n\n".join([*(_columns(*section) for section in sections), last])


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
