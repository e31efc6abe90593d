"""The job as a whole: floors, broken and foreign histories, exit codes, files it writes."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark import check_history
from spark.checks.phantom import check_phantom
from spark.history import open_history
from tests.spark.generate import HistoryBuilder, plant_lost, write_table
from tests.spark.reports import SPARK_MARKS, alarms, found, report_of

pytestmark = SPARK_MARKS


def clean(count=6):
    run = HistoryBuilder()
    run.traffic(count)
    return run


@pytest.mark.parametrize("table", ["sends", "deliveries"])
@pytest.mark.parametrize("missing", [True, False])
def test_an_empty_or_missing_table_is_unknown(session, tmp_path, table, missing):
    directory = clean().write(tmp_path / "run")
    shutil.rmtree(directory / "tables" / table)
    if not missing:
        write_table(directory, table, [])
    report = report_of(session, directory, tmp_path, only=["A45"])
    assert found(report, "A45")[0] == "unknown"
    assert report.verdict.exit_code == 2
    assert any(table in reason for reason in report.verdict.reasons)


def test_a_phase_without_a_success_is_unknown(session, tmp_path):
    run = clean()
    for _ in range(10):
        run.send(outcome="info", phase="heal")
    report = report_of(session, run, tmp_path, only=["A45"])
    assert "phase heal" in report.verdict.reasons[0]
    assert report.verdict.exit_code == 2


def test_whatever_is_broken_is_named(session, tmp_path):
    """A table cut short, one without a required column, a replica without meta; all at once.

    Every check is asked, and none makes anything of it; the run says that it had problems, too.
    """
    run = clean()
    run.run["problems"] = ["the run was interrupted"]
    directory = run.write(tmp_path / "run")
    sends = directory / "tables" / "sends" / "part-0.parquet"
    sends.write_bytes(sends.read_bytes()[:-30])
    deliveries = directory / "tables" / "deliveries" / "part-0.parquet"
    pq.write_table(pq.read_table(deliveries).drop_columns(["t_recv"]), deliveries)
    meta = directory / "replicas" / "n1" / "meta.json"
    meta.unlink()
    report = report_of(session, directory, tmp_path)
    reasons = report.verdict.reasons
    assert report.verdict.exit_code == 2
    assert any(str(sends) in reason for reason in reasons)
    assert any("t_recv" in reason and str(deliveries) in reason for reason in reasons)
    assert any(str(meta) in reason for reason in reasons)
    assert any("the run was interrupted" in reason for reason in reasons)


def test_a_segment_that_cannot_be_read_is_named(session, tmp_path):
    run = clean()
    run.run["problems"] = ["the run was interrupted"]
    directory = run.write(tmp_path / "run")
    segment = directory / "replicas" / "n1" / "data" / f"{0:020d}"
    segment.unlink()
    segment.mkdir()
    report = report_of(session, directory, tmp_path, only=["A5", "A34", "A48"])
    assert report.verdict.exit_code == 2
    assert any(str(segment) in reason for reason in report.verdict.reasons)
    assert any("the run was interrupted" in reason for reason in report.verdict.reasons)


def test_a_check_that_crashes_makes_the_verdict_unknown_and_the_others_go_on(
    session, tmp_path, monkeypatch
):
    def crash(context, outcomes, *, gaps):
        assert check_phantom
        raise RuntimeError("no idea")

    monkeypatch.setattr("spark.job.check_phantom", crash)
    report = report_of(session, clean(), tmp_path, only=["A5", "A6", "A15"])
    assert alarms(report) == {"A5": 0}
    assert report.verdict.exit_code == 2
    assert "RuntimeError: no idea" in report.verdict.reasons[0]


def test_a_foreign_history_without_replicas_and_with_few_columns(session, tmp_path):
    """Two files, other integer widths, absent columns, no run.json, no events, no replicas."""
    run = clean(8)
    run.with_replicas = False
    directory = run.write(tmp_path / "run")
    (directory / "run.json").unlink()
    for table in ("events", "raft_event"):
        shutil.rmtree(directory / "tables" / table)
    sends = directory / "tables" / "sends"
    table = pq.read_table(sends / "part-0.parquet").select(
        ["op_id", "msg_key", "topic", "queue_id", "t_inv", "t_cmp", "outcome", "queue_offset"]
    )
    narrow = table.set_column(0, "op_id", table["op_id"].cast(pa.int32()))
    pq.write_table(narrow.slice(0, 3), sends / "part-0.parquet")
    pq.write_table(table.slice(3), sends / "part-1.parquet")
    deliveries = directory / "tables" / "deliveries" / "part-0.parquet"
    wanted = ["topic", "queue_id", "queue_offset", "msg_key", "t_recv", "grp"]
    pq.write_table(pq.read_table(deliveries).select(wanted), deliveries)
    report = report_of(session, directory, tmp_path)
    assert alarms(report) == {}
    assert {r.check for r in report.results if r.verdict == "not checked"} == {
        "A2", "A13", "A14", "A16", "A17", "A18", "A23", "A28", "A29", "A30", "A31", "A32", "A33",
        "A34", "A35", "A36", "A37", "A38", "A39", "A52", "A53", "A54", "A55", "A57", "A58", "A60",
        "A62", "A63",
    }  # fmt: skip
    assert found(report, "A34") == ("not checked", 0)
    assert report.verdict.exit_code == 0
    pq.write_table(pq.read_table(deliveries).slice(1), deliveries)
    lossy = report_of(session, directory, tmp_path, only=["A1"])
    assert found(lossy, "A1") == ("invalid", 1)
    assert next(r for r in lossy.results if r.check == "A1").evidence[0]["where"] == "not checked"


def test_a_replica_log_table_serves_instead_of_segments(session, tmp_path):
    run = clean()
    directory = run.write(tmp_path / "run")
    shutil.rmtree(directory / "replicas")
    keys = [send["msg_key"] for send in run.tables["sends"]]
    rows = [
        {
            "run_id": run.run_id, "node": node, "index": e.index, "term": e.term,
            "type": "message", "topic": e.topic, "queue_id": e.queue_id,
            "queue_offset": e.queue_offset, "committed": True, "body_hash": 5,
            "msg_key": 7 if (node, e.index) == ("n2", 3) else keys[e.index],
        }
        for node, log in run.logs.items()
        for e in log
    ]  # fmt: skip
    write_table(directory, "replica_log", rows)
    report = report_of(session, directory, tmp_path, only=["A34", "A35"])
    assert alarms(report) == {"A34": 1, "A35": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["/no/such/run"],
        ["RUN", "--only", "A99"],
        ["RUN", "--what"],
        ["RUN", "--driver-memory", "much"],
        ["RUN", "--partitions", "0"],
    ],
)
def test_wrong_usage_is_254(arguments, tmp_path, capsys):
    arguments = [str(tmp_path) if a == "RUN" else a for a in arguments]
    try:
        code = check_history.main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code == 254
    assert "spark.check_history" in capsys.readouterr().err


def test_only_what_was_asked_for_is_checked(session, tmp_path):
    report = report_of(session, clean(), tmp_path, only=["A15"])
    assert [r.check for r in report.results] == ["A15"]
    assert report.counts["lost"] is None


def test_a_run_directory_is_looked_at_without_a_session(tmp_path):
    history = open_history(clean().write(tmp_path / "run"))
    assert (history.rows("sends"), history.rows("acks")) == (6, 0)
    assert history.partitions(0) == 2
    assert history.partitions(4_000_000) == 11
    assert history.problems == []


def test_the_command_writes_results_and_anomalies(tmp_path, capsys):
    """Last in the module: it stops the session."""
    run = clean()
    plant_lost(run, run.tables["deliveries"] and _message(run))
    directory = run.write(tmp_path / "run")
    code = check_history.main([str(directory), "--master", "local[2]"])
    assert code == 1
    printed = capsys.readouterr()
    assert "verdict: INVALID" in printed.out
    assert "A1   acknowledged but lost: invalid, 1" in printed.err
    results = json.loads((directory / "verdict" / "results.json").read_text())
    assert results["checks"]["A1"]["count"] == 1
    assert results["verdict"] == "invalid"
    anomalies = pq.read_table(directory / "verdict" / "anomalies").to_pylist()
    assert [row["anomaly"] for row in anomalies] == ["A1"]
    assert anomalies[0]["evidence"][0]["table"] == "sends"
    out = str(tmp_path / "out")
    code = check_history.main([str(directory), "--json", "--only", "A1", "--out", out])
    assert code == 1
    assert json.loads(capsys.readouterr().out)["counts"]["lost"] == 1
    assert (tmp_path / "out" / "anomalies").is_dir()


def _message(run):
    delivery = run.tables["deliveries"][0]

    class First:
        pass

    First.delivery = delivery
    return First
