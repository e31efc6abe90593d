"""Puts and proposals: what is written, when it is answered, and how."""

import pytest

from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import decode_record
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted
from store.layout import STATE_TOPIC
from store.origins import origin_of
from store.results import PutStatus
from tests.unit.store.fakes import BORN, HOST, REFUSALS, World, batch_of, message

OK, UNKNOWN, ILLEGAL = PutStatus.OK, PutStatus.UNKNOWN, PutStatus.MESSAGE_ILLEGAL


@pytest.fixture
def world():
    world = World().begin()
    world.node.lead()
    return world


def test_record_states_where_it_lies_and_what_was_sent(world):
    world.put(
        topic="orders", queue_id=3, body=b"body", properties=b"TAGS\x01a\x02", flag=7, sys_flag=1,
        reconsume_times=2, prepared_offset=9,
    )  # fmt: skip
    position, _, body = world.node.entries[-1]
    record = decode_record(body, check_crc=True)
    assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 3, 0)
    assert record.physical_offset == position + 48
    assert (record.body, record.properties) == (b"body", b"TAGS\x01a\x02")
    assert (record.flag, record.sys_flag, record.reconsume_times) == (7, 1, 2)
    assert (record.prepared_offset, record.born_timestamp) == (9, 1_600_000_000_000)
    assert (record.born_host, record.store_host) == (BORN, HOST)
    assert record.store_timestamp == world.clock.now


@pytest.mark.parametrize("born", [BORN, pack_host("2001:db8::1", 80)])
@pytest.mark.parametrize("host", [HOST, pack_host("2001:db8::2", 81)])
def test_host_widths_are_told_by_sys_flag(born, host):
    world = World(store_host=host).begin()
    world.node.lead()
    world.put(born_host=born)
    record = decode_record(world.node.entries[-1][2])
    assert (record.born_host, record.store_host) == (born, host)
    world.node.commit()
    assert world.store.reader.get("t", 0, 0, 1, 1000, None).count == 1
    assert world.store.reader.earliest_store_time("t", 0) == world.clock.now


def test_puts_are_answered_in_order_after_commit(world):
    for name in "abc":
        world.put(name)
    assert world.take_answers() == []
    world.node.commit(world.node.end_index - 1)
    physicals = [position + 48 for position, _, _ in world.node.entries[1:]]
    assert world.take_answers() == [("a", OK, 0, physicals[0]), ("b", OK, 1, physicals[1])]
    world.node.commit()
    assert world.take_answers() == [("c", OK, 2, physicals[2])]


def test_queues_count_for_themselves(world):
    for topic, queue_id in [("a", 0), ("a", 1), ("b", 0), ("a", 0)]:
        world.put(topic=topic, queue_id=queue_id)
    world.node.commit()
    assert [answer[2] for answer in world.answers] == [0, 0, 0, 1]


def test_store_timestamps_never_fall_even_across_leaders():
    world = World().begin()
    world.node.lead()
    world.put()
    first = world.clock.now
    world.clock.now -= 5000
    world.put()
    world.node.commit()
    world.node.follow()
    other = World(disk=world.disk, node=world.node).begin()
    other.clock.now = first - 9000
    other.node.lead()
    other.put()
    times = [decode_record(body).store_timestamp for _, _, body in other.node.entries]
    assert times == sorted(times)
    assert times[-1] == first


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"body": b""}, ILLEGAL),
        ({"body": bytes(101)}, ILLEGAL),
        ({"body": bytes(100)}, OK),
        ({"topic": "x" * 128}, ILLEGAL),
        ({"topic": "x" * 127}, OK),
        ({"topic": ""}, ILLEGAL),
        ({"topic": "../../etc"}, ILLEGAL),
        ({"topic": ".."}, ILLEGAL),
        ({"topic": "a\0b"}, ILLEGAL),
        ({"queue_id": -1}, ILLEGAL),
        ({"queue_id": 1 << 31}, ILLEGAL),
        ({"properties": bytes(32768)}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        ({"properties": b"x" * 32767}, OK),
        ({"flag": 1 << 40}, ILLEGAL),
        ({"born_host": b"123"}, ILLEGAL),
    ],
)
def test_limits(fields, status):
    world = World(max_body_bytes=100).begin()
    world.node.lead()
    before = world.node.end_index
    world.put(**fields)
    if status is OK:
        world.node.commit()
    else:
        assert world.node.end_index == before
    assert world.answers[0][1] is status
    world.put("next")
    world.node.commit()
    assert world.answers[-1][:3] == ("next", OK, int(status is OK and "topic" not in fields))


def test_topic_that_is_no_utf8_is_refused(world):
    illegal = message()
    illegal.topic = b"\xff\xfe"
    world.store.writer.put(illegal, lambda *answer: world.answers.append(answer))
    assert world.answers == [(ILLEGAL, -1, -1)]


@pytest.mark.parametrize("status", list(REFUSALS))
def test_refusals_of_the_log_are_told_at_once_and_cost_no_offset(world, status):
    world.node.refuse = REFUSALS[status]
    world.put("a")
    world.store.writer.put_batch(
        batch_of([message()]), lambda *answer: world.answers.append(answer)
    )
    world.store.writer.propose_state("k", b"", world.answers.append)
    assert world.take_answers() == [("a", status, -1, -1), (status, -1, []), status]
    world.node.refuse = None
    world.put("b")
    world.node.commit()
    assert world.answers[0][:3] == ("b", OK, 0)


def test_not_writable_before_the_own_noop_is_applied():
    world = World().begin()
    world.put("early")
    world.node.lead(commit=False)
    assert not world.store.writer.writable
    world.put("waiting")
    world.store.writer.propose_state("k", b"", world.answers.append)
    world.store.writer.put_batch(
        batch_of([message()]), lambda *answer: world.answers.append(answer)
    )
    not_leader = PutStatus.NOT_LEADER
    assert world.take_answers() == [
        ("early", not_leader, -1, -1),
        ("waiting", not_leader, -1, -1),
        not_leader,
        (not_leader, -1, []),
    ]
    world.node.commit()
    assert world.store.writer.writable
    assert world.listener.events == [("writable", True, 1)]


def test_step_down_answers_everything_unknown_in_order(world):
    world.put("a")
    world.store.writer.propose_state("k", b"v", lambda status: world.answers.append(("s", status)))
    world.store.writer.put_batch(
        batch_of([message(), message()]), lambda *answer: world.answers.append(answer)
    )
    world.put("b")
    entries = [position + 48 for position, _, _ in world.node.entries[1:]]
    world.node.follow()
    assert world.take_answers() == [
        ("a", UNKNOWN, 0, entries[0]),
        ("s", UNKNOWN),
        (UNKNOWN, 1, entries[2:4]),
        ("b", UNKNOWN, 3, entries[4]),
    ]
    assert not world.store.writer.writable
    assert world.listener.events[-1] == ("writable", False, 2)
    assert UNKNOWN.outcome_unknown
    assert not OK.outcome_unknown


def test_provisional_queue_offsets_are_dropped_with_the_leadership(world):
    world.put("kept")
    world.node.commit()
    world.put("lost")
    world.node.follow()
    world.node.lead()
    world.put("again")
    world.node.commit()
    assert [(a[0], a[1], a[2]) for a in world.answers] == [
        ("kept", OK, 0),
        ("lost", UNKNOWN, 1),
        ("again", OK, 1),
    ]


def test_planted_offsets_of_a_lost_leadership_are_seen(world):
    with planted(MUTANTS["provisional-offsets-kept"]), pytest.raises(AssertionError):
        test_provisional_queue_offsets_are_dropped_with_the_leadership(world)


def test_unknown_put_may_commit_later_and_then_counts(world):
    world.put("a")
    world.node.follow(truncate=False)
    world.node.lead()
    world.put("b")
    world.node.commit()
    assert [(a[0], a[1], a[2]) for a in world.answers] == [("a", UNKNOWN, 0), ("b", OK, 1)]
    assert world.store.reader.max_offset("t", 0) == 2


def test_late_puts_are_answered_once_and_are_still_dispatched(world):
    world.put("a")
    world.store.writer.propose_state("k", b"v", lambda status: world.answers.append(("s", status)))
    world.store.writer.put_batch(
        batch_of([message(), message()]), lambda *answer: world.answers.append(answer[0])
    )
    world.store.tick()
    world.clock.now += 2499
    world.put("young")
    world.store.tick()
    assert world.answers == []
    world.clock.now += 1
    world.store.tick()
    late = PutStatus.QUORUM_TIMEOUT
    assert [a[1] if isinstance(a, tuple) else a for a in world.take_answers()] == [late] * 3
    assert late.outcome_unknown
    world.clock.now += 1
    world.store.tick()
    world.node.commit()
    assert [(a[0], a[1]) for a in world.take_answers()] == [("young", OK)]
    assert world.store.reader.max_offset("t", 0) == 4
    assert world.listener.states == [(2, "k", b"v")]


def test_batch_is_consecutive_and_answered_once(world):
    world.put("a")
    batch = [message(body=b"1"), message(body=b"22"), message(body=b"333")]
    world.store.writer.put_batch(batch_of(batch), lambda *answer: world.answers.append(answer))
    world.node.commit(world.node.end_index - 1)
    assert len(world.take_answers()) == 1
    world.node.commit()
    physicals = [position + 48 for position, _, _ in world.node.entries[-3:]]
    assert world.answers == [(OK, 1, physicals)]
    assert world.store.reader.max_offset("t", 0) == 4


@pytest.mark.parametrize(
    ("batch", "status"),
    [
        ([message(), message(body=b"")], ILLEGAL),
        ([message(body=bytes(60)), message(body=bytes(60))], ILLEGAL),
        ([message(sys_flag=4)], ILLEGAL),
        ([message(), message(properties=bytes(40_000))], PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_batch_outside_the_limits_is_refused_whole(batch, status):
    world = World(max_body_bytes=100).begin()
    world.node.lead()
    world.store.writer.put_batch(batch_of(batch), lambda *answer: world.answers.append(answer))
    assert world.answers == [(status, -1, [])]
    assert world.node.end_index == 0


@pytest.mark.parametrize("born", [BORN, pack_host("2001:db8::1", 80)])
@pytest.mark.parametrize("host", [HOST, pack_host("2001:db8::2", 81)])
@pytest.mark.parametrize("topic", ["orders", "SCHEDULE_TOPIC_XXXX"])
def test_messages_of_a_batch_become_what_they_become_alone(topic, born, host):
    shared = {"topic": topic, "queue_id": 2, "sys_flag": 1, "born_host": born, "reconsume_times": 3}
    texts = [b"DELAY\x011", b"TAGS\x01a\x02", b"TAGS\x01b\x02", b""]
    messages = [
        message(**shared, body=b"b" * (n // 2 + 1), properties=text, flag=n * 5, tags_code=n)
        for n, text in enumerate(texts)
    ]
    alone, together = (World(store_host=host).begin() for _ in range(2))
    for world in (alone, together):
        world.node.lead()
    for one in messages:
        alone.store.writer.put(one, lambda *_: None)
    together.store.writer.put_batch(batch_of(messages), lambda *_: None)
    assert together.node.entries == alone.node.entries
    for world in (alone, together):
        world.node.commit()
    units = [
        [queue.read(0, 4) for queue in world.store._queues.by_key.values()]
        for world in (alone, together)
    ]
    assert units[0] == units[1]


def test_what_of_a_batch_is_committed_is_readable_though_dispatch_lags_behind(world):
    """It is answered by its last message, whether dispatch has come to it or not."""
    batch = [message(body=b"%d" % number) for number in range(4)]
    world.store.writer.put_batch(batch_of(batch), lambda *answer: world.answers.append(answer))
    world.store._commit_log.uncommitted.acknowledge(world.node.end_index - 1)
    assert world.answers == []
    world.node.commit(world.node.end_index - 1)
    assert world.store.reader.max_offset("t", 0) == 3
    world.node.commit()
    assert [answer[:2] for answer in world.take_answers()] == [(OK, 0)]
    assert world.store.reader.max_offset("t", 0) == 4


def test_rest_of_a_batch_is_late_when_the_whole_of_it_would_be():
    world = World(max_wait_ack_ms=1_000).begin()
    world.node.lead()
    batch = [message(body=b"%d" % number) for number in range(4)]
    world.store.writer.put_batch(batch_of(batch), lambda *answer: world.answers.append(answer[:2]))
    log = world.store._commit_log
    log.expire(0)
    world.node.commit(world.node.end_index - 2)
    log.expire(999)
    assert world.take_answers() == []
    log.expire(1_000)
    assert world.take_answers() == [(PutStatus.QUORUM_TIMEOUT, 0)]


@pytest.mark.parametrize("written", [1, 2, 3])
def test_what_of_a_batch_found_no_space_gives_its_offsets_back(world, written):
    """Of one that is written in part nobody knows how it will end."""
    world.put("a")
    first = world.node.end_index
    batch = [message(body=b"%d" % number) for number in range(3)]
    world.store.writer.put_batch(batch_of(batch), lambda *answer: world.answers.append(answer[:2]))
    world.node.truncate(first + written)
    world.log.on_rolled_back(first + written)
    status = PutStatus.DISK_FULL if written == 1 else UNKNOWN
    assert world.take_answers() == [(status, 1)]
    world.put("b")
    world.node.commit()
    assert [answer[:3] for answer in world.answers] == [("a", OK, 0), ("b", OK, written)]
    assert world.store.reader.max_offset("t", 0) == written + 1


def test_batch_whose_beginning_is_committed_was_not_refused(world):
    first = world.node.end_index
    batch = [message(body=b"%d" % number) for number in range(3)]
    world.store.writer.put_batch(batch_of(batch), lambda *answer: world.answers.append(answer[:2]))
    world.node.commit(first + 1)
    world.node.truncate(first + 2)
    world.log.on_rolled_back(first + 2)
    assert world.take_answers() == [(UNKNOWN, 0)]
    assert world.store.reader.max_offset("t", 0) == 1


def test_state_record_is_one_no_queue_has(world):
    world.store.writer.propose_state("topic", b'{"a":1}', world.answers.append)
    assert world.listener.states == []
    record = decode_record(world.node.entries[-1][2], check_crc=True)
    assert (record.topic, record.sys_flag & 0xC, record.queue_offset) == (STATE_TOPIC, 4, 0)
    assert record.property_map() == {"KIND": "topic"}
    assert record.body == b'{"a":1}'
    world.node.commit()
    assert world.listener.states == [(1, "topic", b'{"a":1}')]
    assert world.answers == [OK]
    assert world.listener.events[-1] == ("state", "topic")


def test_prepared_messages_take_no_queue_offset(world):
    world.put("half", sys_flag=4)
    world.put("rolled back", sys_flag=12)
    world.put("committed", sys_flag=8)
    world.node.commit()
    assert [(a[0], a[2]) for a in world.answers] == [
        ("half", 0), ("rolled back", 0), ("committed", 0),
    ]  # fmt: skip
    assert world.store.reader.max_offset("t", 0) == 1
    said = [(kind, payload) for _, kind, payload in world.listener.states]
    assert said == [("tx-copied", b"0")], "a committed message says which half it stands for"


def test_entries_the_log_forgot_are_refused_and_give_back_their_offsets(world):
    world.put("kept")
    world.store.tick()
    first = world.node.end_index + 1
    world.put("dropped")
    world.store.writer.propose_state("k", b"", lambda status: world.answers.append(("s", status)))
    world.store.tick()
    world.node.truncate(first)
    world.log.on_rolled_back(first)
    assert [(a[0], a[1]) for a in world.take_answers()] == [
        ("dropped", PutStatus.DISK_FULL), ("s", PutStatus.DISK_FULL),
    ]  # fmt: skip
    world.put("next")
    world.node.commit()
    assert [(a[0], a[1], a[2]) for a in world.answers] == [("kept", OK, 0), ("next", OK, 1)]
    assert world.listener.states == []


def test_a_put_made_by_a_callback_is_taken(world):
    def again(*answer):
        world.answers.append(answer[:2])
        if len(world.answers) < 3:
            world.store.writer.put(message(), again)

    world.store.writer.put(message(), again)
    for _ in range(3):
        world.node.commit()
    assert world.answers == [(OK, 0), (OK, 1), (OK, 2)]


def test_a_repeated_role_of_the_same_term_changes_nothing(world):
    from dledger.core.model import Role

    world.put("a")
    world.store.log_user.on_role(Role.LEADER, world.node.term, "n0")
    assert world.take_answers() == []
    assert world.store.writer.writable


def put_beyond_the_limit(prepared_offset):
    """Return how a message ends whose body is larger than the settings have it."""
    world = World(max_body_bytes=100).begin()
    world.node.lead()
    world.put(body=bytes(101), prepared_offset=prepared_offset)
    world.node.commit()
    ((_, status, _, _),) = world.take_answers()
    return status


def test_a_copy_of_what_waited_may_be_larger_than_the_limit_of_now():
    assert put_beyond_the_limit(origin_of(1, 7)) is OK
    assert put_beyond_the_limit(0) is ILLEGAL


def test_planted_limits_for_what_was_accepted_are_found_here():
    with planted(BY_TESTS["accepted-copies-limited"]):
        assert put_beyond_the_limit(origin_of(1, 7)) is ILLEGAL
