"""From the live tables and machines to ``Diagram``.

States and transitions are read from the ``transitions`` machines that move the records, what fires them from
the tables. Where the two differ nothing is drawn: a picture of what does not run is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transitions import Machine
from transitions.core import Transition

from cfg_fsm import tables
from cfg_fsm.diagrams.model import Cluster, Diagram, Edge, EdgeKind, Label, Node, NodeKind
from cfg_fsm.engine import machines
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.states import MachineKind, Trigger
from cfg_fsm.tables import Choice, CouplingRow, Row, Verdict

ENTRY = "entry"

_MACHINE_KEY = (
    "trigger [guard], and under it what fires it: event [guard], deadline, or coupling row",
    "dashed red: failure; grey: the request has ended; double border: the end, no way out",
)
_COUPLING_KEY = (
    "After every event, a row whose condition holds fires its trigger, again and again until none holds",
    "dotted: the row looks for this state; arrow: where the trigger it fires leads; dashed red: failure",
)
_END_OF = {Trigger.FAIL: NodeKind.FAILED, Trigger.COMPLETE: NodeKind.DONE, Trigger.FINISH: NodeKind.DONE}


def build(name: str) -> Diagram:
    """The diagram ``name``: ``"parent"``, ``"companion"`` or ``"coupling"``; another one is a ``ValueError``.

    Raises ``InvalidDefinition`` when a machine that runs was not made from the rows in the tables.
    """
    return _coupling() if name == "coupling" else _machine(MachineKind(name))


# ---------------------------------------------------------------------------
# What runs
# ---------------------------------------------------------------------------


def _guard(transition: Transition) -> str | None:
    names = [("" if each.target else "not ") + str(each.func) for each in transition.conditions]
    return " and ".join(names) or None


def _rows_of(machine: Machine) -> Iterator[Row]:
    for name, event in machine.events.items():
        for transitions in event.transitions.values():
            for each in transitions:
                yield Row(Trigger(name), each.source, str(each.dest), _guard(each))


def _running(kind: MachineKind) -> tuple[list[str], list[Row]]:
    """States in order, and rows sorted by source, destination and trigger, of the machine that runs."""
    machine = machines.MACHINES[kind]
    states = list(machine.states)
    rows = sorted(
        _rows_of(machine), key=lambda row: (states.index(row.source), states.index(row.dest), row.trigger.value)
    )
    if set(rows) != set(tables.ROWS[kind]) or states != list(tables.STATES[kind]):
        raise InvalidDefinition(
            f"{kind}: the machine that runs was not made from the rows in the tables", machine=kind
        )
    return states, rows


def _kind_of(state: str, rows: Iterable[Row]) -> NodeKind:
    if all(row.source != state for row in rows):
        return NodeKind.FINAL
    entered_by = [row.trigger for row in rows if row.dest == state]
    return next((_END_OF[trigger] for trigger in entered_by if trigger in _END_OF), NodeKind.STATE)


def _edge_kind(trigger: Trigger) -> EdgeKind:
    return EdgeKind.FAILURE if trigger is Trigger.FAIL else EdgeKind.NORMAL


# ---------------------------------------------------------------------------
# One machine
# ---------------------------------------------------------------------------


def _machine(kind: MachineKind) -> Diagram:
    states, rows = _running(kind)
    merged: dict[tuple[str, str, EdgeKind], list[Label]] = {}
    for row in rows:
        label = Label(_with(row.trigger.value, row.guard), tuple(_causes(kind, row)))
        merged.setdefault((row.source, row.dest, _edge_kind(row.trigger)), []).append(label)
    entry = Edge(ENTRY, str.__str__(tables.INITIAL[kind]), EdgeKind.NORMAL, _entry_labels(kind))
    return Diagram(
        name=kind.value,
        title=f"The {kind} machine",
        nodes=(
            Node(ENTRY, NodeKind.ENTRY),
            *(Node(state, _kind_of(state, rows), state) for state in states),
        ),
        edges=(entry, *(Edge(*place, tuple(labels)) for place, labels in merged.items())),
        key=_MACHINE_KEY,
    )


def _with(word: str, guard: str | None) -> str:
    return f"{word} [{guard}]" if guard else word


def _cell(event: str, kind: MachineKind, state: str) -> tuple[Choice, ...]:
    columns = tables.CLASSIFICATION[event]
    return (columns.parent if kind is tables.PARENT else columns.companion)[state]


def _causes(kind: MachineKind, row: Row) -> Iterator[str]:
    """What fires ``row``: events, then coupling rows, in the order of their tables."""
    for event in tables.CLASSIFICATION:
        for choice in _cell(event, kind, row.source):
            if choice.verdict is Verdict.MOVES and choice.trigger is row.trigger:
                if choice.guard == "due":
                    yield from _deadlines(event, kind, row.source)
                else:  # a guard that the row has as well is on the line above
                    yield _with(event, choice.guard if choice.guard != row.guard else None)
    for coupling in tables.COUPLING_ROWS:
        if coupling.trigger is row.trigger and row.source in _fired_states(coupling, kind):
            yield f"coupling {coupling.name}"


def _deadlines(event: str, kind: MachineKind, state: str) -> Iterator[str]:
    for row in tables.DEADLINE_ROWS:
        if row.machine is kind and state in row.states:
            yield f"{event} [{row.limit} due]"


def _entry_labels(kind: MachineKind) -> tuple[Label, ...]:
    """The events that make a new parent. A companion is made with its group or joins one: no cell of its own."""
    if kind is not tables.PARENT:
        return ()
    return tuple(
        Label(_with(event, choice.guard))
        for event, columns in tables.CLASSIFICATION.items()
        for choice in columns.absent
        if choice.verdict is Verdict.MOVES
    )


# ---------------------------------------------------------------------------
# The coupling
# ---------------------------------------------------------------------------

_FIRED_ON = {
    "parent": (tables.PARENT,),
    "companion": (tables.COMPANION,),
    "group": (tables.PARENT, tables.COMPANION),
}


def _asked_states(coupling: CouplingRow, kind: MachineKind) -> tuple[str, ...]:
    return coupling.parent if kind is tables.PARENT else coupling.companions


def _fired_states(coupling: CouplingRow, kind: MachineKind) -> tuple[str, ...]:
    """States in which a machine of ``kind`` may be when ``coupling`` fires on it; none if it never does."""
    return _asked_states(coupling, kind) if kind in _FIRED_ON[coupling.fires] else ()


def _coupling() -> Diagram:
    nodes: list[Node] = []
    edges: list[Edge] = []
    clusters: list[Cluster] = []
    for kind in (tables.PARENT, tables.COMPANION):
        states, rows = _running(kind)
        nodes += (Node(f"{kind}_{state}", _kind_of(state, rows), state) for state in states)
        clusters.append(Cluster(kind.value, kind.value, tuple(f"{kind}_{state}" for state in states)))
        for coupling in tables.COUPLING_ROWS:
            edges += _rule_edges(coupling, kind, rows)
    return Diagram(
        name="coupling",
        title="The coupling of a parent and its companions",
        nodes=(*nodes, *(_rule(coupling) for coupling in tables.COUPLING_ROWS)),
        edges=tuple(edges),
        clusters=tuple(clusters),
        key=_COUPLING_KEY,
    )


def _either(words: Iterable[str]) -> str:
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else str.__str__(last)


#: Lines of a rule: where it speaks of the states of a kind, and of what it fires.
_LINE_OF, _THEN = {tables.PARENT: 0, tables.COMPANION: 1}, 2


def _rule(coupling: CouplingRow) -> Node:
    fires = {"parent": "the parent", "companion": "that companion", "group": "the parent and every companion"}
    then = f"then {fires[coupling.fires]}: {coupling.trigger}"
    if coupling.trigger is Trigger.FAIL:
        then += f", {coupling.reason}" if coupling.reason else ", for that companion's reason"
    companions = f"{coupling.quantifier.value}: {_either(coupling.companions)}"
    if coupling.sealed:
        companions = f"set of companions: sealed, {companions}"
    return Node(
        f"rule_{coupling.name}",
        NodeKind.RULE,
        coupling.name,
        (f"parent: {_either(coupling.parent)}", companions, then),
    )


def _rule_edges(coupling: CouplingRow, kind: MachineKind, rows: Iterable[Row]) -> Iterator[Edge]:
    """From the states of ``kind`` that the row asks for, and to those that its trigger leads to."""
    rule, fired = f"rule_{coupling.name}", _fired_states(coupling, kind)
    for state in _asked_states(coupling, kind):
        yield Edge(f"{kind}_{state}", rule, EdgeKind.CONDITION, line=_LINE_OF[kind])
    for dest in dict.fromkeys(row.dest for row in rows if row.trigger is coupling.trigger and row.source in fired):
        yield Edge(rule, f"{kind}_{dest}", _edge_kind(coupling.trigger), line=_THEN)
