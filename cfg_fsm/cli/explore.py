"""The command ``cfg-fsm explore``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfg_fsm.cli.console import BROKEN, OK, naming, put, say, user_errors
from cfg_fsm.cli.limits import parse_limits
from cfg_fsm.cli.places import Input, is_terminal, place_at, place_of, refuse_input, refuse_same
from cfg_fsm.cli.signals import exit_code, word
from cfg_fsm.limits import Limits
from cfg_fsm.lines import printable

if TYPE_CHECKING:  # the explorer is loaded when it is asked for: the other commands start without it
    from cfg_fsm.explore.scenario import Faults, Scenario
    from cfg_fsm.explore.search import Progress, Result

TRUNCATED = 3
EXIT_CODES = (
    "Exit codes: 0 no violation; 1 a rule is broken; 2 bad usage; 3 truncated, and nothing broken so far; "
    "130 interrupted, 143 terminated, 129 hung up."
)
_NAMES = "lost, duplicated, reordered, reused, late, strange"
_BAR_EVERY_S = 0.2
_SHORTEST_S, _LONGEST_S = 0.001, 1_000_000


def explore(
    companions: Annotated[int, typer.Option(min=0, max=4, help="Companions of each parent.")] = 1,
    parents: Annotated[int, typer.Option(min=1, max=3, help="Parents.")] = 1,
    faults: Annotated[
        str, typer.Option(metavar="NAMES", help=f"What may go wrong: all, none, or some of {_NAMES}.")
    ] = "all",
    budget: Annotated[int, typer.Option(min=0, help="How often each kind of fault may happen.")] = 1,
    together: Annotated[
        int | None, typer.Option(min=0, help="How many faults there may be in all; as many as each may be.")
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMITS",
            help="Limits, as for run; none: without any. If not given: all four times, in seconds from 1 to 4.",
        ),
    ] = None,
    seconds: Annotated[
        int | None,
        typer.Option(min=0, help="How many single seconds may pass; 1, or 0 without limits in time."),
    ] = None,
    unsealed: Annotated[
        bool | None,
        typer.Option("--unsealed/--announced", help="Only groups of this kind; both kinds if not given."),
    ] = None,
    streaming: Annotated[
        bool | None,
        typer.Option("--streaming/--not-streaming", help="Only parents of this kind; both kinds if not given."),
    ] = None,
    lean: Annotated[
        bool,
        typer.Option(
            "--lean", help="Leave out what multiplies: another replica, heartbeats, the reasons length and abort."
        ),
    ] = False,
    symmetry: Annotated[
        bool, typer.Option("--symmetry", help="Take companions that differ only in their role for the same.")
    ] = False,
    max_states: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop at so many unique states; if not given, at 5,000,000. It always stops at 100,000 states of "
            "the engine. Together these bound the memory, to some 3.5 GB.",
        ),
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(min=0.0, help="Stop after so long.")] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a violation to this file, as a case to be replayed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Drive the real registry through every order of events, and hold every step against the rules.

    Whatever a scheduler may send for the given requests is sent in every order, with events lost, doubled, late
    and out of order. The shortest sequence that breaks a rule is shown step by step.

    \b
    Examples:
      cfg-fsm explore --companions 2 --limits none --together 1 --lean
      cfg-fsm explore --parents 2 --faults late --limits deferred_s=2,total_s=3
      cfg-fsm explore --export found.json
    """
    from cfg_fsm.explore import report
    from cfg_fsm.explore.scenario import SHORT_LIMITS, Scenario

    with user_errors():
        inputs: list[Input] = []
        bounds = SHORT_LIMITS
        if limits is not None:
            bounds = Limits() if limits == ["none"] else parse_limits(limits, inputs)
            _refuse_extremes(bounds)
        if export is not None:
            refuse_input(str(export), place_at(export), inputs)
            refuse_same(str(export), place_at(export), [place_of(sys.stdout)])
        passes = seconds if seconds is not None else int(bounds.bounds_time)
        scenario = Scenario(
            parents=parents,
            companions=companions,
            announced=(True, False) if unsealed is None else (not unsealed,),
            streaming=(False, True) if streaming is None else (streaming,),
            faults=_faults(faults, budget, together),
            limits=bounds,
            passes=passes,
            symmetry=symmetry,
        )
        if lean:
            scenario = scenario.lean()
        result, stop = _run(scenario, max_states, max_seconds)
        lines = [report.text(result), report.never(result.coverage)]
        if result.violation is not None:
            lines += ["", _tell(scenario, result, export)]
        put(json.dumps(report.to_dict(result), indent=2) if as_json else "\n".join(lines))
    if stop is not None:
        say(word(stop))
        raise typer.Exit(exit_code(stop))
    raise typer.Exit(BROKEN if result.violation is not None else TRUNCATED if result.truncated is not None else OK)


def _refuse_extremes(limits: Limits) -> None:
    """Beside a limit that is very long or short a second is nothing, or is everything, to a float; what would then
    be found is no fault of the engine."""
    for name in Limits.model_fields:
        value = getattr(limits, name)
        if name.endswith("_s") and value is not None and not _SHORTEST_S <= value <= _LONGEST_S:
            why = f"{name}: must lie between {_SHORTEST_S:g} and {_LONGEST_S:,} s here"
            raise typer.BadParameter(why, param_hint="'--limits'")


def _faults(names: str, budget: int, together: int | None) -> Faults:
    from cfg_fsm.explore.scenario import FAULTS, Faults

    chosen = {"all": FAULTS, "none": ()}.get(names) or tuple(filter(None, map(str.strip, names.split(","))))
    if names == "none":
        chosen = ()
    for name in chosen:
        if name not in FAULTS:
            raise typer.BadParameter(
                f"there is no fault '{printable(name)}'; there are: {_NAMES}", param_hint="'--faults'"
            )
    return Faults.of(chosen, budget, together)


def _run(
    scenario: Scenario, max_states: int | None, max_seconds: float | None
) -> tuple[Result, KeyboardInterrupt | None]:
    """Explore, with progress on a terminal. A signal ends it with what was found up to there."""
    from cfg_fsm.explore.search import MAX_ENGINE_STATES, MAX_STATES, Search

    search = Search(scenario)
    most = MAX_STATES if max_states is None else max_states
    with _progress() as on_progress:
        try:
            return search.run(most, max_seconds, time.perf_counter, on_progress, MAX_ENGINE_STATES), None
        except KeyboardInterrupt as stop:
            result = search.result
            result.truncated = "by Ctrl-C" if word(stop) == "interrupted" else "by a signal"
            return result, stop


def _tell(scenario: Scenario, result: Result, export: Path | None) -> str:
    """A violation as text; as a case, too, if it goes to a file."""
    from cfg_fsm.explore.counterexample import table, tell, to_case

    assert result.violation is not None
    if export is not None:
        case = to_case(scenario, result.violation, export.stem)
        with naming(str(export)):
            export.write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
    return table(tell(scenario, result.violation), result.violation)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None] | None]:
    """A line on standard error that says how far it is, if that is a terminal. The end is not known beforehand."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    with Bar(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("exploring")
        due = 0.0

        def move(progress: Progress) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + _BAR_EVERY_S
                shown = f"{progress.unique:,} states, {progress.frontier:,} to go on from, depth {progress.depth}"
                bar.update(task, description=shown, refresh=True)

        yield move
