"""What was seen to happen: rows, coupling rows, failure reasons and codes of refusals. Made from audit records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.states import FailureReason
from cfg_fsm.tables import COMPANION, COUPLING_ROWS, PARENT, ROWS

#: The one reason that the registry never gives: only the tracker's records are replaced.
NEVER_GIVEN = (FailureReason.SUPERSEDED,)


class Coverage:
    """Collects what happened."""

    def __init__(self) -> None:
        self.rows: set[tuple[str, str, str, str]] = set()
        """Machine, trigger, source, dest."""
        self.coupling: set[str] = set()
        self.reasons: set[str] = set()
        self.refusals: set[str] = set()
        self._known: set[tuple[object, ...]] = set()

    def note(self, records: Iterable[AuditRecord]) -> None:
        """The records of one step."""
        kind = tuple((r.kind, r.machine, r.trigger, r.source, r.dest, r.reason) for r in records)
        if kind in self._known:
            return
        self._known.add(kind)
        for record in records:
            if record.kind == "transition":
                self.rows.add((str(record.machine), str(record.trigger), str(record.source), str(record.dest)))
                if record.reason is not None:
                    self.reasons.add(str(record.reason))
            elif record.kind in ("ignored", "rejected"):
                self.refusals.add(str(record.reason))
        moves = (record for record in records if record.kind == "transition")
        for _, of_group in groupby(moves, key=lambda record: record.parent_id):
            self._couple(list(of_group))

    def _couple(self, moves: list[AuditRecord]) -> None:
        """Which coupling rows have moved these machines of one group in one step."""
        fallen = False
        for move in moves:
            if move.machine == PARENT and move.trigger == "forward":
                self.coupling.add("bundle_complete")
            elif move.machine == PARENT and move.trigger == "clean":
                self.coupling.add("group_ended")
            elif move.machine == PARENT and move.trigger == "fail" and fallen:
                self.coupling.add("companion_failed")
            elif move.machine == COMPANION and move.trigger == "fail":
                fallen = True
                if move.reason == FailureReason.PARENT_ENDED:
                    self.coupling.add("parent_ended")

    def update(self, other: Coverage) -> None:
        """What another has seen as well."""
        for name in ("rows", "coupling", "reasons", "refusals"):
            getattr(self, name).update(getattr(other, name))

    def missing(self) -> dict[str, list[str]]:
        """What never happened, by kind."""
        rows = [
            f"{kind}: {row.trigger} {row.source} -> {row.dest}"
            for kind, table in ROWS.items()
            for row in table
            if (str(kind), str(row.trigger), str(row.source), str(row.dest)) not in self.rows
        ]
        return {
            "rows": rows,
            "coupling rows": [row.name for row in COUPLING_ROWS if row.name not in self.coupling],
            "failure reasons": [
                str(reason) for reason in FailureReason if reason not in NEVER_GIVEN and reason not in self.reasons
            ],
        }
