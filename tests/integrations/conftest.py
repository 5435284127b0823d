"""The trackers that are tested."""

from __future__ import annotations

import pytest
from real_tracker import Clock, original_class

from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker


@pytest.fixture(params=["ours", "original"])
def tracker(request):
    """What is said of the 15 methods holds for ours and for the original."""
    return CfgCompanionTracker(clock=Clock()) if request.param == "ours" else original_class()()


@pytest.fixture
def original():
    return original_class()()


@pytest.fixture
def ours():
    return CfgCompanionTracker(clock=Clock())
