"""The pictures are of the tables that run, and the committed ones are the present ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from paths import ROOT

from cfg_fsm import diagrams, tables
from cfg_fsm.diagrams import __main__ as program
from cfg_fsm.diagrams import render
from cfg_fsm.diagrams.from_tables import build
from cfg_fsm.diagrams.model import NodeKind
from cfg_fsm.engine import machines
from cfg_fsm.errors import CfgFsmError, InvalidDefinition, MissingExtra
from cfg_fsm.states import MachineKind, Trigger
from cfg_fsm.tables import COUPLING_ROWS, CouplingRow, Row

COMMITTED = ROOT / "diagrams"
FILES = [f"{name}.{ending}" for name in diagrams.NAMES for ending in ("dot", "mmd", "svg")]
STALE = "diagrams/{} is not what the tables give: run make diagrams"
KINDS = list(MachineKind)
FORMATS = ("dot", "mermaid")
ALL_ROWS = [
    pytest.param(kind, row, id=f"{kind}-{row.source}-{row.trigger}") for kind in KINDS for row in tables.ROWS[kind]
]
BY_NAME = [pytest.param(row, id=row.name) for row in COUPLING_ROWS]

needs_renderer = pytest.mark.skipif(render.find_renderer() is None, reason="no Graphviz here")

Arrow = tuple[str, str, str]
Edit = Callable[[MachineKind, tuple[Row, ...]], None]


def arrows(name: str, format: str) -> list[Arrow]:
    """Source, destination and all the rest of the line, of every arrow that can be seen."""
    text = diagrams.text(name, format)
    if format == "dot":
        found = re.findall(r"^\t(\S+) -> (\S+)(.*)$", text, flags=re.M)
        return [
            (dest, source, look) if "dir=back" in look else (source, dest, look) for source, dest, look in found
        ]
    found = re.findall(r'^    (\w+) (-->|-\.->|-\.-)(\|".*"\|)? (\w+)$', text, flags=re.M)
    return [(source, dest, arrow + label) for source, arrow, label, dest in found]


def node_line(name: str, format: str, node: str) -> str:
    """The line of a text that declares ``node``."""
    pattern = {"dot": rf"^\t{node} \[.*$", "mermaid": rf"^ +{node}[(\[].*$"}[format]
    (line,) = re.findall(pattern, diagrams.text(name, format), flags=re.M)
    return str(line)


@pytest.fixture
def let_run(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Puts other rows in the tables and makes the machine from them."""

    def put(kind: MachineKind, rows: tuple[Row, ...]) -> None:
        monkeypatch.setitem(tables.ROWS, kind, rows)
        monkeypatch.setitem(machines.MACHINES, kind, machines.build_machine(kind))

    return put


@pytest.fixture
def no_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)


@pytest.fixture
def renderer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Installs a renderer that runs the given Python."""

    def install(body: str) -> Path:
        path = tmp_path / "dot"
        path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdin.read()\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setattr(render, "find_renderer", lambda: str(path))
        return path

    return install


DRAWS = 'print(\'<?xml version="1.0"?>\\n<svg xmlns="http://www.w3.org/2000/svg"></svg>\')'


# -- the committed files ---------------------------------------------------------------------------------------


def test_there_is_one_diagram_for_each_machine_and_one_of_the_coupling() -> None:
    assert diagrams.NAMES == ("parent", "companion", "coupling")


@pytest.mark.parametrize("name", diagrams.NAMES)
@pytest.mark.parametrize(("format", "ending"), [("dot", "dot"), ("mermaid", "mmd")])
def test_committed_text_is_what_the_tables_give(name: str, format: str, ending: str) -> None:
    file = f"{name}.{ending}"
    assert (COMMITTED / file).read_bytes() == diagrams.text(name, format).encode(), STALE.format(file)


@pytest.mark.parametrize("name", diagrams.NAMES)
def test_committed_svg_was_drawn_from_the_present_dot_text(name: str) -> None:
    svg = (COMMITTED / f"{name}.svg").read_bytes()
    assert render.digest_in(svg) == render.digest(diagrams.text(name, "dot")), STALE.format(f"{name}.svg")
    assert svg.endswith(b"</svg>\n")
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_nothing_else_is_committed_beside_them() -> None:
    assert sorted(path.name for path in COMMITTED.iterdir()) == sorted(FILES)


# -- what the pictures of the machines show --------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("kind", "row"), ALL_ROWS)
def test_every_row_is_on_the_arrow_between_its_states(kind: MachineKind, row: Row, format: str) -> None:
    between = [look for source, dest, look in arrows(kind, format) if (source, dest) == (row.source, row.dest)]
    assert len(between) == 1
    shown = f"{row.trigger} [{row.guard}]" if row.guard else str(row.trigger)
    assert f">{shown}<" in between[0]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_arrow_is_drawn_without_a_row_but_the_entry(kind: MachineKind, format: str) -> None:
    entry, *drawn = [(source, dest) for source, dest, _ in arrows(kind, format)]
    assert entry == ("entry", tables.INITIAL[kind])
    assert sorted(drawn) == sorted({(row.source, row.dest) for row in tables.ROWS[kind]})


@pytest.mark.parametrize("kind", KINDS)
def test_arrows_are_sorted_by_their_states_in_the_order_of_a_life(kind: MachineKind) -> None:
    place = {"entry": -1} | {state: number for number, state in enumerate(tables.STATES[kind])}
    drawn = [(place[source], place[dest]) for source, dest, _ in arrows(kind, "dot")]
    assert drawn == sorted(drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_rows_does_not_show(kind: MachineKind, let_run: Edit) -> None:
    before = [diagrams.text(kind, format) for format in FORMATS]
    let_run(kind, tables.ROWS[kind][::-1])
    assert [diagrams.text(kind, format) for format in FORMATS] == before


@pytest.mark.parametrize("kind", KINDS)
def test_every_transition_says_what_fires_it(kind: MachineKind) -> None:
    entry, *edges = build(kind).edges
    assert all(label.causes for edge in edges for label in edge.labels)
    assert not any(label.causes for label in entry.labels)


def test_causes_are_events_with_guards_then_deadlines_and_coupling_rows() -> None:
    (edge,) = [edge for edge in build("companion").edges if (edge.source, edge.dest) == ("running", "failed")]
    assert [label.head for label in edge.labels] == ["fail"]
    assert edge.labels[0].causes == (
        "companion_output_ready [failed_finish]",
        "request_failed",
        "requests_aborted",
        "replica_lost [bound]",
        "clock_ticked [silent_s due]",
        "coupling parent_ended",
    )


@pytest.mark.parametrize("row", tables.DEADLINE_ROWS, ids=lambda row: row.limit)
def test_every_deadline_is_on_the_failures_of_its_states(row: tables.DeadlineRow) -> None:
    shown = [source for source, _, look in arrows(row.machine, "dot") if f"[{row.limit} due]" in look]
    assert sorted(shown) == sorted(row.states)


@pytest.mark.parametrize("kind", KINDS)
def test_failures_are_dashed_and_dark_red_and_nothing_else_is(kind: MachineKind) -> None:
    told = {(row.source, row.dest) for row in tables.ROWS[kind] if row.trigger is Trigger.FAIL}
    dot = {
        arrow[:2] for arrow in arrows(kind, "dot") if "style=dashed" in arrow[2] and 'color="#8b0000"' in arrow[2]
    }
    assert dot == told
    drawn = arrows(kind, "mermaid")
    assert {arrow[:2] for arrow in drawn if arrow[2].startswith("-.->")} == told
    (coloured,) = re.findall(r"^    linkStyle (\S+) stroke:#8b0000", diagrams.text(kind, "mermaid"), flags=re.M)
    assert {drawn[int(number)][:2] for number in coloured.split(",")} == told


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_has_a_double_border_and_an_ended_request_is_grey(kind: MachineKind) -> None:
    live = tables.LIVE_PARENT if kind is MachineKind.PARENT else tables.OPEN_COMPANION
    for state in tables.STATES[kind]:
        dot, mermaid = node_line(kind, "dot", state), node_line(kind, "mermaid", state)
        assert ("peripheries=2" in dot) == ('((("' in mermaid) == (state == tables.FINAL[kind])
        assert ('fillcolor="#f0f0f0"' in dot) == (state not in live)
        assert (":::state" in mermaid) == (state in live)


@pytest.mark.parametrize("kind", KINDS)
def test_the_entry_is_a_dark_dot(kind: MachineKind) -> None:
    assert 'fillcolor="#333333" shape=circle' in node_line(kind, "dot", "entry")
    assert node_line(kind, "mermaid", "entry").strip() == 'entry((" ")):::entry'


@pytest.mark.parametrize("name", diagrams.NAMES)
def test_the_page_is_white_and_the_text_ends_in_one_line_feed(name: str) -> None:
    assert "bgcolor=white" in diagrams.text(name, "dot")
    for format in FORMATS:
        text = diagrams.text(name, format)
        assert text.isascii()
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


# -- what the picture of the coupling shows --------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("row", BY_NAME)
def test_every_coupling_row_is_a_note_with_its_condition_and_its_trigger(row: CouplingRow, format: str) -> None:
    note = node_line("coupling", format, f"rule_{row.name}")
    condition, then = note.split("then ")
    assert f"<b>{row.name}</b>" in condition
    assert all(state in condition for state in (*row.parent, row.quantifier.value, *row.companions))
    assert ("sealed" in condition) == row.sealed
    assert row.trigger in then
    assert (row.reason or "") in then


@pytest.mark.parametrize("row", BY_NAME)
def test_a_coupling_row_is_tied_to_the_states_that_it_asks_for(row: CouplingRow) -> None:
    told = {f"parent_{state}" for state in row.parent} | {f"companion_{state}" for state in row.companions}
    mermaid = {
        source for source, dest, look in arrows("coupling", "mermaid") if look == "-.-" and row.name in dest
    }
    assert mermaid == told
    dotted = [arrow for arrow in arrows("coupling", "dot") if "style=dotted" in arrow[2]]
    assert {source.split(":")[1] for source, dest, _ in dotted if dest.startswith(f"rule_{row.name}:")} == told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bundle_complete", {("parent_forwarded", False)}),
        ("companion_failed", {("parent_failed", True)}),
        ("parent_ended", {("companion_failed", True)}),
        ("group_ended", {("parent_cleaned", False), ("companion_cleaned", False)}),
    ],
)
def test_a_coupling_row_leads_to_the_states_that_its_trigger_leads_to(
    name: str, told: set[tuple[str, bool]]
) -> None:
    rule = f"rule_{name}"
    dot = [arrow for arrow in arrows("coupling", "dot") if arrow[0].startswith(f"{rule}:")]
    assert {(dest.split(":")[1], "style=dashed" in look) for _, dest, look in dot} == told
    mermaid = [arrow for arrow in arrows("coupling", "mermaid") if arrow[0] == rule]
    assert {(dest.removeprefix("after_"), look == "-.->") for _, dest, look in mermaid} == told


def test_the_coupling_shows_all_states_of_both_machines_side_by_side() -> None:
    frames = build("coupling").clusters
    assert [frame.title for frame in frames] == ["parent", "companion"]
    for kind, frame in zip(KINDS, frames, strict=True):
        cells = re.findall(r'<td port="(\w+)"', node_line("coupling", "dot", kind))
        assert cells == list(frame.nodes) == [f"{kind}_{state}" for state in tables.STATES[kind]]


# -- other tables, other pictures ------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "row"), ALL_ROWS)
def test_a_row_that_is_taken_out_is_gone_from_the_picture(kind: MachineKind, row: Row, let_run: Edit) -> None:
    let_run(kind, tuple(each for each in tables.ROWS[kind] if each != row))
    assert (row.source, row.dest) not in [arrow[:2] for arrow in arrows(kind, "dot")]


def test_rows_between_the_same_states_share_an_arrow_but_a_failure_has_its_own(let_run: Edit) -> None:
    kind = MachineKind.COMPANION
    more = (Row(Trigger.FINISH, "running", "done", "late"), Row(Trigger.FAIL, "running", "done"))
    let_run(kind, (*tables.ROWS[kind], *more))
    for format in FORMATS:
        plain, failure = (
            look for source, dest, look in arrows(kind, format) if (source, dest) == ("running", "done")
        )
        assert plain.index("complete") < plain.index("finish [late]")
        assert "fail" in failure
        assert "fail" not in plain


def test_a_final_state_with_a_way_out_loses_its_double_border(let_run: Edit) -> None:
    kind = MachineKind.COMPANION
    let_run(kind, (*tables.ROWS[kind], Row(Trigger.START, "cleaned", "running")))
    assert [node.id for node in build(kind).nodes if node.kind is NodeKind.FINAL] == []


@pytest.mark.parametrize("name", diagrams.NAMES)
def test_a_machine_that_was_not_made_from_the_rows_is_not_drawn(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tables.ROWS, MachineKind.PARENT, tables.PARENT_ROWS[1:])
    monkeypatch.setitem(tables.ROWS, MachineKind.COMPANION, tables.COMPANION_ROWS[1:])
    with pytest.raises(InvalidDefinition, match="was not made from the rows") as caught:
        diagrams.text(name, "dot")
    assert caught.value.machine == ("companion" if name == "companion" else "parent")


def test_another_coupling_row_changes_the_coupling_and_the_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: diagrams.text(name, "dot") for name in diagrams.NAMES}
    monkeypatch.setattr(tables, "COUPLING_ROWS", COUPLING_ROWS[1:])
    changed = [name for name in diagrams.NAMES if diagrams.text(name, "dot") != before[name]]
    assert changed == ["parent", "coupling"]
    assert not any("bundle_complete" in diagrams.text(name, "dot") for name in changed)


@pytest.mark.parametrize(("name", "format"), [("child", "dot"), ("parent", "svg")])
def test_an_unknown_name_or_format_is_a_value_error_that_says_what_there_is(name: str, format: str) -> None:
    with pytest.raises(ValueError, match=r"there are: (parent|dot), (companion|mermaid)"):
        diagrams.text(name, format)


# -- images ----------------------------------------------------------------------------------------------------


@needs_renderer
@pytest.mark.parametrize("name", diagrams.NAMES)
def test_an_svg_is_drawn_and_signed(name: str) -> None:
    svg = diagrams.image(name, "svg")
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert render.digest_in(svg) == render.digest(diagrams.text(name, "dot"))
    assert svg.endswith(b"</svg>\n")


@needs_renderer
def test_a_png_is_drawn() -> None:
    assert diagrams.image("companion", "png").startswith(b"\x89PNG\r\n")


def test_an_unknown_image_format_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="there are: svg, png"):
        diagrams.image("parent", "gif")


@pytest.mark.parametrize("format", ["svg", "png"])
@pytest.mark.usefixtures("no_renderer")
def test_without_a_renderer_the_error_names_the_extra(format: str) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'cfg_fsm\[render\]'") as caught:
        diagrams.image("parent", format)
    assert caught.value.extra == "render"


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (["path/dot", "path/graphviz-pure", "bin/graphviz-pure"], "path/dot"),
        (["path/graphviz-pure", "bin/graphviz-pure"], "path/graphviz-pure"),
        (["bin/graphviz-pure", "bin/dot"], "bin/graphviz-pure"),
        ([], None),
    ],
)
def test_the_systems_dot_comes_first_and_an_environment_need_not_be_active(
    there: list[str], found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert render.find_renderer() == (found and str(tmp_path / found))


def test_a_renderer_that_fails_is_an_error_with_what_it_said(renderer: Callable[[str], Path]) -> None:
    path = renderer("sys.exit('no layout engine')")
    with pytest.raises(diagrams.RenderFailed, match="ended with status 1: no layout engine") as caught:
        diagrams.image("parent", "svg")
    assert isinstance(caught.value, CfgFsmError)
    assert (caught.value.command[0], caught.value.status, caught.value.stderr) == (
        str(path),
        1,
        "no layout engine\n",
    )


def test_a_renderer_that_draws_nothing_has_failed(renderer: Callable[[str], Path]) -> None:
    renderer("")
    with pytest.raises(diagrams.RenderFailed, match="ended with status 0: it said nothing"):
        diagrams.image("parent", "png")


def test_a_renderer_that_cannot_start_has_failed(renderer: Callable[[str], Path]) -> None:
    renderer("").unlink()
    with pytest.raises(diagrams.RenderFailed, match="No such file") as caught:
        diagrams.image("parent", "svg")
    assert caught.value.status is None


def test_a_renderer_that_takes_too_long_has_failed(
    renderer: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    renderer("")
    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(diagrams.RenderFailed, match="not done after 60 s"):
        diagrams.image("parent", "svg")


# -- writing ---------------------------------------------------------------------------------------------------


def test_writing_twice_changes_nothing(tmp_path: Path, renderer: Callable[[str], Path]) -> None:
    renderer(DRAWS)
    assert diagrams.write_all(tmp_path / "new") == [tmp_path / "new" / file for file in FILES]
    written = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert diagrams.write_all(tmp_path / "new") == []
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == written


@pytest.mark.usefixtures("no_renderer")
def test_of_the_committed_files_nothing_has_to_be_drawn_again(tmp_path: Path) -> None:
    shutil.copytree(COMMITTED, tmp_path / "copy")
    assert diagrams.write_all(tmp_path / "copy") == []


def test_only_what_is_stale_is_written_again(tmp_path: Path, renderer: Callable[[str], Path]) -> None:
    renderer(DRAWS)
    diagrams.write_all(tmp_path)
    (tmp_path / "parent.mmd").write_text("flowchart TB\n", encoding="utf-8")
    (tmp_path / "coupling.svg").unlink()
    other = (tmp_path / "companion.svg").read_bytes()
    (tmp_path / "companion.svg").write_bytes(other.replace(b"</svg>", b"<!-- of another Graphviz --></svg>"))
    assert diagrams.write_all(tmp_path) == [tmp_path / "parent.mmd", tmp_path / "coupling.svg"]
    assert b"of another Graphviz" in (tmp_path / "companion.svg").read_bytes()


def test_a_change_of_a_table_makes_its_files_stale(
    tmp_path: Path, renderer: Callable[[str], Path], let_run: Edit
) -> None:
    renderer(DRAWS)
    diagrams.write_all(tmp_path)
    let_run(MachineKind.COMPANION, tables.COMPANION_ROWS[1:])
    changed = diagrams.write_all(tmp_path)
    assert [path.name for path in changed] == ["companion.dot", "companion.mmd", "companion.svg"]


@pytest.mark.usefixtures("no_renderer")
def test_without_a_renderer_nothing_is_written_at_all(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra):
        diagrams.write_all(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


# -- the program -----------------------------------------------------------------------------------------------


def test_the_program_prints_what_changed(
    tmp_path: Path, renderer: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    renderer(DRAWS)
    out = tmp_path / "out"
    assert program.main([str(out)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(out / file) for file in FILES]
    assert program.main([str(out)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("no_renderer")
def test_the_program_says_in_one_line_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert "cfg_fsm[render]" in told.err


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--help"]])
def test_the_program_wants_one_directory(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(arguments) == 2
    assert capsys.readouterr().err == "usage: python -m cfg_fsm.diagrams DIR\n"
