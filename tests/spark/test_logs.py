"""A15, A34, A35: places, matching logs, and what was committed."""

from tests.spark.generate import (
    HistoryBuilder,
    encode_segment,
    plant_clash,
    plant_divergence,
    plant_mismatch,
)
from tests.spark.reports import SPARK_MARKS, alarms, explain, found, report_of

pytestmark = SPARK_MARKS
LOGS = ["A15", "A34", "A35"]


def details(report, check):
    return next(r.details for r in report.results if r.check == check)


def test_two_messages_at_one_place(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(8)
    plant_clash(run, messages[3])
    report = report_of(session, run, tmp_path)
    # The one that was replaced was acknowledged, and one producer was told one place twice.
    assert alarms(report) == {"A11": 1, "A15": 1, "A35": 1}
    words = explain(report, "A15")
    assert f"orders/{messages[3].queue_id}@{messages[3].queue_offset}" in words
    assert words.count("acknowledged as") == 2
    assert "on n2 index" in words


def test_what_is_no_clash(session, tmp_path):
    """Offsets of unknown outcomes; the same place in another epoch; retry copies."""
    run = HistoryBuilder()
    messages = run.traffic(6)
    run.send(outcome="info", queue_offset=messages[0].queue_offset, queue_id=0)
    run.deliver(messages[1], queue_offset=0, queue_id=0, is_retry=True)
    assert alarms(report_of(session, run, tmp_path, only=LOGS)) == {}
    other = HistoryBuilder()
    for row in (m.send for m in other.traffic(6)):
        row["epoch"] = 1
    for row in other.tables["deliveries"]:
        row["epoch"] = 1
    for log in other.logs.values():
        log.clear()
    other._offsets.clear()
    for message in other.traffic(6):
        message.send["epoch"] = message.delivery["epoch"] = 2
    assert alarms(report_of(session, other, tmp_path / "b", only=LOGS)) == {}


def test_one_index_and_term_with_two_contents(session, tmp_path):
    run = HistoryBuilder()
    plant_mismatch(run, run.traffic(5)[0])
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {"A34": 1}
    assert "index 5 term 7 has 2 contents" in explain(report, "A34")
    assert "not committed" in explain(report, "A34")


def test_uncommitted_tails_of_different_terms_may_differ(session, tmp_path):
    run = HistoryBuilder()
    plant_mismatch(run, run.traffic(5)[0])
    run.logs["n2"][-1].term = 8
    assert alarms(report_of(session, run, tmp_path, only=LOGS)) == {}


def test_a_torn_uncommitted_tail_is_no_fault_and_a_damaged_committed_entry_is(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(5)
    run.commits["n1"] = 3
    directory = run.write(tmp_path / "run")
    segment = directory / "replicas" / "n1" / "data" / f"{0:020d}"
    spoiled = bytearray(segment.read_bytes())
    spoiled[spoiled.index(messages[4].body) + 30] ^= 1
    segment.write_bytes(spoiled)
    assert alarms(report_of(session, directory, tmp_path, only=LOGS)) == {}
    spoiled[spoiled.index(messages[2].body) + 30] ^= 1
    segment.write_bytes(spoiled)
    report = report_of(session, directory, tmp_path, only=LOGS)
    assert alarms(report) == {"A34": 1, "A35": 1}
    assert "bad CRC" in explain(report, "A34")


def test_damage_by_a_witnessed_disk_fault_is_excused(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(5)
    run.fault("disk.bitflip", ["n1"], run.clock, run.clock + 1)
    directory = run.write(tmp_path / "run")
    segment = directory / "replicas" / "n1" / "data" / f"{0:020d}"
    spoiled = bytearray(segment.read_bytes())
    spoiled[spoiled.index(messages[2].body) + 30] ^= 1
    segment.write_bytes(spoiled)
    assert alarms(report_of(session, directory, tmp_path, only=LOGS)) == {}


def test_committed_entries_that_differ(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(8)
    plant_divergence(run, messages[3])
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {"A35": 1}
    assert report.counts["divergent"] == 1
    words = explain(report, "A35")
    assert "n2 term 5" in words
    assert "n0 term 1 message" in words


def test_a_committed_entry_that_one_replica_lacks(session, tmp_path):
    run = HistoryBuilder()
    run.traffic(6)
    run.commits["n2"] = 5
    del run.logs["n2"][4:]
    report = report_of(session, run, tmp_path, only=LOGS)
    assert alarms(report) == {"A35": 2}
    assert "committed but absent on n2" in explain(report, "A35")
    assert details(report, "A35")["holes"] == {"n2": 2}


def test_a_committed_range_that_all_replicas_lack(session, tmp_path):
    run = HistoryBuilder()
    run.traffic(6)
    run.commits = dict.fromkeys(run.nodes, 9)
    report = report_of(session, run, tmp_path, only=LOGS)
    assert found(report, "A35") == ("invalid", 4)
    assert "not in its log" in explain(report, "A35")


def test_lagging_and_compacted_replicas_are_sound(session, tmp_path):
    run = HistoryBuilder()
    run.traffic(8)
    del run.logs["n2"][5:]
    run.commits["n2"] = 4
    run.logs["n1"] = run.logs["n1"][3:]
    run.first_index["n1"] = 3
    directory = run.write(tmp_path / "run")
    # A compacted log starts where the removed entries ended.
    skipped = len(encode_segment(run.logs["n0"][:3], 0, blank=0))
    data = directory / "replicas" / "n1" / "data"
    (data / f"{0:020d}").unlink()
    (data / f"{skipped:020d}").write_bytes(encode_segment(run.logs["n1"], skipped))
    assert alarms(report_of(session, directory, tmp_path, only=LOGS)) == {}


def test_an_acknowledged_send_whose_index_holds_something_else(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(6)
    for message in messages:
        message.send["raft_index"] = message.index
    messages[2].send["raft_index"] = messages[3].index
    report = report_of(session, run, tmp_path, only=LOGS)
    assert alarms(report) == {"A35": 1}
    assert "where replicas committed message" in explain(report, "A35")


def test_an_acknowledged_entry_of_a_minority_that_others_overwrote(session, tmp_path):
    """The old leader still has it uncommitted; the others committed another entry there."""
    run = HistoryBuilder()
    run.traffic(4)
    acked = run.send()
    for node in ("n1", "n2"):
        run.logs[node].pop()
    run._offsets["orders", acked.queue_id] -= 1
    other = run.send(queue_id=acked.queue_id, stored=False, term=2)
    for node in ("n1", "n2"):
        entry = run.logs["n0"][-1].__class__(
            4, 2, other.queue_id, other.queue_offset, other.body.ljust(78, b"\0")
        )
        run.logs[node].append(entry)
    run.commits["n0"] = 3
    other.send["outcome"] = "info"
    report = report_of(session, run, tmp_path, only=["A1", *LOGS])
    assert found(report, "A35") == ("invalid", 1)
    assert f"message {acked.key}" in explain(report, "A35")
    assert found(report, "A34") == ("valid", 0)


def test_many_segments_are_read_as_one_log(session, tmp_path):
    run = HistoryBuilder(entries_per_segment=3)
    run.traffic(20)
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {}
    assert details(report, "A34")["replicas"] == {"n0": 20, "n1": 20, "n2": 20}
