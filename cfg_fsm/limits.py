"""Limits: bounds in time and size, for a registry and for a single parent."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from cfg_fsm.model import Model

#: A length of time in seconds, finite, greater than zero.
Duration: TypeAlias = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(strict=True, ge=1)]


class Limits(Model):
    """Bounds in time and size. All optional; without them nothing ends by itself.

    In ``Registry(limits=...)`` they hold for every parent. The five times and ``max_companions_per_parent``
    may also come with ``ParentRegistered.limits``: a value there replaces the registry's for that parent,
    ``None`` leaves it. The other fields concern the registry as a whole and are read from its own limits only.
    """

    confirm_s: Duration | None = None
    """Seconds that the release of an aborted request waits for its report, from the end of its group. ``None``: it
    is released with its group."""
    deferred_s: Duration | None = None
    """Seconds a parent may wait for its bundle, from the first defer of the current wait."""
    silent_s: Duration | None = None
    """Seconds a running companion may give no sign of life, from its start or last progress."""
    start_s: Duration | None = None
    """Seconds a companion may stay registered without a start, from its registration."""
    total_s: Duration | None = None
    """Seconds a parent may live, from its registration."""
    max_requests: Count | None = None
    """How many requests, parents and companions counted, may be live at once."""
    max_companions_per_parent: Count | None = 256
    """How many companions one parent may have; ``None``: any number. A model pipeline makes three at most; a step
    takes as long as the group is large that it ends, and this keeps that under some milliseconds."""
    tombstones: Annotated[int, Field(strict=True, ge=0)] = 65_536
    """How many ended ids are remembered."""
    tombstone_s: Duration | None = 600.0
    """Seconds an ended id is remembered; ``None``: until ``tombstones`` pushes it out."""

    def with_overrides(self, own: Limits | None) -> Limits:
        """These limits with the values that a parent brought in their place."""
        if own is None:
            return self
        return self.model_copy(
            update={k: v for k in _PER_PARENT if k in own.model_fields_set and (v := getattr(own, k)) is not None}
        )

    @property
    def bounds_time(self) -> bool:
        """Whether any of the four times that end a parent is set."""
        return any(getattr(self, name) is not None for name in TIMES)


#: The fields that end a parent in time.
TIMES = ("deferred_s", "silent_s", "start_s", "total_s")
_PER_PARENT = (*TIMES, "confirm_s", "max_companions_per_parent")
