"""Actions and answers: their JSON shapes, to the key."""

import dataclasses
import json

import pytest
from helpers import Payload

from cfg_fsm import (
    AbortRequests,
    AcknowledgeAbort,
    Dispatched,
    FailParent,
    FailureReason,
    ForwardParent,
    ReleaseRequests,
)
from cfg_fsm.actions import ACTION_TYPES
from cfg_fsm.states import IgnoredReason

OUTPUT, CONTEXT, FIRST, SECOND = Payload("P"), Payload("X"), Payload("A"), Payload("B")

FORWARD = ForwardParent("p", 2, 1, OUTPUT, {"neg": "a", "img": "b"}, [FIRST, SECOND], CONTEXT)
FAIL = FailParent("p", 2, None, FailureReason.COMPANION_FAILED, "a failed", "a", "OOM", 500)
ABORT = AbortRequests(["p", "a"])
RELEASE = ReleaseRequests(["p", "a", "b"])
ACKNOWLEDGE = AcknowledgeAbort({"p": "ended", "x": "unknown", "a": "already_ended"})
EVERY = pytest.mark.parametrize("action", [FORWARD, FAIL, ABORT, RELEASE, ACKNOWLEDGE], ids=lambda a: a.type)


@pytest.mark.parametrize(
    ("action", "shape"),
    [
        (
            FORWARD,
            {
                "type": "forward_parent",
                "parent_id": "p",
                "life": 2,
                "stage_id": 1,
                "engine_outputs": OUTPUT,
                "companion_request_ids": {"neg": "a", "img": "b"},
                "companion_outputs": [FIRST, SECOND],
                "context": CONTEXT,
            },
        ),
        (
            FAIL,
            {
                "type": "fail_parent",
                "parent_id": "p",
                "life": 2,
                "stage_id": None,
                "reason": "companion_failed",
                "error": "a failed",
                "companion_id": "a",
                "error_type": "OOM",
                "status_code": 500,
            },
        ),
        (ABORT, {"type": "abort_requests", "request_ids": ["p", "a"]}),
        (RELEASE, {"type": "release_requests", "request_ids": ["p", "a", "b"]}),
        (
            ACKNOWLEDGE,
            {"type": "acknowledge_abort", "outcomes": {"p": "ended", "x": "unknown", "a": "already_ended"}},
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_an_action_has_exactly_the_agreed_shape(action, shape):
    assert action.to_dict() == shape
    assert list(action.to_dict()) == list(shape)


def test_there_are_five_actions():
    assert {action.type for action in ACTION_TYPES} == {
        "forward_parent",
        "fail_parent",
        "abort_requests",
        "release_requests",
        "acknowledge_abort",
    }


@EVERY
def test_an_action_is_frozen_and_takes_no_further_attributes(action):
    for field in dataclasses.fields(action):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(action, field.name, None)
    assert not hasattr(action, "__dict__")


def test_a_reason_is_a_plain_string_in_the_json_shape():
    assert type(FAIL.to_dict()["reason"]) is str
    assert json.loads(json.dumps(FAIL.to_dict())) == FAIL.to_dict()


def test_payloads_travel_by_reference_into_the_json_shape():
    shape = FORWARD.to_dict()
    assert shape["engine_outputs"] is OUTPUT
    assert shape["context"] is CONTEXT
    assert shape["companion_outputs"][0] is FIRST
    assert shape["companion_outputs"][1] is SECOND


def test_payloads_are_not_printed():
    for text in (repr(FORWARD), str(FORWARD), repr(Dispatched("accepted", None, (FORWARD,), 2))):
        assert "SECRET" not in text
        assert "'p'" in text


def test_an_answer_has_exactly_the_agreed_shape():
    answer = Dispatched("accepted", None, (ABORT, RELEASE), 2)
    assert answer.to_dict() == {
        "disposition": "accepted",
        "reason": None,
        "actions": [
            {"type": "abort_requests", "request_ids": ["p", "a"]},
            {"type": "release_requests", "request_ids": ["p", "a", "b"]},
        ],
        "life": 2,
    }
    assert list(answer.to_dict()) == ["disposition", "reason", "actions", "life"]


def test_the_code_of_a_refusal_is_a_plain_string_in_the_json_shape():
    shape = Dispatched("ignored", IgnoredReason.ENDED, (), None).to_dict()
    assert shape == {"disposition": "ignored", "reason": "ended", "actions": [], "life": None}
    assert type(shape["reason"]) is str


def test_an_answer_is_frozen():
    with pytest.raises(AttributeError):
        Dispatched("accepted", None, (), None).disposition = "ignored"
