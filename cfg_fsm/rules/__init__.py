"""The rules R1 to R12 and their like, executable, and the independent account that they are checked against.

    from cfg_fsm.rules import RULES

    RULES["R7"].sentence  # what it promises
    RULES["R7"].checks    # what asks whether it holds

``statements`` says what holds. ``verdicts``, ``answers``, ``worlds`` and ``walks`` ask it of the steps of a
registry, ``logs`` asks it of an audit log. ``checker`` walks beside a registry and asks; the explorer
(``cfg_fsm.explore``) goes every way and asks; ``cfg_fsm.audit.conform`` reads a log and asks. ``history`` is the
account.
"""

# The checks are asked in the order in which they are defined, so these imports stand in order, and not sorted.
# isort: off
from cfg_fsm.rules.statements import RULES
from cfg_fsm.rules import verdicts, answers, worlds, walks, logs  # noqa: F401 - they register themselves
from cfg_fsm.rules.rule import CHECKS, Broken, Check, Kind, Rule
from cfg_fsm.rules.checker import Checker, watched
# isort: on

__all__ = ["CHECKS", "RULES", "Broken", "Check", "Checker", "Kind", "Rule", "watched"]
