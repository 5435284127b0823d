"""The rules are stated once, under the names by which everything cites them, and each is asked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cfg_fsm import Limits, Registry
from cfg_fsm import events as ev
from cfg_fsm.engine.confirmations import Confirmations
from cfg_fsm.rules import CHECKS, RULES, Broken, Kind
from cfg_fsm.rules.checker import LOG_CHECKS, REGISTRY_CHECKS, STEP_CHECKS
from cfg_fsm.rules.rule import Rule, require
from cfg_fsm.rules.verdicts import r5_nothing_raises
from cfg_fsm.rules.walks import r10_ticks_alone_end_every_parent

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
NUMBERED = [f"R{number}" for number in range(1, 13)]


def plain(text):
    return " ".join(text.split())


def test_the_numbered_rules_come_first_and_in_order():
    assert list(RULES)[:12] == NUMBERED
    assert [rule.name for rule in RULES.values()] == list(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_what_it_promises_and_is_asked(name):
    rule = RULES[name]
    assert rule.title
    assert re.match(r"[A-Z`].*\.\)?$", rule.sentence)
    assert rule.checks
    assert all(check.rule is rule for check in rule.checks)


def test_every_check_has_a_name_of_its_own_that_says_what_it_asks():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.__doc__ for check in CHECKS)
    for check in CHECKS:
        number = re.match(r"r\d+_", check.name)
        assert (number[0] if number else None) == (
            f"{check.rule.name.lower()}_" if check.rule.name in NUMBERED else None
        )


def test_the_checks_are_those_of_the_rules():
    of_rules = {check for rule in RULES.values() for check in rule.checks}
    of_logs = {check for checks in LOG_CHECKS.values() for check in checks}
    assert of_rules == set(CHECKS) == {*REGISTRY_CHECKS, *of_logs}
    assert not of_logs & set(REGISTRY_CHECKS)
    assert {check for check in REGISTRY_CHECKS if check.kind is Kind.STEP} == set(STEP_CHECKS)


def test_all_numbered_rules_are_asked_of_a_registry():
    assert {check.rule.name for check in REGISTRY_CHECKS} == {*RULES} - {"rows"}


def test_the_guarantees_in_the_readme_are_the_rules():
    section = README.partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^- \*\*(\w+)\*\*: (.*?)(?=^- |^$|\Z)", section, re.DOTALL | re.MULTILINE)
    assert {name: plain(sentence) for name, sentence in listed} == {
        name: plain(rule.sentence) for name, rule in RULES.items()
    }
    assert [name for name, _ in listed] == list(RULES)


def test_the_package_is_imported_without_the_rules():
    code = "import cfg_fsm, cfg_fsm.cli, sys; print(*(name for name in sys.modules if 'cfg_fsm.rules' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# -- a rule of one's own ------------------------------------------------------------------------------------


@pytest.fixture
def made_up():
    """A rule with a check; they are not among those that everything asks."""
    known = list(CHECKS)
    rule = Rule("R0", "small numbers", "A number is small.")

    @rule.step
    def r0_it_is_small(number):
        """Less than ten."""
        require(number < 10, f"{number} is small\nand this is more", "that was all")

    yield r0_it_is_small
    CHECKS[:] = known


def test_a_broken_rule_says_which_it_is_and_what_is_not_so(made_up):
    made_up(3)
    with pytest.raises(Broken) as raised:
        made_up(30)
    broken = raised.value
    assert broken.check is made_up
    assert (broken.check.rule.name, broken.check.name, broken.check.kind) == ("R0", "r0_it_is_small", Kind.STEP)
    assert broken.headline == "R0: 30 is small"
    assert str(broken) == "R0: 30 is small\nand this is more\nthat was all"


def test_a_check_that_asks_another_is_not_taken_for_it(made_up):
    rule = Rule("R00", "smaller numbers", "A number is smaller.")

    @rule.step
    def r00_it_is_smaller(number):
        made_up(number + 5)

    with pytest.raises(Broken, match="R0: 12 is small"):
        r00_it_is_smaller(7)


# -- the checks that are no look at a step ------------------------------------------------------------------


def test_what_raises_breaks_a_rule_and_what_does_not_is_handed_on():
    assert r5_nothing_raises(lambda: 7) == 7
    with pytest.raises(Broken, match=r"R5: nothing raises out of the engine: ZeroDivisionError") as raised:
        r5_nothing_raises(lambda: 1 // 0)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_parent_that_no_deadline_ends_breaks_a_rule_that_asks_for_one():
    registry = Registry()
    registry.dispatch(ev.ParentRegistered(parent_id="p", companions={}))
    before = registry.snapshot()
    with pytest.raises(Broken, match="R10: a parent is live and no deadline will end it"):
        r10_ticks_alone_end_every_parent(registry)
    assert registry.snapshot() == before


def test_a_release_that_waits_for_ever_breaks_it_too(monkeypatch):
    registry = Registry(Limits(confirm_s=1))
    registry.dispatch_many(
        [ev.ParentRegistered(parent_id="p", companions={}), ev.RequestsAborted(request_ids=["p"])]
    )
    r10_ticks_alone_end_every_parent(registry)
    assert registry.counters()["waiting"] == 1
    monkeypatch.setattr(Confirmations, "due", lambda self, now: iter(()))
    with pytest.raises(Broken, match="R10: a tick at the next deadline ends nobody and releases nobody"):
        r10_ticks_alone_end_every_parent(registry)
    monkeypatch.setattr(Confirmations, "first", lambda self: None)
    with pytest.raises(Broken, match="R10: a release waits and no deadline will end it"):
        r10_ticks_alone_end_every_parent(registry)
