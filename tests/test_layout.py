"""The shape of the project: who may import whom, what stays outside the core, what lies at the top."""

import ast
import subprocess
from itertools import chain

import pytest
from paths import ROOT

PACKAGE = ROOT / "cfg_fsm"

#: The rooms, from the bottom to the top, and what each may import besides itself. ``""`` is the vocabulary: the
#: modules that lie at the top of the package.
ROOMS = {
    "": set(),
    "engine": {""},
    "rules": {"", "engine"},
    "trace": {"", "engine"},
    "audit": {"", "engine", "rules"},
    "diagrams": {"", "engine", "audit"},
    "integrations": {"", "engine", "audit"},
    "explore": {"", "engine", "rules"},
    "cli": {"", "engine", "rules", "trace", "audit", "diagrams", "integrations", "explore"},
}

#: Inside the two rooms that everything stands on: from the bottom to the top. A module may import those of lower
#: floors, and none of its own.
FLOORS = {
    "": [
        {"errors", "states", "model", "payload", "strict", "lazy", "version", "twin"},
        {"limits"},
        {"events", "actions", "tables", "lines"},
    ],
    "engine": [
        {"log", "validate", "deadlines"},
        {"journal", "clock"},
        {"step", "arguments"},
        {"confirmations"},
        {"tombstones"},
        {"machines"},
        {"resolved"},
        {"group"},
        {"ledger", "messages"},
        {"views"},
        {"admission", "snapshot"},
        {"handlers"},
        {"routes"},
        {"registry"},
    ],
}

#: They need a clock, or threads, for their work: they are the host, or speak for it where it says nothing.
HAVE_A_CLOCK = {
    "audit.sinks",
    "cli.course",
    "cli.explore",
    "trace.run",
    "driver",
    "integrations.vllm_omni.tracker",
}
#: The faces of the package: they may import everything.
FRONT = {"", "__main__"}


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


def room_of(name):
    """``engine`` for ``engine.group``; ``""`` for ``tables``."""
    head = name.split(".")[0]
    return head if head in ROOMS else ""


CORE = [name for name in MODULES if name not in FRONT and room_of(name) in FLOORS and name != "engine"]


def floor_of(name):
    room = room_of(name)
    return next(n for n, names in enumerate(FLOORS[room]) if name.removeprefix(f"{room}.") in names)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in FRONT])
def test_rooms_import_one_way(name):
    allowed = ROOMS[room_of(name)] | {room_of(name)}
    found = {other for other in own_imports(name) - {""} if room_of(other) not in allowed}
    assert found == set(), f"{name} imports {found}"


def test_the_rooms_are_in_order():
    for number, (room, allowed) in enumerate(ROOMS.items()):
        assert allowed <= set(list(ROOMS)[:number]), f"{room} imports what lies above it"


def test_every_module_of_the_core_has_its_floor():
    named = {(room, name) for room, floors in FLOORS.items() for names in floors for name in names}
    assert named == {(room_of(name), name.removeprefix(f"{room_of(name)}.")) for name in CORE}


@pytest.mark.parametrize("name", CORE)
def test_lower_floors_never_import_higher_ones(name):
    same = {other for other in own_imports(name) - {""} if room_of(other) == room_of(name)}
    assert {other for other in same if floor_of(other) >= floor_of(name)} == set()


@pytest.mark.parametrize("name", [name for name in MODULES if room_of(name) in ("audit", "diagrams")])
def test_audit_and_diagrams_hang_on_tables_machines_and_records_and_not_on_the_registry(name):
    allowed = {"engine.journal", "engine.machines", "engine.validate"}
    assert {other for other in own_imports(name) if room_of(other) == "engine"} <= allowed


def test_no_module_of_the_core_is_excused():
    assert not HAVE_A_CLOCK & set(CORE)


@pytest.mark.parametrize(
    "name", [name for name in MODULES if name not in HAVE_A_CLOCK and not name.startswith("integrations")]
)
def test_no_clock_no_chance_and_no_concurrency_below_the_driver(name):
    outside = {dotted.split(".")[0] for dotted in imports(name)}
    assert not outside & {"time", "asyncio", "threading", "random", "datetime", "concurrent", "multiprocessing"}


@pytest.mark.parametrize("name", CORE)
def test_nothing_in_the_core_waits(name):
    waiting = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert not [node for node in ast.walk(TREES[name]) if isinstance(node, waiting)]


@pytest.mark.parametrize("name", sorted(set(CORE) - {"tables", "states"}))
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
