"""What a slave says of itself while it comes to a master again and again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from ledgermq.runtime.clock import SystemClock
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha import slave as slave_module
from store.ha.codec import encode_header
from store.ha.config import HaConfig
from store.ha.intake import DiskFull, Diverged
from store.ha.slave import HaSlave, MasterLink
from tests.unit.store.ha.test_sides import Wire, door_of, log_worker, slave_log
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
