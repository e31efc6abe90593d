"""A store that a broker writes on while it is looked at: nothing of it is damage, nothing left out.

The broker is played by the test: it writes more of the files while somebody is amid them.
"""

from pathlib import Path

import pytest

from store.offline.findings import Findings, Part, Severity
from store.offline.folder import StoreFolder, open_folder
from store.offline.log import LogWalk
from store.offline.messages import Dump, Selection
from store.offline.queue_check import QueueCheck
from store.offline.queues import Queues
from store.offline.records import Record
from store.offline.verify import verify
from tests.unit.store.faults.stores import built
from tests.unit.store.offline.stores import MESSAGES, PlainStore, write


def early_and_late(tmp_path, *, raft):
    """Two states of a store: with the first half of its last segment, and with all of it."""
    if raft:
        files = {path.removeprefix("/store/"): data for path, data in built(raft=True)[0].items()}
    else:
        files = PlainStore().files()
    root = Path(write(tmp_path / "store", files))
    log = open_folder(str(root)).logs[-1]
    last = log.segments.files[-1]
    ends = [
        one.end - last.base
        for one in LogWalk(log).run()
        if isinstance(one, Record) and one.position >= last.base
    ]
    path = Path(last.path)
    whole = path.read_bytes()
    half = ends[len(ends) // 2]
    return root, path, whole[:half].ljust(len(whole), b"\0"), whole


@pytest.mark.parametrize("raft", [False, True])
def test_what_is_written_while_the_log_is_walked_is_no_damage(tmp_path, raft):
    root, path, early, late = early_and_late(tmp_path, raft=raft)
    log = open_folder(str(root)).logs[-1]
    every = [one.position for one in LogWalk(log).run()]
    path.write_bytes(early)
    found = []
    for one in LogWalk(log).run():
        found.append(one)
        if one.path == str(path):
            path.write_bytes(late)
    assert all(isinstance(one, Record) for one in found)
    assert [one.position for one in found] == every


def test_messages_that_come_while_a_store_is_dumped_are_dumped(tmp_path):
    root, path, early, late = early_and_late(tmp_path, raft=False)
    path.write_bytes(early)
    dump = Dump(open_folder(str(root)), Selection())
    rows = []
    for row in dump.message_rows():
        rows.append(row)
        if row["commitLogOffset"] >= int(path.name):
            path.write_bytes(late)
    assert dump.damages == []
    assert len(rows) == MESSAGES


def test_unit_that_comes_before_its_message_was_seen_is_no_damage(tmp_path):
    root = Path(write(tmp_path, PlainStore().files()))
    *seen, last = LogWalk(open_folder(str(root)).logs[0]).run()
    queue = max((root / f"consumequeue/{last.name}/{last.queue_id}").iterdir())
    whole = queue.read_bytes()
    at = last.queue_offset * 20 % len(whole)
    queue.write_bytes(whole[:at].ljust(len(whole), b"\0"))
    findings = Findings()
    check = QueueCheck(
        Queues(str(root / "consumequeue")),
        findings,
        redispatched_from=last.physical,
        is_rewritten=True,
        topics=None,
    )
    for record in seen:
        check.on_record(record)
    queue.write_bytes(whole)
    check.finish(0, last.physical, tail_may_be_lost=True)
    assert {(one.severity, one.kind) for one in findings.listed} == {
        (Severity.HARMLESS, "ahead of the log")
    }


@pytest.mark.parametrize("holder", [None, 4711])
def test_what_lies_behind_the_end_of_a_log_in_use_is_being_written(tmp_path, monkeypatch, holder):
    root, path, early, _ = early_and_late(tmp_path, raft=False)
    path.write_bytes(early.rstrip(b"\0") + b"half a record".ljust(100, b"\0"))
    monkeypatch.setattr(StoreFolder, "locked_by", lambda _self: holder)
    found = verify(open_folder(str(root))).findings.listed
    of_log = {(one.severity, one.kind) for one in found if one.part is Part.LOG}
    expected = (Severity.HARMLESS, "tail") if holder is None else (Severity.NOTE, "growing")
    assert expected in of_log
