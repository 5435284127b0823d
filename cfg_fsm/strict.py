"""JSON that is read strictly: what was written once is read once, and what was read can be written again.

Beyond the grammar of JSON: no key of an object stands twice, every number is finite, and values are nested at most
``MAX_DEPTH`` deep. ``loads`` reads a text so; ``count_keys`` holds a value against it that a faster parser has
read already, which overlooks the first two.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

MAX_DEPTH = 100
"""How deep lists and objects may be nested. An honest payload needs a handful; the parsers give up at 200, and
Python's own at a depth that differs from version to version."""

_SHOWN = 60
_PLAIN = frozenset((str, int, bool, type(None)))
_JSON_WORDS = (
    ("EOF while parsing", "it ends in the middle of"),
    ("expected ident", "an unknown word"),
    ("expected value", "a value is expected"),
    ("Expecting value", "a value is expected"),
    ("trailing characters", "there is more after its end"),
    ("Extra data:", "there is more after its end"),
    ("recursion limit exceeded", "it is nested too deep"),
)
_SPACE_BEFORE_COLON = {str: (" :", "\t:", "\n:", "\r:"), bytes: (b" :", b"\t:", b"\n:", b"\r:")}


class NotStrict(ValueError):
    """A text that is no JSON, or JSON that is not let in.

    ``code``: ``not_json``, ``repeated_key``, ``not_finite`` or ``too_deep``. ``key``: the one that stands twice,
    shortened for people; else empty.
    """

    def __init__(self, code: str, why: str, key: str = "") -> None:
        super().__init__(why)
        self.code, self.key = code, key


def loads(text: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises ``NotStrict``, whose message is a sentence for people."""
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise too_deep()
    try:
        return _DECODER.decode(text.decode())
    except UnicodeDecodeError as error:
        raise NotStrict("not_json", f"not UTF-8 text (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        why = not_json(f"{error.msg.removesuffix(' at')} at column {error.colno}")
        raise NotStrict("not_json", why) from error
    except NotStrict:
        raise
    except ValueError as error:  # what Python says of more digits than it wants to read
        raise NotStrict("not_json", "a number has too many digits") from error


def count_keys(value: Any) -> int:
    """How many keys the objects in a value have that was read from a field of a JSON object.

    Raises ``NotStrict`` if it is nested too deep or has a number that is not finite.
    """
    kind = type(value)
    if kind in _PLAIN:
        return 0
    if kind is dict and _PLAIN.issuperset(map(type, value.values())):
        return len(value)
    keys = depth = 0
    level: list[Any] = [(value,)]
    while level:
        depth += 1  # first the object whose field it is
        if depth > MAX_DEPTH:
            raise too_deep()
        below: list[Any] = []
        for items in level:
            kinds = set(map(type, items))
            if float in kinds and not all(isfinite(item) for item in items if type(item) is float):
                raise NotStrict("not_finite", "a number is NaN, Infinity, or beyond what a float holds")
            if list in kinds:
                below += [item for item in items if type(item) is list]
            if dict in kinds:
                objects = [item for item in items if type(item) is dict]
                keys += sum(map(len, objects))
                below += [item.values() for item in objects]
        level = below
    return keys


def refuse_repeated_keys(text: str | bytes, keys: int) -> None:
    """Raise ``NotStrict`` if a key stands twice in an object of a JSON text, which was parsed to ``keys`` keys.

    Each key that is written has a colon, and a repeated one is lost in parsing. So there are no more colons than
    keys where none is repeated; only where strings have colons too must it be looked at again.
    """
    kind = str if isinstance(text, str) else bytes
    colon: Any = ":" if kind is str else b":"
    if text.count(colon) == keys:
        return
    quoted: Any = '":' if kind is str else b'":'
    if text.count(quoted) == keys and not any(space in text for space in _SPACE_BEFORE_COLON[kind]):  # type: ignore[operator]
        return
    _KEYS_ONLY.decode(text if isinstance(text, str) else text.decode())


def too_deep() -> NotStrict:
    """The refusal of a value that is nested too deep."""
    return NotStrict("too_deep", f"it is nested more than {MAX_DEPTH} deep")


def not_json(why: str) -> str:
    """What a JSON parser said, in words."""
    for theirs, ours in _JSON_WORDS:
        why = why.replace(theirs, ours)
    return f"this is not JSON: {why[:1].lower()}{why[1:]}"


def printable(text: str) -> str:
    """``text`` on one line, with what a terminal would obey or not show written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short(text: str, width: int = _SHOWN) -> str:
    """``text`` as people should see it: printable, and cut where it is longer than ``width``."""
    text = printable(text[: width + 1])
    return text if len(text) <= width else text[: width - 3] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotStrict("repeated_key", f"key '{short(key)}' stands twice", short(key))
            seen.add(key)
    return found


def _float(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise NotStrict("not_finite", "a number is beyond what a float holds")
    return number


def _constant(word: str) -> Any:
    raise NotStrict("not_finite", f"{word} is no number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_float, parse_constant=_constant)
_KEYS_ONLY = json.JSONDecoder(object_pairs_hook=_unique, parse_float=len, parse_int=len)


_BRACKETS = re.compile(rb"[\[\]{}]")


def _depth(text: bytes) -> int:
    """How deep a JSON text is nested."""
    outside = b"".join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    depth = deepest = 0
    for bracket in _BRACKETS.finditer(outside):
        if bracket[0] in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest
