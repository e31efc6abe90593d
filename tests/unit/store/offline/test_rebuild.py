"""Queues and index made anew: equal to what was there, whatever happened to it, and repeatable."""

import logging
import os
import re
import shutil
from contextlib import suppress

import pytest

from dledger.mark import LogMark
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.switch.epochs import EPOCH_FILE, Epoch, encode_epochs
from store.layout import FIRST_OFFSET_MAX, UNIT
from store.offline.findings import Health
from store.offline.folder import open_folder
from store.offline.rebuild import Rebuild
from store.queues.files import BLOCK_BYTES
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    CheckpointHead,
    join_checkpoint,
    maybe_decode_checkpoint,
)
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.stores import built
from tests.unit.store.faults.world import Cluster
from tests.unit.store.offline.stores import (
    QUEUE_FILE,
    SEGMENT,
    PlainStore,
    check,
    health,
    kinds,
    state,
    write,
)


class BrokenError(Exception):
    """The machine went down."""


def rebuild(root, disk=None, **options):
    work = Rebuild(open_folder(str(root)), disk or RealDisk(), SystemClock(), **options)
    plan = work.survey()
    work.run(plan)
    return plan


def queue_files(root, name="consumequeue"):
    return {
        str(path.relative_to(root / name)): path.read_bytes()
        for path in (root / name).rglob("*")
        if path.is_file()
    }


@pytest.fixture
def plain(tmp_path):
    write(tmp_path, PlainStore().files())
    return tmp_path


def raft_files():
    files, _ = built(raft=True)
    return {path.removeprefix("/store/"): data for path, data in files.items()}


def test_survey_writes_nothing(plain):
    before = state(plain)
    plan = Rebuild(open_folder(str(plain)), RealDisk(), SystemClock()).survey()
    assert state(plain) == before
    assert (plan.messages, plan.keyed, len(plan.queues), plan.kept) == (114, 114, 6, [])


def test_what_is_sound_is_made_again_the_same(plain):
    before = queue_files(plain)
    indexed = check(plain).totals["indexEntries"]
    rebuild(plain)
    assert queue_files(plain) == before == queue_files(plain, "consumequeue.replaced")
    report = check(plain)
    assert report.findings.health is Health.HEALTHY
    assert report.totals["indexEntries"] == indexed
    assert not (plain / "rebuild").exists()


def test_rebuilt_index_is_the_one_that_rocketmq_wrote(recorded, tmp_path):
    """Byte for byte, if no start had to dispatch messages twice."""
    source = recorded("dledger-4.9.7", "store-n0")
    for name in ("config", "consumequeue", "index", "dledger-n0", "checkpoint"):
        (tmp_path / name).symlink_to(source / name)
    rebuild(tmp_path)
    ours, theirs = (sorted((tmp_path / name).iterdir()) for name in ("index", "index.replaced"))
    assert len(ours) == len(theirs) == 2
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.read_bytes() == other.read_bytes()
    assert queue_files(tmp_path) == queue_files(source)


@pytest.mark.parametrize("kind", ["flipped", "zeroed", "short", "gone", "all gone"])
def test_damaged_queues_and_index_are_healed(plain, kind):
    before = queue_files(plain)
    victims = [plain / f"consumequeue/t1/1/{0:020}", sorted((plain / "index").iterdir())[1]]
    for path in victims:
        data = path.read_bytes()
        if kind == "flipped":
            path.write_bytes(data[:300] + bytes((data[300] ^ 1,)) + data[301:])
        elif kind == "zeroed":
            path.write_bytes(bytes(len(data)))
        elif kind == "short":
            path.write_bytes(data[:-7])
        else:
            for each in path.parent.iterdir() if kind == "all gone" else [path]:
                each.unlink()
    rebuild(plain)
    assert health(plain) == "healthy"
    assert queue_files(plain) == before


def test_offsets_go_on_where_a_queue_has_lost_all_its_messages(tmp_path):
    files = PlainStore(60, first_position=SEGMENT * 7, queue_base=25).files()
    units = b"".join(UNIT.pack(number * 200, 150, 0) for number in range(20, 33))
    files[f"consumequeue/old/2/{QUEUE_FILE:020}"] = units.ljust(QUEUE_FILE, b"\0")
    write(tmp_path, files)
    before = queue_files(tmp_path)
    plan = rebuild(tmp_path)
    assert [queue.name for queue in plan.kept] == ["old/2"]
    assert queue_files(tmp_path) == before
    assert health(tmp_path) == "healthy"


def test_queues_of_messages_of_other_topics_are_copied(plain):
    name = f"consumequeue/%LMQ%device/0/{0:020}"
    write(plain, {name: (plain / f"consumequeue/t0/0/{0:020}").read_bytes()})
    before = queue_files(plain)
    assert health(plain) == "healthy"
    rebuild(plain)
    assert queue_files(plain) == before
    assert health(plain) == "healthy"


def test_our_broker_takes_the_rebuilt_queues_as_they_are(tmp_path, caplog):
    write(tmp_path, raft_files())
    before = queue_files(tmp_path)
    rebuild(tmp_path)
    assert queue_files(tmp_path) == before
    files = {
        f"/store/{path.relative_to(tmp_path)}": path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and ".replaced" not in str(path)
    }
    cluster = Cluster({"n0": disk_of(files)}, raft=True)
    caplog.clear()  # What building the files wrote.
    with caplog.at_level(logging.INFO):
        assert cluster.start() is None
        cluster.run_for(2_000)
        assert cluster.stop() is None
        cluster.close()
    assert "event=queue_damaged" not in caplog.text
    (begins,) = re.findall(r"event=dispatch_begins .*rebuild=(\w+)", caplog.text)
    assert begins == "False"


class Breaking(RealDisk):
    """A disk that goes down with the machine at one step."""

    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def step(self):
        self.left -= 1
        if self.left < 0:
            raise BrokenError

    def open_unsynced(self, path, *, size):
        self.step()
        return super().open_unsynced(path, size=size)

    def open(self, path, *, size):
        self.step()
        return super().open(path, size=size)

    def replace(self, path, data):
        self.step()
        super().replace(path, data)

    def remove(self, path):
        self.step()
        super().remove(path)

    def sync_all(self, directory):
        self.step()
        super().sync_all(directory)


def test_interrupted_at_any_step_it_is_known_and_can_be_repeated(tmp_path, monkeypatch):
    whole = PlainStore().files()
    damaged = dict(whole)
    damaged[f"consumequeue/t1/1/{0:020}"] = bytes(QUEUE_FILE)
    real, steps, seen = os.rename, 0, set()
    while True:
        root = tmp_path / str(steps)
        write(root, damaged)
        disk = Breaking(steps)

        def rename(source, target, disk=disk):
            disk.step()
            real(source, target)

        monkeypatch.setattr(os, "rename", rename)
        try:
            rebuild(root, disk)
        except BrokenError:
            is_swapping = (root / "rebuild/complete").exists()
            seen.add(is_swapping)
            if (root / "rebuild").exists():
                assert ("directory", "rebuild interrupted") in kinds(check(root))
            monkeypatch.setattr(os, "rename", real)
            rebuild(root)
        else:
            break
        assert queue_files(root) == queue_files(tmp_path / "0"), steps
        assert health(root) == "healthy"
        assert not (root / "rebuild").exists()
        steps += 1
    assert seen == {True, False}
    assert steps > 20


def queues_after_a_run_between(root):
    """Return queue files before and behind a rebuild that went on after a broker had run."""
    write(root, PlainStore(60).files())
    for steps in range(1000):
        with suppress(BrokenError):
            rebuild(root, Breaking(steps))
        if (root / "rebuild/complete").exists():
            break
    write(root, PlainStore().files())
    before = queue_files(root)
    assert rebuild(root).messages == 114
    assert not (root / "rebuild").exists()
    return before, queue_files(root)


def test_what_was_made_of_a_log_that_has_gone_on_is_made_anew(tmp_path):
    before, behind = queues_after_a_run_between(tmp_path / "sound")
    assert behind == before
    assert health(tmp_path / "sound") == "healthy"
    with planted(BY_TESTS["rebuild-of-a-former-log"]):
        before, behind = queues_after_a_run_between(tmp_path / "bug")
    assert behind != before


def test_files_that_are_not_made_yet_need_a_size_where_a_broker_ran_between(plain):
    (plain / "rebuild").mkdir()
    (plain / "rebuild/complete").write_bytes(b"")
    shutil.rmtree(plain / "consumequeue")
    with pytest.raises(FatalError, match="say it with --queue-file-bytes"):
        rebuild(plain)


def test_size_of_queue_files_is_as_it_was_or_as_asked_for(tmp_path):
    write(tmp_path, raft_files())
    shutil.rmtree(tmp_path / "consumequeue")
    rebuild(tmp_path)  # by the checkpoint
    assert {len(data) for data in queue_files(tmp_path).values()} == {QUEUE_FILE}
    rebuild(tmp_path, queue_file_bytes=800)
    assert {len(data) for data in queue_files(tmp_path).values()} == {800}
    assert health(tmp_path) == "healthy"
    with pytest.raises(FatalError, match="no whole units"):
        rebuild(tmp_path, queue_file_bytes=801)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "consumequeue.checkpoint").unlink()
    with pytest.raises(FatalError, match="say it with --queue-file-bytes"):
        rebuild(tmp_path)


def test_damaged_log_is_refused_with_its_place(plain):
    path = plain / f"commitlog/{0:020}"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    before = state(plain)
    with pytest.raises(FatalError, match=f"{path} offset 0: the log is damaged"):
        rebuild(plain)
    assert state(plain) == before


@pytest.mark.parametrize("offset", [FIRST_OFFSET_MAX + 1, 2**62, 2**63 - 1])
def test_a_queue_that_cannot_begin_where_its_message_says_is_refused_with_its_place(
    tmp_path, offset
):
    """A broker puts the message into no queue: no file could have its unit."""
    store = PlainStore(messages=1, queue_base=offset)
    store.queues, store.queue_base = {("t1", 0): [bytes(20)]}, 0
    write(tmp_path, store.files())
    with pytest.raises(FatalError, match="fits into no queue: offset 0 comes next"):
        rebuild(tmp_path)


def test_log_alone_and_what_cannot_be_made_are_refused(plain):
    (plain / "batchconsumequeue").mkdir()
    with pytest.raises(FatalError, match="batchconsumequeue: a rebuild cannot make"):
        rebuild(plain)
    write(plain / "away" / "dledger-n0", {f"data/{0:020}": bytes(SEGMENT)})
    with pytest.raises(FatalError, match="this is a log alone"):
        rebuild(plain / "away" / "dledger-n0")


def test_only_committed_entries_are_dispatched(tmp_path):
    files = raft_files()
    files["dledger-n0/checkpoint"] = b"committedIndex=100\nendIndex=312\n"
    write(tmp_path, files)
    plan = rebuild(tmp_path)
    assert plan.last.index == 100
    report = check(tmp_path)
    assert report.findings.health is Health.HARMLESS
    assert kinds(report) == {("consume queue", "behind the log"), ("directory", "stranger")} | (
        {("key index", "behind the log")} if (tmp_path / "index").exists() else set()
    )


def controlled(root, confirmed):
    """Write the directory of a broker under controllers, whose slaves have so many messages."""
    store = PlainStore()
    files = store.files()
    mark, stored = LogMark(-1, 0, -1), 0
    if confirmed:
        last, behind = store.records[confirmed - 1 : confirmed + 1]
        mark = LogMark(behind.physical_offset - 1, 1, last.physical_offset)
        stored = last.store_timestamp
    head = CheckpointHead(QUEUE_FILE, BLOCK_BYTES, stored, (mark,))
    files[CHECKPOINT_FILE] = join_checkpoint(head, [])
    files[EPOCH_FILE] = encode_epochs((Epoch(1, 0),))
    write(root, files)
    return mark


def test_what_not_all_in_sync_replicas_have_is_in_no_queue(tmp_path):
    """A slave takes what its queues have for acknowledged, and follows no master without it."""
    mark = controlled(tmp_path, 40)
    assert rebuild(tmp_path).last == mark
    assert kinds(check(tmp_path), "damage") == set()
    found = maybe_decode_checkpoint((tmp_path / CHECKPOINT_FILE).read_bytes())
    assert found.head.marks == (mark,)
    assert sum(queue.max_offset for queue in found.queues) == 40


def test_a_rebuild_of_what_is_not_confirmed_is_seen(tmp_path):
    with (
        planted(BY_TESTS["rebuild-of-what-is-not-confirmed"]),
        pytest.raises(AssertionError),
    ):
        test_what_not_all_in_sync_replicas_have_is_in_no_queue(tmp_path)


@pytest.mark.parametrize("confirmed", [0, 40])
def test_such_a_rebuild_that_was_interrupted_knows_how_far_it_went(tmp_path, confirmed):
    for steps in range(1000):
        root = tmp_path / str(steps)
        mark = controlled(root, confirmed)
        try:
            rebuild(root, Breaking(steps))
        except BrokenError:
            assert rebuild(root).last.index == mark.index, steps
        else:
            break
        assert not (root / "rebuild").exists()
    assert steps > 5


@pytest.mark.parametrize("content", [None, b"", b"LMQC"])
def test_nothing_is_made_where_nothing_says_what_they_have(tmp_path, content):
    controlled(tmp_path, 40)
    (tmp_path / CHECKPOINT_FILE).unlink()
    if content is not None:
        (tmp_path / CHECKPOINT_FILE).write_bytes(content)
    before = state(tmp_path)
    with pytest.raises(FatalError, match="what all in-sync replicas have is unknown"):
        rebuild(tmp_path)
    assert state(tmp_path) == before


def test_queues_that_lie_elsewhere_can_be_rebuilt_again_and_again(plain):
    """What was moved aside is a link then, and the next rebuild replaces it."""
    (plain / "consumequeue").rename(plain / "elsewhere")
    (plain / "consumequeue").symlink_to("elsewhere")
    before = queue_files(plain)
    for _ in range(3):
        rebuild(plain)
        assert queue_files(plain) == before
        assert health(plain) == "healthy"
    assert queue_files(plain, "elsewhere") == before
