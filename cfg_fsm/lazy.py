"""Names of a package that are loaded when they are first asked for.

The package is imported before the command line is: were everything loaded with it, nobody would listen yet for a
signal that comes in the first half second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loading(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package: loads a name from the module that ``homes`` lists it under, or, if it lists
    none, the module of that name."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is not None:
            value = getattr(import_module(home), name)
            setattr(sys.modules[package], name, value)
            return value
        module = f"{package}.{name}"
        if not name.startswith("__"):
            try:
                return import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
