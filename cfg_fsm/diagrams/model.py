"""The form between the tables and the renderers: nodes, edges, and what kind each of them is.

It says what a picture shows and nothing about how: colours, borders and shapes belong to a renderer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NodeKind(Enum):
    """What a node stands for."""

    ENTRY = "entry"
    """The dot that the entry arrow comes from."""
    STATE = "state"
    """A state of a request that has not ended."""
    DONE = "done"
    """The request has ended, and not by a failure."""
    FAILED = "failed"
    """The request has ended by a failure."""
    FINAL = "final"
    """No transition leads out of it."""
    RULE = "rule"
    """A coupling row: its condition, as a note."""


class EdgeKind(Enum):
    """What an edge stands for."""

    NORMAL = "normal"
    """A transition, or the trigger that a coupling row fires."""
    FAILURE = "failure"
    """The same, where it is a failure."""
    CONDITION = "condition"
    """From a state to the coupling row that asks for it."""


@dataclass(frozen=True, slots=True)
class Label:
    """One trigger on an edge, with what fires it."""

    head: str
    """``trigger`` or ``trigger [guard]``."""
    causes: tuple[str, ...] = ()
    """Events, then deadlines, then coupling rows; each once."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``id`` is unique in its diagram and matches ``[a-z_]+``."""

    id: str
    kind: NodeKind
    title: str = ""
    lines: tuple[str, ...] = ()
    """Text under the title."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow. There is at most one for each ``(source, dest, kind)``; its labels are the rows it stands for."""

    source: str
    dest: str
    kind: EdgeKind
    labels: tuple[Label, ...] = ()
    line: int | None = None
    """Where one end is a ``RULE``: the line of it that the arrow is about."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A frame around nodes, top to bottom in this order. ``id`` is unique as a node's is."""

    id: str
    title: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagram:
    """A picture. The order of everything in it is part of it."""

    name: str
    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    clusters: tuple[Cluster, ...] = ()
    key: tuple[str, ...] = ()
    """Lines that say how to read it."""
