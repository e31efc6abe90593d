"""A15, A34, A35: places, matching logs, and what was committed.

What can lie side by side in the logs of three replicas shares a history; where logs are sound or
damaged as a whole, they have one of their own.
"""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.generate import (
    Entry,
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


def same_place_in_another_epoch(run: HistoryBuilder) -> None:
    """A topic was deleted with its log, and created again."""
    before = {node: len(log) for node, log in run.logs.items()}
    for message in run.traffic(6):
        message.send["epoch"] = message.delivery["epoch"] = 1
    for node, log in run.logs.items():
        del log[before[node] :]
    for place in [place for place in run._offsets if place[0] == run.topic]:
        del run._offsets[place]
    for message in run.traffic(6):
        message.send["epoch"] = message.delivery["epoch"] = 2


@pytest.fixture(scope="module")
def clash():
    """The message whose place another was acknowledged for."""
    return {}


@pytest.fixture(scope="module")
def side_by_side(session, tmp_path_factory, clash):
    run = HistoryBuilder(entries_per_segment=3)
    audited = run.chapter(1)
    for message in audited.traffic(5):
        for _ in range(2):
            audited.deliver(message, grp="auditor", auditor=True)
    other = run.chapter(2)
    messages = other.traffic(6)
    other.send(outcome="info", queue_offset=messages[0].queue_offset, queue_id=0)
    other.deliver(messages[1], queue_offset=0, queue_id=0, is_retry=True)
    same_place_in_another_epoch(run.chapter(3))
    clashing = run.chapter(4)
    messages = clashing.traffic(8)
    plant_clash(clashing, messages[3])
    clash["message"] = messages[3]
    diverging = run.chapter(5)
    plant_divergence(diverging, diverging.traffic(8)[3])
    clash["length"] = len(run.logs["n0"])
    plant_mismatch(run, messages[0])
    run.clock = diverging.clock + 1
    run.election("n0", 1)
    return report_of(session, run, tmp_path_factory.mktemp("side_by_side"))


def test_each_is_found_beside_the_others(side_by_side):
    """Not: unknown outcomes, retry copies, other epochs, what an auditor reads twice.

    The message that was replaced was acknowledged, and one producer was told one place twice.
    """
    wanted = {"A11": 1, "A15": 1, "A34": 1, "A35": 2}
    assert alarms(side_by_side) == wanted
    assert side_by_side.counts["redelivered"] == 1  # the retry copy


def test_two_messages_at_one_place(side_by_side, clash):
    words, message = explain(side_by_side, "A15"), clash["message"]
    assert f"orders-4/{message.queue_id}@{message.queue_offset}" in words
    assert words.count("acknowledged as") == 2
    assert "on n2 index" in words


def test_one_index_and_term_with_two_contents(side_by_side, clash):
    words = explain(side_by_side, "A34")
    assert f"index {clash['length']} term 7 has 2 contents" in words
    assert "not committed" in words


def test_committed_entries_that_differ(side_by_side):
    assert side_by_side.counts["divergent"] == 1
    words = explain(side_by_side, "A35")
    assert "n2 term 5" in words
    assert "n0 term 1 message" in words


def test_many_segments_are_read_as_one_log(side_by_side, clash):
    length = clash["length"]
    replicas = {"n0": length, "n1": length + 1, "n2": length + 1}
    assert details(side_by_side, "A34")["replicas"] == replicas


def flipped(directory, node, body, at=30):
    """Flip a bit in a body on one node."""
    segment = directory / "replicas" / node / "data" / f"{0:020d}"
    spoiled = bytearray(segment.read_bytes())
    spoiled[spoiled.index(body) + at] ^= 1
    segment.write_bytes(spoiled)


def test_damage_counts_where_it_was_committed_and_not_made_on_purpose(session, tmp_path):
    """n1 has a torn tail and a damaged entry, n2 damage by a witnessed fault of its disk.

    Behind what is committed, tails of different terms differ; and an acknowledged send says an
    index that holds something else.
    """
    run = HistoryBuilder()
    messages = run.traffic(8)
    for message in messages:
        message.send["raft_index"] = message.index
    messages[4].send["raft_index"] = messages[5].index
    run.fault("disk.bitflip", ["n2"], run.clock, run.clock + 1)
    run.commits = {"n0": 7, "n1": 6, "n2": 7}
    for node, term in (("n1", 7), ("n2", 8)):
        run.logs[node].append(Entry(8, term, 0, 5_000, node.encode() * 20, "%other"))
    directory = run.write(tmp_path / "run")
    flipped(directory, "n1", messages[7].body)
    flipped(directory, "n1", messages[2].body)
    flipped(directory, "n2", messages[3].body)
    report = report_of(session, directory, tmp_path, only=LOGS)
    assert alarms(report) == {"A34": 1, "A35": 2}
    other = check_history(load_history(directory)).results
    assert {check: other[check].count for check in ("A34", "A35")} == {"A34": 1, "A35": 2}
    assert "bad CRC" in explain(report, "A34")
    words = explain(report, "A35")
    assert f"message {messages[4].key}" in words
    assert "where replicas committed message" in words


def test_committed_entries_that_replicas_lack(session, tmp_path):
    """n2 lacks two that others have; four that all call committed are nowhere."""
    run = HistoryBuilder()
    run.traffic(6)
    run.commits = dict.fromkeys(run.nodes, 9)
    del run.logs["n2"][4:]
    report = report_of(session, run, tmp_path, only=LOGS)
    assert alarms(report) == {"A35": 2 + 4}
    assert found(report, "A35")[0] == "invalid"
    words = explain(report, "A35")
    assert "committed but absent on n2" in words
    assert "not in its log" in words
    assert details(report, "A35")["holes"] == {"n0": 4, "n1": 4, "n2": 6}


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
        entry = Entry(4, 2, other.queue_id, other.queue_offset, other.body.ljust(78, b"\0"))
        run.logs[node].append(entry)
    run.commits["n0"] = 3
    other.send["outcome"] = "info"
    report = report_of(session, run, tmp_path, only=["A1", *LOGS])
    assert found(report, "A35") == ("invalid", 1)
    assert f"message {acked.key}" in explain(report, "A35")
    assert found(report, "A34") == ("valid", 0)
