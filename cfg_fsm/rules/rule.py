"""What a rule is: a name, a sentence, and the checks that hold it against what happens.

A check is a function, registered under its rule by a decorator::

    @R2.step
    def r2_a_forward_carries_the_whole_bundle(step: Step) -> None:
        ...

Its name says what it asks; its place in the file decides when it is asked. What it takes depends on its ``Kind``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import update_wrapper
from typing import Any, Literal, TypeAlias, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Kind(Enum):
    """What a check looks at. All but ``LOG`` raise ``Broken`` if the rule does not hold."""

    CALL = "call"
    """It makes a call of the engine, given as a function without parameters, and returns what that returns."""
    STEP = "step"
    """A ``Step``."""
    TWIN = "twin"
    """A ``Step`` and what a second registry in the same state did: a ``Repetition``."""
    WALK = "walk"
    """A registry, from which it goes on by itself. It leaves the registry alone."""
    LOG = "log"
    """A ``LogAccount`` and what comes next in an audit log. It yields what is wrong, in words."""


#: When a check of the kind ``LOG`` is asked: a machine is created; it moves; the host is told something of a
#: group; the host is told something because of a refused event; a life is over.
Moment: TypeAlias = Literal["created", "transition", "action", "stray", "over"]


class Broken(AssertionError):
    """A rule does not hold."""

    def __init__(self, what: str, context: object = None, *, ticks: int = 0, check: Check | None = None) -> None:
        super().__init__(what)
        self.what = what
        """What should hold and does not, in words."""
        self.context = context
        """The step, say."""
        self.ticks = ticks
        """How many ticks, each at the next deadline, led on to it from where it was asked."""
        self.check = check
        """Which check found it."""

    @property
    def headline(self) -> str:
        """The rule and what is broken, on one line."""
        what = self.what.partition("\n")[0]
        return what if self.check is None else f"{self.check.rule.name}: {what}"

    def __str__(self) -> str:
        context = [] if self.context is None else [str(self.context)]
        return "\n".join([self.headline, *self.what.splitlines()[1:], *context])


class Check:
    """A function that looks whether a rule holds. It is called as the function is."""

    __name__: str

    def __init__(self, rule: Rule, kind: Kind, holds: Callable[..., Any], moment: Moment | None = None) -> None:
        update_wrapper(self, holds)
        self.rule, self.kind = rule, kind
        self.moment = moment
        """Of the kind ``LOG`` only."""
        self._holds = holds

    def __call__(self, *args: Any) -> Any:
        """Ask it. A ``Broken`` that it raises says that it comes from here."""
        try:
            return self._holds(*args)
        except Broken as broken:
            if broken.check is None:
                broken.check = self
            raise

    def __repr__(self) -> str:
        return f"<{self.rule.name}: {self.name}>"

    @property
    def name(self) -> str:
        """The function's name: what it asks, in words."""
        return self.__name__


@dataclass(frozen=True, eq=False)
class Rule:
    """Something that holds after every step, for every order of events."""

    name: str
    """``R1`` to ``R12``, or a word."""
    title: str
    """In two or three words."""
    sentence: str
    """What it promises."""
    checks: list[Check] = field(default_factory=list, repr=False)
    """In the order in which they are asked."""

    def __str__(self) -> str:
        return self.name

    def call(self, function: F) -> F:
        """Decorator: the function makes a call of the engine, see ``Kind.CALL``."""
        return self._register(Kind.CALL, function)

    def step(self, function: F) -> F:
        """Decorator: the function looks at one step, see ``Kind.STEP``."""
        return self._register(Kind.STEP, function)

    def twin(self, function: F) -> F:
        """Decorator: the function looks at a step and its repetition, see ``Kind.TWIN``."""
        return self._register(Kind.TWIN, function)

    def walk(self, function: F) -> F:
        """Decorator: the function goes on from a registry, see ``Kind.WALK``."""
        return self._register(Kind.WALK, function)

    def log(self, moment: Moment) -> Callable[[F], F]:
        """Decorator: the function reads an audit log, see ``Kind.LOG``; ``moment`` says when."""
        return lambda function: self._register(Kind.LOG, function, moment)

    def _register(self, kind: Kind, function: F, moment: Moment | None = None) -> F:
        check = Check(self, kind, function, moment)
        self.checks.append(check)
        CHECKS.append(check)
        return cast(F, check)


#: Every check, in the order in which they are asked. It is complete when ``cfg_fsm.rules`` has been imported.
CHECKS: list[Check] = []


def require(condition: bool, what: str, context: object = None) -> None:
    """Raise ``Broken`` unless the condition holds."""
    if not condition:
        raise Broken(what, context)
