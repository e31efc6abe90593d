"""A log that is cut for another master: ``checkpoint`` promises no more of it than is there."""

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.config import Role
from broker.controller import BrokerController
from broker.modes.assignment import AsSlave
from broker.modes.lost_end import may_lack_end
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.plain.record import stored_ms
from store.recovery.checkpoint import StoreTimes, decode_times
from store.recovery.directory import StoreDirectory
from store.recovery.foreign_queues import ForeignQueueRecovery
from tests.integration.broker_cluster import free_ports
from tests.integration.plain_broker import Plain, plain

KEPT = 3


def promised(store: Path) -> StoreTimes:
    return decode_times((store / "checkpoint").read_bytes())


def starts_of(log: bytes) -> list[int]:
    """Where records begin."""
    starts, at = [], 0
    while size := int.from_bytes(log[at : at + 4], "big"):
        starts.append(at)
        at += size
    return starts


def slave_of(written: Plain, cut_from: int | None) -> BrokerController:
    """Return a slave under controllers that has the directory of another broker."""
    return BrokerController(
        Plain(
            Path(written.config.store_path), broker_role=Role.SLAVE, broker_id=2,
            enable_controller_mode=True, controller_addr="127.0.0.1:1",
            ha_master_address="127.0.0.1:2",
        ).config,
        disk=RealDisk(), clock=SystemClock(), rng=SystemRng(3), tasks=Supervisor(),
        assignment=AsSlave(
            own_id=2, epoch=2, master_address=f"127.0.0.1:{free_ports(1)[0]}",
            ha_address=f"127.0.0.1:{free_ports(1)[0]}", cut_from=cut_from,
            on_surplus=lambda _: None,
        ),
    )  # fmt: skip


async def cut(written: Plain, position: int) -> None:
    """Start as a slave whose log is another master's from there on, and end."""
    slave = slave_of(written, position)
    slave.mode.open()
    slave.mode.leave()


def test_a_log_that_is_cut_promises_no_more_than_it_has(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def main() -> None:
        async with plain(store) as broker:
            for number in range(2 * KEPT):
                await broker.send("orders", 0, b"%d" % number)
                await asyncio.sleep(0.005)  # each in a millisecond of its own
        log = (store / "commitlog" / f"{0:020d}").read_bytes()
        starts = starts_of(log)
        kept, last = (stored_ms(memoryview(log), starts[at]) for at in (KEPT - 1, -1))
        assert promised(store).physic == last > kept
        await cut(broker, starts[KEPT])
        assert promised(store).physic == kept

    asyncio.run(main())


class KilledError(Exception):
    """The process died."""


async def lacks_its_end(store: Path) -> bool:
    """Tell what is thought of a slave that was killed as it took its queues over."""
    async with plain(store) as broker:
        await broker.send("orders", 0, b"1")
    (store / "consumequeue.checkpoint").unlink()
    slave = slave_of(broker, None)
    slave.mode.open()

    def run(recovery: ForeignQueueRecovery) -> int:
        recovery._change()
        raise KilledError

    with patch.object(ForeignQueueRecovery, "run", run), pytest.raises(KilledError):
        slave.mode.load()
    slave.mode.leave()
    directory = StoreDirectory(str(store), RealDisk())
    directory.enter()
    try:
        assert not directory.was_clean
        return may_lack_end(directory, RealDisk())
    finally:
        directory.leave(clean=False)


def test_a_slave_that_is_killed_as_it_starts_lacks_nothing(tmp_path: Path) -> None:
    assert not asyncio.run(lacks_its_end(tmp_path / "store"))


def test_a_start_that_does_not_say_which_it_was_is_seen(tmp_path: Path) -> None:
    with planted(BY_TESTS["abort-of-no-boot"]):
        assert asyncio.run(lacks_its_end(tmp_path / "store"))


def test_promises_of_what_was_cut_off_are_seen(tmp_path: Path) -> None:
    with planted(BY_TESTS["promises-outlive-a-cut"]), pytest.raises(AssertionError):
        test_a_log_that_is_cut_promises_no_more_than_it_has(tmp_path)
