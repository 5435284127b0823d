"""What all tests share."""

import gc

import budget
import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests side by side are slow at times; that is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", PATIENT, max_examples=25)
settings.register_profile("full", PATIENT, max_examples=100)


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="try everything: every exhaustive test, all the examples")


def pytest_configure(config):
    budget.full = config.getoption("--full")
    settings.load_profile("full" if budget.full else "quick")


def pytest_collection_modifyitems(config, items):
    if not budget.full:
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)


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
