"""What was confirmed is on disk within a second: a slave that was killed knows it again."""

from __future__ import annotations

import asyncio
import errno
import shutil
from typing import TYPE_CHECKING

import pytest

from broker.modes.switched import SwitchedSlave
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.switch import confirmed
from store.ha.switch.confirmed import CONFIRMED_FILE, ConfirmedFile
from store.ha.switch.epoch_file import EpochFile
from store.ha.switch.logs import SwitchSlaveLog
from tests.integration.plain_broker import Plain, plain
from tests.integration.test_cut_promises import slave_of, starts_of

if TYPE_CHECKING:
    from pathlib import Path


async def killed(store: Path, name: str) -> tuple[Plain, list[int]]:
    """Return a directory whose queues do not know how far they were, and where records begin."""
    async with plain(store / name) as broker:
        for number in range(6):
            await broker.send("orders", 0, b"%d" % number)
    shutil.rmtree(store / name / "consumequeue")
    (store / name / "consumequeue.checkpoint").unlink()
    return broker, starts_of((store / name / "commitlog" / f"{0:020d}").read_bytes())


async def counted(written: Plain) -> int:
    """Return up to where a slave that has just started knows its log as confirmed."""
    slave = slave_of(written, None)
    await slave.start()
    try:
        return slave.mode.log.committed_position
    finally:
        await slave.stop()


def test_a_slave_that_was_killed_knows_what_was_confirmed(tmp_path: Path) -> None:
    async def main() -> None:
        for name, is_planted in (("right", False), ("planted", True)):
            written, starts = await killed(tmp_path, name)
            assert await counted(written) == 0
            shutil.rmtree(tmp_path / name / "consumequeue", ignore_errors=True)
            (tmp_path / name / "consumequeue.checkpoint").unlink(missing_ok=True)
            await ConfirmedFile(str(tmp_path / name), RealDisk()).save(starts[4])
            if is_planted:
                with planted(BY_TESTS["switch-confirmed-forgotten"]):
                    assert await counted(written) == 0
            else:
                assert await counted(written) == starts[4]

    asyncio.run(main())


def test_what_counts_is_written_while_a_slave_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.modes.switched.PERIOD_S", 0.01)

    async def main() -> None:
        written, starts = await killed(tmp_path, "a")
        slave, again = slave_of(written, None), ConfirmedFile(str(tmp_path / "a"), RealDisk())
        await slave.start()
        slave.mode.log.confirm(starts[5])  # type: ignore[attr-defined]  # the log of a slave
        async with asyncio.timeout(10):
            while again.position != starts[5]:
                await asyncio.sleep(0.01)
                again.load(slave.mode.log.end_position)
        await slave.stop()

    asyncio.run(main())


async def epochs_as_it_counts(written: Plain, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the epochs on disk as the tail of a slave counts that was elected in epoch 5."""
    slave = slave_of(written, None)
    await slave.start()
    epochs, log, found = EpochFile(written.config.store_path, RealDisk()), slave.mode.log, [0]
    assert isinstance(log, SwitchSlaveLog)
    assert isinstance(slave.mode, SwitchedSlave)
    confirm = log.confirm

    def look(position: int) -> None:
        epochs.load()
        found[:] = [one.epoch for one in epochs.epochs]
        confirm(position)

    monkeypatch.setattr(log, "confirm", look)
    await slave.mode.settle(5)
    assert slave.store.applied == log.end_position
    await slave.stop()
    return found


def test_an_epoch_is_on_disk_before_the_tail_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one without the tail may be elected once the power is gone, though it was read."""

    async def main() -> None:
        written, _ = await killed(tmp_path, "a")
        with planted(BY_TESTS["switch-settled-before-its-epoch"]):
            assert await epochs_as_it_counts(written, monkeypatch) == []
        assert await epochs_as_it_counts(written, monkeypatch) == [5]

    asyncio.run(main())


def test_a_log_that_has_lost_its_end_is_not_confirmed_where_it_goes_on(tmp_path: Path) -> None:
    """The file goes before the log is written: another entry comes to that place."""

    def known(end: int, later_end: int) -> int:
        asyncio.run(ConfirmedFile(str(tmp_path), RealDisk()).save(900))
        ConfirmedFile(str(tmp_path), RealDisk()).load(end)
        later = ConfirmedFile(str(tmp_path), RealDisk())
        later.load(later_end)
        return later.position

    assert known(900, 1_000) == 900
    assert known(700, 1_000) == 0
    with planted(BY_TESTS["switch-confirmed-beyond-the-end"]):
        assert known(700, 1_000) == 900


@pytest.mark.parametrize(
    "content", [b"", b"900", b"900 1\n", b"-900 5\n", b"x" * 500, b"\xff" * 20]
)
def test_a_file_that_is_not_understood_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CONFIRMED_FILE).write_bytes(content)
    file = ConfirmedFile(str(tmp_path), RealDisk())
    file.load(1_000)
    assert file.position == 0


class Failing(RealDisk):
    """A disk whose writes fail."""

    errno = errno.ENOSPC

    def replace(self, path: str, data: bytes | bytearray) -> None:
        raise OSError(self.errno, "it fails", path)


def test_a_full_disk_is_waited_for_and_a_broken_one_is_the_end(tmp_path: Path) -> None:
    file = ConfirmedFile(str(tmp_path), disk := Failing())
    asyncio.run(file.save(900))
    assert file.position == 0
    disk.errno = errno.EIO
    with pytest.raises(FatalError, match="cannot be written"):
        asyncio.run(file.save(900))


def test_who_is_cancelled_lets_the_write_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next role writes the same file."""
    begun, ended = [], []

    async def main() -> None:
        loop, may_end = asyncio.get_running_loop(), asyncio.Event()
        file = ConfirmedFile(str(tmp_path), RealDisk())

        def write(position: int) -> bool:
            begun.append(position)
            asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()
            ended.append(position)
            return True

        monkeypatch.setattr(file, "_write", write)
        saving = asyncio.create_task(file.save(900))
        while not begun:
            await asyncio.sleep(0.001)
        saving.cancel()
        await asyncio.wait((saving,))
        loop.call_later(0.05, may_end.set)
        await file.finish()
        assert ended == [900]

    asyncio.run(main())
    assert confirmed.PERIOD_S == 1.0
