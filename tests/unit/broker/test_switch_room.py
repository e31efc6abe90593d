"""A change of role on a full disk: the broker has no role until there is room, and does not end."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.modes.switched import SwitchedMaster, SwitchedSlave
from broker.switch import broker as switching
from broker.switch.controllers import View
from broker.switch.identity import Identity
from chaos.backends.ports import take_port_block
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.test_switching_broker import broker_in

if TYPE_CHECKING:
    from broker.switch.broker import SwitchingBroker

WAIT_S = 20


class SmallDisk(RealDisk):
    """A disk that has no room for another file from some time on."""

    error = 0

    def replace(self, path: str, data: bytes | bytearray) -> None:
        if self.error:
            raise OSError(self.error, "no room", path)
        super().replace(path, data)


def living(path: Path, disk: SmallDisk, views: list[View]) -> SwitchingBroker:
    """Return a broker that believes the last of ``views``, and registers under its epoch."""
    port = take_port_block(4) + 2
    broker = broker_in(path, {"listenPort": str(port), "bindAddress": "127.0.0.1"})
    broker._disk, broker._rng = disk, SystemRng(1)
    registration = broker._registration

    async def register(_: object) -> None:
        registration._identity = Identity("C", "a", 2, "code")
        registration.is_done = True
        views.append(views[-1]._replace(epoch=views[-1].epoch + 1, set_epoch=views[-1].epoch))

    async def ask() -> View:
        return views[-1]

    registration.register = register  # type: ignore[method-assign]
    broker._ask = ask  # type: ignore[method-assign]
    return broker


async def until(broker: SwitchingBroker, word: str, kind: type) -> None:
    """Wait until a broker waits for ``word``, or has such a role."""
    async with asyncio.timeout(WAIT_S):
        while not (word in broker._waits_for if word else _is(broker, kind)):
            await asyncio.sleep(0.01)


def _is(broker: SwitchingBroker, kind: type) -> bool:
    running = broker.running
    return running is not None and running._started and isinstance(running.mode, kind)


@pytest.mark.parametrize(("master", "kind"), [(2, SwitchedMaster), (1, SwitchedSlave)])
def test_a_role_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: int, kind: type
) -> None:
    monkeypatch.setattr(switching, "ROOM_S", 0.05)

    async def main() -> None:
        disk = SmallDisk()
        views = [View(master, 5, "127.0.0.1:1", "127.0.0.1:2", frozenset({master}), 5)]
        broker = living(tmp_path, disk, views)
        disk.error = errno.ENOSPC
        broker._tasks.spawn("role of this broker", broker._live())
        try:
            await until(broker, "the disk is full", kind)
            assert broker.running is None
            disk.error = 0
            await until(broker, "", kind)
        finally:
            await broker.stop()
        assert not (tmp_path / "abort").exists()

    asyncio.run(main())


def test_an_elected_slave_has_no_room_for_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "ROOM_S", 0.05)

    async def main() -> None:
        disk = SmallDisk()
        views = [View(1, 5, "127.0.0.1:1", "127.0.0.1:2", frozenset({1, 2}), 5)]
        broker = living(tmp_path, disk, views)
        broker._tasks.spawn("role of this broker", broker._live())
        try:
            await until(broker, "", SwitchedSlave)
            disk.error = errno.ENOSPC
            views.append(View(2, 9, "127.0.0.1:1", "127.0.0.1:2", frozenset({2}), 9))
            await until(broker, "the disk is full", SwitchedMaster)
            disk.error = 0
            await until(broker, "", SwitchedMaster)
        finally:
            await broker.stop()

    asyncio.run(main())


async def begin(path: Path, error: int) -> None:
    disk = SmallDisk()
    disk.error = error
    views = [View(2, 5, "", "", frozenset({2}), 5)]
    broker = living(path, disk, views)
    await broker._registration.register(broker._progress)
    try:
        await broker._follow(views[0])
    finally:
        await broker.stop()


def test_a_disk_that_fails_ends_the_broker(tmp_path: Path) -> None:
    with pytest.raises(switching.NoRoom, match="cannot be written"):
        asyncio.run(begin(tmp_path, errno.ENOSPC))
    with pytest.raises(FatalError, match="cannot be written"):
        asyncio.run(begin(tmp_path, errno.EIO))
    with planted(BY_TESTS["switch-full-disk-ends-the-role"]), pytest.raises(FatalError):
        asyncio.run(begin(tmp_path, errno.ENOSPC))


def files_left_open(path: Path) -> int:
    """Return how many files are open for the log after a role that did not begin."""

    async def main() -> int:
        disk = SmallDisk()
        broker = living(path, disk, [View(2, 5, "", "", frozenset({2}), 5)])
        config = broker._config.plain_log_config()
        log = Path(config.directory) / f"{0:020d}"
        log.parent.mkdir(parents=True)
        log.touch()
        os.truncate(log, config.segment_bytes)
        await broker._registration.register(broker._progress)
        disk.error = errno.ENOSPC
        with pytest.raises(switching.NoRoom):
            await broker._follow(View(2, 5, "", "", frozenset({2}), 5))
        await broker._end_role("the disk is full")
        links = [one for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        left = sum(os.path.realpath(one) == str(log.resolve()) for one in links)
        await broker.stop()
        return left

    return asyncio.run(main())


def test_a_role_that_had_no_room_leaves_no_file_open(tmp_path: Path) -> None:
    assert not files_left_open(tmp_path)
