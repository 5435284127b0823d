"""What a record of each kind must look like, so that whoever reads a log need not ask again.

A log may come from anybody. What is let in here can be told, checked and printed, though it need not be true.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from cfg_fsm.events import parse_event
from cfg_fsm.lines import in_words, short
from cfg_fsm.states import MachineKind

_MOST = sys.float_info.max
_INT64 = 1 << 63
_MOST_LIVES = _INT64 << 1
"""The engine counts on from the last life that an event can name."""
_MACHINES = frozenset(str(machine) for machine in MachineKind)
_COMPANION = MachineKind.COMPANION.value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_null(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < _INT64


def _is_int(value: Any) -> bool:
    return type(value) is int and -_INT64 <= value < _INT64


def _is_life(value: Any) -> bool:
    return type(value) is int and -_INT64 <= value <= _MOST_LIVES


def _is_life_or_null(value: Any) -> bool:
    return value is None or _is_life(value)


def _is_int_or_null(value: Any) -> bool:
    return value is None or _is_int(value)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and -_MOST <= value <= _MOST


def _is_machine(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value in _MACHINES)


def _is_body(value: Any) -> bool:
    return isinstance(value, str | dict)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_texts_by_text(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


FIELDS: dict[str, Callable[[Any], bool]] = {
    "seq": _is_count,
    "at": _is_time,
    "ts": _is_text,
    "kind": _is_text,
    "machine": _is_machine,
    "request_id": _is_text_or_null,
    "parent_id": _is_text_or_null,
    "role": _is_text_or_null,
    "life": _is_life_or_null,
    "trigger": _is_text_or_null,
    "source": _is_text_or_null,
    "dest": _is_text_or_null,
    "reason": _is_text_or_null,
    "event": _is_body,
    "event_seq": _is_count,
    "prev": _is_text,
    "hash": _is_text,
}
"""The fields of a line in its order, and what each may be."""

NEEDED: dict[str, tuple[str, ...]] = {
    "created": ("machine", "request_id", "parent_id", "life", "dest"),
    "transition": ("machine", "request_id", "parent_id", "life", "trigger", "source", "dest"),
    "ignored": ("reason",),
    "rejected": ("reason",),
    "event": (),
    "action": ("trigger",),
}
"""By kind, the fields that are not null."""

ACTIONS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "forward_parent": {
        "parent_id": _is_text,
        "life": _is_life,
        "stage_id": _is_int,
        "engine_outputs": _is_object,
        "companion_request_ids": _is_texts_by_text,
        "companion_outputs": _is_objects,
        "context": _is_object,
    },
    "fail_parent": {
        "parent_id": _is_text,
        "life": _is_life,
        "stage_id": _is_int_or_null,
        "reason": _is_text,
        "error": _is_text,
        "companion_id": _is_text_or_null,
        "error_type": _is_text_or_null,
        "status_code": _is_int_or_null,
    },
    "abort_requests": {"request_ids": _is_texts},
    "release_requests": {"request_ids": _is_texts},
    "acknowledge_abort": {"outcomes": _is_texts_by_text},
}
"""By type, the fields of an action as an audit has it."""


def check(data: Any) -> None:
    """Raise ``ValueError``, with a sentence that says why, if this is not a line of an audit."""
    if not isinstance(data, dict):
        raise ValueError("not an audit record: a JSON object is expected")
    _same_keys("", data, FIELDS)
    for name, fits in FIELDS.items():
        if not fits(data[name]):
            raise ValueError(f"not an audit record: {name} is of the wrong type")
    kind, body = data["kind"], data["event"]
    needed = NEEDED.get(kind)
    if needed is None:
        raise ValueError(f"not an audit record: no kind is called '{short(kind)}'")
    for name in needed:
        if data[name] is None:
            raise ValueError(f"not an audit record: {name} is null, which it never is where kind is {kind}")
    if data["machine"] == _COMPANION and data["role"] is None and "machine" in needed:
        raise ValueError("not an audit record: role is null, which it never is of a companion")
    if isinstance(body, dict) is not (kind in ("event", "action")):
        raise ValueError(f"not an audit record: event is of the wrong type where kind is {kind}")
    if kind == "event":
        _check_event(body, data["at"])
    elif kind == "action":
        _check_action(body, data["trigger"])


def _same_keys(where: str, data: dict[str, Any], names: Any) -> None:
    if data.keys() != names.keys():
        missing, extra = sorted(names.keys() - data.keys()), sorted(data.keys() - names.keys())
        raise ValueError(
            f"not an audit record: {where}"
            + "; ".join(
                f"{what} {', '.join(short(name) for name in these[:5])}"
                for what, these in (("it lacks", missing), ("unknown", extra))
                if these
            )
        )


def _check_event(body: dict[str, Any], at: float) -> None:
    try:
        event = parse_event({"at": at, **body})  # which stands beside the body
    except ValidationError as error:
        details: Any = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(short(str(part)) for part in ("event", *details["loc"][1:]))
        raise ValueError(f"not an audit record: {where}: {in_words(details)}") from error
    _same_keys("event: ", body, event.log_body())


def _check_action(body: dict[str, Any], trigger: str) -> None:
    fields = ACTIONS.get(trigger)
    if fields is None:
        raise ValueError(f"not an audit record: no action is called '{short(trigger)}'")
    if body.get("type") != trigger:
        raise ValueError("not an audit record: trigger is not the type of the action")
    _same_keys("event: ", body, {"type": None, **fields})
    for name, fits in fields.items():
        if not fits(body[name]):
            raise ValueError(f"not an audit record: event.{name} is of the wrong type")
