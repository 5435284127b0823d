"""The stories that are told from the audit of the drop-in tracker."""

from __future__ import annotations

from real_tracker import calls_number, make
from tracker_helpers import audited, complete, guided

from cfg_fsm.audit.explain import explain
from cfg_fsm.engine.journal import AuditRecord


def story(records: list[AuditRecord], request_id: str) -> str:
    return "\n".join(explain(records, request_id))


def result(told: str) -> str:
    """The result at the end of a story, on one line."""
    return " ".join(told.rpartition("\nResult: ")[2].split())


def test_explain_tells_the_story_of_a_parent_that_finished():
    tracker, clock, records = audited()
    guided(tracker)
    clock.now = 1.0
    tracker.defer_parent("p", "P", 0)
    clock.now = 2.0
    complete(tracker, "p-neg", "p-img")
    tracker.pop_pending_parent("p")
    clock.now = 5.0
    tracker.cleanup_parent("p")
    told = story(records, "p")
    assert told.splitlines()[0].startswith("parent p, life 1")
    assert "neg = p-neg" in told
    assert "img = p-img" in told
    assert "deferred, waiting for neg (p-neg), img (p-img)" in told
    assert result(told) == (
        "ended at +5.000 s: finished; its bundle was forwarded at +2.000 s; waited 1.000 s for neg, img."
    )
    assert story(records, "p-img") == told.replace("img = p-img", "img = p-img (the one asked for)")
    assert "not in this log" not in told, "its registration is the first record"


def test_explain_tells_what_a_parent_waits_for():
    tracker, _, records = audited()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    last = result(story(records, "p"))
    assert last.startswith("open when the log ends")
    assert "no output yet of img (p-img" in last
    assert "p-neg" not in last


def test_explain_does_not_call_a_bundle_complete_that_was_not():
    tracker, clock, records = audited(deferred_limit_s=10.0)
    guided(tracker).defer_parent("p", "P", 0)
    clock.now = 10.0
    tracker.pop_expired_parents()
    tracker.cleanup_parent("p")
    told = story(records, "p")
    assert (
        "+10.000 s  parent  pop expired parents; handed back (deferred_deadline) without neg (p-neg), img (p-img)"
    ) in told.splitlines()
    assert result(told) == (
        "ended at +10.000 s: failed, deferred_deadline; it was handed back at +10.000 s without neg (p-neg), "
        "img (p-img); waited 10.000 s for neg, img."
    )


def test_explain_tells_of_a_deadline_even_if_no_companion_was_missing():
    tracker, clock, records = audited(deferred_limit_s=10.0)
    tracker.register_parent("p")
    tracker.defer_parent("p", "P", 0)
    clock.now = 10.0
    tracker.pop_expired_parents()
    told = story(records, "p").splitlines()
    assert told[-2].endswith("pop expired parents; handed back (deferred_deadline)")
    assert told[-1] == (
        "Result: open when the log ends (+10.000 s): handed back (deferred_deadline) since +10.000 s, "
        "waiting for its cleanup."
    )


def test_explain_does_not_blame_the_client_for_a_cleanup_that_follows_an_aborted_companion():
    tracker, _, records = audited()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    tracker.pop_pending_parent("p")
    tracker.cleanup_parent("p")
    told = story(records, "p")
    assert "pop pending parent; handed back (companion_aborted) without img (p-img)\n" in told
    assert result(told) == (
        "ended at +0.000 s: cleaned up unfinished; it was handed back at +0.000 s without img (p-img); "
        "waited 0.000 s for neg, img."
    )
    guided(tracker, "q")
    tracker.abort_parents(["q"])
    assert result(story(records, "q")) == "ended at +0.000 s: aborted by the client."


def test_explain_tells_that_a_complete_bundle_was_not_taken():
    tracker, _, records = audited()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg", "p-img")
    assert result(story(records, "p")) == (
        "open when the log ends (+0.000 s): the parent is deferred since +0.000 s; "
        "the bundle is complete, waiting for the host to take it."
    )


def test_explain_tells_of_a_companion_that_took_the_role_of_another():
    tracker, _, records = audited()
    guided(tracker, roles=("neg",)).defer_parent("p", "P", 0)
    tracker.register_companion("p", "neg", "new")
    tracker.on_companion_completed("p-neg")
    told = story(records, "p")
    assert told.splitlines()[1] == "  companion neg = new, before it p-neg"
    assert told.splitlines()[-4:-2] == [
        "+0.000 s  neg     register companion; p-neg is superseded",
        "+0.000 s  p-neg   on companion completed; ignored (unknown)",
    ]
    assert result(told) == (
        "open when the log ends (+0.000 s): the parent is deferred since +0.000 s; "
        "no output yet of neg (new: registered since +0.000 s)."
    )
    assert story(records, "p-neg") == told.replace("before it p-neg", "before it p-neg (the one asked for)")


def test_explain_tells_of_every_parent_of_any_calls():
    for seed in range(50):
        tracker, clock, records = audited(deferred_limit_s=3.0)
        for call in calls_number(seed):
            make(tracker, clock, call)
        parents = {view.request_id for view in tracker.requests() if view.role is None}
        for parent in {record.parent_id for record in records if record.parent_id is not None}:
            lives = story(records, parent).split("\n\n")
            own = [result(life) for life in lives if life.startswith(f"parent {parent}, life ")]
            assert len(own) == sum(r.kind == "created" and r.request_id == r.parent_id == parent for r in records)
            if own:
                assert all(last.startswith("ended") for last in own[:-1]), own
                assert own[-1].startswith("open" if parent in parents else "ended"), own
            elif not any(r.kind == "created" and r.request_id == parent for r in records):
                # A companion was refused under it: that is all that is known of it.
                (alone,) = (life for life in lives if life.startswith(f"request {parent}: "))
                assert result(alone) == "it was not registered."
