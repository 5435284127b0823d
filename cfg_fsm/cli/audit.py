"""The commands that read an audit: ``cfg-fsm explain`` and ``cfg-fsm verify``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from cfg_fsm.audit.explain import NotInAudit
from cfg_fsm.audit.explain import explain as story_of
from cfg_fsm.audit.reading import AuditFile, AuditLine, BrokenChain
from cfg_fsm.audit.reading import verify as verify_chain
from cfg_fsm.cli.console import BAD, BROKEN, NOT_FOUND, put, say, user_errors
from cfg_fsm.cli.places import Input, place_at, place_of, refuse_stdout
from cfg_fsm.errors import BadLine
from cfg_fsm.lines import STDIN


def explain(
    request_id: Annotated[str, typer.Argument(metavar="ID", help="A parent or a companion.")],
    audit: Annotated[
        str, typer.Option(metavar="FILE", help="The audit log: a file, plain or gzip, or - for standard input.")
    ],
) -> None:
    """Tell the story of one request and its group, from the audit of a run or a server.

    The steps stand in time order; the result at the end says why it ended or what it is waiting for. A log that is
    cut off at a bad line is told up to there, with exit code 2. If the chain of the log is broken, a warning says
    so; the exit code stays.

    \b
    Example:
      cfg-fsm run --sample --audit audit.jsonl
      cfg-fsm explain chatcmpl-1f229dd06aa8b9e0 --audit audit.jsonl
    """
    log = _UpToDamage(audit)
    with user_errors():
        refuse_stdout([_input(audit)])
        try:
            story = story_of(log, request_id)
        except NotInAudit as error:
            if log.damage is not None:
                say(f"{log.damage}; the log was read up to there")
            log.warn()
            say(str(error))
            raise typer.Exit(NOT_FOUND if log.damage is None else BAD) from None
        put("\n".join(story))
    log.warn()
    if log.damage is not None:
        say(f"{log.damage}; the story is told up to there")
        raise typer.Exit(BAD)


def verify(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The audit log: a file, plain or gzip, or - for standard input.")
    ],
) -> None:
    """Check the chain of hashes of an audit.

    It breaks at a line that was changed, added, moved or taken out; the first such line is named, with exit code
    1. Whole lines that were cut off at the end do not show.

    \b
    Example:
      cfg-fsm run --sample --audit audit.jsonl
      cfg-fsm verify audit.jsonl
    """
    with user_errors():
        refuse_stdout([_input(file)])
        try:
            count = verify_chain(file)
        except BrokenChain as error:
            say(str(error))
            raise typer.Exit(BROKEN) from None
        put(f"{count:,} record{'' if count == 1 else 's'}, the chain is whole")


def _input(name: str) -> Input:
    return Input(name, "this is the audit; it", place_of(sys.stdin) if name == STDIN else place_at(name))


class _UpToDamage(AuditFile):
    """A log that ends before its first bad line. Its chain is checked when it is first read."""

    def __init__(self, path: str) -> None:
        super().__init__(path, on_broken=self._note)
        self.damage: BadLine | None = None
        """What is wrong with that line, once it was read."""
        self.broken: BrokenChain | None = None
        """Where the chain breaks, once it was read."""

    def __iter__(self) -> Iterator[AuditLine]:
        self.damage = None
        try:
            yield from super().__iter__()
        except BadLine as error:
            self.damage = error

    def _note(self, error: BrokenChain) -> None:
        self.broken = error

    def warn(self) -> None:
        """Say so if the chain is broken."""
        if self.broken is not None:
            say(f"warning: {self.broken}; from there on the story may not be what happened")
