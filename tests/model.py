"""The rules, and the account they are held against. They are stated in the package: the explorer uses them too."""

from cfg_fsm.explore.properties import PROPERTIES, Checker, watched
from cfg_fsm.explore.step import take_picture

__all__ = ["PROPERTIES", "Checker", "take_picture", "watched"]
