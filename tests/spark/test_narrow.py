"""Small histories at the edges of single rules, of which both checkers have to say the same.

Each is asked of the few checks that it is about.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.checker import check_history
from chaos.foreign import TableReader
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from spark.history import open_history, read_table
from tests.spark.generate import MS, TOPIC, Entry, HistoryBuilder
from tests.spark.reports import SPARK_MARKS, found, report_of

pytestmark = SPARK_MARKS


@pytest.fixture
def asked(session, tmp_path):
    """Return what both checkers say of some checks, which has to be the same."""

    def ask(run, *checks):
        report = report_of(session, run, tmp_path, (*checks, "A48"))
        assert not report.problems, report.problems
        local = check_history(load_history(tmp_path / "run")).results
        told = {check: found(report, check) for check in checks}
        assert told == {check: (local[check].verdict, local[check].count) for check in checks}
        return told

    return ask


def test_a_log_with_something_else_at_its_index_holds_no_message(asked, session, tmp_path):
    """One node committed and acknowledged it alone; the others have not committed theirs."""
    run = HistoryBuilder()
    run.traffic(4)
    (alone,) = run.traffic(1)
    other = run.send(outcome="info", stored=False)
    for node in ("n1", "n2"):
        run.logs[node][-1] = Entry(alone.index, 2, 0, 7, other.body)
        run.commits[node] = alone.index - 1
    assert asked(run, "A34", "A35") == {"A34": ("valid", 0), "A35": ("invalid", 1)}
    with planted(HARNESS_BUGS["held-by-whoever-has-anything"]):
        report = report_of(session, tmp_path / "run", tmp_path, ("A35",))
    assert found(report, "A35") == ("valid", 0)


def test_an_index_counts_once_whatever_is_wrong_with_it(asked):
    """Two nodes committed different entries, and the third one, which has none, another."""
    run = HistoryBuilder()
    run.traffic(4)
    last = run.send(outcome="info", stored=True)
    run.logs["n1"][-1] = Entry(last.index, 1, 0, 9, b"something else")
    run.logs["n2"].pop()
    run.commits["n2"] = last.index
    assert asked(run, "A35") == {"A35": ("invalid", 1)}


def test_a_commit_of_unknown_outcome_may_have_been_taken(asked):
    run = HistoryBuilder()
    run.traffic(4)
    run.commit(0, 10)
    for kind, outcome in (("commit", None), ("fetch", "ok")):
        run.clock += MS
        run.commit(0, 5)
        run.tables["acks"][-1] |= {"kind": kind, "outcome": outcome}
    assert asked(run, "A18") == {"A18": ("valid", 0)}


def test_queues_of_which_nobody_says_that_they_were_drained_were_not(asked):
    run = HistoryBuilder()
    run.traffic(4)
    run.send(queue_id=None).send.update(queue_id=None, queue_offset=None)
    for queue_id, drained in ((0, True), (1, None)):
        run.add("drain", grp=run.grp, topic=TOPIC, queue_id=queue_id, min_off=0, end_off=9,
                read_to=9, empty_polls=2, drained=drained)  # fmt: skip
    assert asked(run, "A1") == {"A1": ("unknown", 0)}


def test_a_message_that_was_spoiled_twice_counts_once(asked):
    run = HistoryBuilder()
    message, *_ = run.traffic(4)
    run.deliver(message, grp="second", body_hash=1)
    run.deliver(message, grp="third", msg_key=None, payload_run_id=None, body_hash=2)
    assert asked(run, "A5", "A6") == {"A5": ("valid", 0), "A6": ("invalid", 1)}


def test_a_refused_message_lies_in_a_log_under_any_topic(asked):
    """A delayed message is stored elsewhere until it is due."""
    run = HistoryBuilder()
    run.traffic(4)
    late = run.send(outcome="fail", kind="delay", delay_ms=3_600_000)
    for log in run.logs.values():
        log.append(Entry(late.index, 1, 3, 0, late.body, "SCHEDULE_TOPIC_XXXX"))
    assert asked(run, "A3", "A7") == {"A3": ("valid", 0), "A7": ("invalid", 1)}


def committed(run):
    """A transaction that its producer committed."""
    message = run.send(kind="txn")
    times = {"t_inv": message.t + 2 * MS, "t_cmp": message.t + 3 * MS, "outcome": "ok"}
    run.add("txn", txn_id=1, msg_key=message.key, step="commit", **times)
    return message


def test_a_dead_letter_of_a_committed_message_was_delivered(asked):
    run = HistoryBuilder()
    run.traffic(4)
    run.deliver(committed(run), is_dlq=True, queue_id=0, queue_offset=0)
    assert asked(run, "A55") == {"A55": ("valid", 0)}


def test_who_reads_alone_is_owed_what_was_committed(asked):
    run = HistoryBuilder(grp="auditor")
    for message in [run.send() for _ in range(4)]:
        run.deliver(message, auditor=True)
    committed(run)
    for queue_id in (0, 1):
        run.add("drain", grp="auditor", topic=TOPIC, queue_id=queue_id, min_off=0, end_off=9,
                read_to=9, empty_polls=2, drained=True)  # fmt: skip
    assert asked(run, "A1", "A55") == {"A1": ("valid", 0), "A55": ("invalid", 1)}


def test_what_came_from_topics_that_nobody_sent_to_is_not_judged(asked):
    """Somebody who does not say what a retry is recorded one between two deliveries."""
    run = HistoryBuilder()
    first, *_ = run.traffic(4, attempts=2)
    for topic, queue_id in ((TOPIC, first.queue_id), ("%RETRY%billing", 9), (TOPIC, 7)):
        run.clock += 60_000 * MS
        run.deliver(first, topic=topic, queue_id=queue_id, is_retry=None, reconsume=None)
    run.add("events", idx=0, type="info", f="start", role="consumer", node="c0", value="{}",
            t_mono_ns=900 * MS)  # fmt: skip
    assert asked(run, "A8", "A9") == {"A8": ("valid", 0), "A9": ("invalid", 1)}


def test_a_leader_of_one_group_follows_in_another(asked):
    run = HistoryBuilder()
    run.traffic(4)
    run.election("n0", 1)
    for kind, group, index, before in (
        ("append", 0, 900, 899), ("commit", 0, 900, 899), ("commit", 1, 20, 19),
    ):  # fmt: skip
        run.event("n1", kind, 3, group=group, index=index, prev_index=before)
    first = next(n for n, row in enumerate(run.tables["raft_event"]) if row["node"] == "n1")
    run.tables["raft_event"][first] |= {"kind": "become_leader", "term": 3, "peer": "n1"}
    assert asked(run, "A37") == {"A37": ("valid", 0)}


def test_a_message_that_was_sent_again_came_in_its_order(asked):
    """Each attempt has a row; a message comes before those that were sent between its two."""
    run = HistoryBuilder(queues=1)
    run.run["modes"] = {run.grp: "orderly"}
    messages = [run.send(kind="orderly", shard_key="s") for _ in range(3)]
    again = {"op_id": run.op(), "t_inv": run.clock + 2 * MS, "t_cmp": run.clock + 3 * MS}
    run.tables["sends"].append(messages[0].send | again)
    run.clock += 5 * MS
    for message in messages:
        row = run.deliver(message)
        row |= {"t_proc_begin": row["t_recv"], "t_proc_end": row["t_recv"]}
    assert asked(run, "A17") == {"A17": ("valid", 0)}


def test_each_group_has_an_epoch_of_that_number(asked):
    run = HistoryBuilder()
    for group, message in enumerate(run.traffic(2)):
        message.send.update(raft_group=group, node=f"n{group}")
        run.add("masters", controller="c", t0=run.clock, t1=run.clock, grp=f"g{group}", epoch=1,
                node=f"n{group}")  # fmt: skip
    assert asked(run, "A63") == {"A63": ("valid", 0)}


def test_a_node_has_a_log_in_each_of_its_groups(asked):
    run = HistoryBuilder(with_replicas=False)
    messages = run.traffic(4)
    for group in (1, 0):
        for node in run.nodes if group else run.nodes[:2]:
            for message in messages if not group else ():
                _row(run, node, group, message.index, message)
            _row(run, node, group, 0 if group else 4, None)
    run.run |= {"nodes": [], "quorum": {"0": 2, "1": 2}}
    assert asked(run, "A34", "A35") == {"A34": ("valid", 0), "A35": ("valid", 0)}


def test_the_first_group_of_logs_is_told_its_quorum(asked):
    """On one of its two logs: as many as were promised there, and too few elsewhere."""
    run = HistoryBuilder(with_replicas=False)
    messages = run.traffic(2)
    for node, group, message in (
        ("n0", 0, messages[0]), ("n0", 0, messages[1]), ("n1", 0, messages[0]),
        ("n0", 1, None), ("n1", 1, None),
    ):  # fmt: skip
        _row(run, node, group, message.index if message else 0, message)
    run.run |= {"nodes": [], "quorum": {"0": 1, "1": 2}}
    assert asked(run, "A35") == {"A35": ("valid", 0)}
    run.run["quorum"]["0"] = 2
    assert asked(run, "A35") == {"A35": ("invalid", 1)}


def test_entries_of_another_type_may_have_no_checksum(asked):
    run = HistoryBuilder(with_replicas=False)
    messages = run.traffic(2)
    for node in run.nodes:
        for message in (*messages, None):
            _row(run, node, 0, message.index if message else 2, message)
    for row in run.tables["replica_log"]:
        row["entry_crc"] = None if row["type"] == "noop" else row["entry_crc"]
    assert asked(run, "A34", "A35") == {"A34": ("valid", 0), "A35": ("valid", 0)}


def _row(run, node, group, index, message):
    known = {"type": "noop"}
    if message is not None:
        known = {"type": "message", "topic": TOPIC, "queue_id": message.queue_id,
                 "queue_offset": message.queue_offset, "msg_key": message.key,
                 "body_hash": message.send["body_hash"]}  # fmt: skip
    known |= {"crc_ok": True, "committed": True, "entry_crc": 100 * group + index, "size": 100}
    run.add("replica_log", node=node, group=group, index=index, term=1, pos=100 * index, **known)


def as_read(session, path, table, **columns):
    """Return what both checkers read of a table of one row."""
    folder = path / "tables" / table
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "0.parquet")
    history = open_history(path)
    rows = read_table(session, history, table).collect()
    return [row.asDict(recursive=True) for row in rows], TableReader(path, []).read(table)


@pytest.mark.parametrize(
    ("witness", "is_effective"),
    [
        ({"effective": True}, True),
        ({"effective": False, "probe": "p", "before": 0.0, "during": 0.0, "after": 1.0}, False),
        ({"probe": "p"}, None),
    ],
)
def test_what_a_witness_saw_is_found_by_its_name(session, tmp_path, witness, is_effective):
    columns = {"run_id": ["r"], "fault_id": ["f"], "kind": ["kill"], "witness": [witness]}
    ours, theirs = as_read(session, tmp_path, "faults", **columns)
    assert ours[0]["witness"]["effective"] == theirs[0]["witness"].get("effective") == is_effective
    if len(witness) > 1:
        with planted(HARNESS_BUGS["witness-read-by-place"]):
            (row,) = read_table(session, open_history(tmp_path), "faults").collect()
        assert row.witness.effective, "that is what was measured after the fault"


def test_columns_without_any_value_say_nothing(session, tmp_path):
    """Whoever has no value at all for one may write it without a type."""
    columns = {"run_id": ["r"], "fault_id": ["f"], "kind": ["kill"]}
    ours, theirs = as_read(
        session, tmp_path, "faults", witness=pa.nulls(1), targets=pa.nulls(1), **columns
    )
    assert ours == theirs
    assert ours[0]["witness"] is ours[0]["targets"] is None
