"""The option ``--limits``: what it may say, and what it means."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import typer
from pydantic import ValidationError

from cfg_fsm.cli.places import Input, place_of
from cfg_fsm.limits import Limits
from cfg_fsm.lines import in_words, short
from cfg_fsm.strict import NotStrict, loads

_MOST = 1 << 20
"""Bytes of a file with limits."""
_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|NaN|-?Infinity")


def parse_limits(texts: list[str], inputs: list[Input] | None = None) -> Limits:
    """The limits that ``--limits`` options describe. The files that were read are added to ``inputs``. Raises
    ``typer.BadParameter`` for a wrong name or value, and ``OSError`` for a file that cannot be read."""
    values: dict[str, Any] = {}
    for text in texts:
        if text.startswith("@"):
            pairs = _limits_object(_read(text[1:], inputs), text[1:])
        elif text.lstrip().startswith("{"):
            pairs = _limits_object(text.encode("utf-8", "surrogatepass"), "the JSON object")
        else:
            pairs = _limits_pairs(text)
        for name, value in pairs.items():
            if name in values:
                raise _bad_limits(f"{short(name)} is given twice")
            values[name] = value
    for name in values:
        if name not in Limits.model_fields:
            close = get_close_matches(name[:60], Limits.model_fields, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise _bad_limits(
                f"there is no limit '{short(name)}'; {hint}the names are: {', '.join(Limits.model_fields)}"
            )
    try:
        return Limits.model_validate(values)
    except ValidationError as error:
        wrong = [f"{details['loc'][0]}: {in_words(details)}" for details in error.errors(include_url=False)]
        raise _bad_limits("; ".join(wrong)) from None


def _bad_limits(why: str) -> typer.BadParameter:
    return typer.BadParameter(why, param_hint="'--limits'")


def _limits_pairs(text: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise _bad_limits(f"'{short(pair)}' is not NAME=VALUE, as in deferred_s=30")
        if name in pairs:
            raise _bad_limits(f"{short(name)} is given twice")
        pairs[name] = _value(value)
    if not pairs:
        raise _bad_limits("it is empty; give NAME=VALUE pairs, as in deferred_s=30")
    return pairs


def _value(text: str) -> Any:
    """A number, or ``None``, or the text itself: the model says what it wants."""
    if text in ("none", "null"):
        return None
    try:
        return int(text) if _WHOLE.fullmatch(text) else float(text) if _NUMBER.fullmatch(text) else text
    except ValueError:  # of more digits than Python wants to read
        return text


def _read(path: str, inputs: list[Input] | None) -> bytes:
    with open(path, "rb") as file:
        if inputs is not None:
            inputs.append(Input(path, "these are the limits; they", place_of(file)))
        text = file.read(_MOST + 1)
    if len(text) > _MOST:
        raise _bad_limits(f"{path}: it is longer than {_MOST >> 20} MiB, and so are no limits")
    return text.removeprefix(b"\xef\xbb\xbf")


def _limits_object(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = loads(text)
    except NotStrict as error:
        raise _bad_limits(f"{where}: {error}") from None
    if not isinstance(found, dict):
        raise _bad_limits(f'{where} must hold one object, as in {{"deferred_s": 30}}')
    return found
