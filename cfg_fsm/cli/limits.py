"""The option ``--limits``: what it may say, and what it means."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from cfg_fsm.limits import Limits
from cfg_fsm.lines import in_words, not_json, printable


def parse_limits(texts: list[str]) -> Limits:
    """The limits that ``--limits`` options describe. Raises ``typer.BadParameter`` for a wrong name or value, and
    ``OSError`` for a file that cannot be read."""
    values: dict[str, Any] = {}
    for text in texts:
        pairs = _limits_object(text) if text.lstrip()[:1] in ("@", "{") else _limits_pairs(text)
        for name, value in pairs.items():
            if name in values:
                raise _bad_limits(f"{name} is given twice")
            values[name] = value
    for name in values:
        if name not in Limits.model_fields:
            close = get_close_matches(name, Limits.model_fields, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise _bad_limits(
                f"there is no limit '{printable(name)}'; {hint}the names are: {', '.join(Limits.model_fields)}"
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
            raise _bad_limits(f"'{printable(pair)}' is not NAME=VALUE, as in deferred_s=30")
        if name in pairs:
            raise _bad_limits(f"{name} is given twice")
        try:
            pairs[name] = None if value == "none" else json.loads(value)
        except ValueError:
            pairs[name] = value  # no number: the model says what it wants
    if not pairs:
        raise _bad_limits("it is empty; give NAME=VALUE pairs, as in deferred_s=30")
    return pairs


def _limits_object(text: str) -> dict[str, Any]:
    where = "the JSON object"
    if text.startswith("@"):
        where = text[1:]
        text = Path(where).read_text(encoding="utf-8", errors="replace")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad_limits(f"{where}: {not_json(error.msg)} at column {error.colno}") from None
    if not isinstance(found, dict):
        raise _bad_limits(f'{where} must hold one object, as in {{"deferred_s": 30}}')
    return found
