"""Files of queues that retention removes: each waits for the disk, so few go in one tick."""

import asyncio
from pathlib import Path

import pytest

from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import StoreConfig
from store.layout import UNIT
from store.queues.consume_queue import ConsumeQueues
from store.queues.start import REMOVALS_MAX, LogStart
from tests.unit.store.fakes import HOST

QUEUES = 5
UNITS = 22
"""Of each queue: five files, of which four go."""


def filled(root: Path, syncs: list[bool] | None = None) -> tuple[ConsumeQueues, LogStart]:
    """Make queues that are filled alike; ``syncs``: whether files are synced, at each look."""
    syncs = syncs or []
    config = StoreConfig(directory=str(root), store_host=HOST, queue_file_bytes=100)
    queues = ConsumeQueues(config, RealDisk())
    for number in range(UNITS):
        for queue_id in range(QUEUES):
            queue = queues.maybe_make(b"t", queue_id)
            assert queue is not None
            queues.take(queue, UNIT.pack(number * 1000, 10, -1), 1)
    assert queues.flush()
    return queues, LogStart(queues, lambda: bool(syncs) and syncs.pop(0))


def dropped_by_ticks(root: Path, syncs: list[bool] | None = None) -> list[int]:
    """Return how many files each tick removes, of queues that are filled alike."""
    queues, log_start = filled(root, syncs)
    log_start.advance_to((UNITS - 1) * 1000)
    found = []
    while log_start._drops_files:
        before = files_below(root)
        log_start.drop_what_waits()
        found.append(before - files_below(root))
    for queue in queues.by_key.values():
        assert queue.names() == sorted(path.name for path in Path(queue.directory).iterdir())
    assert files_below(root) == QUEUES
    return found


async def most_in_a_turn(root: Path) -> tuple[int, list[int]]:
    """Have files removed on demand, twice; return how many one turn removes, and each report."""
    _, log_start = filled(root)
    log_start.advance_to((UNITS - 1) * 1000)
    asked = [asyncio.ensure_future(log_start.drop_queue_files()) for _ in range(2)]
    most = 0
    while not all(one.done() for one in asked):
        before = files_below(root)
        await asyncio.sleep(0)
        most = max(most, before - files_below(root))
    assert not log_start.is_dropping
    return most, [one.result() for one in asked]


def test_few_go_in_one_turn_on_demand(tmp_path: Path) -> None:
    assert asyncio.run(most_in_a_turn(tmp_path / "a")) == (REMOVALS_MAX, [4 * QUEUES, 0])
    with planted(BY_TESTS["expired-queue-files-go-at-once"]):
        assert asyncio.run(most_in_a_turn(tmp_path / "b"))[0] == 4 * QUEUES


def files_below(root: Path) -> int:
    return sum(path.is_file() for path in root.rglob("*"))


def test_few_go_in_one_tick(tmp_path: Path) -> None:
    found = dropped_by_ticks(tmp_path / "a")
    assert [count for count in found if count] == [REMOVALS_MAX] * (4 * QUEUES // REMOVALS_MAX)
    with planted(BY_TESTS["expired-queue-files-go-at-once"]):
        assert max(dropped_by_ticks(tmp_path / "b")) == 4 * QUEUES


@pytest.mark.parametrize("busy", [0, 1, 3])
def test_a_sync_holds_them_up(tmp_path: Path, busy: int) -> None:
    syncs = [number == busy for number in range(busy + 1)]
    found = dropped_by_ticks(tmp_path, syncs)
    assert found[busy] == 0
    assert sum(found) == 4 * QUEUES
