"""The command ``cfg-fsm diagram``."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path, PurePath
from typing import Annotated

import typer

from cfg_fsm.cli.console import naming, user_errors
from cfg_fsm.cli.places import is_terminal, place_at, place_of, same
from cfg_fsm.lines import STDIN, printable


class DiagramName(str, Enum):
    """The diagrams there are."""

    PARENT = "parent"
    COMPANION = "companion"
    COUPLING = "coupling"


class DiagramFormat(str, Enum):
    """What they can be drawn as."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    PNG = "png"


_BY_ENDING = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".png": "png"}


def diagram(
    name: Annotated[
        DiagramName, typer.Argument(metavar="NAME", help="parent, companion or coupling.")
    ] = DiagramName.PARENT,
    format: Annotated[
        DiagramFormat | None,
        typer.Option(
            metavar="FORMAT",
            help="mermaid, dot, svg or png. If not given: what the ending of --output says, else mermaid.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file, or - for standard output."),
    ] = None,
) -> None:
    """Draw a state machine, or what couples them, from the tables that run.

    SVG and PNG need Graphviz: a `dot` program, or the extra `render`.

    \b
    Examples:
      cfg-fsm diagram parent
      cfg-fsm diagram coupling --format dot | dot -Tpdf > coupling.pdf
      cfg-fsm diagram companion -o companion.svg
    """
    if output == STDIN:
        output = None
    wanted = "mermaid" if format is None else format.value
    if format is None and output is not None:
        name_of, ending = PurePath(output).name, PurePath(output).suffix.lower()
        if ending not in _BY_ENDING:
            why = f"the ending of '{printable(name_of)}' names no format; give --format, or one of the endings"
            raise typer.BadParameter(f"{why} {', '.join(_BY_ENDING)}", param_hint="'--output'")
        wanted = _BY_ENDING[ending]
    if output is not None and same(place_at(output), place_of(sys.stdout)):
        output = None  # to be written where that stream is, and not from the start of the file
    if wanted == "png" and output is None and is_terminal(sys.stdout):
        raise typer.BadParameter("a PNG does not go to a terminal; give -o FILE", param_hint="'--format'")
    with user_errors():
        from cfg_fsm import diagrams

        if wanted in ("svg", "png"):
            data = diagrams.image(name.value, wanted)
        else:
            data = diagrams.text(name.value, wanted).encode()
        if output is not None:
            with naming(output):
                Path(output).write_bytes(data)
        else:
            with naming(STDIN):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
