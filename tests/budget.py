"""How much the tests try: a part by default, everything with ``--full``.

A test that tries many things says how many with ``--full``, and tries ``part_of`` them without. What cannot be cut
down like that is marked ``exhaustive``: it runs with ``--full`` only, and a smaller one of its kind always.
"""

from __future__ import annotations

_STRIDE = 7

#: Whether everything is tried. Set once, before any test is collected.
full = False


def part_of(everything: int) -> int:
    """So many with ``--full``; a fourth of them without, but ten at least."""
    return everything if full else min(everything, max(10, everything // 4))


def each(things):
    """All of them with ``--full``; every seventh without."""
    every = list(things)
    return every if full else every[::_STRIDE]
