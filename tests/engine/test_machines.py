"""The slim trigger is the stock one, only faster; and what has no row raises and changes nothing."""

from itertools import product

import pytest
from helpers import Host, abort, done, live_records, output, register, start
from hypothesis import given
from hypothesis import strategies as st
from transitions import Machine, MachineError

from cfg_fsm import CfgFsmError, tables
from cfg_fsm.engine.machines import COMPANION_MACHINE, MACHINES, PARENT_MACHINE, SlimEvent, build_machine
from cfg_fsm.errors import InvalidTransition
from cfg_fsm.states import MachineKind, Trigger

SLIM = {kind: build_machine(kind) for kind in MachineKind}
STOCK = {kind: build_machine(kind, Machine) for kind in MachineKind}

ALL = [
    (kind, state, trigger, streaming)
    for kind in MachineKind
    for state, trigger, streaming in product(map(str, tables.STATES[kind]), MACHINES[kind].events, (False, True))
]


class Record:
    """A plain object with a state, and the attributes that guards ask for."""

    __slots__ = ("request_id", "state", "streaming")

    def __init__(self, state: str, streaming: bool, request_id: str = "r") -> None:
        self.state, self.streaming, self.request_id = state, streaming, request_id


def pull(machine: Machine, trigger: str, record: Record) -> bool:
    """Whether ``trigger`` moved the record. Both ways of refusing are a no: the stock engine raises where there
    is no row and returns ``False`` where the guard is false."""
    try:
        return machine.events[trigger].trigger(record)
    except MachineError:
        return False


def row_for(kind: MachineKind, state: str, trigger: str, streaming: bool) -> tables.Row | None:
    for row in tables.ROWS[kind]:
        if (row.trigger, row.source) == (trigger, state) and (row.guard is None or streaming):
            return row
    return None


@pytest.mark.parametrize(("kind", "state", "trigger", "streaming"), ALL)
def test_slim_and_stock_engine_agree_with_the_table_on_every_state_and_trigger(kind, state, trigger, streaming):
    row = row_for(kind, state, trigger, streaming)
    for machine in (SLIM[kind], STOCK[kind], MACHINES[kind]):
        record = Record(state, streaming)
        assert pull(machine, trigger, record) is (row is not None)
        assert record.state == (state if row is None else row.dest)


def test_every_state_and_trigger_means_seven_by_six_and_five_by_four():
    assert len(PARENT_MACHINE.events) == 6
    assert len(COMPANION_MACHINE.events) == 4
    assert len(ALL) == 2 * (7 * 6 + 5 * 4)


@given(data=st.data(), kind=st.sampled_from(MachineKind), streaming=st.booleans())
def test_slim_and_stock_engine_agree_along_every_walk(data, kind, streaming):
    state = data.draw(st.sampled_from([str(state) for state in tables.STATES[kind]]))
    slim, stock = Record(state, streaming), Record(state, streaming)
    for trigger in data.draw(st.lists(st.sampled_from(sorted(MACHINES[kind].events)), max_size=12)):
        if data.draw(st.booleans(), label="turn"):
            slim.streaming = stock.streaming = not slim.streaming
        assert pull(SLIM[kind], trigger, slim) is pull(STOCK[kind], trigger, stock)
        assert slim.state == stock.state


@pytest.mark.parametrize(
    ("kind", "state", "trigger", "streaming"), [pair for pair in ALL if row_for(*pair) is None]
)
def test_a_trigger_without_a_row_raises_and_changes_nothing(kind, state, trigger, streaming):
    record = Record(state, streaming, "r7")
    with pytest.raises(InvalidTransition) as caught:
        MACHINES[kind].events[trigger].trigger(record)
    refusal = caught.value
    assert (refusal.machine, refusal.state, refusal.trigger, refusal.request_id) == (kind, state, trigger, "r7")
    assert (record.state, record.streaming) == (state, streaming)


def test_a_refused_trigger_is_an_error_of_ours_and_of_transitions():
    with pytest.raises(MachineError, match="parent: no row for trigger 'forward' in state 'running'") as caught:
        PARENT_MACHINE.events["forward"].trigger(Record("running", False))
    assert isinstance(caught.value, CfgFsmError)
    assert "'r'" in str(caught.value)


def test_a_record_without_an_id_is_refused_without_naming_one():
    class Nameless:
        state = "cleaned"

    with pytest.raises(InvalidTransition) as caught:
        COMPANION_MACHINE.events["start"].trigger(Nameless())
    assert caught.value.request_id is None
    assert "request" not in str(caught.value)


def test_a_false_guard_is_refused_aloud_where_the_stock_engine_is_silent():
    turn_based = Record("forwarded", False)
    assert STOCK[tables.PARENT].events["defer"].trigger(turn_based) is False
    with pytest.raises(InvalidTransition):
        PARENT_MACHINE.events["defer"].trigger(turn_based)
    assert turn_based.state == "forwarded"
    assert PARENT_MACHINE.events["defer"].trigger(Record("forwarded", True)) is True


def test_an_unknown_state_is_refused():
    with pytest.raises(InvalidTransition):
        PARENT_MACHINE.events["start"].trigger(Record("elsewhere", False))


def test_the_machines_hold_no_models_however_many_requests_they_moved():
    host = Host()
    for number in range(50):
        host.send(register(f"p{number}", {"neg": f"c{number}"}), start(f"p{number}"), output(f"p{number}"))
    for number in range(25):
        host.send(done(f"c{number}"), abort(f"p{number}"))
    assert len(host.live()) == 50
    for machine in MACHINES.values():
        assert machine.models == []


def test_the_engine_does_not_decorate_its_records():
    host = Host()
    host.send(register("p", {"neg": "a"}), start("a"))
    for record in live_records(host.registry).values():
        assert not hasattr(record, "__dict__")
        assert not any(hasattr(record, f"may_{trigger.value}") for trigger in Trigger)
        assert type(record.state) is str


@pytest.mark.parametrize("kind", MachineKind)
def test_the_shared_machine_is_a_transitions_machine_with_slim_triggers_and_no_others(kind):
    machine = MACHINES[kind]
    assert isinstance(machine, Machine)
    assert set(machine.events) == {str(row.trigger) for row in tables.ROWS[kind]}  # no `to_running` and the like
    assert all(isinstance(event, SlimEvent) for event in machine.events.values())
    assert machine.get_triggers("cleaned") == []


def test_introspection_of_transitions_works_on_the_shared_machine():
    found = PARENT_MACHINE.get_transitions("defer", "forwarded", "deferred")
    assert [condition.func for condition in found[0].conditions] == ["streaming"]
    assert len(PARENT_MACHINE.get_transitions("fail")) == 4
