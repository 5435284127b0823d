"""The package with one change of its tables: what then runs, and what is drawn.

``python changed_tables.py`` reads changes as a JSON list of ``[old text, new text]`` of ``tables.py`` from its
standard input, and writes one JSON line for each:

- ``refused``: why the package cannot be imported; or else
- ``runs``: the transitions ``[machine, trigger, source, dest, event]`` that a registry takes on its way through
  all states, and ``drawn``: those in the diagrams;
- ``steps``: all that each step brings; ``pictures``: the text of the diagrams.

Each change is tried in a child of this process, before anything of the package was imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "cfg_fsm"


def import_changed(old: str, new: str) -> None:
    """Import the package with another text in its tables."""
    path = PACKAGE / "tables.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{text.count(old)} times in the tables: {old}"

    class Changed:
        @staticmethod
        def find_spec(name, paths=None, target=None):
            return importlib.util.spec_from_loader(name, Changed) if name == "cfg_fsm.tables" else None

        @staticmethod
        def create_module(spec):
            return None

        @staticmethod
        def exec_module(module):
            exec(compile(text.replace(old, new), str(path), "exec"), module.__dict__)

    sys.path.insert(0, str(PACKAGE.parent))
    sys.meta_path.insert(0, Changed)
    __import__("cfg_fsm.engine.registry")


def what_runs() -> tuple[set[tuple[str, ...]], set[str]]:
    """Every transition in every state that is reached by a few events, and what each step brings."""
    from cfg_fsm import Limits, Registry
    from cfg_fsm import events as ev

    def signals(now):
        for streaming in (False, True):
            for companions in ({"r": "a"}, {"r": "a", "s": "b"}):
                yield ev.ParentRegistered(parent_id="p", companions=companions, streaming=streaming)
        for who in ("p", "a", "b"):
            yield ev.RequestStarted(request_id=who, replica_id=0)
            yield ev.RequestFailed(request_id=who, error="e")
            yield ev.RequestsAborted(request_ids=[who])
            yield ev.RequestProgressed(request_id=who)
            yield ev.KvReady(request_id=who)
        for finish in ("stop", "error"):
            yield ev.CompanionOutputReady(companion_id="a", output=1, finish_reason=finish)
        yield ev.CompanionOutputReady(companion_id="b", output=1)
        yield ev.ParentOutputReady(parent_id="p", engine_outputs=1)
        yield ev.ReplicaLost(stage_id=0, replica_id=0)
        yield ev.ForwardRejected(parent_id="p", error="e")
        yield ev.ParentFinished(parent_id="p")
        yield ev.ClockTicked(at=now + 5)

    def key(registry):
        return tuple(
            (view.request_id, view.state, view.replica, tuple(view.missing), view.deadline is None)
            for view in registry.requests()
        )

    taken: set[tuple[str, ...]] = set()
    steps: set[str] = set()
    seen: set[object] = set()
    times = ("deferred_s", "total_s", "start_s", "silent_s")
    todo = [(Registry(Limits(**{name: 1.0, "tombstones": 0})), False) for name in times]
    while todo:
        registry, streaming = todo.pop()
        for event in signals(registry.now):
            records = []
            after = registry.copy()
            after._ledger.step.journal = _journal(records)
            answer = after.dispatch(event)
            taken.update(_direct(event, records))
            said = [action.type for action in answer.actions]
            moved = [(r.kind, r.request_id, r.trigger, r.source, r.dest, r.reason) for r in records]
            steps.add(repr((key(registry), event.type, answer.disposition, answer.reason, said, moved[1:])))
            if answer.disposition != "accepted":
                continue
            streams = event.streaming if event.type == "parent_registered" else streaming
            place = (registry.limits.model_dump_json(), streams, key(after))
            if place not in seen:
                seen.add(place)
                after._ledger.step.journal = None
                todo.append((after, streams))
    return taken, steps


def _journal(records):
    from cfg_fsm.engine.journal import Journal

    return Journal([records.append])


def _direct(event, records):
    """What the event itself moves, and what the coupling moves after it, each once."""
    moved = [record for record in records if record.kind == "transition"]
    for number, record in enumerate(moved):
        # Events about several requests begin with each group anew; here there is one group.
        cause = event.type if number == 0 else "coupling"
        yield (record.machine, str(record.trigger), str(record.source), str(record.dest), cause)


def what_is_drawn() -> set[tuple[str, ...]]:
    """The same from the diagrams of the two machines."""
    from cfg_fsm.diagrams.from_tables import build

    return {
        (name, label.head.split()[0], edge.source, edge.dest, cause.split()[0])
        for name in ("parent", "companion")
        for edge in build(name).edges
        for label in edge.labels
        for cause in label.causes
    }


def attempt(old: str, new: str) -> dict[str, object]:
    try:
        import_changed(old, new)
        drawn = what_is_drawn()
    except ValueError as error:
        if type(error).__name__ != "InvalidDefinition":
            raise
        return {"refused": str(error)}
    from cfg_fsm.diagrams import text

    runs, steps = what_runs()
    pictures = "".join(text(name, "mermaid") for name in ("parent", "companion", "coupling"))
    return {"runs": sorted(runs), "drawn": sorted(drawn), "steps": sorted(steps), "pictures": pictures}


def main() -> None:
    for name in ("pydantic", "transitions"):  # once, for all children
        __import__(name)
    for old, new in json.load(sys.stdin):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                print(json.dumps(attempt(old, new)), flush=True)
                code = 0
            finally:
                if code:
                    sys.excepthook(*sys.exc_info())
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"died": [old, new]}), flush=True)


if __name__ == "__main__":
    main()
