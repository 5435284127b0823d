"""What all tests share."""

import gc

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests side by side are slow at times; that is no failure.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.fixture
def no_collector():
    """The garbage collector rests, so that what dies is let go by reference counting alone."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
