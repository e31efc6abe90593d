"""The report page: what it shows, and that missing parts are left out."""

import html
import json
import re

import pytest

from chaos.checker.compose import CHECKS
from chaos.load import load_history
from chaos.report.data import STEPS_MAX, load_run
from chaos.report.page import write_report
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.generate import MS, HistoryBuilder

SECOND = 1_000 * MS


def a_run(path):
    """Leader n0 is killed at 3 s; n1 leads from 3.5 s; sends stall for 600 ms."""
    run = HistoryBuilder(run_id="<b>run</b>")
    run.run |= {"t0_mono_ns": 0, "phases": [{"name": "main", "t0": 0, "t1": 8 * SECOND}]}
    for number in range(80):
        run.clock = number * SECOND // 10
        down = 30 <= number < 36
        message = run.send(outcome="info" if down else "ok")
        if not down:
            run.deliver(message)
    run.fault("kill", ["n0"], 3 * SECOND, 5 * SECOND)
    run.fault("cut", ["n1", "n2"], 6 * SECOND, 7 * SECOND, effective=False)
    for tenth in range(80):
        t = tenth * SECOND // 10
        if tenth < 30:
            run.probe("n0", "LEADER", 1, t)
        else:
            run.add("raft_probe", node="n0", t0=t, t1=t, ok=False)
        run.probe("n1", "LEADER" if tenth >= 35 else "follower", 2 if tenth >= 35 else 1, t)
    return run.write(path / "run")


def test_the_page_tells_verdict_faults_failovers_and_plots(tmp_path):
    run = a_run(tmp_path)
    (run / "verdict").mkdir()
    results = {
        "verdict": "invalid",
        "reasons": ["A1 acknowledged but lost: 1"],
        "counts": {"sent": 80, "lost": 1, "phantom": None},
        "checks": {
            "A1": {
                "title": "lost", "verdict": "invalid", "count": 1, "summary": "1 vanished",
                "evidence": [
                    {
                        "key": "7", "explain": "message 7 <is> gone", "faults": ["f0 kill n0"],
                        "around": {"below": {"queue_offset": 3}}, "presence": {"n0": "-"},
                        "rows": [{"table": "sends", "op_id": 9, "t": None}],
                    }
                ],
            },
            "A34": {"title": "log", "verdict": "not checked", "count": 0, "evidence": [{}]},
        },
    }  # fmt: skip
    (run / "verdict" / "results.json").write_text(json.dumps(results))
    page = write_report(run).read_text()
    assert '<div class="verdict invalid">Invalid</div>' in page
    assert "message 7 &lt;is&gt; gone" in page
    assert "&lt;b&gt;run&lt;/b&gt;" in page
    assert "<b>run</b>" not in page
    assert "faults in force: f0 kill n0" in page
    assert "1 of 2 planned faults took effect" in page
    assert "n0 → n1" in page
    assert page.count("<svg") == 5
    for title in ("Send latency", "Sends per second", "Unseen messages", "Roles", "Commit index"):
        assert f"<h3>{title}</h3>" in page


def test_the_page_needs_nothing_from_elsewhere(tmp_path):
    page = write_report(a_run(tmp_path)).read_text()
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert all(link.startswith("#") for link in links)
    assert "<script" not in page
    assert "var(--ink)" in page
    assert "#010203" not in page


def test_a_failover_is_measured_from_the_fault(tmp_path):
    data = load_run(a_run(tmp_path))
    (failover,) = data.failovers
    assert (failover.old, failover.new, failover.term) == ("n0", "n1", 2)
    assert failover.leaderless_ms == pytest.approx(500)
    assert failover.stall_ms == pytest.approx(603)
    assert failover.cause == "f0 kill"
    assert [fault.effective for fault in data.faults] == [True, False]
    assert data.faults[0].in_flight == 20


def test_a_failover_is_not_by_a_fault_of_a_longer_name(tmp_path):
    run = HistoryBuilder()
    run.run["t0_mono_ns"] = 0
    run.probe("n1", "LEADER", 1, SECOND)
    run.fault("kill", ["n1"], 2 * SECOND, 9 * SECOND)
    run.fault("pause", ["n10", "n2"], 3 * SECOND, 9 * SECOND)
    run.probe("n0", "LEADER", 2, 4 * SECOND)
    (failover,) = load_run(run.write(tmp_path / "run")).failovers
    assert failover.cause == "f0 kill"


def gaps(run):
    """Return the gap around the kill as the checker says it, and as the report does."""
    found = CHECKS["A41"](load_history(run))
    (failover,) = load_run(run).failovers
    return found.evidence[0]["ms"], failover.stall_ms


def test_the_report_and_the_terminal_measure_one_gap(tmp_path):
    ours, reported = gaps(a_run(tmp_path))
    assert reported == pytest.approx(ours)
    with planted(HARNESS_BUGS["report-measures-otherwise"]):
        ours, reported = gaps(tmp_path / "run")
    assert reported != pytest.approx(ours)


@pytest.mark.parametrize("tolerance_ns", [0, 60 * MS])
def test_the_report_counts_the_sends_that_the_checker_counts(tolerance_ns, tmp_path):
    run = HistoryBuilder()
    run.run["clock_tolerance_ns"] = tolerance_ns
    for number in range(40):
        run.clock = number * SECOND // 10
        run.send(outcome="ok" if number % 3 else "info")
    run.fault("pause", ["n1"], SECOND, 2 * SECOND)
    run.add("faults", fault_id="f1", kind="kill", targets=["n0"], status="failed", t_on0=SECOND)
    path = run.write(tmp_path / "run")
    told = CHECKS["A47"](load_history(path)).details["faults"]
    reported = {fault.fault_id: fault.in_flight for fault in load_run(path).faults}
    assert reported == {row["fault_id"]: row["in_flight"] for row in told}
    assert reported["f0"] > 0


def test_the_page_shows_what_the_terminal_showed(tmp_path):
    """Every check of either checker, the terminal's counts, and the verdict of both together."""
    run = a_run(tmp_path)
    (run / "verdict").mkdir()
    word = {"verdict": "valid", "count": 0, "summary": "fine", "title": "lost", "evidence": []}
    only = word | {"title": "time without acknowledgements", "summary": "f0 603 ms"}
    ours = {"A1": word, "A41": only}
    theirs = {"A1": word | {"summary": "said by Spark"}, "A99": word}
    for name, content in {
        "inprocess": {"verdict": "valid", "checks": ours, "counts": {"sent": 80}},
        "results": {"verdict": "valid", "checks": theirs},
        "judgement": {"verdict": "unknown", "exit_code": 2, "reasons": ["the checkers disagree"]},
    }.items():  # fmt: skip
        file = {"results": "results.json"}.get(name, f"{name}.json")
        (run / "verdict" / file).write_text(json.dumps(content))
    page = write_report(run).read_text()
    assert '<div class="verdict unknown">Unknown</div>' in page
    assert "the checkers disagree" in page
    rows = re.findall(r"<tr><td><b>(A\d+)</b></td>", page)
    assert rows == ["A1", "A41", "A99"]
    assert "f0 603 ms" in page
    assert "said by Spark" not in page
    assert "<dt>sent</dt><dd>80</dd>" in page


def test_unseen_counts_what_was_acknowledged_and_not_yet_delivered(tmp_path):
    run = HistoryBuilder(queues=1)
    run.run["t0_mono_ns"] = run.clock
    first = run.send()
    run.deliver(first, after=SECOND)
    run.send()
    data = load_run(run.write(tmp_path / "run"))
    times, line = data.unseen["t"], data.unseen["queues"]["orders/0"]
    assert line[times == 0.5] == 2
    assert line[-1] == 1


def test_an_empty_directory_still_has_a_page(tmp_path):
    page = write_report(tmp_path).read_text()
    assert "Not checked" in page
    assert "the table sends is missing" in page
    assert "<svg" not in page


def test_a_broken_table_is_named_and_the_rest_is_shown(tmp_path):
    run = a_run(tmp_path)
    (run / "tables" / "sends" / "part-0.parquet").write_bytes(b"PAR1 no")
    page = write_report(run).read_text()
    assert "part-0.parquet of sends cannot be read" in page
    assert "<h3>Roles</h3>" in page


def test_a_history_without_many_columns_is_shown(tmp_path):
    run = HistoryBuilder()
    for number in range(5):
        run.add("sends", op_id=number, msg_key=number, topic="t", t_inv=number * SECOND)
    data = load_run(run.write(tmp_path / "run"))
    assert list(data.sends["outcome"]) == ["info"] * 5
    assert "Send latency" in write_report(tmp_path / "run").read_text()


def test_keys_of_all_64_bits_are_told_apart(tmp_path):
    run = HistoryBuilder()
    for number in range(4):
        send = {"op_id": number, "msg_key": (1 << 60) + number, "topic": "t", "queue_id": 0}
        run.add("sends", **send, t_inv=SECOND, t_cmp=SECOND, outcome="ok")
    got = {"grp": "g", "topic": "t", "queue_id": 0, "queue_offset": 0, "msg_key": 1 << 60}
    run.add("deliveries", **got, t_recv=3 * SECOND, auditor=False)
    data = load_run(run.write(tmp_path / "run"))
    assert data.unseen["queues"]["t/0"][-1] == 3


def test_the_page_shows_which_kinds_of_faults_were_covered(tmp_path):
    run = a_run(tmp_path)
    about = json.loads((run / "run.json").read_text()) | {
        "coverage": {"kill": 1, "cut": 1, "eio": 2, "any": 2}
    }
    (run / "run.json").write_text(json.dumps(about))
    page = write_report(run).read_text()
    table = page[page.index("<h3>Coverage</h3>") :]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", line) for line in table.split("<tr>")[2:6]]
    assert rows == [
        ["any", "2", "1", "1", "2", "too few"],
        ["cut", "1", "0", "0", "1", "too few"],
        ["eio", "0", "0", "0", "2", "too few"],
        ["kill", "1", "1", "1", "1", ""],
    ]


@pytest.mark.parametrize("topic", ["a$\\nosuch$b", "_hidden", "a$x^$<b>"])
def test_names_are_shown_as_they_are(topic, tmp_path):
    """Dollars are no formulas, a line in front hides nothing, and nothing is HTML."""
    run = HistoryBuilder(topic=topic)
    run.deliver(run.send())
    page = write_report(run.write(tmp_path / "run")).read_text()
    assert html.escape(f"{topic}/", quote=False) in page


def test_a_history_of_years_has_a_page_of_its_own_size(tmp_path):
    """One send without a time was taken for 1970: each second since had a point, 50 GiB of them."""
    run = HistoryBuilder()
    run.clock = 0
    run.deliver(run.send())
    run.clock = 1_700_000_000 * SECOND
    run.deliver(run.send())
    path = run.write(tmp_path / "run")
    assert len(load_run(path).unseen["t"]) <= STEPS_MAX + 1
    assert write_report(path).stat().st_size < 8 << 20


def test_rows_without_a_time_are_left_out(tmp_path):
    run = HistoryBuilder()
    run.deliver(run.send())
    run.send().send["t_inv"] = None
    run.deliver(run.send()).update(t_recv=None)
    data = load_run(run.write(tmp_path / "run"))
    assert len(data.sends["start"]) == 2
    assert data.unseen["t"][-1] < 2


def test_half_a_character_in_a_name_ends_no_page(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "\ud800"}))
    assert r"run \ud800" in write_report(tmp_path).read_text()
