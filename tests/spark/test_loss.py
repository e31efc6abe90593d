"""A1: what is lost, where, and what only looks lost."""

from chaos.checker.compose import CHECKS
from chaos.load import load_history
from tests.spark.generate import GROUP, MS, HistoryBuilder, plant_lost
from tests.spark.reports import SPARK_MARKS, alarms, explain, found, report_of

pytestmark = SPARK_MARKS


def result_of(report, check):
    return next(r for r in report.results if r.check == check)


def test_a_clean_run_is_valid_and_counted(session, tmp_path):
    run = HistoryBuilder()
    run.traffic(10)
    run.send(outcome="info")
    run.deliver(run.send(outcome="info", stored=True))
    run.send(outcome="fail")
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {}
    assert (report.verdict.verdict, report.verdict.exit_code) == ("valid", 0)
    counts = report.counts
    assert (counts["sent"], counts["acknowledged"]) == (13, 10)
    assert (counts["unknown"], counts["failed"]) == (2, 1)
    assert (counts["delivered"], counts["redelivered"], counts["lost"]) == (11, 0, 0)
    assert counts["log_entries"] == 33


def test_a_hole_on_a_majority_is_delivery_side(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(8)
    run.fault("kill", ["n1"], messages[2].t, messages[2].t + MS)
    plant_lost(run, messages[2])
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {"A1": 1}
    assert report.verdict.exit_code == 1
    result = result_of(report, "A1")
    assert result.details["delivery-side/hole"] == 1
    evidence = result.evidence[0]
    assert str(messages[2].key) in evidence["explain"]
    assert evidence["around"]["below"]["queue_offset"] == messages[2].queue_offset - 1
    assert evidence["around"]["above"]["queue_offset"] == messages[2].queue_offset + 1
    assert set(evidence["presence"]) == {"n0", "n1", "n2"}
    assert "index 2 term 1 committed" in evidence["presence"]["n1"]
    assert evidence["faults"] == ["f0 kill n1"]


def test_the_last_message_of_a_queue_is_a_suffix(session, tmp_path):
    run = HistoryBuilder()
    plant_lost(run, run.traffic(6)[-1])
    report = report_of(session, run, tmp_path, only=["A1"])
    assert result_of(report, "A1").details["delivery-side/suffix"] == 1


def test_where_it_was_lost(session, tmp_path):
    """One is on no disk, one on a minority, one could not be read by the auditor either."""
    run = HistoryBuilder()
    messages = run.traffic(8)
    for message in messages:
        if message is not messages[7]:
            run.deliver(message, grp="auditor", auditor=True)
    for message in messages[5:]:
        plant_lost(run, message)
    tail = run.logs["n0"]
    run.logs = {"n0": tail[:7], "n1": [*tail[:5], tail[7]], "n2": [*tail[:5], tail[7]]}
    for log in run.logs.values():
        for number, entry in enumerate(log):
            entry.index = number if entry is not tail[7] else 5
    run.commits = dict.fromkeys(run.nodes, 4)
    report = report_of(session, run, tmp_path, only=["A1"])
    result = result_of(report, "A1")
    assert result.count == 3
    assert {item["where"] for item in result.evidence} == {"stranded", "index-side"}
    assert result.details["stranded/suffix"] == 2
    run.logs["n0"] = tail[:5]
    vanished = report_of(session, run, tmp_path / "b", only=["A1"])
    assert result_of(vanished, "A1").details["vanished/suffix"] == 2


def test_an_undrained_queue_makes_it_unknown(session, tmp_path):
    run = HistoryBuilder(drained=False)
    plant_lost(run, run.traffic(6)[3])
    report = report_of(session, run, tmp_path)
    assert found(report, "A1") == ("unknown", 0)
    assert report.verdict.exit_code == 2


def test_each_group_owes_each_message_of_its_topics(session, tmp_path):
    run = HistoryBuilder()
    messages = run.traffic(6)
    for message in messages:
        run.deliver(message, grp="shipping")
    other = [run.send(topic="clicks") for _ in range(4)]
    for message in other:
        run.deliver(message, grp="shipping")
    plant_lost(run, messages[1])
    for grp in (GROUP, "shipping"):
        for topic in ("orders", "clicks") if grp == "shipping" else ("orders",):
            for queue_id in range(2):
                run.add("drain", grp=grp, topic=topic, queue_id=queue_id, min_off=0, end_off=9,
                        read_to=9, empty_polls=2, drained=True)  # fmt: skip
    report = report_of(session, run, tmp_path)
    assert alarms(report) == {"A1": 1}
    assert "never delivered to billing" in explain(report, "A1")
    assert report.counts["delivered"] == 15


def test_what_is_no_loss(session, tmp_path):
    """Removed by retention; an old epoch of a recreated topic; in the dead letter queue."""
    run = HistoryBuilder()
    messages = run.traffic(12, epoch=1)
    plant_lost(run, messages[0])
    plant_lost(run, messages[1])
    for queue_id in range(2):
        run.add("drain", grp=GROUP, topic="orders", queue_id=queue_id, min_off=1, end_off=6,
                read_to=6, empty_polls=2, drained=True)  # fmt: skip
    # A group that began at the fourth place of each queue, and got everything from there on.
    for queue_id in range(2):
        run.add("drain", grp="late", topic="orders", queue_id=queue_id, min_off=4, end_off=6,
                read_to=6, empty_polls=2, drained=True)  # fmt: skip
    for message in messages[8:]:
        run.deliver(message, grp="late")
    messages[4].delivery.update(is_dlq=True, topic="%DLQ%billing")
    report = report_of(session, run, tmp_path, only=["A1", "A5"])
    assert alarms(report) == {}
    told = result_of(report, "A1").details
    ours = CHECKS["A1"](load_history(tmp_path / "run")).details
    for details in (told, ours):
        assert (details["removed_by_retention"], details["not_owed_by_a_late_group"]) == (4, 6)
    messages[6].send["epoch"] = 0
    plant_lost(run, messages[6])
    again = report_of(session, run, tmp_path / "b", only=["A1"])
    assert alarms(again) == {}


def test_loss_that_the_faults_allow_is_valid_with_code_3(session, tmp_path):
    run = HistoryBuilder()
    plant_lost(run, run.traffic(6)[2])
    run.fault("proc.powerloss", ["n0", "n1"], 0, run.clock)
    report = report_of(session, run, tmp_path)
    assert found(report, "A1") == ("invalid", 1)
    assert (report.verdict.verdict, report.verdict.exit_code) == ("valid", 3)


def test_a_hundred_groups_need_two_masks(session, tmp_path):
    run = HistoryBuilder()
    messages = [run.send() for _ in range(3)]
    for group in range(70):
        for message in messages:
            if (group, message) != (69, messages[1]):
                run.deliver(message, grp=f"g{group:02}")
    report = report_of(session, run, tmp_path, only=["A1"])
    assert alarms(report) == {"A1": 1}
    assert "never delivered to g69" in explain(report, "A1")
    assert report.counts["delivered"] == 209
