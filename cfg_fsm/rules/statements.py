"""The rules, each stated once. They hold after every step, for every order of events.

``R1`` to ``R12`` are what a host may rely on. The others say how the answers look and how the machines move. The
README lists them all, word for word; the checks stand in the other modules of this package.
"""

from __future__ import annotations

from cfg_fsm.rules.rule import Rule

#: Each rule by its name.
RULES: dict[str, Rule] = {}


def _rule(name: str, title: str, sentence: str) -> Rule:
    RULES[name] = rule = Rule(name, title, sentence)
    return rule


R1 = _rule(
    "R1",
    "one end",
    "A parent ends once. Its failure is told once, under its cause. After that, or after the client's abort, "
    "nothing more is said of that life but its releases.",
)
R2 = _rule(
    "R2",
    "whole bundles",
    "A bundle is forwarded when it is complete: with an output for every role, in role order, or not at all.",
)
R3 = _rule(
    "R3",
    "whose ids",
    "What is aborted and released belongs to the group that ended, each id once: with the group, or, if it was "
    "aborted and `confirm_s` is set, when it has reported, its replica is lost, or that time has passed. A "
    "request without an owner is named alone.",
)
R4 = _rule(
    "R4",
    "parents' names",
    "The client hears of parents only; a companion's id never stands in a parent's place.",
)
R5 = _rule(
    "R5",
    "no harm",
    "No event, however late, repeated, unknown or stale, raises or touches another group.",
)
R6 = _rule(
    "R6",
    "done is here",
    "Done means that the output is here, in the same step. An early `kv_ready` is progress. The first output "
    "wins.",
)
R7 = _rule(
    "R7",
    "nothing left",
    "After its end nothing of a group is left but a bounded tombstone, and for `confirm_s` at most the ids whose "
    "release waits: no record, no payload, no deadline.",
)
R8 = _rule(
    "R8",
    "no return",
    "A late event never resurrects. What starts after its group ended is told to abort.",
)
R9 = _rule(
    "R9",
    "whole registrations",
    "A registration is let in whole or not at all. It is refused if an id comes twice or lives, if one may "
    "still report and no greater `life` is given, if the release of one waits, if the role is taken, or if a "
    "limit is reached.",
)
R10 = _rule(
    "R10",
    "bounded time",
    "With `total_s` set, every parent ends in bounded time, whatever stays silent.",
)
R11 = _rule(
    "R11",
    "exact deadlines",
    "The order of events decides ties, not their times. `next_deadline()` is exact, and a tick with nothing "
    "due looks at one number.",
)
R12 = _rule(
    "R12",
    "the same again",
    "The same events give the same actions and audit records, to the byte (the time of day that a file adds "
    "apart).",
)

REFUSALS = _rule(
    "refusals",
    "refusals",
    "What an event meets decides whether it is accepted, ignored or rejected. A refusal has a code and changes "
    "no live request.",
)
ABORTS = _rule(
    "aborts",
    "aborts answered",
    "Every `requests_aborted` is answered for each of its ids, in the order of first mention.",
)
ORDER = _rule(
    "order",
    "order of actions",
    "The actions of an answer stand in order: the acknowledgement, then for each group its forward or failure, "
    "its abort, its release.",
)
COUPLING = _rule(
    "coupling",
    "settled groups",
    "Between two events no coupling row is satisfied: a complete bundle does not wait, and nothing rests in a "
    "state that is passed through.",
)
VIEWS = _rule(
    "views",
    "true views",
    "`requests()` shows what the events told: states, ages, missing roles, replicas and deadlines.",
)
ROWS = _rule(
    "rows",
    "moves by rows",
    "A machine begins in its initial state, and each of its moves is a row of the tables, from where the last "
    "one led.",
)
