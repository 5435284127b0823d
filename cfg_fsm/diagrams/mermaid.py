"""``Diagram`` to a Mermaid flowchart, which has the dashed and coloured arrows that ``stateDiagram-v2`` lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfg_fsm.diagrams.model import Diagram, Edge, EdgeKind, Label, Node, NodeKind

FAILURE = "#8b0000"

_SHAPE: dict[NodeKind, str] = {
    NodeKind.ENTRY: '(("{}"))',
    NodeKind.STATE: '("{}")',
    NodeKind.DONE: '("{}")',
    NodeKind.FAILED: '("{}")',
    NodeKind.FINAL: '((("{}")))',
    NodeKind.RULE: '["{}"]',
}
_CLASS: dict[NodeKind, str] = {
    NodeKind.ENTRY: "fill:#333,stroke:#333",
    NodeKind.STATE: "fill:#fff,stroke:#666,color:#000",
    NodeKind.DONE: "fill:#f0f0f0,stroke:#666,color:#000",
    NodeKind.FAILED: f"fill:#f0f0f0,stroke:{FAILURE},color:{FAILURE}",
    NodeKind.FINAL: "fill:#f0f0f0,stroke:#666,color:#000",
    NodeKind.RULE: "fill:#fff,stroke:#666,color:#000",
}
_ARROW: dict[EdgeKind, str] = {EdgeKind.NORMAL: "-->", EdgeKind.FAILURE: "-.->", EdgeKind.CONDITION: "-.-"}

# White behind the labels, and room for the longest line of one.
_HEAD = """\
---
title: {title}
config:
  theme: neutral
  themeVariables:
    edgeLabelBackground: "#ffffff"
  flowchart:
    wrappingWidth: 400
---
"""


def render(diagram: Diagram) -> str:
    """Mermaid source of ``diagram``, ending in a line feed. The key stands in it as comments.

    A diagram with clusters is read from left to right: each cluster stands there twice, before and after, with
    the nodes that arrows leave and those that they reach. Mermaid's layout cannot draw arrows back into a frame.
    """
    nodes = {node.id: node for node in diagram.nodes}
    framed = {node for cluster in diagram.clusters for node in cluster.nodes}
    lines = [*(f"%% {line}" for line in diagram.key), f"flowchart {'LR' if diagram.clusters else 'TB'}"]
    for after in (False, True):
        touched = {edge.dest if after else edge.source for edge in diagram.edges}
        for cluster in diagram.clusters:
            lines.append(
                f'    subgraph {_id(cluster.id, after)}["{cluster.title}, {"after" if after else "before"}"]'
            )
            lines += (f"        {_node(nodes[node], after)}" for node in cluster.nodes if node in touched)
            lines.append("    end")
    lines += (f"    {_node(node)}" for node in diagram.nodes if node.id not in framed)
    lines += (f"    {_edge(edge, framed)}" for edge in diagram.edges)
    lines += _looks(diagram)
    return _HEAD.format(title=diagram.title) + "\n".join(lines) + "\n"


def _looks(diagram: Diagram) -> Iterator[str]:
    for kind, look in _CLASS.items():
        if any(node.kind is kind for node in diagram.nodes):
            yield f"    classDef {kind.value} {look}"
    for cluster in diagram.clusters:
        for after in (False, True):
            yield f"    style {_id(cluster.id, after)} fill:#fff,stroke:#aaa"
    failures = [str(number) for number, edge in enumerate(diagram.edges) if edge.kind is EdgeKind.FAILURE]
    if failures:
        yield f"    linkStyle {','.join(failures)} stroke:{FAILURE},color:{FAILURE}"


def _id(name: str, after: bool) -> str:
    return f"after_{name}" if after else name


def _node(node: Node, after: bool = False) -> str:
    title = f"<b>{_text(node.title)}</b>" if node.lines else _text(node.title) or " "
    text = "<br/>".join((title, *map(_text, node.lines)))
    return f"{_id(node.id, after)}{_SHAPE[node.kind].format(text)}:::{node.kind.value}"


def _edge(edge: Edge, framed: Iterable[str]) -> str:
    label = "<br/>".join(line for each in edge.labels for line in _lines(each))
    arrow = _ARROW[edge.kind] + (f'|"{label}"|' if label else "")
    return f"{edge.source} {arrow} {_id(edge.dest, edge.dest in framed)}"


def _lines(label: Label) -> Iterator[str]:
    yield f"<b>{_text(label.head)}</b>" if label.causes else _text(label.head)
    yield from map(_text, label.causes)


def _text(text: str) -> str:
    for char, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(char, entity)
    return text
