"""Payloads: what the host carries through the engine. They are never copied, printed or logged, only described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The name of a class, whatever its metaclass makes of ``__name__``.
_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
_SIZED = (str, bytes, list, tuple, dict, set, frozenset)


def describe_payload(value: object) -> dict[str, Any]:
    """``{"type": ..., "size": ...}`` of a payload; ``size`` only for built-in containers and strings."""
    described: dict[str, Any] = {"type": _name_of(type(value))}
    if type(value) in _SIZED:
        described["size"] = len(value)  # type: ignore[arg-type]
    return described
