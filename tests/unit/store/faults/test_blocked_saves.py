"""A folder where a save would write first ends a start, by its name, and no broker that serves."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.config import BrokerConfig
from broker.state.shared_snapshot import SharedSnapshot
from broker.state.snapshot import Snapshot
from broker.switch.identity import IDENTITY_FILE, load_identity
from broker.tables import Tables
from dledger.storage.state_files import REPLACED, claim_directory
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.journal import SyncedJournal
from namesrv.kv_config import KvConfig
from store.ha.switch.confirmed import CONFIRMED_FILE, ConfirmedFile
from store.ha.switch.epoch_file import EPOCH_FILE, EpochFile
from store.index.marks import INDEX_FILE
from store.recovery.checkpoint import CHECKPOINT_FILE, CLEAN_FILE, ROCKETMQ_FILE
from store.recovery.loading import Loading
from tests.unit.broker.fakes import FakeClock

Start = Callable[[Path], object]


def tables_of_a_group(path: Path) -> object:
    made = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    return Snapshot(str(path), made.state, RealDisk()).load()


def shared_tables(path: Path) -> object:
    made = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    shared = SharedSnapshot(str(path), made.state, RealDisk(), lambda _: False)
    return shared.load_for(-1, lambda _: True)


def replica(path: Path) -> object:
    claim_directory(RealDisk(), str(path), group="g", self_id="n0", rng=SystemRng(1))[1].close()
    return None


def store(path: Path) -> object:
    nothing = cast("Any", SimpleNamespace())
    loading = Loading(str(path), RealDisk(), nothing, None, nothing, nothing)
    return loading.load((), cast("Any", lambda _: None), 0)


def name_server(path: Path) -> object:
    return KvConfig(RealDisk(), str(path / "kvConfig.json")).load()


def controller(path: Path) -> object:
    return SyncedJournal(RealDisk(), str(path))


def epochs(path: Path) -> object:
    return EpochFile(str(path), RealDisk()).load()


def confirmed(path: Path) -> object:
    return ConfirmedFile(str(path), RealDisk()).load(0)


def switched(path: Path) -> object:
    return load_identity(str(path), RealDisk(), "C", "b")


TABLES = ("topics.json", "consumerOffset.json", "appliedIndex.json")
STORE = (CHECKPOINT_FILE, CLEAN_FILE, ROCKETMQ_FILE, INDEX_FILE)
CASES = [
    *((tables_of_a_group, f"{name}{kind}") for name in TABLES for kind in (".bak", ".bak.tmp")),
    *((shared_tables, f"{name}.bak") for name in TABLES),
    *((replica, f"{name}.tmp") for name in REPLACED),
    (replica, "synced"),
    *((store, f"{name}{kind}") for name in STORE for kind in ("", ".tmp")),
    (name_server, "kvConfig.json.tmp"),
    (controller, "vote.tmp"),
    (controller, "snapshot.tmp"),
    *((controller, name) for name in ("journal", "synced", "dump", "dump.tmp", "dump.tmp.tmp")),
    (epochs, f"{EPOCH_FILE}.tmp"),
    *((confirmed, f"{CONFIRMED_FILE}{kind}") for kind in ("", ".tmp")),
    (switched, f"{IDENTITY_FILE}.tmp"),
]


@pytest.mark.parametrize(("start", "name"), CASES)
def test_a_folder_where_a_save_writes_first_ends_the_start(
    tmp_path: Path, start: Start, name: str
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(FatalError, match=f"{name} exists and is not a regular file"):
        start(tmp_path)


@pytest.mark.parametrize(("start", "name"), CASES)
def test_a_link_to_nothing_ends_the_start(tmp_path: Path, start: Start, name: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / "gone")
    with pytest.raises(FatalError, match=f"{name} is a link to nothing"):
        start(tmp_path)


def test_a_link_to_nothing_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "config").symlink_to(tmp_path / "gone")
    with pytest.raises(FatalError, match="config is a link to nothing"):
        RealDisk().make_directories(str(tmp_path / "config"))


@pytest.mark.parametrize("name", ["topics.json.bak", "topics.json.tmp"])
def test_without_that_the_first_save_ends_the_broker(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    made = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    snapshot = Snapshot(str(tmp_path), made.state, RealDisk())
    with planted(BY_TESTS["saves-not-looked-at"]):
        snapshot.load()
    (tmp_path / "topics.json").write_text("{}")
    with pytest.raises(OSError, match="directory"):
        snapshot.write(snapshot.capture(1))


def test_files_that_a_crash_left_there_are_no_hindrance(tmp_path: Path) -> None:
    for name in ("topics.json.bak", "topics.json.tmp", "appliedIndex.json.tmp"):
        (tmp_path / name).write_bytes(b"half a file")
    assert tables_of_a_group(tmp_path) == -1


@pytest.mark.parametrize("start", [name_server, controller, replica])
def test_a_backup_that_nothing_writes_is_no_hindrance(tmp_path: Path, start: Start) -> None:
    for name in ("kvConfig.json.bak", "snapshot.bak", "currterm.bak"):
        (tmp_path / name).mkdir()
    start(tmp_path)
