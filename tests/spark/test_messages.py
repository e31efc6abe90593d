"""A5 to A9: what must not be delivered, and what may be but is counted."""

from chaos.history import payload
from tests.spark.generate import (
    GROUP,
    MS,
    HistoryBuilder,
    Message,
    plant_aborted,
    plant_copy,
    plant_corrupt,
    plant_phantom,
)
from tests.spark.reports import SPARK_MARKS, alarms, explain, found, report_of

pytestmark = SPARK_MARKS


def details(report, check):
    return next(r.details for r in report.results if r.check == check)


def test_phantom_corrupt_and_aborted_are_told_apart(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(10)
    plant_phantom(run, messages[0])
    plant_corrupt(run, messages[1])
    plant_aborted(run, messages[2])
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {"A5": 1, "A6": 1, "A7": 1, "A15": 1}
    assert "no send of it is in the history" in explain(report, "A5")
    assert str(messages[1].key) in explain(report, "A6")
    assert "was refused with code 14" in explain(report, "A7")
    assert details(report, "A7")["by_code"] == {"14": 1}


def test_bodies_without_a_key(session, tmp_path):
    """At an acknowledged place it is a corrupt body, elsewhere a phantom."""
    run = HistoryBuilder()
    messages = run.traffic(6)
    messages[2].delivery.update(msg_key=None, payload_run_id=None, body_hash=7, is_retry=True)
    nobody = Message(0, 0, 999, b"?" * 30, -1, 0, messages[0].send)
    run.deliver(nobody, msg_key=None, payload_run_id=None)
    report = report_of(session, run, tmp_path, only=["A5", "A6"])
    assert alarms(report) == {"A5": 1, "A6": 1}
    assert "orders/0@999" in explain(report, "A5")


def test_what_is_no_phantom_and_no_corruption(session, tmp_path):
    """Another run's message, a control topic, unknown hashes."""
    run = HistoryBuilder()
    messages = run.traffic(6)
    plant_phantom(run, messages[0])
    run.tables["deliveries"][-1]["payload_run_id"] = "f" * 32
    plant_phantom(run, messages[0])
    run.tables["deliveries"][-1]["topic"] = "warm-up"
    messages[3].delivery["body_hash"] = None
    messages[4].send["body_hash"] = None
    report = report_of(session, run, tmp_path, only=["A5", "A6"])
    assert alarms(report) == {}
    assert details(report, "A5")["foreign_deliveries"] == 1


def test_what_is_no_aborted_read(session, tmp_path):
    """An unknown outcome; a refusal under a code that proves nothing."""
    run = HistoryBuilder()
    run.traffic(3)
    run.deliver(run.send(outcome="info", stored=True))
    run.deliver(run.send(outcome="fail", err_code=2, stored=True))
    report = report_of(session, run, tmp_path, only=["A7"])
    assert alarms(report) == {}
    assert report.counts["unknown"] == 2


def test_a_phantom_in_a_history_with_gaps_proves_nothing(session, tmp_path):
    run = HistoryBuilder()
    plant_phantom(run, run.traffic(6)[0])
    run.tables["events"] = [
        {"run_id": "a-run", "idx": i, "type": "ok", "f": "send", "t_mono_ns": i}
        for i in range(9)
        if i != 4
    ]
    report = report_of(session, run, tmp_path, only=["A5", "A45"])
    assert found(report, "A5") == ("unknown", 1)
    assert found(report, "A45")[0] == "unknown"
    assert report.verdict.exit_code == 2


def test_copies_beyond_the_attempts_are_counted(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(6)
    plant_copy(run, messages[0])
    plant_copy(run, messages[1])
    messages[1].send["attempts"] = 2
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {"A8": 1}
    assert report.verdict.exit_code == 3
    assert "lies at 2 places" in explain(report, "A8")
    assert details(report, "A8")["resent_copies_within_attempts"] == 1


def test_a_retry_copy_is_no_duplicate_and_idempotence_makes_one_critical(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(6)
    run.deliver(messages[0], topic="%RETRY%billing", queue_offset=3, is_retry=True, reconsume=1)
    run.run["contract"]["duplicates"] = "exactly-once"
    clean = report_of(session, run, tmp_path, only=["A8"])
    assert alarms(clean) == {}
    plant_copy(run, messages[1])
    report = report_of(session, run, tmp_path / "b", only=["A8"])
    assert (found(report, "A8"), report.verdict.exit_code) == (("invalid", 1), 1)


def again(run, message, gap=50 * MS, **row):
    run.clock = max(run.clock, message.delivery["t_recv"]) + gap
    return run.deliver(message, **row)


def test_each_redelivery_gets_its_cause(session, tmp_path):
    run = HistoryBuilder(queues=1)
    messages = run.traffic(9)
    # Everything so far is committed, so that "not committed yet" explains nothing.
    run.commit(0, 9, t=run.clock + 10 * MS)
    run.clock += 20 * MS
    again(run, messages[0], reconsume=1, is_retry=True)
    run.add("acks", op_id=run.op(), grp=GROUP, kind="nack", msg_key=messages[1].key,
            t_inv=run.clock + 10 * MS, t_cmp=run.clock + 11 * MS, outcome="ok")  # fmt: skip
    again(run, messages[1])
    again(run, messages[2])  # unexplained
    again(run, messages[3], generation=2)
    again(run, messages[4], consumer="c1")
    again(run, messages[5])  # unexplained
    late = run.send(queue_id=0)
    run.deliver(late)
    again(run, late)  # unexplained: that nobody had committed it yet is no reason
    plant_copy(run, messages[7])
    messages[7].send["attempts"] = 2
    copy = run.logs["n0"][-1]
    again(run, messages[7], queue_offset=copy.queue_offset)
    report = report_of(session, run, tmp_path)
    causes = details(report, "A9")["by_cause"]
    assert causes == {
        "copy in the log": 1,
        "nack": 2,
        "rebalance": 2,
        "unexplained": 3,
    }
    assert report.counts["redelivered"] == 8
    # Nobody wrote down who came and went, so that nothing is proved.
    assert report.verdict.exit_code == 2


def test_a_crash_and_a_leader_change_explain_redeliveries(session, tmp_path):
    run = HistoryBuilder(queues=1)
    messages = run.traffic(4)
    run.commit(0, 4, t=run.clock + 10 * MS)
    run.probe("n0", "leader", 1, run.clock)
    run.clock += 20 * MS
    crash = run.clock + 20 * MS
    run.fault("kill", ["consumer:c0"], crash, crash + MS)
    again(run, messages[0])
    run.clock += 1000 * MS
    first = run.deliver(messages[1], consumer="c9")
    run.clock += 10 * MS
    run.commit(0, 4)
    run.probe("n1", "leader", 2, first["t_recv"] + 20 * MS)
    run.clock = first["t_recv"] + 40 * MS
    run.deliver(messages[1], consumer="c9")
    report = report_of(session, run, tmp_path, only=["A9"])
    causes = details(report, "A9")["by_cause"]
    assert causes == {"consumer crash": 2, "leader change": 1}


def test_unexplained_redeliveries_are_a_failure_unless_the_contract_allows_some(session, tmp_path):
    run = HistoryBuilder(queues=1)
    messages = run.traffic(20)
    run.commit(0, 20, t=run.clock + 10 * MS)
    run.clock += 20 * MS
    again(run, messages[0])
    run.add("events", idx=0, type="info", f="start", role="consumer", t_mono_ns=0)
    strict = report_of(session, run, tmp_path, only=["A9"])
    assert found(strict, "A9") == ("invalid", 1)
    assert "no cause lies between" in explain(strict, "A9")
    assert strict.verdict.exit_code == 1
    run.run["contract"]["redelivery_ratio_max"] = 0.1
    loose = report_of(session, run, tmp_path / "b", only=["A9"])
    assert (found(loose, "A9"), loose.verdict.exit_code) == (("valid", 1), 0)


def test_the_auditor_redelivers_nothing(session, tmp_path):
    run = HistoryBuilder()
    for message in run.traffic(5):
        run.deliver(message, grp="auditor", auditor=True)
        run.deliver(message, grp="auditor", auditor=True)
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {}
    assert report.counts["redelivered"] == 0


def test_the_padding_is_not_the_identity():
    key = payload.make_key(1, 1)
    assert payload.encode_body(bytes(16), key, 30) != payload.encode_body(bytes(16), key + 1, 30)
