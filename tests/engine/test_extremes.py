"""Values at the edge of what an event may hold: refused when the event is built, or dispatched like any other."""

import json
import sys

import pytest
from budget import part_of
from helpers import beat, done, finish, join, kv, lose, output, register, reject, seal, start, told
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cfg_fsm import Limits, Registry, parse_event
from cfg_fsm import events as ev
from cfg_fsm.audit.reading import read_audit
from cfg_fsm.audit.sinks import JsonlAudit

LEAST, MOST = -(2**63), 2**63 - 1
TOO_LARGE = {"10**5000": 10**5000, "-10**5000": -(10**5000), "2**63": MOST + 1, "-2**63-1": LEAST - 1}

INDEXED = [
    (ev.RequestStarted, "stage_id", {"request_id": "p"}),
    (ev.RequestStarted, "replica_id", {"request_id": "p"}),
    (ev.ParentOutputReady, "stage_id", {"parent_id": "p", "engine_outputs": None}),
    (ev.RequestFailed, "stage_id", {"request_id": "p", "error": "e"}),
    (ev.RequestFailed, "status_code", {"request_id": "p", "error": "e"}),
    (ev.ReplicaLost, "stage_id", {"replica_id": 0}),
    (ev.ReplicaLost, "replica_id", {"stage_id": 0}),
]


def test_every_whole_number_of_an_event_is_among_those_that_are_tried():
    found = {
        (model, name)
        for model in ev.EVENT_MODELS
        for name, schema in model.model_json_schema()["properties"].items()
        if "integer" in [one.get("type") for one in schema.get("anyOf", [schema])] and name != "life"
    }
    assert found == {(model, name) for model, name, _ in INDEXED}


@pytest.mark.parametrize("value", TOO_LARGE)
@pytest.mark.parametrize(("model", "name", "rest"), INDEXED, ids=lambda part: getattr(part, "__name__", None))
def test_a_whole_number_beyond_64_bits_is_refused_when_the_event_is_built(model, name, rest, value):
    with pytest.raises(ValidationError) as refused:
        model(**rest, **{name: TOO_LARGE[value]})
    assert [error["loc"] for error in refused.value.errors(include_url=False, include_input=False)] == [(name,)]
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("value", [*TOO_LARGE, "-1"])
@pytest.mark.parametrize("model", [model for model in ev.EVENT_MODELS if "life" in model.model_fields])
def test_a_life_beyond_64_bits_or_below_zero_is_refused(model, value):
    with pytest.raises(ValidationError) as refused:
        model.model_validate({"life": TOO_LARGE.get(value, -1)})
    assert ("life",) in [error["loc"] for error in refused.value.errors(include_url=False, include_input=False)]


def test_json_with_such_a_number_is_refused_too():
    for digits in ("1" + "0" * 5000, str(MOST + 1), "1" + "0" * 4000):
        for name in ("stage_id", "life"):
            with pytest.raises(ValidationError):
                parse_event(f'{{"type":"request_started","request_id":"p","{name}":{digits}}}')


def test_after_the_last_life_that_can_be_named_an_id_can_be_used_all_the_same(tmp_path):
    path = tmp_path / "a.jsonl"
    with JsonlAudit(path) as audit:
        registry = Registry(observers=[audit])
        assert registry.dispatch(register("p", {"neg": "a"}, life=MOST)).life == MOST
        registry.dispatch(finish("p", life=MOST))
        assert registry.dispatch(register("p", {})).disposition == "accepted"
        assert told(registry.dispatch(output("p"))) == ["forward p"]
        assert told(registry.dispatch(finish("p"))) == ["release p"]
    assert [record.trigger for record in read_audit(path)][-1] == "release_requests"


# -- dispatch never raises for a well-formed event ---------------------------------------------------------

MEGABYTE = "m" * (1 << 20)
IDS = st.sampled_from(
    ["p", "a", "b", MEGABYTE, MEGABYTE + "2", "\x00", "\x1b[2J", "p\nq", "\u202e", "\U0010ffff", " "]
)
ROLES = st.sampled_from(["neg", "\x00\x1b]0;x\x07", "\r\n", "\x85\u2028", MEGABYTE, "\ufeff"])
INTS = st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, MOST - 1, MOST])
LIVES = st.sampled_from([None, None, None, 0, 1, MOST - 1, MOST])
TIMES = st.sampled_from([None, 0.0, 5e-324, 1.0, 1e18, 1e308, sys.float_info.max])
TEXTS = st.sampled_from(["", "boom", "\x1b[31m", "\ud800", MEGABYTE])
PAYLOADS = st.sampled_from([None, 10**5000, float("inf"), "\ud800", object(), []])

_ANY = {"life": LIVES, "at": TIMES}
EXTREMES = st.one_of(
    st.builds(register, IDS, st.none() | st.dictionaries(ROLES, IDS, max_size=3), streaming=st.booleans(), **_ANY),
    st.builds(join, IDS, ROLES, IDS, **_ANY),
    st.builds(seal, IDS, **_ANY),
    st.builds(start, IDS, INTS, stage=INTS, **_ANY),
    st.builds(beat, IDS, **_ANY),
    st.builds(kv, IDS, **_ANY),
    st.builds(output, IDS, PAYLOADS, stage=INTS, context=PAYLOADS, **_ANY),
    st.builds(done, IDS, PAYLOADS, st.sampled_from(["stop", "error"]), **_ANY),
    st.builds(
        ev.RequestFailed,
        request_id=IDS, error=TEXTS, stage_id=INTS, status_code=INTS, error_type=TEXTS, **_ANY,
    ),
    st.builds(ev.RequestsAborted, request_ids=st.lists(IDS, max_size=4), **_ANY),
    st.builds(lose, INTS, stage=INTS, error=TEXTS, **_ANY),
    st.builds(reject, IDS, TEXTS, **_ANY),
    st.builds(ev.ParentFinished, parent_id=IDS, **_ANY),
    st.builds(ev.ClockTicked, at=TIMES.filter(lambda at: at is not None)),
)  # fmt: skip
LIMITS = st.sampled_from(
    [
        Limits(),
        Limits(total_s=sys.float_info.max, confirm_s=sys.float_info.max, tombstone_s=sys.float_info.max),
        Limits(total_s=5e-324, silent_s=5e-324, start_s=1e308, confirm_s=5e-324, tombstone_s=5e-324),
        Limits(max_requests=10**30, max_companions_per_parent=1, tombstones=0),
    ]
)


@settings(max_examples=part_of(60))
@given(LIMITS, st.lists(EXTREMES, max_size=14))
def test_dispatch_never_raises_and_all_that_shows_the_state_can(limits, events):
    errors = []
    registry = Registry(limits, observers=[lambda record: errors.append(record) if record.seq < 0 else None])
    for event in events:
        before = registry.now
        answer = registry.dispatch(event)
        assert answer.disposition in ("accepted", "ignored", "rejected")
        assert registry.now == max(before, event.at or 0.0)
        registry.next_deadline()
    registry.requests()
    registry.snapshot()
    registry.unconfirmed()
    repr(registry)
    assert registry.counters()["observer_errors"] == 0
    assert registry.copy().counters() == {**registry.counters(), "observer_errors": 0}


@settings(max_examples=part_of(40))
@given(LIMITS, st.lists(EXTREMES, max_size=10))
def test_its_log_can_be_written_and_read(tmp_path_factory, limits, events):
    path = tmp_path_factory.mktemp("audit") / "a.jsonl"
    with JsonlAudit(path, clock=None) as audit:
        registry = Registry(limits, observers=[audit])
        for event in events:
            registry.dispatch(event)
        assert registry.counters()["observer_errors"] == 0
    assert [record.event_seq for record in read_audit(path) if record.kind == "event"] == [
        number for number, _ in enumerate(events, 1)
    ]
    assert all(json.loads(line) for line in path.read_bytes().splitlines())
