"""What a slave says of itself, and takes, while it comes to masters again and again."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha import slave as slave_module
from store.ha.codec import Piece, encode_header
from store.ha.config import HaConfig
from store.ha.intake import DiskFull, Diverged, Intake
from store.ha.slave import HaSlave, MasterLink
from tests.unit.store.ha.test_sides import Wire, door_of, log_worker, slave_log, taken
from tests.unit.store.plain.records import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MASTER = "127.0.0.1:1"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the states of all lines, in order."""
    lines = [one for one in caplog.messages if "event=slave_state" in one]
    return [one.partition("state=")[2].rpartition(" position=")[0].strip("'\"") for one in lines]


def coming_to(
    slave: HaSlave, monkeypatch: pytest.MonkeyPatch, *ends: Callable[[MasterLink], None] | OSError
) -> None:
    """Have the next connections of a slave come to masters that do this, and hang up."""
    left = list(ends)

    async def dial(make_link: Callable[[], MasterLink], *_: Any, **__: Any) -> Any:
        end = left.pop(0)
        if isinstance(end, OSError):
            raise end
        link, wire = make_link(), Wire()
        link.connection_made(wire)  # type: ignore[arg-type]
        end(link)
        link.connection_lost(None)
        return wire, link

    monkeypatch.setattr(slave_module, "dial", dial)


def send_the_first_record(link: MasterLink) -> None:
    """Send what is asked for; once the slave has the record, it is compared."""
    position = link._intake.report()
    data = record(0)[position:]
    link.data_received(encode_header(position, len(data)) + data)


def hang_up(link: MasterLink) -> None:
    assert not link.is_verified


def lack_space(link: MasterLink) -> None:
    send_the_first_record(link)
    assert link.is_verified
    assert isinstance(link.error, DiskFull)


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def slave(tmp_path: Path) -> HaSlave:
    return HaSlave(HaConfig(), slave_log(tmp_path), SystemClock(), door_of("1"))


def test_one_that_follows_at_once_is_not_called_connected_after_that(
    slave: HaSlave, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes with the connection is read before whoever has dialled goes on."""

    async def main() -> None:
        coming_to(slave, monkeypatch, send_the_first_record, send_the_first_record)
        await slave._follow(MASTER)
        with planted(BY_TESTS["slave-connected-after-it-follows"]):
            await slave._follow(MASTER)

    log_worker(main)
    gone = f"{MASTER} is gone: it hung up"
    assert told(caplog) == ["following", gone, "following", "connected", gone]


def test_what_is_wrong_is_told_once_and_stays_told(
    slave: HaSlave, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A slave that is refused comes again every few seconds, for days."""

    async def main() -> None:
        coming_to(slave, monkeypatch, hang_up, hang_up, hang_up, OSError("refused"), hang_up)
        for _ in range(5):
            await slave._follow(MASTER)

    log_worker(main)
    wrong = f"{MASTER} hung up before it sent anything: its log may say why"
    unreachable = f"{MASTER} cannot be reached: refused"
    assert told(caplog) == ["connected", wrong, unreachable, "connected", wrong]


def test_a_full_disk_is_told_once_and_stays_told(
    slave: HaSlave, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        monkeypatch.setattr(slave.log, "copy", lambda _: False)
        coming_to(slave, monkeypatch, lack_space, hang_up, lack_space)
        for _ in range(3):
            await slave._follow(MASTER)

    log_worker(main)
    full = f"what {MASTER} sends is not taken: the disk is full"
    wrong = f"{MASTER} hung up before it sent anything: its log may say why"
    assert told(caplog) == [full, wrong, full]


def test_another_master_is_told_of_anew(
    slave: HaSlave, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        coming_to(slave, monkeypatch, hang_up, hang_up)
        slave.set_master(MASTER)
        slave._moved.clear()
        await slave._follow(MASTER)
        slave.set_master("127.0.0.1:2")
        slave._moved.clear()
        await slave._follow("127.0.0.1:2")

    log_worker(main)
    assert told(caplog)[2] == "connected"


def test_who_has_another_log_is_told_all_that_has_to_be_moved_away(slave: HaSlave) -> None:
    """A directory without a log whose checkpoints tell of one does not start."""
    link = MasterLink(slave)
    link.error = Diverged("it has other messages at position 0")
    assert "commitlog, consumequeue, index and the checkpoints" in slave._describe_end(MASTER, link)


def leaves_its_master(slave: HaSlave) -> bool:
    """Return whether a connection ends when there is another master."""
    link, wire = slave.make_link(), Wire()
    link.connection_made(wire)  # type: ignore[arg-type]
    slave._address, slave._link = MASTER, link
    slave.set_master(MASTER)
    assert not wire.closed, "that is the same"
    slave.set_master("127.0.0.1:2")
    return wire.closed


def test_a_slave_leaves_the_master_that_is_none_any_more(slave: HaSlave) -> None:
    assert leaves_its_master(slave)
    with planted(BY_TESTS["former-master-followed-on"]):
        assert not leaves_its_master(slave)


def test_the_last_record_is_compared_to_its_end(slave: HaSlave) -> None:
    """Its CRC is of the body alone: a property may differ behind that, with the same lengths."""
    data = record(0)
    other = data[:-1] + bytes([data[-1] ^ 1])

    async def main() -> None:
        taken(slave.log, Intake(slave.log), data)
        with pytest.raises(Diverged, match="other messages"):
            taken(slave.log, Intake(slave.log), other[1:], 1)
        with planted(BY_TESTS["half-a-record-compared"]):
            taken(slave.log, Intake(slave.log), other[1:], 1)

    log_worker(main)


def not_taken_of_three(slave: HaSlave) -> int:
    """Return how many bytes of three records that come at once an empty log lacks."""
    log, pieces, start = slave.log, [], 0
    for _ in range(3):
        data = record(start)
        pieces.append(Piece(start, data))
        start += len(data)
    log._running = log._told_role = True
    Intake(log).take(pieces)
    return start - log.end_position


@pytest.mark.parametrize("bug", ["", "last-of-many-runs-lost"])
def test_all_that_comes_at_once_is_taken(slave: HaSlave, bug: str) -> None:
    async def main() -> None:
        with planted(BY_TESTS["last-of-many-runs-lost"]) if bug else contextlib.nullcontext():
            assert not_taken_of_three(slave) == (len(record(0)) if bug else 0)

    log_worker(main)
