"""What is odd about the times that events bring. The clock goes on all the same, and never back (R11)."""

from __future__ import annotations

from cfg_fsm.engine.log import log_warning

#: Seconds. No server is silent for a day: a clock that goes on by more at once has most likely changed its unit.
LONG = 86_400.0


class Clock:
    """Counts them, and warns once of each kind."""

    __slots__ = ("_warned", "behind", "furthest_behind", "largest_jump", "undated")

    def __init__(self) -> None:
        self.undated = 0
        """Events without ``at`` while limits in time are set."""
        self.behind = 0
        """Events whose ``at`` lay before the time of the registry."""
        self.furthest_behind = 0.0
        """By how many seconds at most."""
        self.largest_jump = 0.0
        """By how many seconds the time went on at once, at most; its first time does not count."""
        self._warned: frozenset[str] = frozenset()

    def copy(self) -> Clock:
        """Another one that counts on from here."""
        twin = Clock()
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    def went_back(self, event: object, at: float, now: float) -> float:
        """An event's ``at`` lies before ``now``; the time that holds."""
        self.behind += 1
        self.furthest_behind = max(self.furthest_behind, now - at)
        self._warn(
            "behind",
            "%s has at=%s, %s s before the time of the registry: it is taken to happen now. If a clock has "
            "changed its unit, no deadline comes until the other has caught up",
            event, at, now - at,
        )  # fmt: skip
        return now

    def jumped(self, event: object, at: float, now: float) -> None:
        """The time goes on by more than ever before."""
        if now:
            self.largest_jump = at - now
            if at - now > LONG:
                self._warn(
                    "jump",
                    "%s has at=%s, %s s after the event before: is it in another unit than the others?",
                    event, at, at - now,
                )  # fmt: skip

    def was_undated(self, event: object) -> None:
        """An event has no ``at``, and limits in time are set."""
        self.undated += 1
        self._warn(
            "undated",
            "%s has no `at` while limits in time are set: it is taken to happen at the time of the event before, "
            "so that what counts from it ends too early",
            event,
        )

    def _warn(self, kind: str, message: str, event: object, *values: object) -> None:
        if kind not in self._warned:
            self._warned |= {kind}
            log_warning(message, getattr(event, "type", event), *values)

    def counters(self) -> dict[str, int | float]:
        """``{"undated", "behind", "furthest_behind_s", "largest_jump_s"}``."""
        return {
            "undated": self.undated,
            "behind": self.behind,
            "furthest_behind_s": self.furthest_behind,
            "largest_jump_s": self.largest_jump,
        }
