"""What is damage, what is harmless, and where it is said to be."""

import errno
import os
import shutil
import struct
from pathlib import Path

import pytest

from broker.modes.copied import COPIED_FILE
from broker.switch.identity import IDENTITY_FILE
from dledger.codec.entry import encode_entry
from dledger.codec.index import UNIT as INDEX_UNIT
from dledger.codec.properties import Checkpoint, encode_mark
from ledgermq.remoting.protocol.message import encode_record
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from store.ha.switch.epochs import EPOCH_FILE
from store.offline.findings import Health
from store.offline.folder import UnusableError, open_folder
from store.offline.messages import Dump, Selection
from store.offline.statistics import collect
from store.plain.config import PlainLogConfig
from store.plain.files import open_segments
from tests.unit.store.faults.stores import built
from tests.unit.store.offline.stores import (
    MESSAGES,
    QUEUE_FILE,
    SEGMENT,
    PlainStore,
    check,
    health,
    kinds,
    write,
)


@pytest.fixture
def plain(tmp_path):
    """A sound plain store, and what is in it."""
    store = PlainStore()
    write(tmp_path, store.files())
    return tmp_path, store


@pytest.fixture
def raft(tmp_path):
    """The store that one of our brokers left after a clean stop."""
    files, _ = built(raft=True)
    write(tmp_path, {path.removeprefix("/store/"): data for path, data in files.items()})
    return tmp_path


def change(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def flip(path, offset):
    change(path, offset, bytes((path.read_bytes()[offset] ^ 1,)))


def place_of(root, store, message):
    """File and offset of a message's record."""
    base = message.physical_offset // SEGMENT * SEGMENT
    return root / f"commitlog/{base:020}", message.physical_offset - base


def damage(report):
    return [found for found in report.findings.listed if found.severity == "damage"]


def test_sound_plain_store_is_healthy(plain):
    assert health(plain[0]) == "healthy"


def test_store_that_our_broker_left_is_healthy(raft):
    assert health(raft) == "healthy"


def test_a_plain_log_that_begins_later_is_healthy(tmp_path):
    write(tmp_path, PlainStore(60, first_position=SEGMENT * 7, queue_base=25).files())
    report = check(tmp_path)
    assert report.findings.health is Health.HEALTHY
    assert report.totals["logBegin"] == SEGMENT * 7


def test_body_that_changed_is_damage_with_file_and_offset(plain):
    root, store = plain
    path, offset = place_of(root, store, store.records[40])
    flip(path, offset + 90)
    (found,) = [f for f in damage(check(root)) if f.part == "log"]
    assert (found.path, found.offset) == (str(path), offset)
    assert "CRC" in found.what


@pytest.mark.parametrize("at", [0, 4, 28, 84, 88])
def test_any_length_magic_or_place_that_changed_is_damage(plain, at):
    root, store = plain
    path, offset = place_of(root, store, store.records[10])
    change(path, offset + at, b"\x11\x22")
    assert ("log", "damaged") in kinds(check(root), "damage")


def test_damage_does_not_hide_what_lies_behind_it(plain):
    root, store = plain
    for number in (10, 50, 90):
        path, offset = place_of(root, store, store.records[number])
        flip(path, offset + 90)
    report = check(root)
    assert len([f for f in damage(report) if f.part == "log"]) == 3
    assert report.totals["messages"] == len(store.records) - 3


def test_missing_segment_is_damage(plain):
    root, _ = plain
    (root / f"commitlog/{SEGMENT:020}").unlink()
    report = check(root)
    assert {("log", "gap"), ("log", "damaged")} <= kinds(report, "damage")
    assert any("no file holds this part" in found.what for found in damage(report))


def test_segment_far_away_is_damage_since_a_broker_refuses_it(plain):
    root, _ = plain
    (root / f"commitlog/{SEGMENT * 1000:020}").write_bytes(bytes(SEGMENT))
    assert kinds(check(root), "damage") == {("log", "gap")}


def test_damage_among_what_was_never_synced_is_a_torn_write(plain):
    root, store = plain
    path, offset = place_of(root, store, store.records[80])
    flip(path, offset + 90)
    first = store.records[60].store_timestamp
    change(root / "checkpoint", 0, struct.pack(">qqq", first, first, first))
    assert ("log", "damaged") in kinds(check(root), "damage")
    (root / "abort").touch()
    assert ("log", "torn") in kinds(check(root), "harmless")
    late = store.records[-1].store_timestamp
    change(root / "checkpoint", 0, struct.pack(">qqq", late, late, late))
    assert ("log", "damaged") in kinds(check(root), "damage")


def test_torn_end_after_a_crash_is_harmless_and_damage_after_a_clean_stop(plain):
    root, store = plain
    path, offset = place_of(root, store, store.records[-1])
    flip(path, offset + 90)
    last = store.records[-3].store_timestamp
    change(root / "checkpoint", 0, struct.pack(">qqq", last, last, last))
    assert ("consume queue", "unit without a message") in kinds(check(root), "damage")
    (root / "abort").touch()
    report = check(root)
    assert report.findings.health is Health.HARMLESS
    assert ("log", "tail") in kinds(report)
    assert ("consume queue", "ahead of the log") in kinds(report)
    assert ("key index", "ahead of the log") in kinds(report)


def test_log_that_lost_what_was_flushed_is_damage_even_after_a_crash(plain):
    root, store = plain
    (root / "abort").touch()
    path, offset = place_of(root, store, store.records[-1])
    change(path, offset, bytes(SEGMENT - offset))
    assert ("log", "ends too early") in kinds(check(root), "damage")


def test_queue_that_ends_before_the_log_is_harmless(plain):
    root, store = plain
    for (topic, queue_id), units in store.queues.items():
        at = (len(units) - 1) * 20
        path = root / f"consumequeue/{topic}/{queue_id}/{at // QUEUE_FILE * QUEUE_FILE:020}"
        change(path, at % QUEUE_FILE, bytes(20))
    report = check(root)
    assert report.findings.health is Health.HARMLESS
    assert kinds(report) == {("consume queue", "behind the log")}
    assert "6 messages" in report.findings.listed[0].what


@pytest.mark.parametrize("at", [7, 11, 19])
def test_wrong_unit_is_damage_of_the_queue(plain, at):
    root, _ = plain
    path = root / f"consumequeue/t1/1/{0:020}"
    flip(path, 5 * 20 + at)
    (found,) = damage(check(root))
    assert (found.path, found.offset, found.kind) == (str(path), 100, "wrong unit")
    assert "rebuild" in found.remedy


def test_unit_in_the_middle_that_is_zero_is_missing(plain):
    root, _ = plain
    path = root / f"consumequeue/t1/1/{0:020}"
    change(path, 60, bytes(20))
    (found,) = damage(check(root))
    assert (found.path, found.offset, found.kind) == (str(path), 60, "missing unit")


def test_queue_that_is_gone_is_damage_unless_its_topic_is(plain):
    root, _ = plain
    shutil.rmtree(root / "consumequeue/t1")
    assert kinds(check(root), "damage") == {("consume queue", "missing unit")}
    (root / "config/topics.json").write_bytes(b'{"topicConfigTable":{"t0":{},"t2":{}}}')
    report = check(root)
    assert report.findings.health is Health.HEALTHY
    assert kinds(report) == {("consume queue", "no such topic")}


def test_queues_of_a_topic_that_was_made_again_are_healthy(tmp_path):
    """RocketMQ counts from 0 again; what the log has of before is in no queue."""
    store = PlainStore()
    for key in [key for key in store.queues if key[0] == "t1"]:
        store.queues[key].clear()
    for number in range(MESSAGES, MESSAGES + 30):
        store.add(number)
    write(tmp_path, store.files())
    report = check(tmp_path)
    assert report.findings.health is Health.HEALTHY
    assert kinds(report) == {("consume queue", "begun anew")}
    flip(tmp_path / f"consumequeue/t1/0/{0:020}", 6)
    (found,) = damage(check(tmp_path))
    assert (found.path, found.offset) == (str(tmp_path / f"consumequeue/t1/0/{0:020}"), 0)


def test_unit_of_no_message_is_damage(plain):
    root, store = plain
    unit = struct.pack(">qiq", 100, 50, 0)
    change(root / f"consumequeue/t0/0/{0:020}", 0, unit)
    assert health(root) == "damaged"
    at = len(store.queues["t0", 0]) * 20
    write(root, store.files())
    change(root / f"consumequeue/t0/0/{at // QUEUE_FILE * QUEUE_FILE:020}", at % QUEUE_FILE, unit)
    (found,) = damage(check(root))
    assert found.kind == "unit without a message"


@pytest.mark.parametrize(
    ("offset", "kind"),
    [(40 + 100 + 20 + 3, "key not found"), (40 + 100 + 20 * 5 + 15, "wrong time"),
     (40 + 100 + 20 * 20 + 19, "broken chain"), (43, "wrong slot"), (35, "header"),
     (40 + 100 + 20 * 9 + 11, "wrong entry")],
)  # fmt: skip
def test_each_field_of_the_key_index_is_checked(plain, offset, kind):
    root, _ = plain
    path = sorted((root / "index").iterdir())[0]
    flip(path, offset)
    report = check(root)
    assert ("key index", kind) in kinds(report, "damage")
    assert all(found.path == str(path) for found in damage(report))


def test_index_that_ends_before_the_log_is_harmless(plain):
    root, _ = plain
    sorted((root / "index").iterdir())[-1].unlink()
    assert kinds(check(root)) == {("key index", "behind the log")}


def test_entry_that_was_corrupted_below_the_checkpoint_is_damage(raft):
    path = raft / f"dledger-n0/data/{8192:020}"
    flip(path, 700)
    report = check(raft)
    (found,) = [f for f in damage(report) if f.part == "log"]
    assert (found.path, found.kind) == (str(path), "damaged")
    assert found.offset <= 700
    assert "peers" in found.remedy


def test_entry_torn_behind_the_checkpoint_is_harmless(raft):
    (raft / "dledger-n0/checkpoint").write_text("committedIndex=100\nendIndex=100\n")
    last = sorted((raft / "dledger-n0/data").iterdir())[-1]
    end = len(last.read_bytes().rstrip(b"\0"))
    flip(last, end - 3)
    report = check(raft)
    assert ("log", "tail") in kinds(report, "harmless")
    assert report.findings.health is Health.HARMLESS


def test_entry_that_was_synced_behind_the_checkpoint_is_damage(raft):
    (raft / "dledger-n0/checkpoint").write_text("committedIndex=100\nendIndex=100\n")
    last = sorted((raft / "dledger-n0/data").iterdir())[-1]
    flip(last, len(last.read_bytes().rstrip(b"\0")) - 3)
    end = sum(1 for path in (raft / "dledger-n0/index").iterdir() for unit in units(path)) - 1
    (raft / "dledger-n0/synced").write_bytes(encode_mark(Checkpoint(100, 100), end))
    assert {found.part for found in damage(check(raft))} == {"log"}
    (raft / "dledger-n0/synced").write_bytes(encode_mark(Checkpoint(101, 100), end))
    assert not damage(check(raft))


def units(path):
    data = path.read_bytes()
    return [at for at in range(0, len(data), 32) if any(data[at : at + 32])]


def test_dledger_index_is_compared_with_the_entries(raft):
    path = raft / f"dledger-n0/index/{512:020}"
    flip(path, 40)
    (found,) = damage(check(raft))
    assert (found.path, found.offset, found.part) == (str(path), 32, "log index")
    change(path, 32, bytes(32))
    assert kinds(check(raft), "damage") == {("log index", "missing unit")}


@pytest.mark.parametrize(
    ("name", "part"),
    [("dledger-n0/checkpoint", "checkpoint"), ("dledger-n0/currterm", "checkpoint"),
     ("dledger-n0/identity", "checkpoint"), ("consumequeue.checkpoint", "checkpoint"),
     ("index.checkpoint", "checkpoint"), ("config/topics.json", "config"),
     ("checkpoint", "checkpoint")],
)  # fmt: skip
def test_small_file_of_garbage_is_damage_of_that_file(raft, name, part):
    (raft / name).write_bytes(b"\xff\xfe garbage")
    found = damage(check(raft))
    assert [(f.part, f.path) for f in found] == [(part, str(raft / name))]


def test_vote_that_is_missing_is_damage(raft):
    (raft / "dledger-n0/currterm").unlink()
    assert kinds(check(raft), "damage") == {("checkpoint", "missing")}


def test_file_that_a_crash_left_without_bytes_is_harmless(plain):
    root, _ = plain
    (root / f"commitlog/{SEGMENT * 99:020}").touch()
    (root / f"consumequeue/t0/0/{QUEUE_FILE:020}").touch()
    (root / "index/20991231235959999").touch()
    report = check(root)
    assert report.findings.health is Health.HARMLESS
    assert {kind for _, kind in kinds(report)} == {"not made"}
    assert len(report.findings.listed) == 3


def test_strange_names_are_noted_and_left_alone(plain):
    root, _ = plain
    (root / "notes.txt").touch()
    (root / "commitlog/lost+found").mkdir()
    (root / "consumequeue/t0/x").mkdir()
    (root / "consumequeue/t0/01").mkdir()
    (root / "consumequeue/stray.txt").touch()
    (root / f"consumequeue/t0/0/{0:020}.tmp").touch()
    (root / "index/readme").touch()
    report = check(root)
    assert report.findings.health is Health.HEALTHY
    assert len(report.findings.listed) == 7


def test_what_lies_where_a_queue_must_is_damage_since_a_broker_refuses_it(plain):
    root, _ = plain
    (root / "consumequeue/stray").touch()
    (root / "consumequeue/t0/7").symlink_to("nowhere")
    report = check(root)
    assert kinds(report) == {("consume queue", "in the way")}
    assert report.findings.health is Health.DAMAGED


@pytest.mark.parametrize("name", ["backup", "9" * 20])
def test_strange_names_in_a_plain_log_are_damage_since_a_broker_refuses_them(plain, name):
    root, _ = plain
    (root / "commitlog" / name).mkdir()
    report = check(root)
    assert kinds(report) == {("log", "stranger")}
    assert report.findings.health is Health.DAMAGED
    with pytest.raises(FatalError, match=name):
        open_segments(
            RealDisk(), PlainLogConfig(directory=f"{root}/commitlog", segment_bytes=SEGMENT)
        )


@pytest.mark.parametrize("name", ["consumequeue", "index", "config"])
@pytest.mark.parametrize("is_link", [False, True])
def test_what_lies_where_a_directory_must_is_damage(plain, name, is_link):
    root, _ = plain
    shutil.rmtree(root / name)
    (root / name).symlink_to("nowhere") if is_link else (root / name).touch()
    report = check(root)
    assert ("directory", "in the way") in kinds(report, "damage")


@pytest.mark.parametrize("name", [COPIED_FILE, IDENTITY_FILE, EPOCH_FILE])
def test_what_a_slave_and_a_broker_under_controllers_have_is_no_stranger(plain, name):
    root, _ = plain
    (root / name).touch()
    assert kinds(check(root)) == set()


def test_strange_names_in_the_log_of_a_group_are_noted(raft):
    (next(raft.glob("dledger-*")) / "data" / "backup").touch()
    report = check(raft)
    assert ("log", "stranger") in kinds(report)
    assert report.findings.health is Health.HEALTHY


@pytest.mark.parametrize("broken", ["commitlog/0", "consumequeue/t0/0/0", "index/2"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(plain, broken):
    root, _ = plain
    directory = root / broken.rpartition("/")[0]
    path = sorted(p for p in directory.iterdir() if p.name.startswith(broken.rpartition("/")[2]))[0]
    path.unlink()
    os.mkfifo(path)
    assert health(root) in {"damaged", "harmless", "healthy"}


FAILING = [
    f"commitlog/{0:020}", f"commitlog/{SEGMENT * 2:020}", f"consumequeue/t0/0/{0:020}",
    "index/20231114221320000", "checkpoint", "config/topics.json",
]  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_sector_that_cannot_be_read_is_damage_with_its_place(plain, name, monkeypatch):
    root, store = plain
    path = str(root / name)
    real = os.pread

    def pread(fd, size, offset):
        if str(Path(f"/proc/self/fd/{fd}").readlink()) == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    found = damage(check(root))
    assert path in {each.path for each in found}
    assert any("Input/output error" in each.what for each in found)
    collect(open_folder(str(root)))
    dump = Dump(open_folder(str(root)), Selection())
    rows = list(dump.message_rows())
    in_segment = sum(
        m.physical_offset // SEGMENT * SEGMENT == int(name[-20:]) for m in store.records
    ) if name.startswith("commitlog") else 0  # fmt: skip
    assert len(rows) == len(store.records) - in_segment


def test_what_is_no_store_is_refused_with_what_was_expected_and_found(plain, tmp_path):
    root, _ = plain
    for path, found in (
        (root / "nowhere", "found nothing"),
        (root / "checkpoint", "found a file"),
        (root / "config", "found a folder with consumerOffset.json, topics.json"),
        (root / "commitlog", f"{root} looks like a store"),
    ):
        with pytest.raises(UnusableError) as refused:
            open_folder(str(path))
        assert "expected a storePathRootDir" in str(refused.value)
        assert found in str(refused.value)
    for name in ("dledger-n0", "dledger-n1"):
        (root / name / "data").mkdir(parents=True)
    with pytest.raises(UnusableError, match="expected one dledger-<id> folder"):
        open_folder(str(root))


def test_store_without_segments_is_refused(plain):
    root, _ = plain
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").mkdir()
    with pytest.raises(UnusableError, match="expected segments"):
        open_folder(str(root))


def test_old_plain_log_before_a_dledger_log_is_one_store(tmp_path):
    store = PlainStore(40)
    files = store.files()
    begin = -(-len(store.log) // SEGMENT) * SEGMENT
    message = store.records[-1]
    message.queue_offset += 1
    message.physical_offset = begin + 48
    message.store_timestamp += 10
    record = encode_record(message)
    entry = encode_entry(0, 1, begin, record)
    files[f"dledger-n0/data/{begin:020}"] = entry.ljust(SEGMENT, b"\0")
    files["dledger-n0/currterm"] = b"currTerm=1\nvoteLeader=\n"
    files[f"dledger-n0/index/{0:020}"] = (
        INDEX_UNIT.pack(1, begin, len(entry), 0, 1).ljust(640, b"\0")
    )  # fmt: skip
    write(tmp_path, files)
    report = check(tmp_path)
    assert report.folder.kind == "plain+dledger"
    assert kinds(report) == {("consume queue", "behind the log"), ("key index", "behind the log")}
    assert report.totals["messages"] == 41
