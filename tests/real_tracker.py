"""The original tracker out of the ``vllm-omni`` wheel, and calls to make on it and on ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import pytest
from helpers import Payload
from hypothesis import strategies as st

from tests.bench import original

METHODS = (
    "is_companion",
    "get_parent_id",
    "has_companions",
    "all_companions_done",
    "get_companion_request_ids",
    "register_parent",
    "register_companion",
    "set_companion_output",
    "get_companion_outputs",
    "is_companion_done",
    "on_companion_completed",
    "defer_parent",
    "pop_pending_parent",
    "cleanup_parent",
    "abort_parents",
)

#: Those that change nothing and take one id.
QUERIES = (
    "is_companion",
    "get_parent_id",
    "has_companions",
    "all_companions_done",
    "get_companion_request_ids",
    "get_companion_outputs",
    "is_companion_done",
)


def original_class() -> Any:
    """The original ``CfgCompanionTracker``. Without the wheel the test is skipped; where CI is true it fails."""
    try:
        return original.original_class()
    except LookupError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


# -- random calls ------------------------------------------------------------------------------------------

#: Few ids, so that they collide and are used again; as a rule some are given to parents and to companions.
IDS = ("p", "q", "c", "d", "x")
POOLS = (("pq", "cdx"), ("pqx", "cdx"), ("pxc", "xcdp"))
ROLES = ("neg", "img")
PAYLOADS = (*(Payload(name) for name in "ABCD"), None)
SOME_IDS = [list(ids) for length in range(4) for ids in product(IDS, repeat=length)]

#: A method and its arguments; ``("wait", (seconds,))`` lets time pass.
Call = tuple[str, tuple[Any, ...]]


def _mixture(parents: str, companions: str) -> list[tuple[str, tuple[Sequence[Any], ...]]]:
    """Methods, each as often as it is to be called, with what each argument is drawn from."""
    return [
        *[("register_companion", (parents, ROLES, companions))] * 5,
        *[("set_companion_output", (companions, PAYLOADS))] * 3,
        *[("on_companion_completed", (companions,))] * 3,
        *[("defer_parent", (parents, PAYLOADS, range(3)))] * 2,
        ("register_parent", (parents,)),
        ("pop_pending_parent", (parents,)),
        ("cleanup_parent", (IDS,)),
        ("abort_parents", (SOME_IDS,)),
        *[(query, (IDS,)) for query in QUERIES],
        ("wait", ((0.5, 2.0),)),
        ("pop_expired_parents", ((None, 1.5),)),
    ]


def _any_call(mixture: list[tuple[str, tuple[Sequence[Any], ...]]]) -> st.SearchStrategy[Call]:
    return st.one_of(
        *(st.tuples(st.just(method), st.tuples(*map(st.sampled_from, pools))) for method, pools in mixture)
    )


#: Calls that can be made smaller when they fail: short lists, and longer ones, which of themselves would be rare.
ANY_CALLS: st.SearchStrategy[list[Call]] = st.one_of(
    *(
        st.one_of(st.lists(call, max_size=10), st.lists(call, min_size=15, max_size=30))
        for call in (_any_call(_mixture(*pools)) for pools in POOLS)
    )
)


def calls_number(seed: int) -> list[Call]:
    """Sixty calls in which every choice is equally likely, the same ones for the same number."""
    rng = Random(seed)
    mixture = _mixture(*POOLS[seed % len(POOLS)])
    drawn = (rng.choice(mixture) for _ in range(60))
    return [(method, tuple(rng.choice(pool) for pool in pools)) for method, pools in drawn]


def make(tracker: Any, clock: Clock, call: Call) -> Any:
    """Make one call; its result."""
    method, arguments = call
    if method == "wait":
        clock.now += arguments[0]
        return None
    return getattr(tracker, method)(*arguments)
