"""Queues begin where a log does in steps: what lies before is written, some of it in each turn."""

import asyncio

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import StoreConfig
from store.layout import GAP_UNIT, UNIT_BYTES
from store.limits import QUEUE_STARTS_MAX
from store.queues import start as beginning
from store.queues.consume_queue import ConsumeQueues
from store.queues.start import START_MAX, LogStart
from tests.unit.store.fakes import FakeDisk, World

FILE_UNITS = 1_000
STEP = 150
STARTS = [("T", number, 1_000 * number + 990) for number in range(4)] + [("U", 0, 3_000)]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch):
    monkeypatch.setattr(beginning, "STEP_UNITS", STEP)
    monkeypatch.setattr(beginning, "FILE_WORK", 10)


def make(disk=None):
    config = StoreConfig(
        directory="/s", store_host=bytes(8), queue_file_bytes=FILE_UNITS * UNIT_BYTES
    )
    return ConsumeQueues(config, disk or FakeDisk())


def written(queues):
    """How many bytes of the queues' files are not zero at their end."""
    return sum(len(data.rstrip(b"\0")) for data in queues.files.disk.files.values())


def begun_in_steps(log_start, queues, starts, method):
    steps = getattr(log_start, method)(starts)
    count, before = 0, written(queues)
    for waits in steps:
        assert not waits
        assert not log_start.is_whole
        assert written(queues) - before <= STEP * UNIT_BYTES, "a step has its limit"
        count, before = count + 1, written(queues)
        for queue in queues.by_key.values():
            assert queue.written + len(queue.tail) == queue.max_offset * UNIT_BYTES
            assert queue.min_offset == queue.max_offset
    assert log_start.is_whole
    assert count >= 4 * 990 // STEP
    for topic, queue_id, offset in starts:
        queue = queues.by_name[topic, queue_id]
        assert (queue.min_offset, queue.max_offset) == (offset, offset)


@pytest.mark.parametrize("method", ["install", "settle"])
def test_queues_begin_in_steps(method):
    queues = make()
    begun_in_steps(LogStart(queues), queues, STARTS, method)
    assert queues.flush()
    files = queues.files.disk.files
    assert sorted(files) == [f"/s/consumequeue/T/{n}/{20_000 * n:020}" for n in range(4)]
    assert {bytes(data.rstrip(b"\0")) for data in files.values()} == {
        (GAP_UNIT * 990).rstrip(b"\0")
    }


def test_planted_queues_that_begin_in_one_turn_are_found_here():
    with planted(BY_TESTS["queues-begin-in-one-turn"]), pytest.raises(AssertionError):
        test_queues_begin_in_steps("install")


def memory_while_the_disk_is_full():
    disk = FakeDisk()
    queues = make(disk)
    steps = LogStart(queues).install(STARTS)
    disk.writes_left = 3
    waited = [next(steps, False) for _ in range(40)]
    assert waited[-1], "it waits for space"
    assert queues.unwritten_units <= STEP
    disk.writes_left = None
    assert not any(steps)
    assert [queues.by_name[t, q].max_offset for t, q, _ in STARTS] == [o for _, _, o in STARTS]


def test_nothing_more_is_begun_while_the_disk_is_full():
    memory_while_the_disk_is_full()


def test_planted_queues_of_a_full_disk_kept_in_memory_are_found_here():
    with planted(BY_TESTS["queues-begin-on-a-full-disk"]), pytest.raises(AssertionError):
        memory_while_the_disk_is_full()


@pytest.mark.parametrize("steps_done", range(0, 25, 3))
def test_another_snapshot_takes_the_place_of_one_under_way(steps_done):
    queues = make()
    log_start = LogStart(queues)
    first = log_start.install(STARTS)
    for _ in range(steps_done):
        next(first)
    assert not any(log_start.install([("T", 1, 5), ("V", 0, 7)]))
    assert queues.flush()
    assert sorted(queues.by_name) == [("T", 1), ("V", 0)]
    assert sorted(queues.files.disk.files) == [
        f"/s/consumequeue/{name}/{0:020}" for name in ("T/1", "V/0")
    ]


def snapshot_taken(world, starts, position=4_000):
    """Have the state of a snapshot replace what a store has."""
    world.listener.restore_state = lambda _state: (starts, iter(()))
    world.store.log_user.on_snapshot(position, b"")


def large(disk=None):
    return World(disk=disk, queue_file_bytes=FILE_UNITS * UNIT_BYTES)


def test_a_store_begins_queues_in_turns_of_the_loop():
    world = large().begin()
    snapshot_taken(world, STARTS)
    assert not world.store.log_start.is_whole
    assert world.turns() >= 4 * 990 // STEP
    assert world.store.log_start.is_whole
    assert world.store.log_start.queue_starts_at(4_000) == STARTS


def test_a_store_whose_disk_is_full_goes_on_at_the_tick_that_found_space():
    world = large().begin()
    world.disk.writes_left = 2
    snapshot_taken(world, STARTS)
    world.turns()
    assert not world.store.log_start.is_whole
    world.store.tick()
    assert not world.soon
    world.disk.writes_left = None
    world.store.tick()
    assert world.turns()
    assert world.store.log_start.is_whole


def turns_of_a_start(disk=None):
    """Start a store with where queues begin; return how many turns that took."""

    async def start():
        world = large(disk)
        world.load(bases=STARTS)
        world.store.start()
        assert not world.store.log_start.is_whole
        turns = world.turns()
        assert world.store.log_start.is_whole
        assert world.store.log_start.queue_starts_at(0) == STARTS
        await world.store.stop()
        assert not world.fatal
        return turns

    return asyncio.run(start())


def test_a_start_begins_queues_in_turns_of_the_loop():
    assert turns_of_a_start() >= 4 * 990 // STEP


def left_by_a_stop(starts=()):
    """Files that are there once a store has stopped between two steps of an install."""
    disk = FakeDisk()
    world = large(disk).begin()
    snapshot_taken(world, [("Old", number, 1_000 * number + 9) for number in range(60)])
    world.turns()
    snapshot_taken(world, list(starts), 8_000)
    assert world.store.log_start.is_whole is False
    asyncio.run(world.store.stop())
    return [path for path in disk.files if "consumequeue/Old" in path]


def test_a_stop_between_two_steps_leaves_no_file_of_former_queues():
    assert left_by_a_stop() == []


def test_planted_files_of_former_queues_are_found_here():
    with planted(BY_TESTS["former-queues-left-at-a-stop"]):
        assert left_by_a_stop()


@pytest.mark.parametrize("steps_done", range(0, 25, 3))
def test_a_start_goes_on_where_a_stop_broke_off(steps_done):
    world = large().begin()
    snapshot_taken(world, STARTS)
    for _ in range(steps_done):
        world.soon.pop(0)()
    asyncio.run(world.store.stop())
    assert turns_of_a_start(world.disk)


# What a snapshot says


BAD = [
    ("T", 0, -1),
    ("T", 0, START_MAX + 1),
    ("T", 0, 1 << 62),
    ("T", 0, (1 << 63) - 1),
    ("T", -1, 4),
    ("T", 1 << 31, 4),
    ("../../evil", 0, 1),
    ("", 0, 1),
    ("..", 0, 1),
    ("x" * 300, 0, 1),
]


@pytest.mark.parametrize("bad", BAD)
def test_what_no_queue_can_begin_with_is_a_problem(bad):
    good = ("Good", 0, START_MAX)
    assert beginning.find_problem_of_starts([good, ("Good", 1, 0)]) == ""
    problem = beginning.find_problem_of_starts([good, bad])
    assert problem
    assert len(problem) < 200


def test_a_queue_begins_once_and_there_are_so_many(monkeypatch):
    assert "or two are" in beginning.find_problem_of_starts([("T", 0, 1), ("T", 0, 2)])
    monkeypatch.setattr(beginning, "QUEUE_STARTS_MAX", 2)
    assert "3 queues" in beginning.find_problem_of_starts([("T", number, 1) for number in range(3)])
    assert QUEUE_STARTS_MAX > 1_000_000


def test_the_last_offset_at_which_a_queue_may_begin_has_room_behind_it():
    queues = make()
    assert not any(LogStart(queues).install([("T", 0, START_MAX // FILE_UNITS * FILE_UNITS)]))
    queue = queues.by_name["T", 0]
    queues.take(queue, bytes(UNIT_BYTES), 1)
    assert queues.flush()


def test_planted_queues_that_begin_anywhere_are_found_here():
    with planted(BY_TESTS["queues-of-a-snapshot-begin-anywhere"]), pytest.raises(AssertionError):
        test_what_no_queue_can_begin_with_is_a_problem(("T", 0, 1 << 62))
