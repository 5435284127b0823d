"""Pictures of the tables, in three steps: the live tables, ``Diagram``, DOT or Mermaid text; DOT to SVG or PNG.

``text`` needs nothing else. ``image`` needs Graphviz: the system's ``dot`` or the extra ``render``.
The committed files under ``diagrams/`` are made by ``write_all``, which is what ``make diagrams`` runs.
"""

from __future__ import annotations

from pathlib import Path

from cfg_fsm.diagrams import dot, mermaid
from cfg_fsm.diagrams.from_tables import build
from cfg_fsm.diagrams.render import RenderFailed, digest, digest_in, draw

__all__ = ["NAMES", "RenderFailed", "image", "text", "write_all"]

#: The diagrams there are: one for each machine, and one of what couples them.
NAMES = ("parent", "companion", "coupling")

_RENDERERS = {"dot": dot.render, "mermaid": mermaid.render}


def text(name: str, format: str) -> str:
    """The diagram ``name`` as text in ``format``, ``"dot"`` or ``"mermaid"``, ending in a line feed.

    Raises ``ValueError`` for another name or format, ``InvalidDefinition`` when a machine that runs was not made
    from the rows in the tables.
    """
    if name not in NAMES:
        raise ValueError(f"unknown diagram {name!r}; there are: {', '.join(NAMES)}")
    if format not in _RENDERERS:
        raise ValueError(f"unknown text format {format!r}; there are: {', '.join(_RENDERERS)}")
    return _RENDERERS[format](build(name))


def image(name: str, format: str) -> bytes:
    """The diagram ``name`` as a picture in ``format``, ``"svg"`` or ``"png"``.

    The bytes depend on the Graphviz that is there, so compare texts, never pictures. Raises what ``text`` raises,
    ``MissingExtra`` when there is no Graphviz, and ``RenderFailed`` when it fails.
    """
    return draw(text(name, "dot"), format)


def write_all(directory: Path) -> list[Path]:
    """Write ``<name>.dot``, ``<name>.mmd`` and ``<name>.svg`` of every diagram; return the files that changed.

    The directory is made if it is not there. An SVG is drawn again only if it was not drawn from the present DOT
    text, so that another Graphviz leaves it as it is. Everything is drawn before the first file is written: an
    error (as for ``image``) has changed nothing.
    """
    changed: dict[Path, bytes] = {}
    for name in NAMES:
        source = text(name, "dot")
        texts = {"dot": source, "mmd": text(name, "mermaid")}
        for ending, content in texts.items():
            path = directory / f"{name}.{ending}"
            if _read(path) != content.encode():
                changed[path] = content.encode()
        path = directory / f"{name}.svg"
        if digest_in(_read(path)) != digest(source):
            changed[path] = draw(source, "svg")
    directory.mkdir(parents=True, exist_ok=True)
    for path, data in changed.items():
        path.write_bytes(data)
    return list(changed)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
