"""How fast a slave that catches up is sent to while clients are served."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

import pytest

from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from mutants.master_slave import PACED
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha import master as master_module
from store.ha.codec import encode_report
from store.ha.config import HaConfig
from store.ha.pace import BYTES_A_MS, SAVED_BYTES_MAX, SERVED_MS, Pace
from tests.unit.store.ha.test_sides import Heard, linked, master_log, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mutants.planting import Mutant
    from store.ha.master import SlaveLink
    from store.ha.master_log import MasterLog
    from tests.unit.store.ha.test_sides import Wire

STEP_BYTES = 64 * 1024
SHARE_BYTES = 100
"""What a slave is sent in one turn, in the tests that need several."""


def behind(path: Path) -> tuple[MasterLog, SlaveLink, Wire]:
    """Return a log of several shares, and a connection over which nothing was sent yet."""
    log = master_log(path)
    for _ in range(8):
        put(log, b"x" * SHARE_BYTES)
    link, wire = linked(log)
    link._master.config = HaConfig(batch_bytes=SHARE_BYTES)
    return log, link, wire


def sent_within(pace: Pace, begin_ms: int, period_ms: int, *, is_served: bool) -> int:
    """Return what a slave that takes all it gets is sent in so long."""
    sent = 0
    for now_ms in range(begin_ms, begin_ms + period_ms):
        if is_served:
            pace.on_served(now_ms)
        while pace.is_due(now_ms) and sent < 1 << 30:
            pace.on_sent(now_ms, STEP_BYTES)
            sent += STEP_BYTES
    return sent


def test_a_backlog_leaves_time_for_clients_and_comes_fast_enough() -> None:
    sent = sent_within(Pace(0), 0, 1_000, is_served=True)
    assert sent <= SAVED_BYTES_MAX + 1_000 * BYTES_A_MS + STEP_BYTES
    assert sent >= 200_000_000


def test_nothing_is_held_back_where_nobody_sends() -> None:
    pace = Pace(0)
    pace.on_served(0)
    assert sent_within(pace, SERVED_MS, 1, is_served=False) == 1 << 30


def test_what_was_not_sent_for_long_is_not_saved_up() -> None:
    pace = Pace(0)
    sent_within(pace, 0, 100, is_served=True)
    assert sent_within(pace, 60_000, 1, is_served=True) <= SAVED_BYTES_MAX + STEP_BYTES


def test_what_was_sent_beyond_the_share_is_made_up_for_soon() -> None:
    pace = Pace(0)
    pace.on_served(50)
    pace.on_sent(50, 1 << 40)
    assert not pace.is_due(50)
    assert pace.is_due(50 + SAVED_BYTES_MAX // BYTES_A_MS + 1)


def test_a_send_does_not_wait_for_what_a_slave_lacked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn that takes an entry sends nothing to a slave that is being sent to anyway."""
    monkeypatch.setattr(master_module, "PUSH_BYTES_MAX", SHARE_BYTES)

    async def run() -> None:
        log, link, wire = behind(tmp_path)
        link.take_bytes(encode_report(0))
        before = len(wire.sent)
        assert link._next < log.own_position
        put(log, b"new")
        log._find_committed()
        assert len(wire.sent) == before
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert link._next == log.own_position
        assert b"new" in wire.sent

    asyncio.run(run())


def test_a_backlog_is_sent_in_moments_while_entries_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_module, "PUSH_BYTES_MAX", SHARE_BYTES)

    async def run() -> None:
        log, link, _ = behind(tmp_path)
        pace = link._master.pace
        pace.on_served(SystemClock().monotonic_ms())
        pace.on_sent(SystemClock().monotonic_ms(), SAVED_BYTES_MAX + 3 * BYTES_A_MS)
        link.take_bytes(encode_report(0))
        position = link._next
        for _ in range(10):
            await asyncio.sleep(0)
        assert link._next == position < log.own_position
        await asyncio.sleep(0.05)
        assert link._next == log.own_position

    asyncio.run(run())


class Still:
    """A clock that stands still."""

    def monotonic_ms(self) -> int:
        """Return the same ever."""
        return 0


def test_who_follows_takes_no_share_from_who_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast the log grows that others follow, a slave that lacks more gets its share."""
    del monkeypatch
    log, link, _ = behind(tmp_path)
    link.take_bytes(encode_report(0))
    master = link._master
    master.clock = Still()  # type: ignore[assignment]  # nothing is earned
    master.pace = pace = Pace(0)
    pace.on_sent(0, SAVED_BYTES_MAX - 1)
    put(log, b"x" * SHARE_BYTES)
    link.on_moved()
    assert link._next == log.own_position, "it follows"
    pace.on_served(0)
    assert pace.is_due(0)


def test_what_is_not_in_memory_is_not_touched_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is slow holds up the slave, for a bounded time, and nobody else."""
    monkeypatch.setattr(master_module, "PUSH_BYTES_MAX", SHARE_BYTES)
    monkeypatch.setattr(master_module, "COLD_MS_MAX", 50)
    is_read = asyncio.Event()
    asked: list[tuple[int, int]] = []

    async def run(*, comes: bool) -> None:
        log, link, _ = behind(tmp_path / str(comes))
        monkeypatch.setattr(log.files, "is_in_memory", lambda *_: is_read.is_set())
        monkeypatch.setattr(log.files, "read_ahead", lambda *what: asked.append(what))
        link.take_bytes(encode_report(0))
        position = link._next
        await asyncio.sleep(0.02)
        assert link._next == position
        assert asked[0] == (position, master_module.ASKED_BYTES)
        if comes:
            is_read.set()
        await asyncio.sleep(0.02 if comes else 0.2)
        assert link._next == log.own_position
        is_read.clear()

    asyncio.run(run(comes=True))
    asked.clear()
    asyncio.run(run(comes=False))


def test_a_slave_whose_files_cannot_be_opened_does_not_end_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients have used up what a process may open, and the slave lacks files that are closed."""
    monkeypatch.setattr(master_module, "PUSH_BYTES_MAX", SHARE_BYTES)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def run() -> None:
        log = master_log(tmp_path, open_segments_max=4)
        while len(log._segments.bases) < 8:
            put(log, b"x" * SHARE_BYTES)
        log._flusher.save_all()
        log._segments.make_room()
        log._user = Heard()
        link, wire = linked(log)
        link._master.config = HaConfig(batch_bytes=SHARE_BYTES)
        link.take_bytes(encode_report(log.following(0) + 1))
        assert 0 < link._next < log.own_position
        put(log, b"new")
        monkeypatch.setattr(RealDisk, "open", full)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in range(100):
            await asyncio.sleep(0.001)
        log._running = True
        log._guard(log._tell)
        assert log.committed_position == log.end_position
        assert wire.closed

    asyncio.run(run())


CHECKS = (
    (
        BY_TESTS["ha-backlog-at-full-speed"],
        test_a_backlog_leaves_time_for_clients_and_comes_fast_enough,
    ),
    (BY_TESTS["ha-backlog-saves-up"], test_what_was_not_sent_for_long_is_not_saved_up),
    (
        BY_TESTS["ha-backlog-before-answers"],
        test_a_send_does_not_wait_for_what_a_slave_lacked_before,
    ),
    (BY_TESTS["ha-backlog-not-paced"], test_a_backlog_is_sent_in_moments_while_entries_come),
    (
        BY_TESTS["ha-backlog-read-in-the-loop"],
        test_what_is_not_in_memory_is_not_touched_before_it_is_read,
    ),
    (BY_TESTS["ha-backlog-starved"], test_who_follows_takes_no_share_from_who_catches_up),
)


@pytest.mark.parametrize(("mutant", "check"), CHECKS, ids=[one.name for one, _ in CHECKS])
def test_a_planted_bug_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, check: Callable[..., None]
) -> None:
    needs_path = bool(check.__code__.co_argcount)
    with planted(mutant), pytest.raises(AssertionError):
        check(*((tmp_path, monkeypatch) if needs_path else ()))


def test_every_planted_bug_of_the_pace_has_a_check() -> None:
    assert {mutant.name for mutant in PACED} == {mutant.name for mutant, _ in CHECKS}
