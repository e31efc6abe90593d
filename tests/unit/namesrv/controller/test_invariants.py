"""Any commands in any order keep the rules that ADR 20 rests on; all controllers agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv.controller.commands import (
    AlterInSync,
    ApplyId,
    Elect,
    Register,
    Remove,
    decode_command,
    encode_command,
)
from namesrv.controller.liveness import Heard, Liveness
from namesrv.controller.machine import Machine
from namesrv.controller.state import decode_state, encode_state

NAMES = st.sampled_from(["a", "b"])
IDS = st.integers(1, 5)
SETS = st.lists(IDS, max_size=4, unique=True).map(tuple)
EPOCHS = st.integers(0, 4)
CODES = st.sampled_from(["x", "y", "z", "v", "w"])
CLUSTERS = st.sampled_from(["C", "C", "C", "D"])

COMMANDS = st.one_of(
    st.builds(ApplyId, group=NAMES, cluster=CLUSTERS, id=IDS, check_code=CODES),
    st.builds(
        Register, group=NAMES, cluster=CLUSTERS, id=IDS, check_code=st.sampled_from(["", "x"]),
        address=st.sampled_from(["h:1", "h:2"]), other_alive=st.booleans(),
    ),
    st.builds(
        AlterInSync, group=NAMES, master=IDS, master_epoch=EPOCHS, in_sync_epoch=EPOCHS,
        in_sync=SETS, alive=SETS,
    ),
    st.builds(
        Elect, group=NAMES, master_epoch=EPOCHS, alive=SETS, wanted=st.integers(0, 5),
        designated=st.booleans(), unclean=st.booleans(),
    ),
    st.builds(Remove, group=NAMES, ids=SETS, alive=SETS, also_living=st.booleans()),
)  # fmt: skip


def fill(machine, count=4):
    """Register replicas in both groups, so that other commands find somebody."""
    for group in "ab":
        for number in range(1, count + 1):
            machine.apply(ApplyId(group=group, cluster="C", id=number, check_code=f"c{number}"))
            machine.apply(Register(group=group, cluster="C", id=number, address=f"h:{number}"))


@settings(max_examples=300, deadline=None)
@given(st.lists(COMMANDS, max_size=60), st.booleans())
def test_any_commands_keep_the_rules(commands, filled):
    machine, masters, given_ids = Machine(), {}, {}
    if filled:
        fill(machine)
    for command in commands:
        before = machine.groups.get(command.group)
        outcome = machine.apply(command)
        after = machine.groups.get(command.group)
        assert outcome.group == after or after is None
        assert outcome.changed == (before != after)
        if after is None:
            continue
        if after.master:
            known = masters.setdefault((command.group, after.master_epoch), after.master)
            assert known == after.master, "an epoch with two masters"
            assert after.master in after.in_sync
        for number, replica in after.replicas.items():
            code = given_ids.setdefault((command.group, number), replica.check_code)
            assert code == replica.check_code, "an id given twice"
        if before is None:
            continue
        assert after.master_epoch >= before.master_epoch
        assert after.in_sync_epoch >= before.in_sync_epoch
        if after.in_sync != before.in_sync:
            assert after.in_sync_epoch > before.in_sync_epoch
            assert after.in_sync, "nobody has what was acknowledged"
        if after.master_epoch > before.master_epoch:
            assert isinstance(command, Elect)
            assert command.master_epoch == before.master_epoch
            assert after.master in command.alive
            first = not before.master_epoch
            assert first or command.unclean or after.master in before.in_sync


@settings(max_examples=150, deadline=None)
@given(st.lists(COMMANDS, max_size=40), st.integers(0, 40))
def test_a_controller_that_takes_a_snapshot_over_agrees_with_the_others(commands, cut):
    one, other = Machine(), Machine()
    fill(one)
    fill(other)
    for number, command in enumerate(commands):
        if number == cut:
            other = Machine(decode_state(encode_state(one.groups)))
        assert one.apply(command) == other.apply(decode_command(encode_command(command)))
    assert encode_state(one.groups) == encode_state(other.groups)


def test_who_has_most_is_first_among_the_living():
    liveness = Liveness()

    def hear(number, at_ms, epoch, offset):
        heard = Heard(at_ms, 1_000, "h:1", number, epoch, offset)
        assert liveness.hear("a", number, heard)

    hear(1, 0, 3, 500)
    hear(2, 100, 3, 700)
    hear(3, 100, 2, 900)
    hear(4, 100, 3, 700)
    assert liveness.alive("a", (4, 3, 2, 1), 999) == (2, 4, 1, 3)
    assert liveness.alive("a", (1, 2, 3), 1_000) == (2, 3)
    assert liveness.alive("b", (1, 2, 3), 0) == ()
    assert liveness.expire(1_000) == [("a", 1)]
    assert liveness.on_connection_closed(4) == [("a", 4)]
    assert liveness.alive("a", (1, 2, 3, 4), 500) == (2, 3)
