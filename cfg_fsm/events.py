"""Events: facts that the scheduler reports, in the past tense.

Every event is a frozen pydantic model, told apart by ``type``. Malformed input raises
``pydantic.ValidationError`` when the event is built, so ``Registry.dispatch`` meets only well-formed ones.

Payloads (``engine_outputs``, ``output``, ``context``) travel by reference: they are never copied, printed
or logged, and nothing keeps them after the group ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError, from_json

from cfg_fsm.limits import Limits
from cfg_fsm.model import Model
from cfg_fsm.payload import describe_payload
from cfg_fsm.strict import NotStrict, count_keys, refuse_repeated_keys, short


def _writable(text: str) -> str:
    """The text, lone surrogates escaped: an error may name a file whose name is no UTF-8, and is to be logged."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


RequestId: TypeAlias = Annotated[str, StringConstraints(strict=True, min_length=1)]
Role: TypeAlias = Annotated[str, StringConstraints(strict=True, min_length=1)]
#: Monotonic seconds, finite, not negative.
Seconds: TypeAlias = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
#: A whole number that 64 bits hold.
Index: TypeAlias = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
Life: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Text: TypeAlias = Annotated[str, StringConstraints(strict=True), AfterValidator(_writable)]
FinishReason: TypeAlias = Literal["stop", "length", "abort", "error"]


class EventBase(Model):
    """What all events have in common."""

    #: Fields that hold a payload: carried by reference, never logged.
    payload_fields: ClassVar[tuple[str, ...]] = ()
    #: Name of the field with the id of the one request it is about; ``None``: it is about several or none.
    subject_field: ClassVar[str | None] = None

    @property
    def is_terminal(self) -> bool:
        """Whether it says that its request has ended by itself: an output or a failure (R9)."""
        return False

    @property
    def ends_parent(self) -> bool:
        """Whether it is the host's own word that a parent is over: as good as the parent's report (R9)."""
        return False

    @property
    def replica(self) -> tuple[int, int] | None:
        """``(stage_id, replica_id)`` that it says its request runs on."""
        return None

    at: Seconds | None = None
    """When it happened, in monotonic seconds. ``None``: the registry's current time, which never goes back."""

    def head(self) -> Head:
        """What an audit record of it says before its body: the ids, role and life that it names."""
        return _NOBODY

    def log_body(self) -> dict[str, Any]:
        """The event as plain data for the audit: every field but ``at`` that is not ``None``, and for each
        payload only its type and, where it has one, its length."""
        values = self.__dict__
        body: dict[str, Any] = {}
        for name, shown in self._logged:
            value = values[name]
            if shown is not None:
                value = shown(value)
            if value is not None:
                body[name] = value
        return body

    #: Whether it holds nothing that the host may change or that must not be kept, so that a record may hold the
    #: event itself until somebody reads its body.
    keeps: ClassVar[bool] = False

    #: Fields in the order in which they are logged, and how each is shown; ``None``: as it is.
    _logged: ClassVar[tuple[tuple[str, Callable[[Any], Any] | None], ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls._logged = tuple(
            (name, describe_payload if name in cls.payload_fields else _SHOWN.get(name))
            for name in ("type", *(name for name in cls.model_fields if name not in ("type", "at")))
            if name in cls.model_fields
        )
        cls.keeps = all(shown is None for _, shown in cls._logged)


#: Request, parent, role, life.
Head: TypeAlias = tuple[str | None, str | None, str | None, int | None]
_NOBODY: Head = (None, None, None, None)


def _copied(value: Any) -> Any:
    """A container of the host's own, which it may change later."""
    return None if value is None else value.copy()


def _dumped(limits: Limits | None) -> Any:
    return None if limits is None else limits.model_dump(exclude_none=True, exclude_unset=True)


#: How fields are logged that are not shown as they are.
_SHOWN: dict[str, Callable[[Any], Any]] = {"companions": _copied, "request_ids": _copied, "limits": _dumped}


class LifeEvent(EventBase):
    """An event that may say which life of its id it belongs to."""

    life: Life | None = None
    """The life it is about. An event of another life than the current one is ignored."""


class ParentRegistered(LifeEvent):
    """A client's request entered the server. Its ``life``, if given, must be greater than that id's last one."""

    subject_field = "parent_id"

    type: Literal["parent_registered"] = "parent_registered"
    parent_id: RequestId
    companions: dict[Role, RequestId] | None = None
    """``{role: companion id}`` in role order; ``{}``: none; ``None``: not told yet, so the group is unsealed."""
    streaming: Flag = False
    """Whether the parent may be forwarded again with a newer output."""
    limits: Limits | None = None
    """Values that replace the registry's limits for this parent."""

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.parent_id, self.parent_id, None, self.life


class CompanionRegistered(LifeEvent):
    """A companion was made: it joins an unsealed group or confirms that it was announced."""

    subject_field = "parent_id"

    type: Literal["companion_registered"] = "companion_registered"
    parent_id: RequestId
    role: Role
    companion_id: RequestId

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.companion_id, self.parent_id, self.role, self.life


class CompanionsSealed(LifeEvent):
    """No further companion will join the group."""

    subject_field = "parent_id"

    type: Literal["companions_sealed"] = "companions_sealed"
    parent_id: RequestId

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.parent_id, self.parent_id, None, self.life


class RequestStarted(LifeEvent):
    """A replica runs the request; again for another replica: it was bound anew."""

    subject_field = "request_id"

    type: Literal["request_started"] = "request_started"
    request_id: RequestId
    stage_id: Index = 0
    replica_id: Index | None = None

    @property
    def replica(self) -> tuple[int, int] | None:
        """See ``EventBase.replica``."""
        return None if self.replica_id is None else (self.stage_id, self.replica_id)

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.request_id, None, None, self.life


class RequestProgressed(LifeEvent):
    """A sign of life (heartbeat)."""

    subject_field = "request_id"

    type: Literal["request_progressed"] = "request_progressed"
    request_id: RequestId

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.request_id, None, None, self.life


class KvReady(LifeEvent):
    """The request's KV cache can be transferred. Progress, never completion (R6)."""

    subject_field = "request_id"

    type: Literal["kv_ready"] = "kv_ready"
    request_id: RequestId

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.request_id, None, None, self.life


class ParentOutputReady(LifeEvent):
    """The parent's own output (or, for a streaming parent, a segment of it) is here."""

    payload_fields = ("engine_outputs", "context")
    subject_field = "parent_id"

    type: Literal["parent_output_ready"] = "parent_output_ready"
    parent_id: RequestId
    stage_id: Index = 0
    engine_outputs: Any = Field(repr=False)
    segment: Flag = False
    """Whether more output of this request follows."""
    context: Any = Field(default=None, repr=False)
    """The host's own, handed back with the forward of this output."""

    @property
    def is_terminal(self) -> bool:
        """True unless it is a segment: then more follows."""
        return not self.segment

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.parent_id, self.parent_id, None, self.life


class CompanionOutputReady(LifeEvent):
    """A companion ended: with its output, or with a finish reason that is a failure (``abort``, ``error``)."""

    payload_fields = ("output",)
    subject_field = "companion_id"

    type: Literal["companion_output_ready"] = "companion_output_ready"
    companion_id: RequestId
    output: Any = Field(repr=False)
    finish_reason: FinishReason = "stop"

    @property
    def is_terminal(self) -> bool:
        """True."""
        return True

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.companion_id, None, None, self.life


class RequestFailed(LifeEvent):
    """A parent or companion reported an error."""

    subject_field = "request_id"

    type: Literal["request_failed"] = "request_failed"
    request_id: RequestId
    error: Text
    stage_id: Index | None = None
    error_type: Text | None = None
    status_code: Index | None = None
    """HTTP status for the client."""

    @property
    def is_terminal(self) -> bool:
        """True."""
        return True

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.request_id, None, None, self.life


class RequestsAborted(LifeEvent):
    """The client wants these requests to end."""

    type: Literal["requests_aborted"] = "requests_aborted"
    request_ids: Annotated[list[RequestId], Field(strict=True)]

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return None, None, None, self.life


class ReplicaLost(LifeEvent):
    """A replica of a stage is gone, and what ran on it."""

    type: Literal["replica_lost"] = "replica_lost"
    stage_id: Index
    replica_id: Index
    error: Text = ""

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return None, None, None, self.life


class ForwardRejected(LifeEvent):
    """The host could not carry out a ``forward_parent``."""

    subject_field = "parent_id"

    type: Literal["forward_rejected"] = "forward_rejected"
    parent_id: RequestId
    error: Text

    @property
    def ends_parent(self) -> bool:
        """True."""
        return True

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.parent_id, self.parent_id, None, self.life


class ParentFinished(LifeEvent):
    """The downstream stages are over with the parent."""

    subject_field = "parent_id"

    type: Literal["parent_finished"] = "parent_finished"
    parent_id: RequestId

    @property
    def ends_parent(self) -> bool:
        """True."""
        return True

    def head(self) -> Head:
        """See ``EventBase.head``."""
        return self.parent_id, self.parent_id, None, self.life


class ClockTicked(EventBase):
    """Time went on. The only event in which deadlines end parents."""

    type: Literal["clock_ticked"] = "clock_ticked"
    at: Seconds
    life: ClassVar[None] = None
    """It is about no life in particular."""


def type_of(model: type[EventBase]) -> str:
    """The ``type`` of an event model."""
    return str(model.model_fields["type"].default)


Event: TypeAlias = (
    ParentRegistered
    | CompanionRegistered
    | CompanionsSealed
    | RequestStarted
    | RequestProgressed
    | KvReady
    | ParentOutputReady
    | CompanionOutputReady
    | RequestFailed
    | RequestsAborted
    | ReplicaLost
    | ForwardRejected
    | ParentFinished
    | ClockTicked
)

EVENT_MODELS: tuple[type[EventBase], ...] = get_args(Event)

_ADAPTER: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="type")], config=ConfigDict(hide_input_in_errors=True)
)


_TEXTS = (bytes, str, bytearray)
_LONG = 1 << 16
"""Bytes of a text from which on it is screened before it is validated."""
_MANY = 64
"""More fields than any event has, or any limits."""


def parse_event(data: dict[str, Any] | str | bytes) -> Event:
    """The event that a mapping or a JSON text describes.

    Raises ``pydantic.ValidationError`` if it is not one. JSON text is read strictly (see ``cfg_fsm.strict``): in
    none of its objects may a key stand twice, of which only the last would be seen, and its payloads, too, hold
    only finite numbers and are nested ``MAX_DEPTH`` deep at most.
    """
    if not isinstance(data, _TEXTS):
        return _ADAPTER.validate_python(data)
    if len(data) > _LONG:
        _screen(data)
    event = _ADAPTER.validate_json(data)
    keys = len(event.__pydantic_fields_set__)
    nested = _NESTED.get(type(event))
    try:
        if nested is not None:
            keys += nested(event)
        if type(data) is not bytes or data.count(b":") != keys:
            refuse_repeated_keys(data if isinstance(data, str) else bytes(data), keys)
    except NotStrict as refused:
        raise _refusal(event.type, refused) from None
    return event


def _keys_of_registration(event: Any) -> int:
    limits = 0 if event.limits is None else len(event.limits.model_fields_set)
    return limits + len(event.companions or ())


_NESTED: dict[type[EventBase], Callable[[Any], int]] = {
    ParentRegistered: _keys_of_registration,
    ParentOutputReady: lambda event: count_keys(event.engine_outputs) + count_keys(event.context),
    CompanionOutputReady: lambda event: count_keys(event.output),
}
"""How many keys stand in the fields of an event, where these may be objects."""


def _refusal(event_type: str, refused: NotStrict) -> ValidationError:
    error = PydanticCustomError(refused.code, "{why}", {"why": str(refused)})
    where = (refused.key,) if refused.key else ()
    return ValidationError.from_exception_data(
        event_type, [{"type": error, "loc": where, "input": None}], hide_input=True
    )


def _screen(text: str | bytes | bytearray) -> None:
    """Refuse a long text by the first thing that is wrong with it, where each further one would be an error of
    its own: pydantic keeps a kilobyte of each."""
    try:
        data = from_json(text)
    except ValueError:
        return  # said better when it is validated
    if not isinstance(data, dict):
        return
    event_type = short(str(data.get("type")))
    found: list[InitErrorDetails] = []
    limits = data.get("limits")
    if len(data) > _MANY or (isinstance(limits, dict) and len(limits) > _MANY):
        found.append({"type": PydanticCustomError("too_many_fields", "It has far too many fields"), "input": None})
    for name in ("request_ids", "companions"):
        value = data.get(name)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        wrong = next((key for key, item in items if not isinstance(item, str) or not item), None)
        if wrong is not None:
            error = PydanticCustomError("not_an_id", "Must be a string that is not empty")
            found.append({"type": error, "loc": (event_type, name, short(str(wrong))), "input": None})
    if found:
        raise ValidationError.from_exception_data(event_type, found, hide_input=True)
