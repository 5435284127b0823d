"""Traces: events as JSON lines, read from a plain or gzip file or from standard input.

A line goes to the event parser as the bytes that stand in the file; whatever can wait for a bad line (is it blank?
is it UTF-8?) waits for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from cfg_fsm.errors import BadLine
from cfg_fsm.events import EVENT_MODELS, Event, parse_event, type_of
from cfg_fsm.lines import OVERLONG, LineSource, in_words, not_json, overlong, short

_SHOWN = 3
_TYPES = tuple(type_of(model) for model in EVENT_MODELS)


def read_events(
    source: LineSource, on_bad: Callable[[BadLine], object] | None = None
) -> Iterator[tuple[int, Event]]:
    """``(line number from 1, event)`` for every line that is not blank.

    A line that is not an event raises ``BadLine``, or is given to ``on_bad`` and skipped. ``DamagedFile``
    always passes through: nothing comes after it.
    """
    number = 0
    for batch in source.batches():
        for line in batch:
            number += 1
            if not line:
                continue
            try:
                event = parse_event(line)
            except ValidationError as error:
                if not line.strip():
                    continue
                why = overlong(source.max_line) if line is OVERLONG else reason(error, line)
                if source.torn:
                    why += " (the file ends in the middle of this line)"
                bad = BadLine(source.name, number, why)
                if on_bad is None:
                    raise bad from error
                on_bad(bad)
            else:
                yield number, event


def reason(error: ValidationError, line: bytes) -> str:
    """What is wrong with a line, as one short line: ``field.path: message``. Values are not repeated."""
    try:
        line.decode()
    except UnicodeDecodeError as undecodable:
        return f"not UTF-8 text (byte {undecodable.start + 1} of the line)"
    found = error.errors(include_url=False, include_input=False)
    parts = [_one(details) for details in found[:_SHOWN]]
    if len(found) > _SHOWN:
        parts.append(f"and {len(found) - _SHOWN} more")
    return "; ".join(parts)


def _one(details: Any) -> str:
    match details["type"]:
        case "union_tag_invalid":
            tag = details["ctx"]["tag"]
            close = get_close_matches(tag[:60], _TYPES, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(_TYPES)}"
            return f"type: no event is called {short(tag)!r}; {hint}"
        case "union_tag_not_found":
            return "type: it is missing"
        case "json_invalid":
            return not_json(details["ctx"]["error"].replace("at line 1 column", "at column"))
        case "not_finite" | "too_deep" | "too_many_fields":
            return in_words(details)
    where = ".".join("(its name)" if part == "[key]" else short(str(part)) for part in details["loc"])
    return f"{where}: {in_words(details)}" if where else f"an event {in_words(details)}"
