"""The rules as far as an audit log shows them.

A ``LogAccount`` reads the records of a log in their order. At each record the checks of its moment look at the
account and the record, and say in words what is wrong; then the account takes it in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from cfg_fsm.rules.rule import Moment
from cfg_fsm.rules.statements import R1, R2, R3, R4, R5, R7, R8, R9
from cfg_fsm.rules.statements import ROWS as BY_ROWS
from cfg_fsm.states import MachineKind, Trigger
from cfg_fsm.tables import FINAL, INITIAL, PARENT, ROWS

_ROWS = {(str(kind), str(row.trigger), str(row.source), str(row.dest)) for kind in ROWS for row in ROWS[kind]}
_INITIAL = {str(kind): str(INITIAL[kind]) for kind in MachineKind}
_FINAL = {str(kind): str(FINAL[kind]) for kind in MachineKind}
_ENDS = (Trigger.FAIL, Trigger.FINISH)
_CLIENT_FACING = ("forward_parent", "fail_parent")


class LogRecord(Protocol):
    """What is read of a record: an ``AuditRecord``, or the line of a file that holds one."""

    @property
    def seq(self) -> int: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def machine(self) -> str | None: ...  # noqa: D102
    @property
    def request_id(self) -> str | None: ...  # noqa: D102
    @property
    def parent_id(self) -> str | None: ...  # noqa: D102
    @property
    def life(self) -> int | None: ...  # noqa: D102
    @property
    def trigger(self) -> str | None: ...  # noqa: D102
    @property
    def source(self) -> str | None: ...  # noqa: D102
    @property
    def dest(self) -> str | None: ...  # noqa: D102
    @property
    def event(self) -> Any: ...  # noqa: D102
    @property
    def event_seq(self) -> int: ...  # noqa: D102


@dataclass(slots=True)
class LoggedLife:
    """One life, as the log tells of it."""

    parent_id: str | None
    members: list[str] = field(default_factory=list)
    """The parent, then the companions as they came."""
    ended: bool = False
    told: bool = False
    """Whether its failure was told."""
    aborted: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)


class LogAccount:
    """What a log has told so far.

    ``tells_actions``: whether the log is of one who tells the host what to do, as the registry does and the
    tracker does not.
    """

    def __init__(self, *, tells_actions: bool = True) -> None:
        self.tells_actions = tells_actions
        self.states: dict[str, str] = {}
        """Of each live request."""
        self.lives: dict[tuple[str | None, int | None], LoggedLife] = {}
        """Lives that are not over, or end in this step."""
        self.parents: set[str] = set()
        """Every id that was ever a parent's."""
        self.waiting: dict[str, str | None] = {}
        """Aborted requests of lives that are over, whose release is to come; the parent of each."""
        self._closing: list[tuple[str | None, int | None]] = []

    def life(self, record: LogRecord) -> LoggedLife | None:
        """The life that a record is about, if it is not over."""
        return self.lives.get((record.parent_id, record.life))

    def take(self, moment: Moment, record: LogRecord) -> None:
        """The record has been read."""
        if moment == "created":
            self._created(record)
        elif moment == "transition":
            self._moved(record)
        elif moment == "action":
            life = self.life(record)
            if life is not None and record.trigger == "fail_parent":
                life.told = True
            elif life is not None and record.trigger == "release_requests":
                life.released += record.event["request_ids"]
            elif life is not None and record.trigger == "abort_requests":
                life.aborted += record.event["request_ids"]
        if moment in ("action", "stray") and record.trigger == "release_requests":
            for request_id in record.event["request_ids"]:
                self.waiting.pop(request_id, None)

    def _created(self, record: LogRecord) -> None:
        request_id = str(record.request_id)
        self.states[request_id] = str(record.dest)
        key = (record.parent_id, record.life)
        self.lives.setdefault(key, LoggedLife(record.parent_id)).members.append(request_id)
        if record.machine == PARENT:
            self.parents.add(request_id)

    def _moved(self, record: LogRecord) -> None:
        life, request_id = self.life(record), str(record.request_id)
        if life is None or request_id not in life.members:
            return
        if record.machine == PARENT and record.trigger in _ENDS:
            life.ended = True
        if record.dest != _FINAL[str(record.machine)]:
            self.states[request_id] = str(record.dest)
            return
        self.states.pop(request_id, None)
        if record.machine == PARENT:
            self._closing.append((record.parent_id, record.life))

    def over(self) -> list[LoggedLife]:
        """The step is complete: the lives that ended in it, which are forgotten."""
        found = [life for key in self._closing if (life := self.lives.pop(key, None)) is not None]
        self._closing.clear()
        for life in found:
            for request_id in life.aborted:
                if request_id in life.members and request_id not in life.released:
                    self.waiting[request_id] = life.parent_id
        return found


# -- machines -----------------------------------------------------------------------------------------------


@R9.log("created")
def r9_nothing_is_registered_while_it_lives(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """An id that lives is not registered again."""
    if record.request_id in log.states:
        yield f"{record.request_id} is registered while it lives"


@BY_ROWS.log("created")
def a_machine_begins_in_its_initial_state(_: LogAccount, record: LogRecord) -> Iterator[str]:
    """As the tables say."""
    if record.dest != _INITIAL[str(record.machine)]:
        yield f"{record.request_id} begins in state {record.dest}"


@BY_ROWS.log("transition")
def every_move_is_a_row(_: LogAccount, record: LogRecord) -> Iterator[str]:
    """Machine, trigger, source and destination are those of a row."""
    row = (str(record.machine), str(record.trigger), str(record.source), str(record.dest))
    if row not in _ROWS:
        yield f"{record.request_id}: there is no row {' '.join(row)}"


@R8.log("transition")
def r8_what_moves_is_live(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """Only what was created and has not been cleaned moves."""
    if record.request_id not in log.states:
        yield f"{record.request_id} moves and is not live"


@BY_ROWS.log("transition")
def a_move_begins_where_the_last_one_led(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """A machine leaves the state that it is in."""
    state = log.states.get(str(record.request_id), record.source)
    if state != record.source:
        yield f"{record.request_id} leaves {record.source} and was in {state}"


@R5.log("transition")
def r5_what_moves_is_of_the_group(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """A machine moves under the name and the life of its own group."""
    life = log.life(record)
    if life is None or record.request_id not in life.members:
        yield f"{record.request_id} is not of life {record.life} of {record.parent_id}"


@R1.log("transition")
def r1_a_parent_ends_once_in_its_life(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """A parent fails or finishes once."""
    life = log.life(record)
    if life is not None and life.ended and record.machine == PARENT and record.trigger in _ENDS:
        yield f"{record.request_id} ends again"


# -- actions ------------------------------------------------------------------------------------------------


@R4.log("action")
def r4_client_facing_actions_name_what_was_a_parent(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """A forward or a failure names an id that was registered as a parent."""
    if record.trigger in _CLIENT_FACING and record.event["parent_id"] not in log.parents:
        yield f"{record.trigger} names {record.event['parent_id']}, which is no parent"


@R1.log("action")
def r1_what_is_told_of_a_life_is_told_before_its_end(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """No forward after the end, and one failure at most."""
    if record.trigger not in _CLIENT_FACING:
        return
    life, parent_id = log.life(record), record.event["parent_id"]
    if life is None:
        yield f"{record.trigger} for a life that has ended"
    elif record.trigger == "forward_parent" and life.ended:
        yield f"{parent_id} is forwarded after its end"
    elif record.trigger == "fail_parent" and life.told:
        yield f"the failure of {parent_id} is told again"


@R2.log("action")
def r2_a_forward_names_every_role(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """Every companion of the group is there, in role order, each with an output."""
    life = log.life(record)
    if life is None or record.trigger != "forward_parent":
        return
    body = record.event
    ids = list(body["companion_request_ids"].values())
    if ids != life.members[1:] or len(body["companion_outputs"]) != len(ids):
        yield f"the bundle of {body['parent_id']} is not whole or not in order"


@R3.log("action")
def r3_what_ends_is_of_the_group(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """Ids that are aborted or released are unique and of the group."""
    if record.trigger not in ("abort_requests", "release_requests"):
        return
    life, ids = log.life(record), record.event["request_ids"]
    if len(set(ids)) < len(ids):
        yield f"{record.trigger} names an id twice"
    members = [] if life is None else life.members
    for request_id in ids:
        if request_id not in members and log.waiting.get(request_id) != record.parent_id:
            yield f"{record.trigger} names {request_id}, a stranger to its group"


@R5.log("stray")
def r5_a_refusal_ends_nothing_that_lives(log: LogAccount, record: LogRecord) -> Iterator[str]:
    """What a refused event brings is for a request without an owner."""
    for request_id in record.event.get("request_ids", ()):
        if request_id in log.states:
            yield f"{record.trigger} of a refused event names {request_id}, which lives"


# -- the end ------------------------------------------------------------------------------------------------


@R7.log("over")
def r7_no_member_is_left(log: LogAccount, life: LoggedLife) -> Iterator[str]:
    """With the parent all of its group have been cleaned."""
    for request_id in life.members:
        if request_id in log.states:
            yield f"{request_id} is left when its group has ended"


@R3.log("over")
def r3_every_member_is_released_once(log: LogAccount, life: LoggedLife) -> Iterator[str]:
    """The parent first, then in role order; what was aborted may be released later, when it has reported."""
    waiting = [request_id for request_id in life.aborted if request_id not in life.released]
    expected = [request_id for request_id in life.members if request_id not in waiting]
    if log.tells_actions and life.released != expected:
        yield f"released of {life.parent_id} is {life.released}, not {expected}"
