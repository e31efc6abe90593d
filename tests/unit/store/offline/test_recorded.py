"""What real RocketMQ 4.9.7 wrote, checked and printed."""

import pytest

from store.offline.findings import Health
from store.offline.folder import open_folder
from store.offline.messages import Dump, Selection
from store.offline.statistics import collect
from tests import fixtures
from tests.unit.store.offline.stores import check, kinds, state

STORES = (
    ("master-4.9.7-clean", "store", "master-4.9.7"),
    ("master-4.9.7-killed", "store", "master-4.9.7"),
    ("dledger-4.9.7", "store-n0", "dledger-4.9.7"),
    ("dledger-4.9.7", "store-n1", "dledger-4.9.7"),
    ("dledger-4.9.7", "store-n2", "dledger-4.9.7"),
)
NOT_RECORDED = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The recorder's client did not read this one."""


def frozen(row):
    """A row as something that can be counted: sets of fields, whatever their order."""
    if isinstance(row, dict):
        return frozenset((name, frozen(value)) for name, value in row.items())
    return row


@pytest.mark.parametrize(("name", "folder", "messages"), STORES)
def test_dump_is_what_the_java_client_read_line_by_line(recorded, name, folder, messages):
    dump = Dump(open_folder(str(recorded(name, folder))), Selection())
    rows = [*dump.queue_rows(), *dump.message_rows()]
    ours = {frozen(r) for r in rows if r.get("queue", r)["topic"] != NOT_RECORDED}
    theirs = {frozen(row) for row in fixtures.stored_messages(messages)}
    empty = {row for row in ours - theirs if frozen({"min": 0, "max": 0}) <= dict(row)["queue"]}
    assert ours - empty == theirs  # the recorder did not ask for each queue without messages
    assert sum(1 for row in rows if row.get("topic") == NOT_RECORDED) in {3, 6}
    assert not dump.damages
    assert dump.tail is None


@pytest.mark.parametrize(("name", "folder", "messages"), STORES)
def test_verify_finds_nothing_but_that_a_broker_was_killed(recorded, name, folder, messages):
    report = check(recorded(name, folder))
    if name.endswith("-clean"):
        assert report.findings.health is Health.HEALTHY
        assert report.findings.listed == []
    else:
        assert report.findings.health is Health.HARMLESS
        assert kinds(report) == {("directory", "not stopped cleanly")}
    assert report.totals["queueUnits"] == report.totals["messages"] == report.totals["records"]
    assert report.totals["indexEntries"] > 1900


def test_looking_changes_nothing(recorded):
    root = recorded("dledger-4.9.7", "store-n0")
    before = state(root)
    check(root)
    collect(open_folder(str(root)))
    list(Dump(open_folder(str(root)), Selection()).message_rows())
    assert state(root) == before


def test_a_member_folder_stands_for_the_store_around_it(recorded):
    root = recorded("dledger-4.9.7", "store-n1")
    assert check(root / "dledger-n1").as_row() == check(root).as_row()


def test_statistics_count_what_the_client_read(recorded):
    found = collect(open_folder(str(recorded("master-4.9.7-killed", "store"))))
    queues = {(c.topic, c.queue_id): c for c in found.queues.values()}
    for line in fixtures.stored_messages("master-4.9.7"):
        if "queue" in line and line["queue"]["max"]:
            row = line["queue"]
            count = queues[row["topic"], row["queueId"]]
            assert (count.low, count.high, count.units) == (row["min"], row["max"], row["max"])
            assert count.messages == row["max"] - row["min"]
    (log,) = found.logs
    assert (log["segments"], log["segmentBytes"], log["end"]) == (5, 262_144, 1_019_643)
    assert [row["entries"] for row in found.index] == [399, 399, 399, 399, 309]
    assert found.damaged == 0
