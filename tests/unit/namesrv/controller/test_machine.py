"""The rules of the controller, one by one, and the planted bugs that break them."""

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.commands import (
    AlterInSync,
    ApplyId,
    BadCommand,
    Code,
    Elect,
    Register,
    Remove,
    decode_command,
    encode_command,
)
from namesrv.controller.limits import GROUPS_MAX, REPLICAS_MAX
from namesrv.controller.machine import Machine
from namesrv.controller.state import BadState, Group, Replica, decode_state, encode_state


def apply_id(number, code=None, group="a"):
    return ApplyId(group=group, cluster="C", id=number, check_code=code or f"code-{number}")


def register(number, **more):
    address = more.pop("address", f"127.0.0.1:{10000 + number}")
    return Register(group="a", cluster="C", id=number, address=address, **more)


def elect(epoch, *alive, **more):
    return Elect(group="a", master_epoch=epoch, alive=alive, **more)


def alter(master, epoch, set_epoch, members, alive=None):
    return AlterInSync(
        group="a", master=master, master_epoch=epoch, in_sync_epoch=set_epoch, in_sync=members,
        alive=members if alive is None else alive,
    )  # fmt: skip


def with_replicas(count=3):
    """Return a machine whose group has so many registered replicas, and no master yet."""
    machine = Machine()
    for number in range(1, count + 1):
        assert machine.apply(apply_id(number)).code is Code.SUCCESS
        assert machine.apply(register(number)).code is Code.SUCCESS
    return machine


def with_master():
    """Return a machine where 1 is the master of epoch 1, and 2 is in sync with it; 3 is not."""
    machine = with_replicas()
    assert machine.apply(elect(0, 1, 2, 3)).group.master == 1
    assert machine.apply(alter(1, 1, 1, (1, 2))).group.in_sync == (1, 2)
    return machine


def test_the_first_master_is_who_has_most_and_alone_in_sync():
    group = with_replicas().apply(elect(0, 2, 1, 3)).group
    assert (group.master, group.master_epoch, group.in_sync, group.in_sync_epoch) == (2, 1, (2,), 1)


def test_the_next_master_was_in_sync():
    machine = with_master()
    group = machine.apply(elect(1, 3, 2)).group
    assert (group.master, group.master_epoch, group.in_sync) == (2, 2, (2,))


def test_nobody_is_elected_who_was_not_in_sync():
    outcome = with_master().apply(elect(1, 3))
    assert (outcome.code, outcome.changed) == (Code.MASTER_NOT_AVAILABLE, False)
    assert "1, 2" in outcome.remark
    with planted(BY_TESTS["elected-though-not-in-sync"]):
        assert with_master().apply(elect(1, 3)).code is Code.SUCCESS


def test_one_that_was_not_in_sync_is_elected_if_that_is_asked_for_and_no_other_lives():
    assert with_master().apply(elect(1, 3, unclean=True)).group.master == 3
    assert with_master().apply(elect(1, 3, 2, unclean=True)).group.master == 2


def test_a_living_master_stays():
    assert with_master().apply(elect(1, 1, 2)).code is Code.MASTER_STILL_EXISTS


def test_an_administrator_moves_the_master_to_one_in_sync_only():
    group = with_master().apply(elect(1, 1, 2, 3, designated=True, wanted=2)).group
    assert (group.master, group.master_epoch) == (2, 2)
    refused = with_master().apply(elect(1, 1, 2, 3, designated=True, wanted=3))
    assert refused.code is Code.ELECTION_FAILED
    dead = with_master().apply(elect(1, 1, 3, designated=True, wanted=2))
    assert dead.code is Code.BROKER_NOT_ALIVE


def test_one_death_is_one_election():
    machine = with_master()
    assert machine.apply(elect(1, 2)).code is Code.SUCCESS
    assert machine.apply(elect(1, 2)).code is Code.FENCED_MASTER_EPOCH
    with planted(BY_TESTS["election-of-an-epoch-that-is-over"]):
        assert machine.apply(elect(1, 1, 2, wanted=2)).code is Code.MASTER_STILL_EXISTS


def test_only_the_master_of_this_epoch_says_who_is_in_sync():
    def reelected():
        machine = with_master()
        machine.apply(elect(1, 2))
        machine.apply(alter(2, 2, 3, (1, 2)))
        machine.apply(elect(2, 1))
        assert machine.groups["a"].master == 1
        return machine

    assert reelected().apply(alter(2, 3, 5, (1, 2))).code is Code.INVALID_MASTER
    assert reelected().apply(alter(1, 1, 5, (1, 2, 3))).code is Code.FENCED_MASTER_EPOCH
    with planted(BY_TESTS["in-sync-set-by-a-former-master"]):
        assert reelected().apply(alter(1, 1, 5, (1, 2, 3))).code is Code.SUCCESS


def test_only_the_set_that_the_master_knows_is_changed():
    assert with_master().apply(alter(1, 1, 1, (1, 3))).code is Code.FENCED_IN_SYNC_EPOCH
    with planted(BY_TESTS["in-sync-set-not-compared"]):
        assert with_master().apply(alter(1, 1, 1, (1, 3))).code is Code.SUCCESS


@pytest.mark.parametrize("members", [(2,), (1, 9), (), (1, 2, 9)])
def test_an_in_sync_set_has_its_master_and_registered_replicas_only(members):
    assert with_master().apply(alter(1, 1, 2, members)).code is Code.INVALID_REPLICAS


def test_who_is_not_heard_of_comes_into_no_in_sync_set():
    assert with_master().apply(alter(1, 1, 2, (1, 2, 3), (1, 2))).code is Code.BROKER_NOT_ALIVE
    assert with_master().apply(alter(1, 1, 2, (1, 2), (1,))).code is Code.SUCCESS
    with planted(BY_TESTS["stranger-put-in-sync"]):
        assert with_master().apply(alter(1, 1, 2, (1, 2, 3), (1, 2))).code is Code.SUCCESS


def cut(number, last_epoch=0):
    """Return the registration of a replica that may have lost the end of its log."""
    return register(number, may_lack_end=True, last_epoch=last_epoch)


def test_who_may_lack_the_end_of_its_log_leaves_the_set_before_it_may_be_elected():
    machine = with_master()
    group = machine.apply(cut(2)).group
    assert (group.master, group.in_sync, group.in_sync_epoch) == (1, (1,), 3)
    assert machine.apply(elect(1, 2)).code is Code.MASTER_NOT_AVAILABLE
    former = with_master().apply(cut(1)).group
    assert (former.master, former.in_sync) == (0, (2,))
    with planted(BY_TESTS["lost-end-stays-in-sync"]):
        machine = with_master()
        machine.apply(cut(2))
        assert machine.apply(elect(1, 2)).code is Code.SUCCESS


def test_the_last_one_in_sync_stays_also_without_the_end_of_its_log():
    machine = with_master()
    machine.apply(cut(1))
    assert machine.apply(cut(2)).group.in_sync == (2,)
    assert machine.apply(elect(1, 2, 1)).group.master == 2


def all_cut():
    """Return a machine where 1 and 2 lost their power, 2 last; 3 was never in sync."""
    machine = with_master()
    machine.apply(cut(1))
    group = machine.apply(cut(2)).group
    assert (group.master, group.in_sync, group.in_doubt) == (0, (2,), True)
    return machine


def test_where_all_lost_their_power_who_has_most_is_elected_not_who_came_last():
    group = all_cut().apply(elect(1, 1, 2)).group
    assert (group.master, group.in_sync, group.reserve, group.in_doubt) == (1, (1,), (), False)
    assert all_cut().apply(elect(1, 3, 2)).group.master == 3
    assert all_cut().apply(elect(1, 2, 1)).group.master == 2
    assert all_cut().apply(elect(1, 1, 2, wanted=2)).group.master == 1
    with planted(BY_TESTS["last-cut-elected"]):
        assert all_cut().apply(elect(1, 1, 2)).group.master == 2


def test_without_the_last_one_of_those_that_lost_their_power_nobody_is_elected():
    """It may have more than all that live."""
    assert all_cut().apply(elect(1, 1, 3)).code is Code.MASTER_NOT_AVAILABLE
    assert all_cut().apply(elect(1, 1, 3, unclean=True)).group.master == 1
    designated = elect(1, 1, 2, wanted=2, designated=True)
    assert all_cut().apply(designated).group.master == 2
    with planted(BY_TESTS["elected-before-the-last-cut"]):
        assert all_cut().apply(elect(1, 1, 3)).code is Code.SUCCESS


def test_a_doubt_ends_with_an_election_alone():
    machine = all_cut()
    assert machine.apply(register(2)).group.in_doubt
    assert machine.apply(cut(3)).group.in_doubt
    machine.apply(elect(1, 2, 1))
    assert not machine.groups["a"].in_doubt
    assert machine.apply(cut(2, last_epoch=2)).group.in_doubt
    with planted(BY_TESTS["doubt-forgotten"]):
        machine = all_cut()
        assert not machine.apply(cut(3)).group.in_doubt


def test_one_that_may_lack_its_end_is_let_in_by_no_request_from_before():
    machine = with_master()
    assert machine.apply(cut(3)).group.in_sync == (1, 2)
    assert machine.apply(alter(1, 1, 2, (1, 2, 3))).code is Code.FENCED_IN_SYNC_EPOCH
    assert machine.apply(alter(1, 1, 3, (1, 2, 3))).code is Code.SUCCESS
    for bug in (
        BY_TESTS["lost-end-let-in-by-an-earlier-request"],
        BY_TESTS["loss-outside-the-set-unnoticed"],
    ):
        with planted(bug):
            machine = with_master()
            machine.apply(cut(3))
            assert machine.apply(alter(1, 1, 2, (1, 2, 3))).code is Code.SUCCESS


def elected_in_absence(*, again=False):
    """Return a machine that elected 2, which had lost its power: 1 was in sync, and is gone."""
    machine = with_master()
    assert machine.apply(elect(1, 2)).group.reserve == (1,)
    if again:
        machine.apply(register(2))
        assert machine.apply(elect(2, 2)).group.master_epoch == 3
    return machine


@pytest.mark.parametrize("again", [False, True])
def test_who_never_took_office_gives_way_to_those_that_were_in_sync_before(again):
    machine = elected_in_absence(again=again)
    group = machine.apply(cut(2, last_epoch=1)).group
    assert (group.master, group.in_sync, group.reserve) == (0, (1,), ())
    assert machine.apply(elect(group.master_epoch, 1, 2)).group.master == 1
    with planted(BY_TESTS["elected-in-absence-has-the-office"]):
        assert elected_in_absence(again=again).apply(cut(2, last_epoch=1)).group.in_sync == (2,)


def test_who_took_office_stays_in_sync_alone():
    assert elected_in_absence().apply(cut(2, last_epoch=2)).group.in_sync == (2,)
    machine = elected_in_absence()
    machine.apply(alter(2, 2, 3, (1, 2)))
    machine.apply(alter(2, 2, 4, (2,)))
    assert machine.apply(cut(2, last_epoch=1)).group.in_sync == (2,), "it has let somebody in"
    with planted(BY_TESTS["reserve-of-a-master-in-office"]):
        assert elected_in_absence().apply(cut(2, last_epoch=2)).group.in_sync == (1,)


def test_of_a_reserve_nobody_counts_that_lost_its_end_or_was_removed():
    machine = elected_in_absence()
    machine.apply(cut(1))
    assert machine.apply(cut(2, last_epoch=1)).group.in_sync == (2,)
    machine = elected_in_absence()
    machine.apply(Remove(group="a", ids=(1,), alive=()))
    assert machine.apply(cut(2, last_epoch=1)).group.in_sync == (2,)
    outside = with_master()
    assert outside.apply(elect(1, 3, unclean=True)).group.reserve == ()


def test_the_same_set_again_changes_nothing():
    outcome = with_master().apply(alter(1, 1, 2, (2, 1)))
    assert (outcome.code, outcome.changed, outcome.group.in_sync_epoch) == (Code.SUCCESS, False, 2)


def test_a_master_that_starts_again_is_none_until_it_is_elected():
    machine = with_master()
    group = machine.apply(register(1)).group
    assert (group.master, group.master_epoch, group.in_sync) == (0, 1, (1, 2))
    assert machine.apply(elect(1, 2, 1)).group.master == 2  # it has more than 1
    with planted(BY_TESTS["started-broker-stays-master"]):
        assert with_master().apply(register(1)).group.master == 1


def test_a_slave_that_starts_again_changes_no_master():
    assert with_master().apply(register(2, address="h:1")).group.master == 1


def test_an_id_belongs_to_one_directory_and_is_given_once():
    machine = with_master()
    assert machine.apply(apply_id(2)).code is Code.SUCCESS  # asked again
    assert machine.apply(apply_id(2, "another")).code is Code.ID_INVALID
    assert machine.apply(apply_id(4, "code-2")).code is Code.ID_INVALID
    assert machine.apply(apply_id(7, "another")).code is Code.ID_INVALID
    assert machine.apply(register(2, check_code="another")).code is Code.ID_INVALID
    assert machine.apply(Remove(group="a", ids=(3,), alive=())).code is Code.SUCCESS
    assert machine.apply(apply_id(3, "another")).code is Code.ID_INVALID
    assert machine.apply(apply_id(4, "another")).code is Code.SUCCESS
    with planted(BY_TESTS["id-of-another-directory"]):
        assert with_master().apply(apply_id(2, "another")).code is Code.SUCCESS


def test_a_copied_directory_does_not_take_the_place_of_a_living_broker():
    moved = register(2, address="elsewhere:1", other_alive=True)
    assert with_master().apply(moved).code is Code.ID_INVALID
    assert with_master().apply(register(2, address="elsewhere:1")).code is Code.SUCCESS


def test_who_says_no_code_takes_no_living_master_its_office():
    """RocketMQ's brokers say none: they wait until the controller hears of the old one no more."""
    forged = register(1, other_alive=True)
    machine = with_master()
    assert machine.apply(forged).code is Code.ID_INVALID
    assert machine.groups["a"].master == 1
    assert machine.apply(register(1, other_alive=True, check_code="code-1")).code is Code.SUCCESS
    assert with_master().apply(register(1)).group.master == 0
    with planted(BY_TESTS["switch-office-taken-without-a-code"]):
        assert with_master().apply(forged).group.master == 0


def test_who_has_no_id_is_not_registered():
    assert with_master().apply(register(9)).code is Code.NOT_REGISTERED
    assert Machine().apply(register(1)).code is Code.GROUP_UNKNOWN


def test_a_group_stays_in_its_cluster():
    other = ApplyId(group="a", cluster="D", id=4, check_code="x")
    assert with_master().apply(other).code is Code.INVALID_REQUEST


def test_what_may_be_removed():
    def remove(*ids, alive=(), **more):
        return with_master().apply(Remove(group="a", ids=ids, alive=alive, **more))

    assert remove(1).code is Code.INVALID_REMOVAL  # the master
    assert remove(9).code is Code.INVALID_REMOVAL
    assert remove(3, alive=(3,)).code is Code.INVALID_REMOVAL
    assert sorted(remove(3, alive=(3,), also_living=True).group.replicas) == [1, 2]
    group = remove(2).group
    assert (sorted(group.replicas), group.in_sync, group.in_sync_epoch) == ([1, 3], (1,), 3)


def test_the_last_in_sync_replica_cannot_be_removed():
    def without_master():
        machine = with_master()
        machine.apply(alter(1, 1, 2, (1,)))
        machine.apply(register(1))
        return machine

    assert without_master().apply(Remove(group="a", ids=(1,), alive=())).code is (
        Code.INVALID_REMOVAL
    )
    with planted(BY_TESTS["last-in-sync-replica-removed"]), pytest.raises(AssertionError):
        without_master().apply(Remove(group="a", ids=(1,), alive=()))


def test_a_group_has_so_many_replicas_and_no_more():
    machine = with_replicas(int(REPLICAS_MAX))
    assert machine.apply(apply_id(REPLICAS_MAX + 1)).code is Code.INVALID_REQUEST


def test_there_are_so_many_groups_and_no_more():
    machine = Machine()
    for number in range(GROUPS_MAX):
        assert machine.apply(apply_id(1, group=f"g{number}")).code is Code.SUCCESS
    assert machine.apply(apply_id(1, group="one-more")).code is Code.INVALID_REQUEST
    assert decode_state(encode_state(machine.groups)) == machine.groups


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b"{}", b'{"version":2,"groups":{}}',
        b'{"version":1,"groups":{"a":{"cluster":"C","master":3}}}',
        b'{"version":1,"groups":{"a":{"cluster":"C","more":3}}}',
        b'{"version":1,"groups":{"a":{"cluster":"C","next_id":0}}}',
        b'{"version":1,"groups":{"a":{"cluster":"C","master_epoch":1}}}',
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_is_refused(data):
    with pytest.raises(BadState):
        decode_state(data)


def test_a_state_at_its_limits_can_be_read_back():
    wide = "x" * 255
    replicas = {
        one: Replica(check_code=wide, address=wide, ha_address=wide)
        for one in range(1, REPLICAS_MAX + 1)
    }
    group = Group(cluster=wide, replicas=replicas, next_id=REPLICAS_MAX + 1)
    groups = {f"{number:0255d}": group for number in range(GROUPS_MAX)}
    assert decode_state(encode_state(groups)) == groups


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b'{"version":2,"command":{}}', b" " * 20_000,
        b'{"version":1,"command":{"type":"Elect","group":"a","master_epoch":-1,"alive":[]}}',
        b'{"version":1,"command":{"type":"Elect","group":"","master_epoch":1,"alive":[]}}',
        b'{"version":1,"command":{"type":"Elect","group":"a","master_epoch":1,"alive":[0]}}',
        b'{"version":1,"command":{"type":"Vote","group":"a"}}',
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_is_refused(data):
    with pytest.raises(BadCommand):
        decode_command(data)


def test_no_command_is_written_that_would_not_be_read():
    with pytest.raises(BadCommand):
        encode_command(elect(-1, 1))
    with pytest.raises(BadCommand):
        encode_command(apply_id(1, "x" * 256))
