"""Whether a directory may have lost the end of its log: what `abort` says, and in which boot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from broker.modes.lost_end import loss_mark, may_lack_end
from broker.switch.controllers import Answer, View
from broker.switch.identity import Identity
from broker.switch.progress import LogProgress
from broker.switch.registration import Registration
from dledger.config import FlushDiskType
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.disk import SimDisk
from sim.inode import PowerLossMode
from sim.rng import SplitRng
from store.ha.master_log import MasterLog
from store.ha.switch.epochs import EPOCH_FILE, Epoch, encode_epochs
from store.recovery.directory import StoreDirectory
from tests.unit.broker.test_switching_broker import broker_in
from tests.unit.store.ha.test_sides import fail, put

if TYPE_CHECKING:
    from pathlib import Path

    from broker.config import BrokerConfig

STORE = "/store"
ASYNC, SYNC = FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH


def config_of(flush: FlushDiskType = ASYNC) -> BrokerConfig:
    return broker_in(STORE, {"flushDiskType": flush.value})._config


def left(end: str, flush: FlushDiskType = ASYNC) -> SimDisk:
    """Return the disk of a broker that worked, and ended so."""
    disk = SimDisk(SplitRng(1))
    directory = StoreDirectory(STORE, disk, loss_mark(config_of(flush), disk))
    directory.enter()
    directory.mark_unclean()
    if end == "stop":
        directory.leave(clean=True)
    if end == "power":
        disk.power_loss(PowerLossMode.LOST)
    else:
        disk.crash()
    return disk


def found(disk: SimDisk) -> bool:
    directory = StoreDirectory(STORE, disk)
    directory.enter()
    try:
        return may_lack_end(directory, disk)
    finally:
        directory.leave(clean=False)


@pytest.mark.parametrize(
    ("end", "flush", "may_lack"),
    [
        ("stop", ASYNC, False), ("kill", ASYNC, False), ("power", ASYNC, True),
        ("power", SYNC, False), ("kill", SYNC, False),
    ],
)  # fmt: skip
def test_only_a_loss_of_power_takes_what_was_confirmed(
    end: str, flush: FlushDiskType, may_lack: bool
) -> None:
    disk = left(end, flush)
    assert found(disk) is may_lack
    assert found(disk) is may_lack, "to look changes nothing"


def test_a_directory_stays_in_doubt_until_a_role_begins() -> None:
    disk = left("power")
    disk.crash()
    assert found(disk)
    directory = StoreDirectory(STORE, disk, loss_mark(config_of(), disk))
    directory.enter()
    directory.mark_unclean()
    disk.crash()
    assert not found(disk)


def test_a_machine_that_does_not_say_when_it_started_may_have_lost_its_power() -> None:
    class Nameless(SimDisk):
        def boot_id(self) -> str:
            return ""

    disk = Nameless(SplitRng(1))
    directory = StoreDirectory(STORE, disk, loss_mark(config_of(), disk))
    directory.enter()
    directory.mark_unclean()
    disk.crash()
    assert found(disk)


class Controllers:
    """Takes every registration; remembers what it said."""

    def __init__(self) -> None:
        self.fields: list[dict[str, str]] = []

    async def ask(self, code: RequestCode, fields: dict[str, str], **_: object) -> Answer:
        if code is RequestCode.CONTROLLER_REGISTER_BROKER:
            self.fields.append(fields)
        view = View(0, 7, "", "", frozenset({1}), 3)
        return Answer(ResponseCode.SUCCESS, "", view, {})


def registered(disk: SimDisk) -> list[tuple[str | None, ...]]:
    """Return what a broker says of its log when it starts, and when it registers once more.

    Behind that: which set it knew of.
    """
    config = config_of()
    disk.make_directories(STORE)
    identity = Identity("DefaultCluster", "a", 2, "code", is_granted=True)
    identity = msgspec.structs.replace(identity, cluster_name=config.broker_cluster_name)
    disk.replace(f"{STORE}/brokerIdentity.json", msgspec.json.encode(identity))
    disk.replace(f"{STORE}/{EPOCH_FILE}", encode_epochs((Epoch(4, 0), Epoch(6, 900))))
    controllers = Controllers()
    registration = Registration(config, disk, SplitRng(2), controllers)  # type: ignore[arg-type]
    registration.load()
    progress = LogProgress(config, disk)
    progress.load()
    for _ in range(2):
        asyncio.run(registration.register(progress))
    said = ("brokerMayLackEnd", "lastEpoch", "syncStateSetEpoch")
    return [tuple(one.get(field) for field in said) for one in controllers.fields]


def test_a_broker_says_so_until_the_controllers_know() -> None:
    nothing = (None, None, None)
    assert registered(left("power")) == [("true", "6", "3"), nothing]
    assert registered(left("kill")) == [nothing, nothing]
    with planted(BY_TESTS["switch-lost-end-not-told"]):
        assert registered(left("power")) == [nothing, nothing]


def progress_of(path: Path, mark: bytes) -> tuple[int, int]:
    """Return what a broker says of a log of two records, and one behind bytes that were lost."""
    config = broker_in(str(path), {"mappedFileSizeCommitLog": "65536"})._config
    log = MasterLog(
        config.plain_log_config(), None, disk=RealDisk(), clock=SystemClock(), on_fatal=fail
    )
    log.open()
    ends = []
    for _ in range(4):
        put(log, b"x" * 100)
        ends.append(log.end_position)
    log._segments.close()
    with (path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(ends[1])
        file.write(bytes(ends[2] - ends[1]))
    directory = StoreDirectory(str(path), RealDisk(), mark)
    directory.enter()
    directory.mark_unclean()
    directory.leave(clean=False)
    progress = LogProgress(config, RealDisk())
    progress.load()
    return progress.of(None)[1], ends[1]


def test_what_lies_behind_a_hole_is_not_counted(tmp_path: Path) -> None:
    end, sound = progress_of(tmp_path / "a", b"another boot")
    assert end == sound
    boot = RealDisk().boot_id().encode()
    for number, mark in enumerate((b"synced", boot)):  # killed: the last write was cut short
        end, sound = progress_of(tmp_path / f"killed-{number}", mark)
        assert end == sound
        with planted(BY_TESTS["switch-torn-record-counts"]):
            end, sound = progress_of(tmp_path / f"planted-{number}", mark)
            assert end > sound
    with planted(BY_TESTS["switch-end-behind-a-hole"]):
        end, sound = progress_of(tmp_path / "b", b"another boot")
        assert end > sound
