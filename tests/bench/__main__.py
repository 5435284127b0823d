"""``python -m tests.bench [--quick] [--write README.md]``: measure, and print one table of ratios."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench import work
from tests.bench.measure import Ratio

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


class Row(NamedTuple):
    """A row of the table: what is divided by what, and the bounds that count as pass and as beyond."""

    key: str
    what: str
    target: float | None = None
    beyond: float | None = None
    at_least: bool = False
    """Whether more is better."""

    def verdict(self, ratio: float) -> str:
        if self.target is None or self.beyond is None:
            return ""
        for bound, word in ((self.beyond, "beyond"), (self.target, "pass")):
            if ratio >= bound if self.at_least else ratio <= bound:
                return word
        return "falls short"

    def bound(self, value: float | None) -> str:
        return "" if value is None else f"{'>=' if self.at_least else '<='} {value:g}"


ROWS = (
    Row("tracker", "drop-in tracker, nobody observes / the original, same calls", 1.5, 1.0),
    Row("tracker_audit", "the same with the in-memory audit", 2.5, 1.8),
    Row("recorded_calls", "drop-in tracker / the original, the large recorded run's calls"),
    Row("events", "events, built and dispatched, same life / the original's calls", 6, 4),
    Row("events_audit", "the same with the in-memory audit / without", 1.6, 1.4),
    Row(
        "transitions_each", "the same life on stock `transitions`, one machine per request / events", 15, 30, True
    ),
    Row("transitions_shared", "the same on one shared machine and `add_model` / events"),
    Row("statemachine", "the same life on `python-statemachine` / events", 50, 100, True),
    Row("json_run", "JSON lines in, actions out (`run`, no audit) / `json.loads` of the same lines", 6, 3),
    Row("many_live", "cost per event with {many} live groups / with 1,000", 1.3, 1.15),
    Row("bytes", "bytes per live parent with two companions / the original", 0.9, 0.6),
    Row("tick", "a tick with nothing due, {many} armed deadlines / with 1,000", 1.2, 1.0),
    Row("churn", "memory after {churn} lives in a window of 1,000, collector disabled / before", 1.05, 1.0),
    Row("growth", "{groups} groups in random order, last tenth of the events / first", 2, 1.2),
    Row(
        "large_group", "cost per companion in a group of {large} / of a quarter, the worst of four orders", 2, 1.2
    ),
)


def table(ratios: dict[str, Ratio], scale: work.Scale) -> str:
    """The table as Markdown."""
    lines = ["| what | ratio | spread | target | beyond | |", "|---|---|---|---|---|---|"]
    numbers = {name: f"{getattr(scale, name):,}" for name in ("many", "churn", "groups", "large")}
    for row in ROWS:
        ratio = ratios[row.key]
        spread = ratio.spread if ratio.pairs > 1 else ""
        cells = (row.what.format(**numbers), f"{ratio.value:.3g}", spread, row.bound(row.target))
        lines.append(f"| {' | '.join((*cells, row.bound(row.beyond), row.verdict(ratio.value)))} |")
    return "\n".join(lines)


def main() -> int:
    """Measure everything; exit code 0 whatever the ratios are."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything: under a minute")
    parser.add_argument("--only", metavar="NAME", help="one benchmark: " + ", ".join(w.__name__ for w in work.ALL))
    parser.add_argument("--write", metavar="FILE", type=Path, help="put the table into FILE, between its marks")
    arguments = parser.parse_args()
    scale = work.Scale(arguments.quick)
    chosen = [w for w in work.ALL if arguments.only in (None, w.__name__)]
    if not chosen:
        parser.error(f"no benchmark is called {arguments.only}")
    ratios: dict[str, Ratio] = {}
    started = time.monotonic()
    for measure in chosen:
        print(f"{measure.__name__} ...", file=sys.stderr, flush=True)
        ratios |= measure(scale)
    if arguments.only is not None:
        for name, ratio in ratios.items():
            print(f"{name:20} {ratio.value:.3f}  {ratio.spread}")
        return 0
    text = table(ratios, scale)
    where = f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}"
    print(f"\n{text}\n\n{where}; {time.monotonic() - started:.0f} s")
    short = [row.key for row in ROWS if row.verdict(ratios[row.key].value) == "falls short"]
    print("all targets are reached" if not short else f"falls short: {', '.join(short)}")
    if arguments.write is not None:
        page = arguments.write.read_text()
        head, rest = page.split(BEGIN)
        arguments.write.write_text(f"{head}{BEGIN}\n{text}\n\nMeasured with {where}.\n{END}{rest.split(END)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
