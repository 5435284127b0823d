"""Events: what they are called, what they carry, and what is not one."""

import io
import json
from copy import deepcopy

import pytest
from helpers import Payload
from pydantic import ValidationError

from cfg_fsm import Limits, Registry, parse_event
from cfg_fsm import events as ev
from cfg_fsm.audit.sinks import JsonlAudit

#: Everything that each event may say: the fields that it needs first, then the optional ones with their defaults.
SHAPES = {
    "parent_registered": (
        {"parent_id": "p"},
        {"companions": None, "streaming": False, "limits": None},
    ),
    "companion_registered": ({"parent_id": "p", "role": "neg", "companion_id": "a"}, {}),
    "companions_sealed": ({"parent_id": "p"}, {}),
    "request_started": ({"request_id": "p"}, {"stage_id": 0, "replica_id": None}),
    "request_progressed": ({"request_id": "p"}, {}),
    "kv_ready": ({"request_id": "p"}, {}),
    "parent_output_ready": (
        {"parent_id": "p", "engine_outputs": "A"},
        {"stage_id": 0, "segment": False, "context": None},
    ),
    "companion_output_ready": ({"companion_id": "a", "output": "B"}, {"finish_reason": "stop"}),
    "request_failed": (
        {"request_id": "p", "error": "boom"},
        {"stage_id": None, "error_type": None, "status_code": None},
    ),
    "requests_aborted": ({"request_ids": ["p", "a"]}, {}),
    "replica_lost": ({"stage_id": 0, "replica_id": 1}, {"error": ""}),
    "forward_rejected": ({"parent_id": "p", "error": "no room"}, {}),
    "parent_finished": ({"parent_id": "p"}, {}),
    "clock_ticked": ({"at": 1.0}, {}),
}

MODELS = {ev.type_of(model): model for model in ev.EVENT_MODELS}
EVERY = pytest.mark.parametrize("kind", SHAPES)
IDS = [
    (kind, field)
    for kind, (needed, _) in SHAPES.items()
    for field in needed
    if field in ("parent_id", "request_id", "companion_id", "role")
]


def body(kind, **more):
    return {"type": kind, **deepcopy(SHAPES[kind][0]), **more}


def wrong(data):
    """Where in the data a refusal points to."""
    with pytest.raises(ValidationError) as caught:
        parse_event(data)
    return {part for error in caught.value.errors() for part in error["loc"]}


# -- names and fields -------------------------------------------------------------------------------------


def test_there_are_fourteen_events_under_the_agreed_names():
    assert list(MODELS) == list(SHAPES)
    assert len(MODELS) == 14


@EVERY
def test_an_event_has_the_agreed_fields_and_defaults(kind):
    needed, optional = SHAPES[kind]
    common = {"at", "type"} if kind == "clock_ticked" else {"at", "type", "life"}
    assert set(MODELS[kind].model_fields) == {*needed, *optional, *common}
    event = parse_event(body(kind))
    assert type(event) is MODELS[kind]
    assert event.type == kind
    for field, value in {**needed, **optional}.items():
        assert getattr(event, field) == value
    if kind != "clock_ticked":
        assert event.at is None
        assert event.life is None


@EVERY
def test_an_event_needs_each_of_its_required_fields(kind):
    for field in SHAPES[kind][0]:
        data = body(kind)
        del data[field]
        assert field in wrong(data)


@EVERY
def test_an_event_is_read_alike_from_a_mapping_a_text_and_bytes(kind):
    data = body(kind, at=2.5, **{} if kind == "clock_ticked" else {"life": 3})
    text = json.dumps(data)
    event = parse_event(data)
    assert event.at == 2.5
    assert parse_event(text) == parse_event(text.encode()) == event == MODELS[kind](**data)


@EVERY
def test_an_event_refuses_a_field_that_it_does_not_have(kind):
    assert "colour" in wrong(body(kind, colour="red"))
    with pytest.raises(ValidationError):
        MODELS[kind](**body(kind, colour="red"))


@EVERY
def test_an_event_is_frozen(kind):
    event = parse_event(body(kind))
    for field in MODELS[kind].model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(event, field, getattr(event, field))


@EVERY
def test_an_event_of_one_type_is_not_read_as_another(kind):
    other = "kv_ready" if kind != "kv_ready" else "companions_sealed"
    with pytest.raises(ValidationError):
        MODELS[kind](**body(kind) | {"type": other})


@pytest.mark.parametrize(
    "data",
    [
        {"parent_id": "p"},
        {"type": "parent_vanished", "parent_id": "p"},
        {"type": None, "parent_id": "p"},
        {"type": ["kv_ready"], "request_id": "p"},
        [],
        5,
        None,
        "",
        "{",
        "[]",
        "5",
        b"\xff\xfe",
        '{"type": "kv_ready", "request_id": "p"} {"type": "kv_ready", "request_id": "p"}',
    ],
    ids=repr,
)
def test_what_is_no_event_is_refused(data):
    with pytest.raises(ValidationError):
        parse_event(data)


# -- times and lives --------------------------------------------------------------------------------------

BAD_TIMES = [-1, -0.001, float("nan"), float("inf"), float("-inf"), True, False, "1", "1.0", [], {}, 10**400]


@EVERY
@pytest.mark.parametrize("at", BAD_TIMES, ids=lambda at: repr(at)[:12])
def test_a_time_is_finite_not_negative_and_a_number(kind, at):
    assert "at" in wrong(body(kind, at=at))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "true", '"1"'])
def test_a_time_in_json_text_is_finite_not_negative_and_a_number(text):
    assert "at" in wrong(f'{{"type": "clock_ticked", "at": {text}}}')


def test_a_whole_number_is_a_time():
    assert parse_event(body("kv_ready", at=3)).at == 3.0
    assert parse_event(body("kv_ready", at=0)).at == 0.0


def test_a_tick_must_say_the_time():
    assert "at" in wrong({"type": "clock_ticked"})
    assert "at" in wrong({"type": "clock_ticked", "at": None})


def test_a_tick_belongs_to_no_life():
    assert "life" in wrong(body("clock_ticked", life=1))


@EVERY
@pytest.mark.parametrize("life", [True, -1, 1.0, 1.5, "1", float("nan")], ids=repr)
def test_a_life_is_a_whole_number(kind, life):
    assert "life" in wrong(body(kind, life=life))


# -- ids and other fields ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "field"), IDS)
@pytest.mark.parametrize("bad", ["", None, 5, b"p", ["p"], "\ud800", "p\udfff"], ids=repr)
def test_an_id_and_a_role_are_non_empty_text_that_can_be_written(kind, field, bad):
    assert field in wrong(body(kind, **{field: bad}))


@pytest.mark.parametrize("companions", [{"": "a"}, {"neg": ""}, {5: "a"}, {"neg": 5}, {"neg": None}, ["a"], "a"])
def test_companions_are_roles_with_ids(companions):
    assert "companions" in wrong(body("parent_registered", companions=companions))


@pytest.mark.parametrize("companions", [{"\ud800": "a"}, {"neg": "\ud800"}])
def test_a_lone_surrogate_is_no_role_and_no_companion(companions):
    assert "companions" in wrong(body("parent_registered", companions=companions))


@pytest.mark.parametrize("where", ['"parent_id": "\\ud800"', '"parent_id": "p", "companions": {"\\udfff": "a"}'])
def test_a_lone_surrogate_in_json_text_is_refused(where):
    with pytest.raises(ValidationError):
        parse_event(f'{{"type": "parent_registered", {where}}}')


def test_a_lone_surrogate_in_the_text_itself_is_refused():
    with pytest.raises(ValidationError):
        parse_event('{"type": "companions_sealed", "parent_id": "\ud800"}')


def test_an_id_may_have_any_character_that_can_be_written():
    for good in (" ", "\x00", "p\n", "💡", "é" * 5000):
        assert parse_event(json.dumps(body("kv_ready", request_id=good))).request_id == good


def test_companions_keep_their_order():
    roles = {"z": "1", "a": "2", "m": "3"}
    event = parse_event(json.dumps(body("parent_registered", companions=roles)))
    assert list(event.companions.items()) == list(roles.items())


@pytest.mark.parametrize("bad", [None, "p", {"p": 1}, [""], [5], [None], [["p"]], ["\ud800"]], ids=repr)
def test_aborted_ids_are_a_list_of_ids(bad):
    assert "request_ids" in wrong(body("requests_aborted", request_ids=bad))


@pytest.mark.parametrize("unordered", [{"p", "a"}, frozenset({"p"})], ids=["set", "frozenset"])
def test_a_set_is_no_list_of_ids_for_it_has_no_order_to_answer_in(unordered):
    with pytest.raises(ValidationError):
        ev.RequestsAborted(request_ids=unordered)


def test_a_client_may_abort_nothing():
    assert parse_event(body("requests_aborted", request_ids=[])).request_ids == []


@pytest.mark.parametrize(
    ("kind", "field", "bad"),
    [
        (kind, field, bad)
        for kind, field in [
            ("request_started", "stage_id"),
            ("request_started", "replica_id"),
            ("parent_output_ready", "stage_id"),
            ("request_failed", "stage_id"),
            ("request_failed", "status_code"),
            ("replica_lost", "stage_id"),
            ("replica_lost", "replica_id"),
        ]
        for bad in (True, 1.0, "1")
    ],
)
def test_a_whole_number_is_neither_a_truth_value_nor_a_text(kind, field, bad):
    assert field in wrong(body(kind, **{field: bad}))


@pytest.mark.parametrize(
    ("kind", "field"), [("parent_registered", "streaming"), ("parent_output_ready", "segment")]
)
@pytest.mark.parametrize("bad", [0, 1, "true", "yes", None], ids=repr)
def test_a_truth_value_is_not_a_number(kind, field, bad):
    assert field in wrong(body(kind, **{field: bad}))


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("request_failed", "error"),
        ("request_failed", "error_type"),
        ("replica_lost", "error"),
        ("forward_rejected", "error"),
    ],
)
@pytest.mark.parametrize("bad", [5, b"boom", ["boom"], ValueError("boom")], ids=repr)
def test_a_text_is_text(kind, field, bad):
    assert field in wrong(body(kind, **{field: bad}))


@pytest.mark.parametrize(
    "make",
    [
        lambda text: ev.RequestFailed(request_id="p", error=text),
        lambda text: ev.RequestFailed(request_id="p", error="boom", error_type=text),
        lambda text: ev.ReplicaLost(stage_id=0, replica_id=0, error=text),
    ],
    ids=["error", "error_type", "replica"],
)
def test_a_text_that_is_let_in_can_be_audited(make):
    written = io.StringIO()
    registry = Registry(observers=[JsonlAudit(written)])
    registry.dispatch(ev.ParentRegistered(parent_id="p", companions={}))
    registry.dispatch(ev.RequestStarted(request_id="p", replica_id=0))
    try:
        event = make("no such file: caf\udce9")  # as Python spells a file name that is not UTF-8
    except ValidationError:
        return
    registry.dispatch(event)
    assert registry.counters()["observer_errors"] == 0


@pytest.mark.parametrize("finish", ["stop", "length", "abort", "error"])
def test_a_companion_may_finish_for_four_reasons(finish):
    assert parse_event(body("companion_output_ready", finish_reason=finish)).finish_reason == finish


@pytest.mark.parametrize("finish", ["STOP", "", "eos", None, 0])
def test_a_companion_finishes_for_no_other_reason(finish):
    assert "finish_reason" in wrong(body("companion_output_ready", finish_reason=finish))


# -- a key twice ------------------------------------------------------------------------------------------

TWICE = '{"type": "parent_registered", "parent_id": "p", "companions": {"neg": "a", "neg": "b"}}'


@pytest.mark.parametrize(
    "text", [TWICE, TWICE.encode(), bytearray(TWICE.encode())], ids=["str", "bytes", "bytearray"]
)
def test_a_role_that_stands_twice_in_a_json_text_is_refused(text):
    assert "neg" in wrong(text)


def test_a_role_that_stands_twice_is_refused_even_with_the_same_companion():
    assert "neg" in wrong(TWICE.replace('"b"', '"a"'))


@pytest.mark.parametrize("second", ["{}", "null", '{"img": "b"}'])
def test_companions_that_are_given_twice_in_a_json_text_are_refused(second):
    text = '{"type": "parent_registered", "parent_id": "p", "companions": {"neg": "a"}, "companions": %s}'
    with pytest.raises(ValidationError):
        parse_event(text % second)


def test_the_same_role_in_two_places_of_a_text_is_no_repetition():
    text = '{"type": "parent_registered", "parent_id": "neg", "companions": {"neg": "a", "parent_id": "b"}}'
    assert parse_event(text).companions == {"neg": "a", "parent_id": "b"}


# -- payloads ---------------------------------------------------------------------------------------------

PAYLOADS = [
    ("parent_output_ready", "engine_outputs"),
    ("parent_output_ready", "context"),
    ("companion_output_ready", "output"),
]


@pytest.mark.parametrize(("kind", "field"), PAYLOADS)
@pytest.mark.parametrize("payload", [Payload(), [1], {"a": [1]}, {1, 2}, Limits(), None, float("nan")], ids=str)
def test_a_payload_is_carried_by_reference(kind, field, payload):
    data = body(kind, **{field: payload})
    assert getattr(parse_event(data), field) is payload
    assert getattr(MODELS[kind](**data), field) is payload


@pytest.mark.parametrize(("kind", "field"), PAYLOADS)
def test_a_payload_is_not_printed(kind, field):
    event = parse_event(body(kind, **{field: Payload("x")}))
    for text in (repr(event), str(event), f"{event}", f"{event!r}"):
        assert "SECRET" not in text


@pytest.mark.parametrize(("kind", "field"), PAYLOADS)
def test_a_payload_is_not_printed_in_a_refusal(kind, field):
    with pytest.raises(ValidationError) as caught:
        parse_event(body(kind, **{field: Payload("x")}, colour=Payload("y"), at="SECRET"))
    assert "SECRET" not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        MODELS[kind](**body(kind, **{field: Payload("x")}, colour=Payload("y"), at="SECRET"))
    assert "SECRET" not in str(caught.value)


def test_an_output_may_be_none_but_must_be_told():
    assert parse_event(body("companion_output_ready", output=None)).output is None
    assert parse_event(body("parent_output_ready", engine_outputs=None)).engine_outputs is None


# -- what is logged of an event ---------------------------------------------------------------------------


def test_the_log_of_an_event_says_all_but_payloads_times_and_what_was_left_out():
    event = parse_event(
        body("parent_output_ready", engine_outputs=[1, 2], context=Payload(), at=3.0, life=2, segment=True)
    )
    assert event.log_body() == {
        "type": "parent_output_ready",
        "life": 2,
        "parent_id": "p",
        "stage_id": 0,
        "engine_outputs": {"type": "list", "size": 2},
        "segment": True,
        "context": {"type": "Payload"},
    }


@EVERY
def test_the_log_of_an_event_is_an_event_that_says_the_same(kind):
    event = parse_event(body(kind, at=1.0))
    again = parse_event({**json.loads(json.dumps(event.log_body())), "at": 1.0})
    payloads = dict.fromkeys(event.payload_fields)
    assert again.model_copy(update=payloads) == event.model_copy(update=payloads)


def test_the_log_of_a_registration_has_the_limits_that_it_brought_and_no_others():
    event = parse_event(
        body("parent_registered", companions={"neg": "a"}, limits={"total_s": 3, "silent_s": None})
    )
    assert event.log_body()["limits"] == {"total_s": 3.0}
    assert event.log_body()["companions"] == {"neg": "a"}


@pytest.mark.parametrize(
    ("payload", "described"),
    [
        ("abc", {"type": "str", "size": 3}),
        (b"ab", {"type": "bytes", "size": 2}),
        ({"a": 1}, {"type": "dict", "size": 1}),
        ((1,), {"type": "tuple", "size": 1}),
        ({1}, {"type": "set", "size": 1}),
        (None, {"type": "NoneType"}),
        (5, {"type": "int"}),
    ],
)
def test_of_a_payload_its_type_is_described_and_where_that_is_cheap_its_size(payload, described):
    assert ev.describe_payload(payload) == described


def test_the_length_of_a_foreign_payload_is_never_asked_for():
    class Tensor:
        def __len__(self):
            raise AssertionError("this would copy it to the host")

    class Names(list):
        __len__ = Tensor.__len__

    assert ev.describe_payload(Tensor()) == {"type": "Tensor"}
    assert ev.describe_payload(Names()) == {"type": "Names"}


# -- limits -----------------------------------------------------------------------------------------------


def test_limits_are_all_optional_and_remember_65536_ids_for_600_seconds():
    limits = Limits()
    assert limits.model_dump() == {
        "confirm_s": None,
        "deferred_s": None,
        "silent_s": None,
        "start_s": None,
        "total_s": None,
        "max_requests": None,
        "max_companions_per_parent": 256,
        "tombstones": 65_536,
        "tombstone_s": 600.0,
    }
    assert limits.bounds_time is False


@pytest.mark.parametrize("name", ["deferred_s", "silent_s", "start_s", "total_s", "tombstone_s", "confirm_s"])
@pytest.mark.parametrize("bad", [0, -1, True, "3", float("nan"), float("inf")], ids=repr)
def test_a_limit_in_time_is_a_finite_positive_number(name, bad):
    with pytest.raises(ValidationError):
        Limits(**{name: bad})


@pytest.mark.parametrize("name", ["deferred_s", "silent_s", "start_s", "total_s"])
def test_each_of_the_four_times_bounds_time(name):
    assert Limits(**{name: 1}).bounds_time is True


def test_the_wait_for_a_confirmation_ends_no_parent():
    assert Limits(confirm_s=1).bounds_time is False


def test_a_parent_may_bring_its_own_wait_for_confirmations():
    assert Limits(confirm_s=9).with_overrides(Limits(total_s=4)).confirm_s == 9
    assert Limits(confirm_s=9).with_overrides(Limits(confirm_s=4)).confirm_s == 4
    assert Limits().with_overrides(Limits(confirm_s=4)).confirm_s == 4


@pytest.mark.parametrize("name", ["max_requests", "max_companions_per_parent", "tombstones"])
@pytest.mark.parametrize("bad", [-1, True, 1.5, 2.0, "3"], ids=repr)
def test_a_limit_in_number_is_a_whole_number(name, bad):
    with pytest.raises(ValidationError):
        Limits(**{name: bad})


def test_limits_are_frozen_and_have_no_other_fields():
    with pytest.raises(ValidationError, match="frozen"):
        Limits().total_s = 1.0
    with pytest.raises(ValidationError):
        Limits(total=1.0)


def test_limits_of_a_parent_replace_field_by_field_and_none_inherits():
    own = Limits(silent_s=5.0, max_companions_per_parent=1, max_requests=1, tombstones=1, tombstone_s=1.0)
    limits = Limits(silent_s=1.0, start_s=2.0, total_s=3.0, max_requests=9, max_companions_per_parent=4)
    assert limits.with_overrides(None) is limits
    assert limits.with_overrides(Limits()) == limits
    assert limits.with_overrides(own) == Limits(
        silent_s=5.0, start_s=2.0, total_s=3.0, max_requests=9, max_companions_per_parent=1
    )


# -- which events end their request -----------------------------------------------------------------------


@EVERY
def test_outputs_and_failures_are_terminal_and_nothing_else_is(kind):
    terminal = kind in ("parent_output_ready", "companion_output_ready", "request_failed")
    assert parse_event(body(kind)).is_terminal is terminal


def test_a_segment_is_not_terminal():
    assert parse_event(body("parent_output_ready", segment=True)).is_terminal is False
