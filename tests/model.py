"""The rules, and the account they are held against. They are stated in the package: the explorer uses them too."""

from cfg_fsm import Registry
from cfg_fsm.rules.checker import Checker, watched

#: What a registry holds.
take_picture = Registry.snapshot

__all__ = ["Checker", "take_picture", "watched"]
