"""The examples of the README run, and what it says of the tracker is what the tracker says of itself."""

import re

import pytest
from paths import ROOT

from cfg_fsm import CfgCompanionTracker

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example):
    assert "assert" in example
    exec(compile(example, "README.md", "exec"), {})


def test_the_table_of_differences_is_that_of_the_tracker():
    doc = " ".join((CfgCompanionTracker.__doc__ or "").split())
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", README.partition("| the original | here |")[2], re.MULTILINE
    )
    rows = rows[: next(i for i, row in enumerate(rows) if "deferred for ever" in row[0]) + 1]
    assert len(rows) == 10
    for row in rows:
        for word in re.findall(r"[a-z]{4,}", " ".join(row)):
            assert word in doc, (word, row)
