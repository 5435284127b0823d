"""The command ``cfg-fsm run``."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from cfg_fsm.cli.console import user_errors
from cfg_fsm.cli.course import execute
from cfg_fsm.cli.files import Files
from cfg_fsm.cli.limits import parse_limits
from cfg_fsm.cli.places import Input, place_of, same
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.limits import Limits
from cfg_fsm.lines import LineSource

_SAMPLE = "omni-small.events.jsonl"


def run(
    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="TRACE", help="Events as JSON lines: a file, plain or gzip, or - for standard input."
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Run the trace that comes with the package.")] = False,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMITS",
            help="Limits of the registry: NAME=VALUE pairs separated by commas (deferred_s=30,silent_s=5), a JSON "
            "object, or @FILE with one. May be given again. Names: " + ", ".join(Limits.model_fields) + ".",
        ),
    ] = None,
    actions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the actions as JSON lines to this file (overwritten), or - for standard output.",
        ),
    ] = None,
    audit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the audit as JSON lines to this file (overwritten, unless --append), or -."
        ),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Append to the audit; its chain goes on.")] = False,
    fixed_ts: Annotated[
        bool,
        typer.Option(
            "--fixed-ts",
            help="Stamp the audit with the time of the events (ts is at, in UTC seconds from 1970) in place of "
            "the time of day, so that two runs of a trace give the same bytes.",
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Make this directory, with actions.jsonl, audit.jsonl and summary.json. What an older run left "
            "of them is removed (with --append, all but the audit).",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Count lines that are no events and go on.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="When the trace is over, let all deadlines that are left come.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Dispatch the events of a trace, and sum up what became of it.

    The clock is played: before each event the deadlines that come before it end their parents. The summary goes
    to standard output, or to standard error if actions or audit go there. A line that is no event stops the run
    with exit code 2; what was done up to there is written and summed up. So it is, with exit code 0 and nothing
    said, when the reader of standard output goes away.

    \b
    Examples:
      cfg-fsm run trace.jsonl.gz --limits deferred_s=30,silent_s=5 --drain
      cfg-fsm run trace.jsonl --out run-out
      my-scheduler | cfg-fsm run - --actions - | my-host
    """
    if (trace is None) is not sample:
        both = "" if trace is None else ", not both"
        raise typer.BadParameter(f"give a TRACE (- for standard input), or --sample{both}", param_hint="'TRACE'")
    for option, given in (("--append", append), ("--fixed-ts", fixed_ts)):
        if given and audit is None and out is None:
            raise typer.BadParameter("it needs --audit or --out", param_hint=f"'{option}'")
    if out == "":
        raise typer.BadParameter("it is empty; give a directory", param_hint="'--out'")
    with user_errors(), ExitStack() as stack:
        inputs: list[Input] = []
        bounds = parse_limits(limits or [], inputs)
        if trace is None:
            packaged = resources.files("cfg_fsm") / "samples" / _SAMPLE
            trace = str(stack.enter_context(resources.as_file(packaged)))
        source = stack.enter_context(LineSource(trace))
        place = place_of(source)
        for read in inputs:
            if same(read.place, place):
                raise CfgFsmError(f"{read.name}: this is the trace; there are no limits in it")
        inputs.append(Input(source.name, "this is the trace; it", place))
        files = Files(inputs, actions, audit, None if out is None else Path(out), append=append, fixed_ts=fixed_ts)
        stack.callback(files.close_quietly)
        code = execute(source, files, bounds, skip_bad=skip_bad, drain=drain, as_json=as_json)
    raise typer.Exit(code)
