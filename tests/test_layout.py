"""The shape of the project: who may import whom, what stays outside the core, what lies at the top."""

import ast
import subprocess
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cfg_fsm"

#: The core, from the bottom to the top. A module may import those of lower ranks, and none of its own.
RANKS = [
    {"errors", "states"},
    {"events", "actions"},
    {"audit.record"},
    {"tables"},
    {"machines"},
    {"resolved"},
    {"group", "deadlines", "tombstones"},
    {"wording", "books"},
    {"door", "views"},
    {"handlers"},
    {"registry"},
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}

#: They need a clock, or threads, for their work: they are the host, or speak for it where it says nothing.
HAVE_A_CLOCK = {"audit.sinks", "cli_run", "explore.cli", "runner", "driver", "tracker"}


def name_of(path):
    """``audit.record`` for ``cfg_fsm/audit/record.py``; ``audit`` for its ``__init__``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports(name):
    """Every module that the one of this name imports, at the top or inside a function, dotted in full."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            yield from (
                f"{node.module}.{alias.name}" if own(f"{node.module}.{alias.name}") in MODULES else node.module
                for alias in node.names
            )


def own(dotted):
    """The name of a module of ours; ``None`` for one of others."""
    if dotted == "cfg_fsm":
        return ""
    return dotted.removeprefix("cfg_fsm.") if dotted.startswith("cfg_fsm.") else None


def own_imports(name):
    return {found for dotted in imports(name) if (found := own(dotted)) is not None}


def reaches(name):
    """Every module of ours that an import of this one brings along, the package's own ``__init__`` aside."""
    reached, todo = set(), [name]
    while todo:
        new = own_imports(todo.pop()) - reached - {""}
        reached |= new
        todo += new
    return reached


def test_the_core_is_all_there():
    assert set(RANK) <= set(MODULES)


@pytest.mark.parametrize("name", RANK)
def test_lower_never_imports_higher(name):
    found = own_imports(name)
    assert found <= set(RANK), f"{name} is of the core and imports {found - set(RANK)}"
    assert {other: RANK[other] for other in found if RANK[other] >= RANK[name]} == {}


@pytest.mark.parametrize(
    "name", [name for name in MODULES if name.split(".")[0] in ("audit", "diagrams") and name != "audit.record"]
)
def test_audit_and_diagrams_hang_on_the_tables_and_the_records_and_not_on_the_registry(name):
    allowed = {other for other, rank in RANK.items() if rank <= RANK["resolved"]}
    assert reaches(name) & set(RANK) <= allowed
    assert not reaches(name) & {"tracker", "driver", "cli", "cli_run", "runner"}


def test_no_module_of_the_core_is_excused():
    assert not HAVE_A_CLOCK & set(RANK)


@pytest.mark.parametrize(
    "name", [name for name in MODULES if name not in HAVE_A_CLOCK and not name.startswith("integrations")]
)
def test_no_clock_no_chance_and_no_concurrency_below_the_driver(name):
    outside = {dotted.split(".")[0] for dotted in imports(name)}
    assert not outside & {"time", "asyncio", "threading", "random", "datetime", "concurrent", "multiprocessing"}


@pytest.mark.parametrize("name", RANK)
def test_nothing_in_the_core_waits(name):
    waiting = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert not [node for node in ast.walk(TREES[name]) if isinstance(node, waiting)]


@pytest.mark.parametrize("name", sorted(set(RANK) - {"tables", "states"}))
def test_no_state_is_compared_with_a_name_outside_the_tables(name):
    states = {"registered", "running", "deferred", "forwarded", "done", "failed", "cleaned"}
    for node in ast.walk(TREES[name]):
        if not isinstance(node, ast.Compare):
            continue
        for part in chain([node.left], node.comparators):
            for leaf in ast.walk(part):
                spelled = isinstance(leaf, ast.Constant) and leaf.value in states
                member = (
                    isinstance(leaf, ast.Attribute)
                    and isinstance(leaf.value, ast.Name)
                    and leaf.value.id in ("ParentState", "CompanionState")
                )
                assert not spelled, f"{name}:{node.lineno}"
                assert not member, f"{name}:{node.lineno}"


def test_the_public_names_are_all_there_and_nothing_else_is_in_the_package():
    import cfg_fsm

    assert sorted(cfg_fsm.__all__) == sorted(set(cfg_fsm.__all__))
    assert all(hasattr(cfg_fsm, name) for name in cfg_fsm.__all__)
    assert {"Registry", "Limits", "parse_event"} <= set(cfg_fsm.__all__)
    defined = [type(node).__name__ for node in TREES[""].body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert defined == []


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_nothing_lies_at_the_top_of_the_repository_but_what_was_agreed():
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a clone of the repository")
    top = {line.strip('"').split("/")[0] for line in listed.splitlines()}
    agreed = {"pyproject.toml", "cfg_fsm", "tests", "diagrams", "Makefile", "README.md"}
    assert {entry for entry in top if not entry.startswith(".")} <= agreed
