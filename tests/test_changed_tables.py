"""One change of the tables is refused at import, or changes what runs and what is drawn in the same way."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTHING = ('"""The tables: everything', '"""The tables. Everything')

#: What is changed, the text in ``tables.py``, and what stands there instead.
REFUSED = {
    "a finish that fails": (
        "(P.REGISTERED, P.RUNNING, P.FORWARDED): _moves(_T.FINISH),",
        "(P.REGISTERED, P.RUNNING, P.FORWARDED): _moves(_T.FAIL),",
    ),
    "a heartbeat that starts": (
        "companion={(C.RUNNING,): _stays(), (C.REGISTERED, C.DONE)",
        "companion={(C.RUNNING,): _moves(_T.START), (C.REGISTERED, C.DONE)",
    ),
    "a start that moves nothing": ("            OPEN_COMPANION: _moves(_T.START),", "OPEN_COMPANION: _stays(),"),
    "a start of an unknown id": (
        """            _ENDED_COMPANION: _ignored(_I.ENDED, answer=_STOP),
        },
""",
        """            _ENDED_COMPANION: _ignored(_I.ENDED, answer=_STOP),
        },
        absent=_moves(_T.START),
""",
    ),
    "an output that completes without a row": (
        "            (C.DONE,): _ignored(_I.ALREADY_DONE),\n            **_GONE,",
        "            (C.DONE,): _moves(_T.COMPLETE),\n            **_GONE,",
    ),
    "no completion at all": (
        'OPEN_COMPANION: (_moves(_T.FAIL, guard="failed_finish"), _moves(_T.COMPLETE)),',
        "OPEN_COMPANION: _moves(_T.FAIL),",
    ),
    "a guard of another event": (
        'OPEN_COMPANION: (_moves(_T.FAIL, guard="failed_finish"), _moves(_T.COMPLETE)),',
        'OPEN_COMPANION: (_moves(_T.FAIL, guard="bound"), _moves(_T.COMPLETE)),',
    ),
    "a guard that nobody knows": (
        '(P.FORWARDED,), P.DEFERRED, guard="streaming"',
        '(P.FORWARDED,), P.DEFERRED, guard="full_moon"',
    ),
    "a missing row": ("    *_rows(Trigger.FORWARD, (P.DEFERRED,), P.FORWARDED),\n", ""),
    "a second row": (
        "    *_rows(Trigger.FORWARD, (P.DEFERRED,), P.FORWARDED),\n",
        "    *_rows(Trigger.FORWARD, (P.DEFERRED, P.DEFERRED), P.FORWARDED),\n",
    ),
    "a bundle that finishes the parent": (
        'Quantifier.EVERY, (C.DONE,), "parent", Trigger.FORWARD)',
        'Quantifier.EVERY, (C.DONE,), "parent", Trigger.DEFER)',
    ),
    "a failed companion without a cause": (
        'LIVE_PARENT, False, Quantifier.ANY, (C.FAILED,), "parent"',
        'LIVE_PARENT, False, Quantifier.EVERY, (C.FAILED,), "parent"',
    ),
    "some of the companions fail with the parent": (
        "        Quantifier.EACH,\n        OPEN_COMPANION,",
        "        Quantifier.ANY,\n        OPEN_COMPANION,",
    ),
    "a deadline in a state that no tick ends": (
        '"start_s", COMPANION, (C.REGISTERED,)',
        '"start_s", COMPANION, (C.REGISTERED, C.DONE)',
    ),
    "a deadline less": (
        '    DeadlineRow("silent_s", COMPANION, (C.RUNNING,), "seen", FailureReason.SILENT),\n',
        "",
    ),
    "a deadline from nowhere": ('"registered_at", FailureReason', '"born_at", FailureReason'),
    "a deadline that no limit sets": ('"total_s", PARENT', '"whole_s", PARENT'),
    "a deadline without a sentence": ("FailureReason.SILENT),", "FailureReason.ERROR),"),
    "a tick that ends nobody": (
        'LIVE_PARENT: (_moves(_T.FAIL, guard="due"), _stays()), _ENDED_PARENT: _stays()',
        "LIVE_PARENT: _stays(), _ENDED_PARENT: _stays()",
    ),
    "a refusal without a reason": (
        "(P.DEFERRED,): _ignored(_I.STILL_DEFERRED),",
        "(P.DEFERRED,): Choice(Verdict.IGNORED),",
    ),
    "a refusal that forwards": ('_STOP = ("abort_requests",)', '_STOP = ("forward_parent",)'),
    "a loss that is about one request": ("        about=Subjects.BOUND,\n", ""),
    "an abort that is about a replica": ("about=Subjects.NAMED", "about=Subjects.BOUND"),
    "a registration that makes a live parent anew": (
        '_ignored(_I.DUPLICATE, guard="same_registration"),',
        '_moves(guard="same_registration"),',
    ),
    "a state without a way out": (
        "*_rows(Trigger.CLEAN, (C.DONE, C.FAILED), C.CLEANED)",
        "*_rows(Trigger.CLEAN, (C.DONE,), C.CLEANED)",
    ),
    "a failed finish that no cell asks about": (
        '(_moves(_T.FAIL, guard="failed_finish"), _moves(_T.COMPLETE))',
        "_moves(_T.COMPLETE)",
    ),
    "an unknown initial state": (
        "PARENT: P.REGISTERED, COMPANION: C.REGISTERED}",
        'PARENT: "born", COMPANION: C.REGISTERED}',
    ),
}
CHANGED = {
    "a deferred parent can finish": (
        """            (P.REGISTERED, P.RUNNING, P.FORWARDED): _moves(_T.FINISH),
            (P.DEFERRED,): _ignored(_I.STILL_DEFERRED),""",
        """            (P.REGISTERED, P.RUNNING): _moves(_T.FINISH),
            (P.DEFERRED, P.FORWARDED): _ignored(_I.STILL_DEFERRED),""",
    ),
    "a registered parent cannot finish": (
        """            (P.REGISTERED, P.RUNNING, P.FORWARDED): _moves(_T.FINISH),
            (P.DEFERRED,)""",
        """            (P.RUNNING, P.FORWARDED): _moves(_T.FINISH),
            (P.REGISTERED, P.DEFERRED)""",
    ),
    "an output is not enough to defer a registered parent": (
        "(P.REGISTERED, P.RUNNING, P.DEFERRED): _moves(_T.DEFER),",
        "(P.RUNNING, P.DEFERRED): _moves(_T.DEFER),\n            (P.REGISTERED,): _ignored(_I.NOT_RUNNING),",
    ),
    "a second output changes nothing": (
        '(P.FORWARDED,): (_moves(_T.DEFER, guard="streaming"), _ignored(_I.ALREADY_FORWARDED)),',
        "(P.FORWARDED,): _ignored(_I.ALREADY_FORWARDED),",
    ),
    "a client cannot abort a companion": (
        """        companion={OPEN_COMPANION: _moves(_T.FAIL), (C.DONE,): _ignored(_I.ALREADY_DONE), **_GONE},
        about=Subjects.NAMED,""",
        """        companion={(*OPEN_COMPANION, C.DONE): _ignored(_I.ALREADY_DONE), **_GONE},
        about=Subjects.NAMED,""",
    ),
    "a lost replica does not end a parent": (
        '(P.RUNNING,): (_moves(_T.FAIL, guard="bound"), _ignored(_I.NOTHING_BOUND)),\n            (P.REG',
        "(P.RUNNING,): _ignored(_I.NOTHING_BOUND),\n            (P.REG",
    ),
    "a rejected forward waits again": (
        "            (P.FORWARDED,): _moves(_T.FAIL),\n            (P.REGISTERED, P.RUNNING, P.DEFERRED)",
        "            (P.FORWARDED, P.DEFERRED): _moves(_T.FAIL),\n            (P.REGISTERED, P.RUNNING)",
    ),
    "an error does not end a running companion": (
        """        parent={LIVE_PARENT: _moves(_T.FAIL), _ENDED_PARENT: _ignored(_I.ENDED)},
        companion={OPEN_COMPANION: _moves(_T.FAIL), (C.DONE,): _ignored(_I.ALREADY_DONE), **_GONE},
    ),
    "requests_aborted\"""",
        """        parent={LIVE_PARENT: _moves(_T.FAIL), _ENDED_PARENT: _ignored(_I.ENDED)},
        companion={(C.REGISTERED,): _moves(_T.FAIL), (C.RUNNING, C.DONE): _ignored(_I.ALREADY_DONE), **_GONE},
    ),
    "requests_aborted\"""",
    ),
    "a start ends where it began": (
        "*_rows(Trigger.START, (C.REGISTERED, C.RUNNING), C.RUNNING)",
        "*_rows(Trigger.START, (C.REGISTERED,), C.RUNNING), *_rows(Trigger.START, (C.RUNNING,), C.REGISTERED)",
    ),
    "a total deadline spares those who wait": (
        """    DeadlineRow("total_s", PARENT, LIVE_PARENT,""",
        """    DeadlineRow("total_s", PARENT, (P.REGISTERED, P.RUNNING, P.FORWARDED),""",
    ),
    "a bundle may lack outputs": (
        'True, Quantifier.EVERY, (C.DONE,), "parent", Trigger.FORWARD',
        'True, Quantifier.ANY, (C.DONE,), "parent", Trigger.FORWARD',
    ),
    "what has started is as good as done": (
        'Quantifier.EVERY, (C.DONE,), "parent", Trigger.FORWARD',
        'Quantifier.EVERY, (C.DONE, C.RUNNING), "parent", Trigger.FORWARD',
    ),
    "a companion's failure spares a parent that waits": (
        '"companion_failed", LIVE_PARENT, False',
        '"companion_failed", (P.REGISTERED, P.RUNNING, P.FORWARDED), False',
    ),
    "the companions of a parent that ends fail by an error": (
        "        FailureReason.PARENT_ENDED,\n    ),",
        "        FailureReason.ERROR,\n    ),",
    ),
}


@pytest.fixture(scope="module")
def outcomes():
    changes = {"nothing": NOTHING, **REFUSED, **CHANGED}
    program = Path(__file__).with_name("changed_tables.py")
    done = subprocess.run(
        [sys.executable, str(program)], input=json.dumps(list(changes.values())), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip(changes, lines, strict=True)) | {"stderr": done.stderr}


def edges(outcome, name):
    return {tuple(edge) for edge in outcome[name]}


def test_what_runs_is_what_is_drawn(outcomes):
    outcome = outcomes["nothing"]
    # Every companion of a forwarded parent is done, so none of them can fail.
    never = {("parent", "fail", "forwarded", "failed", "coupling")}
    assert edges(outcome, "drawn") - edges(outcome, "runs") == never
    assert edges(outcome, "runs") <= edges(outcome, "drawn")


@pytest.mark.parametrize("name", REFUSED)
def test_a_change_that_contradicts_the_rest_is_refused_at_import(outcomes, name):
    assert outcomes[name].get("refused"), (outcomes[name], outcomes["stderr"])


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_shows_in_what_runs_and_in_what_is_drawn(outcomes, name):
    before, after = outcomes["nothing"], outcomes[name]
    assert "steps" in after, (after, outcomes["stderr"])
    assert after["steps"] != before["steps"]
    assert after["pictures"] != before["pictures"]
    assert edges(after, "runs") <= edges(after, "drawn"), "what runs is drawn"
    assert edges(after, "drawn") - edges(before, "drawn") <= edges(after, "runs"), "what is newly drawn runs"


def test_there_are_enough_of_both_kinds():
    assert len(REFUSED) >= 10
    assert len(CHANGED) >= 10
