"""``python -m cfg_fsm.diagrams DIR`` writes all diagrams to ``DIR`` and prints the files that changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cfg_fsm.diagrams import write_all
from cfg_fsm.errors import CfgFsmError


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 a diagram could not be made or written, 2 not exactly one directory was named."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m cfg_fsm.diagrams DIR", file=sys.stderr)
        return 2
    try:
        changed = write_all(Path(arguments[0]))
    except (CfgFsmError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in changed:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
