"""An explicit finite-state-machine engine for the requests of a multi-stage inference server."""

from typing import TYPE_CHECKING

from cfg_fsm.lazy import loading

if TYPE_CHECKING:
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
    from cfg_fsm.version import __version__

__getattr__ = loading(
    __name__,
    {
        "cfg_fsm.actions": (
            "AbortRequests",
            "AcknowledgeAbort",
            "Action",
            "Dispatched",
            "FailParent",
            "ForwardParent",
            "ReleaseRequests",
        ),
        "cfg_fsm.engine.registry": ("Registry",),
        "cfg_fsm.errors": ("CfgFsmError",),
        "cfg_fsm.events": ("Event", "parse_event"),
        "cfg_fsm.integrations.vllm_omni.tracker": ("CfgCompanionTracker",),
        "cfg_fsm.limits": ("Limits",),
        "cfg_fsm.states": ("CompanionState", "FailureReason", "ParentState"),
        "cfg_fsm.version": ("__version__",),
    },
)

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
