"""A committed entry that is no message: out of everything, by name, and the group goes on.

All ways of dispatching agree on what that is: from hints, read back, in any slices, at any start.
"""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.codec.entry import encode_entry
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.storage.recent import HintedSpan
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.layout import FIRST_OFFSET_MAX, SKIPPED_BYTES
from store.results import GetStatus
from tests.unit.store.fakes import BORN, HOST, FakeNode, World, batch_of, message
from tests.unit.store.test_dispatch import fill, log_of, units_of


def record(topic, queue_offset, physical, *, sys_flag=0, body=b"x", queue_id=0):
    """Return what an earlier version appended: the sysFlag is the message's own."""
    data = bytearray(
        encode_record(
            MessageExt(
                topic, queue_id, 0, sys_flag & ~0x30, queue_offset, physical, 1, BORN, 2, HOST, 0,
                0, body, b"",
            )
        )
    )  # fmt: skip
    data[36:40] = sys_flag.to_bytes(4, "big")
    return bytes(data)


def add(node, *args, **kwargs):
    node.add(node.end, 1, record(*args, node.end + 48, **kwargs))


def old_log(bad=0x10):
    """Return a log in which a leader of an earlier version gave offset 1 to what is no message."""
    node = FakeNode()
    add(node, "t", 0)
    add(node, "t", 1, sys_flag=bad)
    add(node, "u", 0)
    add(node, "t", 2)
    add(node, "t", 3)
    node.term = 1
    return node


@pytest.mark.parametrize("bad", [0x10, 0x20, 0x30])
def test_what_is_no_message_is_named_and_all_others_are_served(bad, caplog):
    node = old_log(bad)
    node.commit_index = node.end_index
    with caplog.at_level(logging.ERROR):
        world = World(node=node).begin()
    assert caplog.text.count(f"event=record_quarantined position={node.entries[1][0] + 48} ") == 1
    assert (world.store.status()["quarantined"], world.fatal) == (1, [])
    assert world.store.reader.max_offset("t", 0) == 4
    assert units_of(world)[1][1] == SKIPPED_BYTES
    first = world.store.reader.get("t", 0, 0, 32, 10_000, None)
    assert (first.status, first.count, first.next_offset) == (GetStatus.FOUND, 1, 1)
    behind = world.store.reader.get("t", 0, 1, 32, 10_000, None)
    assert (behind.status, behind.count, behind.next_offset) == (GetStatus.FOUND, 2, 4)
    assert world.store.reader.max_offset("u", 0) == 1
    assert world.store.reader.offset_by_time("t", 0, 2) in (0, 1, 2, 3)


def entries_walked(messages):
    """Return how many entries are looked at for so many messages behind a gap, and the log line."""
    node = FakeNode()
    add(node, "t", 0)
    for number in range(messages):
        add(node, "t", 5 + number)
    node.term = 1
    world = World(node=node).begin()
    log, walked = world.store._anomalies._log, []
    walk = log.walk

    def counted(start, end, limit):
        for item in walk(start, end, limit):
            walked.append(item[0])
            yield item

    log.walk = counted
    node.commit()
    world.turns()
    assert not world.fatal
    assert world.store.reader.max_offset("t", 0) == 1
    assert world.store.status()["quarantined"] == messages
    return len(walked)


def test_each_message_behind_a_gap_is_looked_for_behind_the_last_one():
    assert entries_walked(40) < 4 * 40


def test_a_slice_that_ends_at_it_says_where_to_go_on():
    node = old_log()
    node.commit_index = node.end_index
    world = World(node=node).begin()
    alone = world.store.reader.get("t", 0, 1, 1, 10_000, frozenset({5}))
    assert (alone.status, alone.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 4)


@given(st.data())
@settings(max_examples=60)
def test_every_replica_and_every_start_decide_alike(data):
    """Any log of an earlier version, any slices, a restart anywhere: the same queues."""
    node = FakeNode(segment_bytes=data.draw(st.sampled_from([1 << 20, 1000])))
    ends = {}
    for _ in range(data.draw(st.integers(1, 25))):
        topic = data.draw(st.sampled_from(["t", "u"]))
        flag = data.draw(st.sampled_from([0, 0, 0, 0x10, 0x20]))
        offset = ends.get(topic, 0)
        ends[topic] = offset + 1
        room = node.segment_bytes - node.end % node.segment_bytes
        if room < 300:
            node.end += room
        add(node, topic, offset, sys_flag=flag)
    node.term = 1

    def replica(batch, stops):
        world = World(node=log_of_node(node), dispatch_batch=batch).begin()
        for index in stops:
            world.node.commit(index)
            world.turns()
            if data.draw(st.booleans()):
                assert world.store.checkpoints.write_now()
            world = World(disk=world.disk, node=world.node, dispatch_batch=batch).begin()
        world.node.commit()
        world.turns()
        assert not world.fatal
        return world

    one = replica(1000, [])
    stops = sorted(data.draw(st.lists(st.integers(0, node.end_index), max_size=3)))
    other = replica(data.draw(st.integers(1, 5)), stops)
    assert other.queue_bytes() == one.queue_bytes()
    for topic in ends:
        assert other.store.reader.max_offset(topic, 0) == one.store.reader.max_offset(topic, 0)
        assert other.store.reader.min_offset(topic, 0) == one.store.reader.min_offset(topic, 0)


def log_of_node(node):
    other = FakeNode(segment_bytes=node.segment_bytes)
    for position, term, body in node.entries:
        other.add(position, term, body)
    other.term = node.term
    return other


def test_a_queue_that_an_earlier_version_filled_by_itself_is_put_right():
    """Its leader had a unit for what is no message, and the next leader gave the offset anew."""
    node = FakeNode()
    add(node, "t", 0)
    add(node, "t", 1)
    node.term, node.commit_index = 1, 1
    world = World(node=node).begin()
    position, term, body = node.entries[1]
    spoilt = body[:39] + bytes([0x10]) + body[40:]
    del node.entries[1:]
    node.segments[0] = node.segments[0][:position]
    node.add(position, term, spoilt)
    add(node, "t", 1, body=b"the message")
    node.commit_index = 2
    world.log.on_committed(2)
    world.turns()
    assert not world.fatal
    assert world.store.reader.max_offset("t", 0) == 2
    found = world.store.reader.get("t", 0, 1, 32, 10_000, None)
    assert b"the message" in bytes(found.buffers[0])


def test_a_unit_of_an_earlier_version_is_passed_over():
    node = FakeNode()
    for offset in range(3):
        add(node, "t", offset)
    node.term, node.commit_index = 1, 2
    world = World(node=node).begin()
    position, term, body = node.entries[1]
    spoilt = body[:39] + bytes([0x20]) + body[40:]
    node.entries[1] = (position, term, spoilt)
    entry = encode_entry(1, term, position, spoilt)
    node.segments[0][position : position + len(entry)] = entry
    found = world.store.reader.get("t", 0, 0, 32, 10_000, None)
    assert (found.count, found.next_offset) == (2, 3)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no message at all", "record cut short"),
        (record("t", 0, 48) + b"more", "97 bytes hold a record of 93"),
        (record("../x", 0, 48), "cannot name a queue"),
        (record("t", 0, 48, queue_id=-1), "cannot name a queue"),
        (record("t", 0, 4711), "states 4711"),
    ],
)
def test_it_is_said_why(body, reason, caplog):
    node = FakeNode()
    node.add(0, 1, body)
    add(node, "t", 0)
    node.commit_index = 1
    world = World(node=node).begin()
    assert "event=record_quarantined position=48 " in caplog.text
    assert reason in caplog.text
    assert world.store.reader.max_offset("t", 0) == 1


def test_an_entry_without_anything_is_nothing_worth_naming(caplog):
    node = FakeNode()
    node.add(0, 1, b"")
    add(node, "t", 0)
    node.commit_index = 1
    world = World(node=node).begin()
    assert world.store.status()["quarantined"] == 0
    assert world.store.reader.max_offset("t", 0) == 1


@pytest.mark.parametrize("offset", [2, 70_000, 2**62])
def test_a_message_that_lies_about_its_queue_offset_is_left_out(offset, caplog):
    node = FakeNode()
    add(node, "t", 0)
    add(node, "t", offset)
    add(node, "t", 1)
    node.commit_index = 2
    world = World(node=node).begin()
    assert f"queue offset {offset} where 1 comes next" in caplog.text
    assert world.store.reader.max_offset("t", 0) == 2


@pytest.mark.parametrize("offset", [FIRST_OFFSET_MAX + 1, 2**63 - 1])
def test_a_queue_does_not_begin_where_no_file_can_be(offset, caplog):
    node = FakeNode()
    add(node, "t", offset)
    add(node, "t", 7)
    node.commit_index = 1
    world = World(node=node).begin()
    assert f"a queue cannot begin at {offset}" in caplog.text
    assert world.store.status()["quarantined"] == 1
    assert world.store.reader.max_offset("t", 0) == 8
    with planted(BY_TESTS["queue-begins-anywhere"]):
        world = World(node=node).begin()
    assert world.store.reader.max_offset("t", 0) != 8


def test_a_message_that_states_the_offset_of_another_is_left_out(caplog):
    node = FakeNode()
    for offset in (0, 1, 0, 2):
        add(node, "t", offset)
    node.commit_index = 3
    world = World(node=node).begin()
    assert "queue offset 0 is that of an earlier message" in caplog.text
    assert world.store.reader.max_offset("t", 0) == 3


def test_a_queue_that_lost_units_is_no_matter_for_quarantine():
    """The messages are there: it is this replica that lacks something."""
    node = FakeNode()
    for offset in range(4):
        add(node, "t", offset)
    node.term, node.commit_index = 1, 1
    world = World(node=node).begin()
    world.store._queues.by_name["t", 0].max_offset = 1
    del world.store._queues.by_name["t", 0].tail[20:]
    with pytest.raises(FatalError, match=r"t queue 0 ends at 1, .* queue offset 2"):
        world.node.commit()


@pytest.mark.parametrize("base", [7, 10], ids=["amid a file", "with a file"])
def test_what_is_no_message_behind_a_queue_that_begins_empty_is_skipped(base):
    """A file has ten units: before the tenth there is none, nor a gap."""
    node = FakeNode()
    add(node, "t", base, sys_flag=0x10)
    add(node, "t", base + 1)
    node.commit_index = 1
    world = World(node=node)
    world.load(bases=[("t", 0, base)])
    world.log.on_committed(1)
    world.turns()
    assert world.store.reader.min_offset("t", 0) == base
    assert world.store.reader.max_offset("t", 0) == base + 2
    found = world.store.reader.get("t", 0, base, 32, 10**6, None)
    assert (found.count, found.next_offset) == (1, base + 2)


def test_a_hint_of_an_earlier_version_is_not_believed():
    """It speaks of what is no message as of any other: a replica without the hint would not."""
    leader = World().begin()
    leader.node.lead()
    fill(leader, 12)
    first = leader.node.end_index + 1
    leader.store.writer.put_batch(batch_of([message(body=b"%d" % n) for n in range(4)]), _ignore)
    hint = leader.store.log_user.write_hint(leader.node.entries[first][0], leader.node.end_position)
    leader.node.commit()
    for version, taken in ((hint[0], True), (1, False)):
        follower = World(node=log_of(leader)).begin()
        units = b"".join(
            unit_of(follower.node, index) for index in range(first, follower.node.end_index + 1)
        )
        old = bytes([version]) + hint[1:]
        follower.node.hints = [HintedSpan(first, follower.node.end_index, 1, units, old)]
        assert follower.store.log_user.is_sound_hint(old, 4) == taken


def _ignore(*answer):
    """Take an answer."""


def unit_of(node, index):
    position, size, term = node.entry(index)
    return UNIT.pack(UNIT_MAGIC, position, size, index, term)


@pytest.mark.parametrize(
    "bug",
    [BY_TESTS["no-offset-for-a-quarantined-record"], BY_TESTS["a-bad-record-ends-the-process"]],
)
def test_planted_bugs_are_found_here(bug, caplog):
    with planted(bug), pytest.raises((AssertionError, FatalError)):
        test_what_is_no_message_is_named_and_all_others_are_served(0x10, caplog)
