"""``Diagram`` to DOT text, for a white page: grey lines, an ordinary font, colour for failures only."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import pairwise

from graphviz import Digraph  # type: ignore[import-untyped]

from cfg_fsm.diagrams.model import Cluster, Diagram, Edge, EdgeKind, Label, Node, NodeKind

FAILURE = "#8b0000"
_LINE, _FAINT, _SMALL, _SHADE = "#666666", "#aaaaaa", "#555555", "#f0f0f0"

_BARE = 'border="0" cellspacing="0" cellpadding="3"'

_NODE: dict[NodeKind, dict[str, str]] = {
    NodeKind.ENTRY: {"shape": "circle", "style": "filled", "fillcolor": "#333333", "width": "0.15", "label": ""},
    NodeKind.STATE: {},
    NodeKind.DONE: {"fillcolor": _SHADE},
    NodeKind.FAILED: {"fillcolor": _SHADE, "color": FAILURE, "fontcolor": FAILURE},
    NodeKind.FINAL: {"fillcolor": _SHADE, "peripheries": "2"},
    NodeKind.RULE: {"shape": "note", "style": "filled", "margin": "0.04,0.04"},
}
_EDGE: dict[EdgeKind, dict[str, str]] = {
    EdgeKind.NORMAL: {},
    EdgeKind.FAILURE: {"style": "dashed", "color": FAILURE, "fontcolor": FAILURE},
    EdgeKind.CONDITION: {"style": "dotted", "penwidth": "1.2", "arrowhead": "none"},
}


def render(diagram: Diagram) -> str:
    """DOT source of ``diagram``, ending in a line feed."""
    graph = Digraph(
        diagram.name,
        graph_attr={
            "bgcolor": "white",
            "fontname": "Helvetica",
            "fontsize": "14",
            "label": _heading(diagram),
            "labelloc": "t",
            "labeljust": "l",
            "nodesep": "0.35",
            "pad": "0.25",
            "rankdir": "LR" if diagram.clusters else "TB",
            "ranksep": "1.5" if diagram.clusters else "0.45",
            "splines": "line" if diagram.clusters else "spline",
        },
        node_attr={
            "shape": "box",
            "style": "rounded,filled",
            "fillcolor": "white",
            "color": _LINE,
            "fontname": "Helvetica",
            "fontsize": "12",
            "penwidth": "0.8",
        },
        edge_attr={
            "color": _LINE,
            "fontname": "Helvetica",
            "fontsize": "10",
            "penwidth": "0.8",
            "arrowsize": "0.7",
        },
    )
    framed = {node: cluster for cluster in diagram.clusters for node in cluster.nodes}
    for cluster in diagram.clusters:
        _add_cluster(graph, cluster, [node for node in diagram.nodes if node.id in cluster.nodes])
    free = [node for node in diagram.nodes if node.id not in framed]
    for node in free:
        _add_node(graph, node)
    if diagram.clusters:
        _add_column(graph, free)
    for edge in diagram.edges:
        _add_edge(graph, diagram, edge)
    return str(graph.source)


def _heading(diagram: Diagram) -> str:
    lines = [f"<b>{escape(diagram.title)}</b>", *(_small(line) for line in diagram.key), " "]
    return "<" + "".join(f'{line}<br align="left"/>' for line in lines) + ">"


def _table(look: str, rows: Iterable[str]) -> str:
    return f"<table {look}>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _padded(lines: Iterable[str]) -> str:
    """Text that keeps off the line it stands beside."""
    cell = f'<td balign="left">{"<br/>".join(lines)}</td>'
    return f"<{_table(_BARE, [cell])}>"


def _small(text: str) -> str:
    return f'<font point-size="9" color="{_SMALL}">{escape(text)}</font>'


def _add_node(graph: Digraph, node: Node) -> None:
    look = {"label": node.title, **_NODE[node.kind]}
    if node.kind is NodeKind.RULE:
        rows = [f'<td align="left"><b>{escape(node.title)}</b></td>']
        rows += (
            f'<td align="left" port="line{number}">{_small(line)}</td>' for number, line in enumerate(node.lines)
        )
        look["label"] = f"<{_table(_BARE, rows)}>"
    graph.node(node.id, **look)


def _add_cluster(graph: Digraph, cluster: Cluster, nodes: Iterable[Node]) -> None:
    """One node that is a table: the layout keeps the order of its cells, which it would not do in a subgraph."""
    rows = [f'<td border="0"><b>{escape(cluster.title)}</b></td>', *map(_cell, nodes)]
    frame = f'border="1" color="{_FAINT}" cellborder="1" cellspacing="10" cellpadding="7"'
    graph.node(cluster.id, f"<{_table(frame, rows)}>", shape="plain", style="")


def _cell(node: Node) -> str:
    look = {"color": _LINE, "fillcolor": "white", "fontcolor": "black", **_NODE[node.kind]}
    text = f'<font color="{look["fontcolor"]}">{escape(node.title)}</font>'
    border = f'style="rounded" color="{look["color"]}" bgcolor="{look["fillcolor"]}"'
    if look.get("peripheries") == "2":
        text = _table(f'border="1" cellborder="0" cellspacing="0" cellpadding="5" {border}', [f"<td>{text}</td>"])
        border += ' cellpadding="2"'
    return f'<td port="{node.id}" {border}>{text}</td>'


def _add_column(graph: Digraph, nodes: Iterable[Node]) -> None:
    """Keeps ``nodes`` below each other in their order."""
    with graph.subgraph() as column:
        column.attr(rank="same")
        for above, below in pairwise(nodes):
            column.edge(above.id, below.id, style="invis")


def _lines(label: Label) -> Iterable[str]:
    yield escape(label.head)
    yield from (_small(cause) for cause in label.causes)


def _add_edge(graph: Digraph, diagram: Diagram, edge: Edge) -> None:
    look = dict(_EDGE[edge.kind])
    if edge.labels:
        look["label"] = _padded([line for label in edge.labels for line in _lines(label)])
        if edge.kind is EdgeKind.FAILURE:
            look["tailport"] = "se"  # clear of the loops, which hang on the right
    back = _column(diagram, edge.source) > _column(diagram, edge.dest)
    left, right = (edge.dest, edge.source) if back else (edge.source, edge.dest)
    if back:  # written from left to right, so that the layout keeps the columns
        look["dir"] = "back"
        if "arrowhead" in look:
            look["arrowtail"] = look.pop("arrowhead")
    graph.edge(_end(diagram, left, edge.line, "e"), _end(diagram, right, edge.line, "w"), **look)


def _column(diagram: Diagram, node: str) -> int:
    """Where ``node`` stands, from the left: the first cluster, then nodes without one, then other clusters."""
    inside = [number for number, cluster in enumerate(diagram.clusters) if node in cluster.nodes]
    return 2 * inside[0] if inside else 1


def _end(diagram: Diagram, node: str, line: int | None, side: str) -> str:
    """What an arrow is tied to: a cell of a cluster, a line of a rule, or the whole node."""
    for cluster in diagram.clusters:
        if node in cluster.nodes:
            return f"{cluster.id}:{node}:{side}"
    return node if line is None else f"{node}:line{line}:{side}"
