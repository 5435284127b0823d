"""What the tests of the engine share."""

import pytest
from helpers import Host


@pytest.fixture
def host() -> Host:
    return Host()
