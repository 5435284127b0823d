"""The original tracker out of the ``vllm-omni`` wheel, and calls to make on it and on ours."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from helpers import Payload
from hypothesis import strategies as st

DISTRIBUTION = "vllm-omni"
MODULE = "vllm_omni/engine/cfg_companion_tracker.py"

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
    """The original ``CfgCompanionTracker``. Without the wheel the test is skipped, or fails where it must not be.

    The one module is loaded by its path: the package around it needs a whole inference server.
    """
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        reason = f"{DISTRIBUTION} is not installed: `make setup` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return _load(Path(str(found.locate_file(MODULE))))


@cache
def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("original_cfg_companion_tracker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CfgCompanionTracker


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


# -- random calls ------------------------------------------------------------------------------------------

IDS = ("p", "q", "c", "d", "x")
ROLES = ("neg", "img")
PAYLOADS = tuple(Payload(name) for name in "ABCD")

#: A method and its arguments; ``("wait", (seconds,))`` lets time pass.
Call = tuple[str, tuple[Any, ...]]


def _call(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(method), st.tuples(*arguments))


def _calls(parents: str, companions: str) -> st.SearchStrategy[list[Call]]:
    """Lists of calls about these ids. Short ones, and long ones, which of themselves would be rare."""
    parent, companion, any_id = map(st.sampled_from, (parents, companions, IDS))
    payload = st.sampled_from((*PAYLOADS, None))
    registration = _call("register_companion", parent, st.sampled_from(ROLES), companion)
    call = st.one_of(
        *[registration] * 5,
        *[_call("set_companion_output", companion, payload)] * 3,
        *[_call("on_companion_completed", companion)] * 3,
        *[_call("defer_parent", parent, payload, st.integers(0, 2))] * 2,
        _call("register_parent", parent),
        _call("pop_pending_parent", parent),
        _call("cleanup_parent", any_id),
        _call("abort_parents", st.lists(any_id, max_size=5)),
        _call("get_companion_request_ids", parent),
        st.tuples(st.sampled_from(QUERIES), st.tuples(any_id)),
        _call("wait", st.sampled_from((0.5, 2.0))),
        _call("pop_expired_parents", st.sampled_from((None, 1.5))),
    )
    return st.one_of(st.lists(call, max_size=10), st.lists(call, min_size=30, max_size=60))


#: Few ids, so that they collide and are used again; as a rule some are given to parents and to companions.
ANY_CALLS = st.one_of(_calls("pq", "cdx"), _calls("pqx", "cdx"), _calls("pxc", "xcdp"))


def make(tracker: Any, clock: Clock, call: Call) -> Any:
    """Make one call; its result."""
    method, arguments = call
    if method == "wait":
        clock.now += arguments[0]
        return None
    return getattr(tracker, method)(*arguments)
