"""Nobody reaches into what belongs to another module, and into the engine least of all."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "cfg_fsm"
OUTSIDE = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE / "engine"]

#: They begin with an underscore and are public: what every named tuple has.
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make", "_exit"}  # and of ``os``


def own_names(tree):
    """What a module itself defines under a name with an underscore, and what it sets on its own objects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in (leaf for one in targets for leaf in ast.walk(one)):
                if isinstance(target, ast.Name):
                    yield target.id
                elif isinstance(target, ast.Attribute) and ast.unparse(target.value) in ("self", "cls"):
                    yield target.attr


def foreign(source):
    """The attributes with an underscore that a module takes from what is not its own."""
    tree = ast.parse(source)
    own = set(own_names(tree)) | OF_NAMED_TUPLES
    return [
        f"line {node.lineno}: .{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own
    ]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_reaches_into_the_inside_of_another(path):
    assert foreign(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("registry._ledger.requests", ["line 1: ._ledger"]),
        ("self._ledger.step.journal = None", []),
        ("registry._ledger.step.journal = None", ["line 1: ._ledger"]),
        ("def f(registry):\n    registry._ledger = 1", ["line 2: ._ledger"]),
        ("class A:\n    def f(self):\n        self._a = 1\n    def g(self, other):\n        other._a = 2", []),
        ("record._replace(seq=record.__class__)", []),
    ],
)
def test_the_test_knows_what_is_foreign(source, found):
    assert foreign(source) == found
