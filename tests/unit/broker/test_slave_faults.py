"""What goes wrong around a slave: masters that go, come back or lie; and it is made the master."""

import asyncio
import json
from types import SimpleNamespace

import msgspec
import pytest

from broker.offsets.promotion import OwnOffsetsTakeover
from broker.slave_sync import service
from broker.slave_sync.giving_back import give_back
from broker.state.consumer_offset import ConsumerOffsetTable, room_of
from broker.state.own_offsets import OwnOffset, OwnOffsets
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.master_slave import slave_at
from tests.unit.broker.slave_bench import KEY, MASTER, Master, Slave, read_tables, recorded


def registered(address, ha_address):
    return {"masterAddr": address, "haServerAddr": ha_address}


def follower(tmp_path, peer, **settings):
    """Return the mode of a slave that follows a log from ``peer``."""
    mode = slave_at(peer[1], tmp_path, **settings).controller._mode
    mode._ha = SimpleNamespace(
        is_following=True, is_connected=True, peer=peer, set_master=lambda _address: None
    )
    return mode


def check_tables_belong_to_the_log_that_is_followed(tmp_path):
    mode = follower(tmp_path, ("127.0.0.1", 10912))
    assert mode.followed_master() == ""
    mode.on_registered(registered("127.0.0.1:10911", "localhost:10912"))
    assert mode.followed_master() == "", "another broker, as far as can be told"
    mode.on_registered(registered("127.0.0.1:10911", "127.0.0.1:10912"))
    assert mode.followed_master() == "127.0.0.1:10911"
    mode._ha.is_following = False
    assert mode.followed_master() == ""


def test_tables_belong_to_the_log_that_is_followed(tmp_path):
    check_tables_belong_to_the_log_that_is_followed(tmp_path)


def test_planted_tables_of_another_log_are_found(tmp_path):
    with planted(BY_TESTS["tables-of-another-log"]), pytest.raises(AssertionError):
        check_tables_belong_to_the_log_that_is_followed(tmp_path)


def test_a_master_that_is_told_is_the_one_of_that_name(tmp_path):
    """`haMasterAddress` is another name of the address that the master registered."""
    mode = follower(tmp_path, ("10.0.0.1", 10912), ha_master_address="master-host:10912")
    mode.on_registered(registered("10.0.0.1:10911", "10.0.0.1:10912"))
    assert mode.followed_master() == "10.0.0.1:10911"
    mode.on_registered(registered("10.0.0.2:10911", "10.0.0.2:10912"))
    assert mode.followed_master() == ""
    assert (
        "haMasterAddress=master-host:10912, and the master 10.0.0.2:10911" in mode.why_no_master()
    )
    mode._ha.is_following = False
    assert mode.why_no_master() == service.NOBODY
    mode._ha.is_following = True
    mode.on_registered(registered("10.0.0.2:10911", "no address"))
    assert mode.followed_master() == ""
    mode.on_registered(registered("10.0.0.2:10911", "master-host:10912"))
    assert mode.followed_master() == "10.0.0.2:10911"


def test_without_haMasterAddress_the_registration_says_both(tmp_path):  # noqa: N802 - a setting
    mode = follower(tmp_path, ("10.0.0.1", 10912), ha_master_address="", namesrv_addr="ns:1")
    mode.on_registered(registered("10.0.0.1:10911", "ha-host:10912"))
    assert mode.followed_master() == "10.0.0.1:10911"
    mode.on_registered({"haServerAddr": "10.0.0.2:10912"})
    assert mode.followed_master() == "", "whose log it is now, nobody has said"


def test_a_master_that_is_no_longer_followed_changes_nothing():
    """The link is lost while it is asked."""
    master = Master()
    slave = Slave(master)
    request = master.request

    async def lose_the_link(addr, command, timeout_ms):
        slave.followed = ""
        return await request(addr, command, timeout_ms)

    before = slave.state()
    master.request = lose_the_link
    slave.follow()
    assert slave.state() == before
    assert slave.sync.rounds == 0


def test_what_waited_of_a_master_that_went_is_not_taken():
    slave = Slave(Master(log_end=2_000))
    slave.follow()
    slave.followed = ""
    slave.log.end = slave.log.applied = 2_000
    asyncio.run(slave.sync._take_progress())
    slave.followed = MASTER
    asyncio.run(slave.sync._take_progress())
    assert slave.offset() is None


def test_a_master_that_goes_in_the_middle_takes_the_rest_of_its_tables_along():
    master = Master()
    master.topics = {f"t{n}": TopicConfig(topic_name=f"t{n}") for n in range(100)}
    slave = Slave(master)
    apply = slave.sync._apply
    taken = []

    def apply_and_lose(change):
        taken.append(change)
        slave.followed = ""
        apply(change)

    slave.sync._apply = apply_and_lose
    slave.own.commit("h", "orders", 0, 9)
    slave.follow()
    assert len(taken) == service.ROWS_PER_TURN
    assert slave.offset() is None
    assert master.commits == []


def test_an_end_of_the_log_that_was_a_lie_does_not_block_offsets():
    master = Master(log_end=2**63 - 1)
    slave = Slave(master)
    slave.follow()
    master.log_end = 1_000
    slave.follow()
    assert slave.offset() == 5


def test_an_end_of_the_log_with_too_many_digits_is_refused():
    body = b'{"table":{"commitLogMaxOffset":"%s"}}'
    assert read_tables({**recorded(), "28": body % (b"0" * 19)}).log_end == 0
    with pytest.raises(RemoteProtocolError):
        read_tables({**recorded(), "28": body % (b"9" * 5_000)})


def test_offsets_that_the_log_brings_do_not_move_back():
    """A busy group: each answer is older than what the log has brought since."""
    slave = Slave(Master())
    slave.follow()
    master = Master()
    slave.sync._client = master
    for told, brought in ((100, 105), (200, 205), (300, 305)):
        slave.tables.offsets.apply(msgspec.json.encode({KEY: {0: brought}}))
        master.offsets = {KEY: {0: told}}
        slave.follow()
        assert slave.offset() == brought


def test_a_group_that_was_moved_back_and_goes_on_is_followed():
    master = Master()
    master.offsets = {KEY: {0: 105}}
    slave = Slave(master)
    slave.follow()
    for told in (10, 12):
        master.offsets = {KEY: {0: told}}
        slave.follow()
    assert slave.offset() == 12


@pytest.mark.parametrize("said", [2, 7, 12, None])
def test_what_comes_in_between_is_not_overwritten(said):
    """The tables said 5, and somebody commits before it is the offset's turn."""
    master = Master()
    master.offsets = {} if said is None else {KEY: {0: said}}
    due = [OwnOffset("orders", "g", 0, 9, 5)]
    given: list[OwnOffset] = []
    asyncio.run(give_back(master, MASTER, due, lambda: True, given.append))
    assert (master.commits, given) == ([], [])


@pytest.mark.parametrize("not_found", [None, 0])
@pytest.mark.parametrize("told", [None, -1])
def test_an_offset_that_the_master_does_not_have_is_given(told, not_found):
    """Of a young queue RocketMQ says 0."""
    master = Master()
    master.offsets, master.not_found = {}, not_found
    due = [OwnOffset("orders", "g", 0, 9, told)]
    given: list[OwnOffset] = []
    asyncio.run(give_back(master, MASTER, due, lambda: True, given.append))
    assert (master.commits, given) == ([(KEY, 0, 9)], due)


def test_nothing_is_given_to_a_master_that_is_not_followed():
    master = Master()
    due = [OwnOffset("orders", "g", 0, 9, 5)]
    given: list[OwnOffset] = []
    asyncio.run(give_back(master, MASTER, due, lambda: False, given.append))
    assert (master.commits, given) == ([], [])


def test_new_keys_in_each_round_do_not_grow_the_table_without_bound(monkeypatch, caplog):
    keys = [[f"t{n:05}@g{turn}" for n in range(1_000)] for turn in range(4)]
    limit = 2_500 * room_of(keys[0][0])
    monkeypatch.setattr(service, "OFFSETS_BYTES_MAX", limit)
    master = Master()
    slave = Slave(master)
    for some in keys:
        master.offsets = {key: {0: 1} for key in some}
        slave.follow()
    assert slave.tables.offsets.room.used == 2_000 * room_of(keys[0][0])
    assert sum("tables_do_not_follow" in one for one in caplog.messages) == 1
    master.offsets = {key: {0: 2} for key in keys[0]}
    slave.follow()
    assert slave.offset(keys[0][0]) == 2, "known ones take no more room"


def as_slave(*commits):
    """Return the file of a slave that took commits."""
    own = OwnOffsets(ConsumerOffsetTable())
    for commit in commits:
        assert own.commit(*commit)
    return own.snapshot()


def as_master(file, applied):
    offsets = ConsumerOffsetTable()
    offsets.restore(msgspec.json.encode({"offsetTable": applied}))
    own = OwnOffsets(offsets)
    own.restore(file)
    return offsets, own, OwnOffsetsTakeover(own, lambda *queue: {("orders", 0): 3}[queue])


def check_a_new_master_has_no_offset_past_its_queues():
    """The dead master gave out 200 messages, of which this one has 3."""
    offsets, _, takeover = as_master(as_slave(("g", "orders", 0, 200), ("h", "orders", 0, 2)), {})
    assert offsets.query("g", "orders", 0) == 200, "as a slave it is not touched"
    takeover.start(1)
    assert offsets.query("g", "orders", 0) == 3
    (payload,) = offsets.take_proposals()
    assert msgspec.json.decode(payload) == {KEY: {"0": 3}, "orders@h": {"0": 2}}


def test_a_new_master_has_no_offset_past_its_queues():
    check_a_new_master_has_no_offset_past_its_queues()


def offset_of_a_new_master(own):
    """Return where a group goes on that had committed ``own`` of a queue that ends at 3."""
    offsets, _, takeover = as_master(as_slave(("g", "orders", 0, own)), {})
    takeover.start(1)
    return offsets.query("g", "orders", 0)


def test_an_offset_at_the_end_stays_and_the_next_one_does_not():
    assert [offset_of_a_new_master(own) for own in (3, 4)] == [3, 3]
    with planted(BY_TESTS["offset-just-past-the-end"]):
        assert offset_of_a_new_master(4) == 4


def test_planted_offset_past_the_end_is_found():
    with planted(BY_TESTS["slave-offset-past-the-end"]), pytest.raises(AssertionError):
        check_a_new_master_has_no_offset_past_its_queues()


def test_an_offset_past_the_end_does_not_fall_behind_what_was_replicated():
    own = OwnOffsets(offsets := ConsumerOffsetTable())
    offsets.apply(msgspec.json.encode({KEY: {0: 3}}))
    own.commit("g", "orders", 0, 200)
    offsets, own, takeover = as_master(own.snapshot(), {KEY: {0: 3}})
    takeover.start(1)
    assert offsets.query("g", "orders", 0) == 3
    assert not offsets.has_proposals
    takeover.tick()
    assert json.loads(own.snapshot()) == {"offsetTable": {}}


def test_what_a_new_master_has_replicated_does_not_come_back():
    """Its group is deleted then, and the broker started again."""
    offsets, own, takeover = as_master(as_slave(("g", "orders", 0, 2)), {})
    takeover.start(1)
    changes = own.changes
    takeover.tick()
    assert own.changes == changes, "nothing is replicated"
    (payload,) = offsets.take_proposals()
    offsets.apply(payload)
    takeover.tick()
    assert own.changes > changes, "or the file would not be written"
    offsets.apply_forget(msgspec.json.encode({"offsets": {KEY: [0]}}))
    offsets, _, _ = as_master(own.snapshot(), {})
    assert offsets.query("g", "orders", 0) is None


def test_an_offset_committed_again_counts_from_what_the_log_has_brought():
    """The log brings what was committed here; then the master goes, and more is committed."""
    master = Master()
    slave = Slave(master)
    slave.follow()
    slave.own.commit("g", "orders", 0, 9)
    slave.tables.offsets.apply(msgspec.json.encode({KEY: {0: 9}}))
    slave.own.commit("g", "orders", 0, 10)
    master.offsets = {KEY: {0: 9}}
    slave.follow()
    assert master.commits == [(KEY, 0, 10)]
    assert slave.offset() == 10
