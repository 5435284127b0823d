"""Payloads: what the host carries through the engine. They are never copied, printed or logged, only described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The name of a class, whatever its metaclass makes of ``__name__``.
_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
_SIZED = frozenset({str, bytes, list, tuple, dict, set, frozenset})


def describe_payload(value: object) -> dict[str, Any]:
    """``{"type": ..., "size": ...}`` of a payload; ``size`` only for built-in containers and strings."""
    kind = type(value)
    if kind in _SIZED:
        return {"type": kind.__name__, "size": len(value)}  # type: ignore[arg-type]
    return {"type": _name_of(kind)}
