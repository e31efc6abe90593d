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
def test_an_empty_or_missing_table_is_unknown(session, tmp_path, table):
    run = clean()
    directory = run.write(tmp_path / "run")
    shutil.rmtree(directory / "tables" / table)
    assert report_of(session, directory, tmp_path).verdict.exit_code == 2
    write_table(directory, table, [])
    report = report_of(session, directory, tmp_path)
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


def test_a_broken_table_names_the_file(session, tmp_path):
    directory = clean().write(tmp_path / "run")
    file = directory / "tables" / "sends" / "part-0.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    report = report_of(session, directory, tmp_path)
    assert report.verdict.exit_code == 2
    assert any(str(file) in reason for reason in report.verdict.reasons)


def test_a_run_that_says_it_had_problems_is_unknown(session, tmp_path):
    run = clean()
    run.run["problems"] = ["the run was interrupted"]
    report = report_of(session, run, tmp_path, only=["A5"])
    assert report.verdict.exit_code == 2
    assert "the run was interrupted" in report.verdict.reasons[0]


def test_a_required_column_that_is_missing_is_named(session, tmp_path):
    directory = clean().write(tmp_path / "run")
    file = directory / "tables" / "deliveries" / "part-0.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["t_recv"]), file)
    report = report_of(session, directory, tmp_path)
    assert any("t_recv" in reason and str(file) in reason for reason in report.verdict.reasons)


def test_a_replica_without_meta_is_named(session, tmp_path):
    directory = clean().write(tmp_path / "run")
    meta = directory / "replicas" / "n1" / "meta.json"
    meta.unlink()
    report = report_of(session, directory, tmp_path)
    assert report.verdict.exit_code == 2
    assert any(str(meta) in reason for reason in report.verdict.reasons)


def test_a_segment_that_cannot_be_read_is_named(session, tmp_path):
    directory = clean().write(tmp_path / "run")
    segment = directory / "replicas" / "n1" / "data" / f"{0:020d}"
    segment.unlink()
    segment.mkdir()
    report = report_of(session, directory, tmp_path)
    assert report.verdict.exit_code == 2
    assert any(str(segment) in reason for reason in report.verdict.reasons)


def test_a_check_that_crashes_makes_the_verdict_unknown_and_the_others_go_on(
    session, tmp_path, monkeypatch
):
    def crash(context, outcomes, *, gaps):
        assert check_phantom
        raise RuntimeError("no idea")

    monkeypatch.setattr("spark.job.check_phantom", crash)
    run = clean()
    report = report_of(session, run, tmp_path)
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
    assert alarms(report) == dict.fromkeys(("A30", "A31", "A32", "A33", "A34", "A35"), 0)
    assert found(report, "A34") == ("not checked", 0)
    assert report.verdict.exit_code == 0
    pq.write_table(pq.read_table(deliveries).slice(1), deliveries)
    lossy = report_of(session, directory, tmp_path)
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
    "arguments", [[], ["/no/such/run"], ["RUN", "--only", "A99"], ["RUN", "--what"]]
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
    code = check_history.main([str(directory), "--json", "--out", str(tmp_path / "out")])
    assert code == 1
    assert json.loads(capsys.readouterr().out)["counts"]["lost"] == 1
    assert (tmp_path / "out" / "anomalies").is_dir()


def _message(run):
    delivery = run.tables["deliveries"][0]

    class First:
        pass

    First.delivery = delivery
    return First
