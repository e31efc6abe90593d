"""Reads: statuses, limits, filters, searches by time; spec/wire.md 3.5; spec/disk.md 5.3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.message import decode_record
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.layout import record_body
from store.results import Boundary, GetStatus, RecordTest
from tests.unit.store.fakes import World

LOWER, UPPER = Boundary.LOWER, Boundary.UPPER


def filled(count, **config):
    world = World(**config).begin()
    world.node.lead()
    for number in range(count):
        world.put(body=b"%04d" % number, tags_code=number % 3)
    world.node.commit()
    return world


def bodies(result):
    return [decode_record(view).body for view in result.buffers]


def test_a_read_gives_the_records_as_the_log_has_them():
    world = filled(5)
    result = world.store.reader.get("t", 0, 1, 3, 10_000, None)
    assert (result.status, result.next_offset, result.count) == (GetStatus.FOUND, 4, 3)
    assert (result.min_offset, result.max_offset) == (0, 5)
    assert [bytes(view) for view in result.buffers] == [e[2] for e in world.node.entries[2:5]]
    assert result.size_bytes == sum(len(view) for view in result.buffers)


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, GetStatus.OFFSET_OVERFLOW_BADLY, 5),
        (10**15, GetStatus.OFFSET_OVERFLOW_BADLY, 5),
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_offsets_outside_the_queue(offset, status, following):
    result = filled(5).store.reader.get("t", 0, offset, 32, 10_000, None)
    assert (result.status, result.next_offset) == (status, following)
    assert (result.min_offset, result.max_offset, result.buffers) == (0, 5, [])


def test_queues_without_messages():
    world = filled(1)
    world.put(topic="waiting")
    for offset in (0, 3):
        absent = world.store.reader.get("absent", 0, offset, 32, 10_000, None)
        assert (absent.status, absent.next_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        empty = world.store.reader.get("waiting", 0, offset, 32, 10_000, None)
        assert (empty.status, empty.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    for name in ("absent", "waiting"):
        assert world.store.reader.max_offset(name, 0) == world.store.reader.min_offset(name, 0) == 0
        assert world.store.reader.earliest_store_time(name, 0) == -1
        assert world.store.reader.offset_by_time(name, 0, 1) == 0


def test_limits_of_a_read():
    world = filled(100)
    assert world.store.reader.get("t", 0, 0, 1000, 10**9, None).count == 32
    assert world.store.reader.get("t", 0, 0, 7, 10**9, None).count == 7
    assert world.store.reader.get("t", 0, 0, 0, 10**9, None).count == 1
    size = len(world.node.entries[1][2])
    assert world.store.reader.get("t", 0, 0, 32, 3 * size, None).count == 3
    assert world.store.reader.get("t", 0, 0, 32, 3 * size - 1, None).count == 2
    assert world.store.reader.get("t", 0, 0, 32, 1, None).count == 1


def test_filter_by_tags_code_moves_on_over_what_it_refuses():
    world = filled(30)
    result = world.store.reader.get("t", 0, 0, 4, 10_000, frozenset({1, 2}))
    assert bodies(result) == [b"0001", b"0002", b"0004", b"0005"]
    assert result.next_offset == 6
    result = world.store.reader.get("t", 0, 3, 32, 10_000, frozenset({7}))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)
    assert result.buffers == []


def test_one_read_looks_at_a_bounded_number_of_units():
    world = filled(30, get_units_max=10)
    result = world.store.reader.get("t", 0, 0, 32, 10_000, frozenset({7}))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
    assert bodies(world.store.reader.get("t", 0, 0, 32, 10_000, frozenset({2}))) == [
        b"0002", b"0005", b"0008",
    ]  # fmt: skip


@given(
    st.integers(0, 45),
    st.integers(0, 50),
    st.integers(1, 40),
    st.integers(1, 3000),
    st.one_of(st.none(), st.frozensets(st.integers(0, 3))),
    st.integers(0, 45),
)
def test_reads_agree_with_a_list(count, offset, max_count, max_bytes, codes, flush_at):
    world = World(get_units_max=20).begin()
    world.node.lead()
    model = []
    for number in range(count):
        world.put(body=bytes(1 + number * 7 % 50), tags_code=number % 3)
        model.append((world.node.entries[-1][2], number % 3))
        world.node.commit()
        if number == flush_at:
            world.store.tick()
    result = world.store.reader.get("t", 0, offset, max_count, max_bytes, codes)
    expected, scanned, total = [], 0, 0
    for record, code in model[offset : offset + 20]:
        if expected and (len(expected) == min(max_count, 32) or total + len(record) > max_bytes):
            break
        scanned += 1
        if codes is None or code in codes:
            expected.append(record)
            total += len(record)
    assert [bytes(view) for view in result.buffers] == expected
    if offset < count:
        assert result.next_offset == offset + scanned
        assert result.status is (GetStatus.FOUND if expected else GetStatus.NO_MATCHED_MESSAGE)


@pytest.mark.parametrize("at", [4, 20, 40, 60, 140], ids=lambda at: f"byte {at}")
def test_a_damaged_message_is_not_given_and_what_comes_before_it_is(at):
    world = filled(5)
    world.node.corrupt(4, at)  # the fourth message: entry 0 opens the term
    result = world.store.reader.get("t", 0, 0, 32, 10_000, None)
    assert (bodies(result), result.next_offset) == ([b"0000", b"0001", b"0002"], 3)
    result = world.store.reader.get("t", 0, 3, 32, 10_000, None)
    assert (result.status, result.buffers, result.next_offset) == (GetStatus.DAMAGED, [], 3)
    assert bodies(world.store.reader.get("t", 0, 4, 32, 10_000, None)) == [b"0004"]
    world.node.corrupt(4, at)
    assert bodies(world.store.reader.get("t", 0, 3, 32, 10_000, None)) == [b"0003", b"0004"]


def test_a_message_that_nobody_repairs_is_lost_and_that_is_told_once(caplog):
    world = filled(5, is_replicated=False)
    world.store.tick()  # the units are in a file
    world.node.corrupt(4)
    assert bodies(world.store.reader.get("t", 0, 0, 32, 10_000, None)) == [
        b"0000", b"0001", b"0002",
    ]  # fmt: skip
    for _ in range(2):
        result = world.store.reader.get("t", 0, 3, 32, 10_000, None)
        assert (result.status, result.next_offset) == (GetStatus.LOST, 3)
    assert caplog.text.count("event=message_lost topic=t queue=0 queue_offset=3 ") == 1


def test_a_message_is_not_lost_where_its_unit_is_what_is_damaged():
    world = filled(5, is_replicated=False)
    world.store.tick()
    path = "/s/consumequeue/t/0/" + "0" * 20
    world.disk.files[path][60:68] = (10**9).to_bytes(8, "big")
    assert world.store.reader.get("t", 0, 3, 32, 10_000, None).status is GetStatus.DAMAGED


def test_a_reader_that_gives_up_a_sound_message_is_found():
    with planted(BY_TESTS["unit-not-looked-at-again"]), pytest.raises(AssertionError):
        test_a_message_is_not_lost_where_its_unit_is_what_is_damaged()


def test_messages_that_the_filter_skips_are_not_read():
    world = filled(5)
    world.node.corrupt(4)
    result = world.store.reader.get("t", 0, 0, 32, 10_000, frozenset({12345}))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)


def test_no_answer_is_made_from_a_damaged_message():
    world = filled(5)
    physicals = [answer[3] for answer in world.answers]
    world.node.corrupt(1)
    with pytest.raises(DamagedEntry):
        world.store.reader.message_at(physicals[0])
    with pytest.raises(DamagedEntry):
        world.store.reader.earliest_store_time("t", 0)


def test_a_unit_that_points_nowhere_gives_nothing():
    world = filled(3)
    queue = world.store._queues.maybe_make(b"t", 0)
    queue.tail[0:8] = (10**9).to_bytes(8, "big")
    assert world.store.reader.get("t", 0, 0, 32, 10_000, None).status is GetStatus.DAMAGED


def serve_unchecked(log, node):
    """The planted bug: the bytes, whatever they are."""

    def body_at(physical, size):
        return node.view(physical, size)

    log.body_at = body_at


def test_a_reader_that_does_not_check_is_caught():
    world = filled(5)
    serve_unchecked(world.log, world.node)
    world.node.corrupt(4, at=48 + 90)
    assert world.store.reader.get("t", 0, 3, 32, 10_000, None).status is GetStatus.FOUND


def test_a_unit_that_names_another_message_gives_nothing_until_it_is_repaired():
    world = filled(6)
    assert world.store.checkpoints.write_now()
    data = world.disk.files["/s/consumequeue/t/0/00000000000000000000"]
    data[20:40] = data[60:80]
    result = world.store.reader.get("t", 0, 0, 32, 10_000, None)
    assert bodies(result) == [b"0000"]
    for _ in range(2):
        assert world.store.reader.get("t", 0, 1, 32, 10_000, None).status is GetStatus.DAMAGED
    world.store.tick()
    assert bodies(world.store.reader.get("t", 0, 0, 32, 10_000, None)) == [
        b"%04d" % n for n in range(6)
    ]


def test_a_light_queue_may_name_records_of_another():
    world = filled(1)
    queue = world.store._queues.maybe_make(b"%LMQ%x", 0)
    queue.tail += world.store._queues.by_name["t", 0].tail * 2
    queue.max_offset = 2
    assert bodies(world.store.reader.get("%LMQ%x", 0, 1, 32, 10_000, None)) == [b"0000"]


def test_what_lies_far_behind_the_end_is_read_little_by_little_and_ahead():
    world = filled(40, cold_behind_bytes=3000, get_cold_messages_max=8, get_cold_bytes_max=700)
    entries = world.node.entries
    size = len(entries[1][2])
    result = world.store.reader.get("t", 0, 0, 32, 10**6, None)
    assert (result.count, result.is_far_behind) == (700 // size, True)
    begin = entries[1][0] + 48
    assert world.node.ahead == [(begin, entries[16][0] + 48 + size - begin)]
    near = next(n for n in range(40) if entries[n + 1][0] + 48 >= world.node.end - 3000)
    for offset in (near - 1, near):
        result = world.store.reader.get("t", 0, offset, 32, 10**6, None)
        assert result.is_far_behind == (offset < near)
    assert result.count == min(32, 40 - near)
    result = world.store.reader.get("t", 0, 0, 3, 10**6, None)
    assert result.count == 3


def test_a_queue_begins_recently_while_its_first_message_is_not_far_behind_the_end():
    world = filled(40, cold_behind_bytes=3000)
    entries = world.node.entries
    assert world.node.end - entries[1][0] > 3000
    assert not world.store.reader.begins_recently("t", 0)
    assert world.store.reader.begins_recently("t", 99)
    assert filled(40, cold_behind_bytes=10**6).store.reader.begins_recently("t", 0)
    assert filled(40).store.reader.begins_recently("t", 0), "nothing is far without a limit"
    trimmed = filled(40)
    trimmed.store._queues.by_name["t", 0].min_offset = 1
    assert not trimmed.store.reader.begins_recently("t", 0)


def test_what_is_read_ahead_is_asked_for_one_by_one_where_it_lies_far_apart():
    world = World(cold_behind_bytes=1, get_cold_messages_max=2).begin()
    world.node.lead()
    for topic in ("t", "other", "other", "t", "t"):
        world.put(topic=topic, body=bytes(600_000 if topic == "other" else 10))
    world.node.commit()
    entries = [entry for entry in world.node.entries[1:] if len(entry[2]) < 1000]
    assert world.store.reader.get("t", 0, 0, 32, 10**6, None).count == 2
    assert world.node.ahead == [(at + 48, len(body)) for at, _, body in entries]


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 40)), max_size=8))
def test_pieces_of_units_give_what_the_queue_has(reads):
    world = filled(20)
    queue = world.store._queues.by_name["t", 0]
    unit = bytes(queue.tail[:20])
    for start in range(20, 1500):
        queue.tail += unit
        queue.max_offset = start + 1
    reader = world.store.reader
    for offset, count in reads:
        if offset + count <= queue.max_offset:
            assert reader._units(queue, offset, count) == queue.read(offset, count)
    assert len(reader._pieces) <= 1


def test_messages_below_the_log_s_begin_are_being_removed():
    world = filled(5)
    world.node.first_position = world.node.entries[3][0]
    result = world.store.reader.get("t", 0, 0, 2, 10_000, None)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 2)
    assert bodies(world.store.reader.get("t", 0, 0, 4, 10_000, None)) == [b"0002", b"0003"]


def test_message_at_gives_committed_records_only():
    world = filled(3)
    physicals = [answer[3] for answer in world.answers]
    for physical, (_, _, body) in zip(physicals, world.node.entries[1:], strict=True):
        assert bytes(world.store.reader.message_at(physical)) == body
    world.put()
    uncommitted = world.node.entries[-1][0] + 48
    end = world.node.committed_position
    for elsewhere in (0, physicals[0] - 1, physicals[0] + 4, end, uncommitted, -5, 10**15):
        assert world.store.reader.message_at(elsewhere) is None


def timed(times, **config):
    world = World(**config).begin()
    world.node.lead()
    world.clock.now = 0
    for time in times:
        world.clock.now = time
        stamps = world.store._commit_log.stamps
        stamps.last = min(time, stamps.last)
        world.put()
    world.node.commit()
    return world.store


@pytest.mark.parametrize(
    ("timestamp", "nearest"),
    [(5, 0), (10, 0), (14, 0), (15, 0), (16, 1), (20, 1), (34, 2), (36, 3), (40, 3), (10**13, 3)],
)
def test_search_by_time_as_4_9_does(timestamp, nearest):
    assert timed([10, 20, 30, 40]).reader.offset_by_time("t", 0, timestamp) == nearest


def test_search_by_time_as_4_9_does_looks_into_one_file():
    times = [10 * n for n in range(1, 31)]
    store = timed(times)  # ten units a file
    assert store.reader.offset_by_time("t", 0, 101) == 10
    assert store.reader.offset_by_time("t", 0, 99) == 9
    assert store.reader.offset_by_time("t", 0, 5) == 0
    assert store.reader.offset_by_time("t", 0, 300) == 29
    assert store.reader.offset_by_time("t", 0, 301) == 29


@given(st.lists(st.integers(1, 40), min_size=1, max_size=35).map(sorted), st.integers(0, 42))
def test_search_by_time_with_a_boundary(times, timestamp):
    store = timed(times)
    at_or_after = [n for n, time in enumerate(times) if time >= timestamp]
    at_or_before = [n for n, time in enumerate(times) if time <= timestamp]
    lower = store.reader.offset_by_time("t", 0, timestamp, LOWER)
    upper = store.reader.offset_by_time("t", 0, timestamp, UPPER)
    assert lower == (at_or_after[0] if at_or_after else len(times))
    assert upper == (at_or_before[-1] if at_or_before else 0)
    assert store.reader.earliest_store_time("t", 0) == times[0]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=10).map(sorted), st.integers(0, 42))
def test_search_by_time_without_a_boundary_is_nearest(times, timestamp):
    found = timed(times).reader.offset_by_time("t", 0, timestamp)
    distance = abs(times[found] - timestamp)
    assert distance == min(abs(time - timestamp) for time in times)
    earlier = [time for time in times if abs(time - timestamp) == distance]
    assert times[found] == earlier[0]


BIG = 1 << 20


def passed(world, wanted, *, offset=0, count=32, limit=10_000, records_max=100, bytes_max=BIG):
    test = RecordTest(
        lambda record: bytes(record_body(record)) in wanted, records_max, bytes_max, 0
    )
    return world.store.reader.get("t", 0, offset, count, limit, test)


def test_a_test_of_records_takes_those_that_pass():
    world = filled(6)
    result = passed(world, {b"0001", b"0004"})
    assert (result.status, bodies(result)) == (GetStatus.FOUND, [b"0001", b"0004"])
    assert result.next_offset == 6
    nothing = passed(world, set(), offset=2)
    assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)


def test_a_test_looks_into_a_bounded_number_of_records_for_an_answer():
    world = filled(9)
    result = passed(world, {b"0008"}, records_max=4)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 4)
    assert bodies(passed(world, {b"0008"}, offset=8, records_max=4)) == [b"0008"]


def test_a_test_looks_into_a_bounded_number_of_bytes_for_an_answer():
    world = filled(9)
    size = world.store.reader.get("t", 0, 0, 1, 10_000, None).size_bytes
    assert passed(world, set(), bytes_max=3 * size).next_offset == 3
    with planted(BY_TESTS["filtered-read-unbounded"]):
        assert passed(world, set(), bytes_max=3 * size).next_offset == 9
    assert passed(world, set(), bytes_max=1).next_offset == 1, "one at least"


def test_limits_of_count_and_bytes_hold_for_what_passed_a_test():
    world = filled(9)
    everything = {b"%04d" % n for n in range(9)}
    size = world.store.reader.get("t", 0, 0, 1, 10_000, None).size_bytes
    assert passed(world, everything, count=2).next_offset == 2
    assert passed(world, everything, limit=3 * size).count == 3
    assert passed(world, everything, limit=1).count == 1


def test_the_log_begins_when_its_first_entry_was_stored():
    world = World().begin()
    assert world.store.reader.begin_time() == -1, "nothing is committed"
    world.node.lead()
    world.put()
    world.node.commit()
    began_ms = decode_record(world.node.entries[0][2]).store_timestamp
    assert world.store.reader.begin_time() == began_ms > 0
    world.clock.now += 5_000
    world.put()
    world.node.commit()
    assert world.store.reader.begin_time() == began_ms
    world.node.drop_before(2)
    later_ms = world.store.reader.store_time("t", 0, 1)
    assert world.store.reader.begin_time() == later_ms > began_ms
    world.node.corrupt(2, 60)
    assert world.store.reader.begin_time() == -1
