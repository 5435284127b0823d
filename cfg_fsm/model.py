"""The base of events and limits: pydantic models whose errors say what to write."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError


class Model(BaseModel):
    """Frozen, without unknown fields, and silent about the values that were refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, /, *args: object, **data: Any) -> None:
        """The fields by name. Raises ``pydantic.ValidationError``, with the nearest name for an unknown one, and
        ``TypeError`` for values without a name."""
        if args:
            name, field = type(self).__name__, next(iter(_own(type(self))), "...")
            raise TypeError(f"{name} takes its fields by name, as in {name}({field}=...)")
        try:
            self.__pydantic_validator__.validate_python(data, self_instance=self)
        except ValidationError as error:
            raise _hinted(error, type(self)) from None

    # It does what the method of the base does: without this mark pydantic would call it for JSON as well.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def _own(model: type[BaseModel]) -> list[str]:
    """The fields of a model, those of its own before those that all have."""
    return sorted((name for name in model.model_fields if name != "type"), key=lambda name: name in ("at", "life"))


def _hinted(error: ValidationError, model: type[BaseModel]) -> ValidationError:
    """The same error; an unknown field names the nearest of those there are."""
    details = error.errors(include_url=False)
    if all(one["type"] != "extra_forbidden" for one in details):
        return error
    return ValidationError.from_exception_data(error.title, [_one(one, model) for one in details], hide_input=True)


def _one(details: Any, model: type[BaseModel]) -> InitErrorDetails:
    kind: str | PydanticCustomError = details["type"]
    if details["type"] == "extra_forbidden" and len(details["loc"]) == 1:
        names = _own(model)
        close = get_close_matches(str(details["loc"][0])[:60], names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"the fields are: {', '.join(names)}"
        kind = PydanticCustomError("extra_forbidden", "There is no such field; {hint}", {"hint": hint})
    shown = InitErrorDetails(type=kind, loc=details["loc"], input=details.get("input"))
    if "ctx" in details and not isinstance(kind, PydanticCustomError):
        shown["ctx"] = details["ctx"]
    return shown
