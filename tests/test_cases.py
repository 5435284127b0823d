"""Field failures as event sequences, each with the right answer."""

import json

import pytest
from paths import CASES
from replay import replay


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path):
    assert replay(json.loads(path.read_text())) is None


def test_there_are_cases():
    assert len(CASES) >= 20
