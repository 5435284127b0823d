"""The command line: ``cfg-fsm run``, ``diagram``, ``explain``, ``verify`` and ``explore``.

What a user did wrong ends in one line on standard error and an exit code; a traceback is a defect of the program.
Here is only what must be there before the rest is loaded, which takes a while: an ear for signals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from cfg_fsm.lazy import loading

if TYPE_CHECKING:
    from cfg_fsm.cli.commands import app as app

__getattr__ = loading(__name__, {"cfg_fsm.cli.commands": ("app",)})


def main() -> NoReturn:
    """The entry point. Ends the process with an exit code."""
    from cfg_fsm.cli.signals import end_at_once, hear

    hear(end_at_once)
    from cfg_fsm.cli.commands import run_app

    run_app()
