"""The original ``CfgCompanionTracker``, out of the installed ``vllm-omni`` wheel.

The one module is loaded by its path: the package around it needs a whole inference server.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

DISTRIBUTION = "vllm-omni"
MODULE = "vllm_omni/engine/cfg_companion_tracker.py"


@cache
def original_class() -> Any:
    """The class. Raises ``LookupError`` where the wheel is not installed."""
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        raise LookupError(f"{DISTRIBUTION} is not installed: `make setup` installs it") from None
    spec = importlib.util.spec_from_file_location("original_tracker", str(found.locate_file(MODULE)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CfgCompanionTracker
