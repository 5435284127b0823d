"""What is explored: how many requests, which limits, what may go wrong and how often."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from cfg_fsm.limits import Limits

ROLES = ("a", "b", "c", "d")
PARENTS = ("p", "q", "r")

#: Whole seconds, short, and no two the same, so that few steps of time bring them in every order.
SHORT_LIMITS = Limits(deferred_s=2.0, silent_s=1.0, start_s=3.0, total_s=4.0, tombstone_s=6.0)
#: The same with releases that wait: until after the deadlines, and until shortly before the tombstones go.
CONFIRMED = SHORT_LIMITS.model_copy(update={"confirm_s": 5.0})


@dataclass(frozen=True, slots=True)
class Faults:
    """How often the delivery of events may go wrong in each of these ways; 0: never."""

    lost: int = 0
    """An event is never delivered, and its request goes on. (One that ends a request and is lost is silence, and
    silence needs no budget: whatever may come may also never come.)"""
    duplicated: int = 0
    """An event is delivered again, now or at any time later. An output that comes again is another object, so
    that it can be seen which of the two was kept."""
    reordered: int = 0
    """An event is delivered at any time after one that it caused."""
    reused: int = 0
    """The ids of a group that has ended are used again, with a ``life`` or without one."""
    together: int | None = None
    """How many of these there may be in all; ``None``: as many as each may be."""
    late: bool = False
    """What runs on after its group ended reports."""
    strange: bool = False
    """Events that no right scheduler sends. They are sent wherever they must be refused, so they lead nowhere
    and need no budget."""

    @classmethod
    def of(cls, names: Iterable[str], budget: int, together: int | None = None) -> Faults:
        """Those of these names, each with this budget."""
        chosen: dict[str, Any] = {name: budget if name in COUNTED else True for name in names}
        return cls(**chosen, together=together)


COUNTED = ("lost", "duplicated", "reordered", "reused")
FAULTS = (*COUNTED, "late", "strange")
NO_FAULTS, ALL_FAULTS = Faults(), Faults.of(FAULTS, 1)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One world to be explored."""

    parents: int = 1
    companions: int = 1
    """Of each parent. An unsealed group may be sealed with fewer."""
    announced: tuple[bool, ...] = (True, False)
    """Whether a registration may name the companions, or leave them to join."""
    streaming: tuple[bool, ...] = (False, True)
    """Whether a parent may be forwarded once, or again with each newer output."""
    faults: Faults = NO_FAULTS
    limits: Limits = field(default_factory=Limits)
    passes: int = 0
    """How many seconds may pass with no clock to notice, beside the ticks to each due deadline."""
    outputs: int = 2
    """How many outputs a parent may bring."""
    rebind: bool = True
    """Whether a request may start again on another replica."""
    heartbeats: bool = True
    finish_reasons: tuple[str, ...] = ("stop", "length", "abort", "error")
    symmetry: bool = False
    """Take two states for one that differ only in which companion of a group is which. That halves and thirds
    the work; the order of the roles is then looked at in one of the orders only."""

    @property
    def kinds(self) -> tuple[tuple[bool, bool], ...]:
        """What a registration may be: ``(announced, streaming)``."""
        return tuple(product(self.announced, self.streaming))

    @property
    def parent_ids(self) -> tuple[str, ...]:
        """The ids of the parents."""
        return PARENTS[: self.parents]

    def companion_ids(self, parent_id: str) -> tuple[str, ...]:
        """The ids of a parent's companions, in the order of ``ROLES``."""
        return tuple(f"{parent_id}-{role}" for role in ROLES[: self.companions])

    @property
    def timed(self) -> bool:
        """Whether something happens because time passes."""
        return self.limits.bounds_time or self.limits.confirm_s is not None

    @property
    def title(self) -> str:
        """In a few words."""
        known = " or ".join("announced" if value else "unsealed" for value in self.announced)
        flow = {1: "streaming" if self.streaming[0] else "not streaming"}.get(
            len(self.streaming), "streaming or not"
        )
        wrong = [
            name if value is True else f"{name} {value}"
            for name in FAULTS
            if (value := getattr(self.faults, name))
        ]
        return (
            f"{_count(self.parents, 'parent')} x {_count(self.companions, 'companion')}, {known}, {flow}, "
            f"{'with' if self.limits.bounds_time else 'without'} limits"
            f"{'' if self.limits.confirm_s is None else ', releases confirmed'}"
            f"; faults: {', '.join(wrong) or 'none'}"
            f"{'' if self.faults.together is None else f' (at most {self.faults.together} in all)'}"
        )

    def lean(self) -> Scenario:
        """The same without what multiplies the states and seldom shows anything."""
        return replace(self, rebind=False, heartbeats=False, finish_reasons=("stop", "error"))

    def with_limits(self, limits: Limits = SHORT_LIMITS, passes: int = 2) -> Scenario:
        """The same with time in it."""
        return replace(self, limits=limits, passes=passes)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
