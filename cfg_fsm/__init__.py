"""An explicit finite-state-machine engine for the requests of a multi-stage inference server."""

from importlib.metadata import PackageNotFoundError, version

from cfg_fsm import events
from cfg_fsm.actions import (
    AbortRequests,
    AcknowledgeAbort,
    Action,
    Dispatched,
    FailParent,
    ForwardParent,
    ReleaseRequests,
)
from cfg_fsm.engine.registry import Registry
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.events import Event, parse_event
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker
from cfg_fsm.limits import Limits
from cfg_fsm.states import CompanionState, FailureReason, ParentState

try:
    __version__ = version("cfg_fsm")
except PackageNotFoundError:  # pragma: no cover - only in a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "AbortRequests",
    "AcknowledgeAbort",
    "Action",
    "CfgCompanionTracker",
    "CfgFsmError",
    "CompanionState",
    "Dispatched",
    "Event",
    "FailParent",
    "FailureReason",
    "ForwardParent",
    "Limits",
    "ParentState",
    "Registry",
    "ReleaseRequests",
    "__version__",
    "events",
    "parse_event",
]
