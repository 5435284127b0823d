"""What a registry and a tracker are made with is checked at once, and a wrong argument says what to write."""

import copy
import pickle

import pytest
from helpers import finish, output, register, told

from cfg_fsm import CfgCompanionTracker, Limits, Registry
from cfg_fsm.audit.sinks import JsonlAudit, MemoryAudit

MAKERS = pytest.mark.parametrize("make", [Registry, CfgCompanionTracker])


@MAKERS
@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"deferred_s": 1.0}, "limits is of type dict; give a Limits object, as in Limits(**{'deferred_s': 1.0})"),
        (3, "limits is of type int; give a Limits object, as in Limits(deferred_s=30.0)"),
        ("deferred_s=3", "limits is of type str; give a Limits object, as in Limits(deferred_s=30.0)"),
        (Limits, "limits is of type ModelMetaclass; give a Limits object, as in Limits(deferred_s=30.0)"),
    ],
    ids=["dict", "int", "str", "class"],
)
def test_limits_that_are_none(make, limits, says):
    with pytest.raises(TypeError) as refused:
        make(limits=limits)
    assert str(refused.value) == says


@MAKERS
@pytest.mark.parametrize(
    ("observers", "says"),
    [
        (print, "observers is a list of callables, as in observers=[<built-in function print>]"),
        ("audit.jsonl", "not a text; for a file: observers=[JsonlAudit('audit.jsonl')]"),
        (b"audit.jsonl", "not a text; for a file: observers=[JsonlAudit(b'audit.jsonl')]"),
        (None, "as in observers=[MemoryAudit()]; not None"),
        (3, "as in observers=[MemoryAudit()]; not 3"),
        ([3], "an observer is called with each record; 3 cannot be called"),
        ([print, None], "an observer is called with each record; None cannot be called"),
        ({"audit": print}, "an observer is called with each record; 'audit' cannot be called"),
    ],
    ids=["callable", "path", "bytes", "none", "int", "list of int", "list with none", "dict"],
)
def test_observers_that_are_none(make, observers, says):
    with pytest.raises(TypeError) as refused:
        make(observers=observers)
    assert str(refused.value).endswith(says)


@MAKERS
def test_one_audit_in_place_of_a_list(make):
    with pytest.raises(TypeError, match=r"as in observers=\[<.*MemoryAudit"):
        make(observers=MemoryAudit())


def test_observers_in_the_place_of_limits():
    with pytest.raises(TypeError, match="limits is of type list; give a Limits object"):
        Registry([print])


@MAKERS
def test_nothing_at_all_is_enough_and_observers_may_come_one_by_one(make):
    make()
    make(limits=None, observers=iter([print]))


@pytest.mark.parametrize("observers", [None, print, "x", [3]])
def test_the_observers_of_a_copy_are_checked_alike(observers):
    registry = Registry()
    registry.dispatch(register("p", {}))
    with pytest.raises(TypeError, match="observer"):
        registry.copy(observers=observers)
    assert told(registry.copy(observers=[MemoryAudit()]).dispatch(output("p"))) == ["forward p"]


@pytest.mark.parametrize("clock", [3.0, None, "now"])
def test_a_clock_that_cannot_be_called(clock):
    with pytest.raises(TypeError) as refused:
        CfgCompanionTracker(clock=clock)
    assert str(refused.value) == (
        f"clock is called for the time in seconds, as time.monotonic is; {clock!r} cannot be"
    )


@pytest.mark.parametrize("value", ["30", [30], {}])
def test_a_limit_that_is_no_number(value):
    with pytest.raises(TypeError, match="deferred_limit_s is a number of seconds, as in deferred_limit_s=30"):
        CfgCompanionTracker(deferred_limit_s=value)
    with pytest.raises(TypeError, match="timeout_s is a number of seconds"):
        CfgCompanionTracker().pop_expired_parents(timeout_s=value)


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), True])
def test_a_limit_that_bounds_nothing(value):
    with pytest.raises(ValueError, match="deferred_limit_s must be a finite number of seconds greater than zero"):
        CfgCompanionTracker(deferred_limit_s=value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (copy.copy, "a registry is copied by its method copy(): its observers cannot be shared"),
        (copy.deepcopy, "a registry is copied by its method copy(): payloads and observers are the host's"),
        (
            pickle.dumps,
            "cannot be pickled, with the host's payloads in it: within a process there is its method copy()",
        ),
    ],
    ids=["copy", "deepcopy", "pickle"],
)
@pytest.mark.parametrize("observed", ["by a file", "by nobody"])
def test_a_registry_is_copied_by_its_own_method_only(make, says, observed, tmp_path):
    with JsonlAudit(tmp_path / "audit.jsonl") as audit:
        registry = Registry(observers=[audit] if observed == "by a file" else ())
        registry.dispatch(register("p", {}))
        with pytest.raises(TypeError) as refused:
            make(registry)
        assert says in str(refused.value)
        with pytest.raises(TypeError, match="a registry"):
            make({"of the host": [registry]}) if make is not copy.copy else make(registry)
        assert told(registry.copy().dispatch(output("p"))) == ["forward p"]
        assert told(registry.dispatch(finish("p"))) == ["release p"]
