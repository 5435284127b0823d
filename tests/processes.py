"""The command in a process of its own, with streams and signals as an unlucky operator would have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cfg_fsm

ENV = {**os.environ, "PYTHONPATH": str(Path(cfg_fsm.__file__).parents[1]), "PYTHONUNBUFFERED": ""}


def begin(*args: object, **options: Any) -> subprocess.Popen[bytes]:
    """The process, its three streams pipes unless told otherwise."""
    for name in ("stdin", "stdout", "stderr"):
        options.setdefault(name, subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "cfg_fsm", *map(str, args)], env=ENV, **options)


def run(*args: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The same, to its end."""
    options.setdefault("capture_output", True)
    return subprocess.run([sys.executable, "-m", "cfg_fsm", *map(str, args)], env=ENV, check=False, **options)


def shell(redirections: str, *args: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The same, as a shell starts it: with redirections such as ``>&-``."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "cfg_fsm", *map(str, args)]
    options.setdefault("capture_output", True)
    return subprocess.run(command, env=ENV, check=False, **options)
