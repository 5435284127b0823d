"""The rules, and the account they are held against. They are stated in the package: the explorer uses them too."""

from cfg_fsm.rules.checker import PROPERTIES, Checker, watched
from cfg_fsm.rules.step import take_picture

__all__ = ["PROPERTIES", "Checker", "take_picture", "watched"]
