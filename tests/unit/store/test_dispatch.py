"""From committed entries to units, notifications and applied state."""

import errno

import pytest

from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import IndexConfig
from store.dispatch.dispatcher import FEW_ENTRIES
from store.dispatch.read_back import LONG_TEXTS_BYTES
from store.layout import UNIT
from store.results import PutStatus
from tests.unit.store.fakes import BORN, HOST, FakeNode, World, batch_of, message

OK = PutStatus.OK


def units_of(world, topic="t", queue_id=0):
    queue = world.store._queues.by_name[topic, queue_id]
    data = queue.read(queue.min_offset, queue.max_offset - queue.min_offset)
    return list(UNIT.iter_unpack(data))


def fill(world, count=40, queues=3):
    """Messages of all kinds and state records, on a leader; returns the state records."""
    states = []
    for number in range(count):
        if number % 7 == 3:
            world.store.writer.propose_state("k", b"%d" % number, lambda status: None)
            states.append((world.node.end_index, "k", b"%d" % number))
        elif number % 11 == 5:
            world.put(sys_flag=4)
        elif number % 5 == 4:
            world.put(
                topic="SCHEDULE_TOPIC_XXXX", queue_id=1, properties=b"DELAY\x012\x02TAGS\x01a"
            )
        else:
            world.put(
                topic=f"t{number % queues}", properties=b"TAGS\x01a\x02", body=b"%d" % number,
                tags_code=97,
            )  # fmt: skip
        world.clock.now += 10
    return states


def log_of(world):
    """Another replica's node, with the same log."""
    node = FakeNode(segment_bytes=world.node.segment_bytes)
    for position, term, body in world.node.entries:
        node.add(position, term, body)
    node.term = world.node.term
    return node


def test_nothing_uncommitted_is_readable():
    world = World().begin()
    world.node.lead()
    world.put()
    assert world.store.reader.max_offset("t", 0) == 0
    assert world.store.reader.get("t", 0, 0, 32, 1000, None).count == 0
    world.node.commit()
    assert world.store.reader.max_offset("t", 0) == 1
    assert world.applied_index == 1


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1000])
def test_a_follower_has_the_units_and_the_state_of_the_leader(batch, segment_bytes):
    leader = World(node=FakeNode(segment_bytes=segment_bytes)).begin()
    leader.node.lead()
    states = fill(leader)
    leader.node.commit()
    follower = World(node=log_of(leader), dispatch_batch=batch).begin()
    for index in range(0, 35, 8):
        follower.node.commit(index)
        follower.turns()
    follower.node.commit()
    assert follower.turns() == max(0, -(-8 // batch) - 1)
    assert follower.queue_bytes() == leader.queue_bytes()
    assert follower.listener.states == leader.listener.states == states
    assert follower.applied_index == 40


def follower_of(leader, **config):
    """A replica with the same log, that lets entries come together."""
    return World(node=log_of(leader), follower_batch=20, **config).begin()


def test_a_follower_lets_entries_come_together_until_there_are_many_or_a_tick_comes():
    leader = World().begin()
    leader.node.lead()
    fill(leader)
    follower = follower_of(leader)
    follower.node.commit(12)
    assert follower.applied_index == -1
    follower.store.tick()
    assert follower.applied_index == 12
    follower.node.commit(31)
    assert follower.applied_index == 12
    follower.node.commit(32)
    assert follower.applied_index == 32
    follower.node.commit(40)
    follower.store.tick()
    leader.node.commit()
    assert follower.queue_bytes() == leader.queue_bytes()


def test_the_planted_bug_lets_any_number_come_together():
    leader = World().begin()
    leader.node.lead()
    fill(leader)
    follower = follower_of(leader)
    follower.node.commit(12)
    follower.store.tick()
    with planted(BY_TESTS["follower-waits-for-the-tick"]):
        follower.node.commit(40)
    assert follower.applied_index == 12


def test_a_follower_lets_few_bytes_come_together():
    leader = World(node=FakeNode(segment_bytes=1 << 22)).begin()
    leader.node.lead()
    for _ in range(40):
        leader.put(body=bytes(40_000))
    follower = World(node=log_of(leader), follower_batch=1000).begin()
    applied = []
    for index in range(41):
        follower.node.commit(index)
        applied.append(follower.applied_index)
    assert max(index - done for index, done in enumerate(applied)) <= FEW_ENTRIES
    assert applied[-1] >= 30


def test_who_becomes_leader_has_caught_up_before_it_is_writable():
    leader = World().begin()
    leader.node.lead()
    states = fill(leader)
    follower = follower_of(leader)
    follower.node.commit(10)
    assert follower.applied_index == -1
    follower.node.commit_index = 15
    follower.log.on_committed(15)
    follower.node.lead(commit=False)
    assert not follower.store.writer.writable
    follower.node.commit()
    assert follower.store.writer.writable
    assert follower.listener.states == states
    leader.node.commit()
    follower.put(topic="a")
    follower.node.commit()
    assert follower.store.reader.max_offset("a", 0) == leader.store.reader.max_offset("a", 0) + 1


def test_what_waits_on_a_follower_is_dispatched_before_a_checkpoint_counts_it():
    leader = World().begin()
    leader.node.lead()
    fill(leader)
    follower = follower_of(leader)
    follower.node.commit(12)
    assert follower.store.checkpoints.write_now()
    assert follower.store.checkpoints.covered == 0
    again = World(disk=follower.disk, node=follower.node).begin()
    leader.node.commit()
    again.node.commit()
    assert again.queue_bytes() == leader.queue_bytes()


def test_a_turn_reads_back_a_bounded_number_of_entries():
    leader = World().begin()
    leader.node.lead()
    fill(leader)
    follower = World(node=log_of(leader), dispatch_batch=10).begin()
    follower.node.commit()
    assert follower.applied_index == 9
    assert len(follower.soon) == 1
    follower.node.commit()
    assert follower.applied_index == 9
    assert follower.turns() == 4
    assert follower.applied_index == 40


def test_unit_of_a_scheduled_message_is_its_delivery_time():
    world = World().begin()
    world.node.lead()
    now = world.clock.now
    world.put(topic="SCHEDULE_TOPIC_XXXX", queue_id=1, properties=b"DELAY\x012", tags_code=5)
    delayed = message(topic="SCHEDULE_TOPIC_XXXX", queue_id=1, properties=b"DELAY\x011")
    world.store.writer.put_batch(batch_of([delayed]), lambda *answer: None)
    world.node.commit()
    codes = [unit[2] for unit in units_of(world, "SCHEDULE_TOPIC_XXXX", 1)]
    assert codes == [now + 5000, now + 1000]


def test_listener_hears_once_per_queue_and_turn():
    world = World().begin()
    world.node.lead()
    for topic, code in [("a", 1), ("b", 2), ("a", 3)]:
        world.put(topic=topic, tags_code=code)
    world.listener.events.clear()
    world.node.commit()
    assert world.listener.events == [("message", "a", 0, 2), ("message", "b", 0, 1)]
    world.put(topic="a")
    world.node.commit()
    assert world.listener.events[2:] == [("message", "a", 0, 3)]


def test_state_is_applied_before_its_proposer_hears():
    world = World().begin()
    world.node.lead()
    world.store.writer.propose_state(
        "k", b"v", lambda status: world.listener.events.append((status,))
    )
    world.node.commit()
    assert world.listener.events[-2:] == [("state", "k"), (OK,)]


def test_new_leader_is_writable_only_after_all_earlier_state():
    leader = World().begin()
    leader.node.lead()
    states = fill(leader)
    world = World(node=log_of(leader), dispatch_batch=10).begin()
    world.node.lead()
    assert not world.store.writer.writable
    world.turns()
    assert world.store.writer.writable
    assert world.listener.states == states
    assert world.listener.events[-1][0] == "writable"


def test_state_in_the_snapshot_is_not_applied_again():
    leader = World().begin()
    leader.node.lead()
    states = fill(leader)
    follower = World(node=log_of(leader))
    follower.node.commit_index = 40
    follower.begin(states[1][0])
    assert follower.listener.states == states[2:]


def test_state_behind_the_snapshot_is_applied_though_the_queues_are_further():
    world = World().begin()
    world.node.lead()
    states = fill(world)
    world.node.commit()
    queues = world.queue_bytes()
    again = World(disk=world.disk, node=world.node).begin(states[1][0])
    assert again.listener.states == states[2:]
    assert again.queue_bytes() == queues


def test_a_full_disk_stops_dispatch_keeps_what_is_readable_and_resumes_by_itself():
    world = World(unflushed_units_max=4).begin()
    world.node.lead()
    for _ in range(3):
        world.put()
        world.node.commit()
    world.disk.writes_left = 0
    world.store.tick()
    for _ in range(9):
        world.put()
        world.store.writer.propose_state("k", b"v", world.answers.append)
        world.node.commit()
    assert world.store.reader.max_offset("t", 0) == 4
    assert world.store.reader.get("t", 0, 0, 32, 10_000, None).count == 4
    assert [a for a in world.answers if isinstance(a, tuple)][-1][:3] == ("x", OK, 11)
    assert len(world.listener.states) == len([a for a in world.answers if a is OK]) == 1
    world.store.tick()
    assert not world.store.checkpoints.write_now()
    assert world.store.reader.max_offset("t", 0) == 4
    world.disk.writes_left = None
    world.store.tick()
    world.turns()
    assert world.store.reader.max_offset("t", 0) == 12
    assert len(world.listener.states) == len([a for a in world.answers if a is OK]) == 9
    assert [unit[0] for unit in units_of(world)] == [a[3] for a in world.answers if a is not OK]


@pytest.mark.parametrize("failing", range(6))
def test_a_checkpoint_that_finds_no_space_loses_nothing(failing):
    world = World().begin()
    world.node.lead()
    fill(world)
    world.node.commit()
    world.disk.writes_left = failing
    assert world.store.checkpoints.write_now() is (failing == 6)
    world.disk.writes_left = None
    again = World(disk=world.disk, node=world.node).begin()
    assert again.queue_bytes() == world.queue_bytes()


def record(topic, queue_offset, physical):
    return encode_record(
        MessageExt(topic, 0, 0, 0, queue_offset, physical, 1, BORN, 2, HOST, 0, 0, b"x", b"")
    )


@pytest.mark.parametrize("first", [5, 10, 23])
def test_a_queue_whose_head_was_removed_begins_late(first):
    node = FakeNode()
    for offset in range(first, first + 2):
        node.add(node.end, 1, record("t", offset, node.end + 48))
    node.commit_index = 1
    world = World(node=node).begin()
    assert (world.store.reader.min_offset("t", 0), world.store.reader.max_offset("t", 0)) == (
        first,
        first + 2,
    )
    queues = world.queue_bytes()
    again = World(disk=world.disk, node=node).begin()
    assert again.store.reader.min_offset("t", 0) == first
    assert again.queue_bytes() == queues


def test_another_failure_of_the_checkpoint_is_fatal():
    world = World().begin()
    world.node.lead()
    world.put()
    world.node.commit()
    world.disk.sync_fails = True
    with pytest.raises(FatalError, match="cannot sync /s/consumequeue: "):
        world.store.checkpoints.write_now()
    world.disk.sync_fails = False
    world.disk.writes_left, world.disk.error = 0, errno.EIO
    with pytest.raises(FatalError, match="cannot write a checkpoint in /s"):
        world.store.checkpoints.write_now()


def test_own_entries_wait_for_those_that_a_full_disk_held_back():
    world = World(unflushed_units_max=2).begin()
    world.node.lead()
    world.disk.writes_left = 0
    for name in "abcd":
        world.put(name)
        world.node.commit()
    world.put("waits")
    world.disk.writes_left = None
    world.store.tick()
    assert world.store.reader.max_offset("t", 0) == 4
    world.node.commit()
    assert [answer[2] for answer in world.answers] == [0, 1, 2, 3, 4]
    assert world.store.reader.max_offset("t", 0) == 5


@pytest.mark.parametrize("at", [4, 15, 40, 60], ids=lambda at: f"byte {at}")
def test_dispatch_waits_before_a_damaged_entry_until_it_is_repaired(at, caplog):
    leader = World().begin()
    leader.node.lead()
    states = fill(leader)
    world = World(node=log_of(leader), dispatch_batch=5).begin()
    world.node.corrupt(20, at)
    world.node.commit()
    assert world.turns() < 50, "it does not spin"
    assert world.applied_index == 19
    for _ in range(3):
        world.store.tick()
        world.turns()
    assert world.applied_index == 19
    assert caplog.text.count("event=dispatch_waits index=20") == 1
    assert not world.fatal
    world.node.corrupt(20, at)
    world.store.tick()
    world.turns()
    assert world.applied_index == world.node.end_index
    leader.node.commit()
    assert world.queue_bytes() == leader.queue_bytes()
    assert world.listener.states == states


def test_a_new_leader_takes_no_sends_before_a_damaged_entry_is_repaired():
    leader = World().begin()
    leader.node.lead()
    fill(leader)
    world = World(node=log_of(leader)).begin()
    world.node.corrupt(20)
    world.node.lead()
    world.turns()
    assert not world.store.writer.writable
    world.node.corrupt(20)
    world.store.tick()
    world.turns()
    assert world.store.writer.writable


def test_what_fails_in_a_later_turn_is_fatal_and_the_last_thing_done():
    leader = World().begin()
    leader.node.lead()
    fill(leader)
    world = World(node=log_of(leader), dispatch_batch=1).begin()
    world.node.commit(17)
    world.turns()
    world.store._queues.by_name["t0", 0].max_offset -= 1  # a unit is lost
    world.node.commit()
    world.turns()
    assert [error.exit_code for error in world.fatal] == [3]
    assert "ends at" in world.fatal[0].message
    world.node.commit()
    world.turns()
    assert len(world.fatal) == 1


def test_a_bug_of_the_listener_is_fatal(caplog):
    leader = World().begin()
    leader.node.lead()
    fill(leader)
    world = World(node=log_of(leader), dispatch_batch=2).begin()
    world.listener.apply_state = None
    world.node.commit()
    world.turns()
    assert [error.exit_code for error in world.fatal] == [3]
    assert "event=bug in=store" in caplog.text


def turns_for_many_keys():
    """Return how many turns a follower needs for 40 messages, each with 2,000 words of KEYS."""
    index = IndexConfig(slots=16, entries=200_000)
    leader = World(index=index).begin()
    leader.node.lead()
    text = b"KEYS\x01" + b" ".join(b"%d" % (word % 10) for word in range(2000)) + b"\x02"
    for number in range(40):
        leader.put(properties=text, body=b"%d" % number)
    leader.node.commit()
    follower = World(node=log_of(leader), index=index).begin()
    follower.node.commit()
    turns = follower.turns()
    assert follower.store.reader.max_offset("t", 0) == 40
    assert follower.applied_index == 40
    return turns


def test_no_turn_indexes_more_than_some_thousand_words():
    assert turns_for_many_keys() >= 40 * 4000 // LONG_TEXTS_BYTES - 1


def turns_for_own_keys():
    """Return how many turns a leader needs for 40 of its own, each with 2,000 words of KEYS."""
    leader = World(index=IndexConfig(slots=16, entries=200_000)).begin()
    leader.node.lead()
    text = b"KEYS\x01" + b" ".join(b"%d" % (word % 10) for word in range(2000)) + b"\x02"
    for number in range(40):
        leader.put(str(number), properties=text, body=b"%d" % number)
    leader.node.commit()
    assert [answer[:3] for answer in leader.take_answers()] == [
        (str(number), OK, number) for number in range(40)
    ]
    turns = leader.turns()
    assert leader.store.reader.max_offset("t", 0) == 40
    return turns


def test_no_turn_of_a_leader_indexes_more_than_some_thousand_words():
    assert turns_for_own_keys() >= 40 * 4000 // LONG_TEXTS_BYTES - 2


def test_planted_turns_of_a_leader_without_a_bound_are_found_here():
    with planted(BY_TESTS["all-own-keys-in-one-turn"]):
        assert turns_for_own_keys() == 0


def test_planted_turns_without_a_bound_are_found_here():
    with planted(BY_TESTS["all-keys-in-one-turn"]):
        assert turns_for_many_keys() == 0
