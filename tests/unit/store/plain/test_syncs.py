"""Syncs of a plain log that waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dledger.config import FlushDiskType
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.plain.config import PlainLogConfig
from store.plain.log import PlainLog
from tests.unit.store.plain.records import SEGMENT, record

if TYPE_CHECKING:
    from pathlib import Path

    from ledgermq.runtime.errors import FatalError


class User:
    """Takes what the log says."""

    def on_committed(self, position: int) -> None:
        """Take nothing."""

    def on_role(self, *role: object) -> None:
        """Take nothing."""


def ended_by(path: Path) -> list[FatalError]:
    """Return what ended a log whose sync cannot begin, for want of a thread for example."""
    ended: list[FatalError] = []

    def fail() -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        config = PlainLogConfig(
            directory=str(path), segment_bytes=SEGMENT, flush_disk_type=FlushDiskType.SYNC_FLUSH
        )
        log = PlainLog(config, on_fatal=ended.append)
        await log.start(User())  # type: ignore[arg-type]
        log._flusher.begin = fail  # type: ignore[method-assign]
        data = record(log.reserve(len(record(0))))
        log.append((data,), len(data))
        for _ in range(20):
            await asyncio.sleep(0)
        del log._flusher.begin
        await log.stop()

    asyncio.run(run())
    return ended


def test_a_sync_that_cannot_begin_ends_the_log(tmp_path: Path) -> None:
    (error,) = ended_by(tmp_path / "a")
    assert "a bug in the commit log" in str(error)
    with planted(BY_TESTS["plain-sync-fails-unheard"]):
        assert ended_by(tmp_path / "b") == []
