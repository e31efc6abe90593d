"""Many faults, leader changes and copies: plans do not grow with them, and answers stay right."""

import re

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.checker import check_history
from chaos.load import load_history
from spark.checks.redelivery import _explained
from spark.context import Context, Fault, Leadership
from spark.evidence import anomaly_rows
from spark.history import History
from spark.timeline import SLOTS, timeline
from tests.spark.generate import MS, HistoryBuilder, plant_lost
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS
FAULTS, CHANGES = 1_000, 1_500
NEVER = 3_600_000 * MS


def context_with(session, tmp_path, faults: int, changes: int) -> Context:
    empty = session.range(0).selectExpr("id as t_inv", "id as t_cmp", "'ok' as outcome")
    return Context(
        session=session,
        history=History(path=tmp_path, run={"run_id": "a-run"}),
        sends=empty,
        deliveries=empty,
        noted_faults=[
            Fault(fault_id=f"f{n}", kind="kill", targets=("n0",), start=n, end=n + 1,
                  effective=True, status="healed")
            for n in range(faults)
        ],
        leaderships=[
            Leadership(group=0, term=n, node=f"n{n % 3}", first_seen=n, last_seen=n)
            for n in range(changes)
        ],
    )  # fmt: skip


def shape(rows) -> str:
    """The plan in words, without what stands in its literals."""
    text = rows._jdf.queryExecution().analyzed().toString()
    return re.sub(r"#\d+L?|_\d+", "", re.sub(r"\[\{.*?\}\]", "[]", text))


def test_faults_make_no_plan_longer(session, tmp_path):
    def plan(number: int) -> str:
        rows = session.range(1).selectExpr("id as key", "id as t")
        context = context_with(session, tmp_path, number, 0)
        return shape(anomaly_rows(context, "A1", rows, explain=F.lit(""), evidence=[], time="t"))

    assert plan(2) == plan(FAULTS)


def test_leader_changes_make_no_plan_longer(session, tmp_path, monkeypatch):
    again = session.range(1).selectExpr(
        "id as line", "'g' as gname", "'t' as topic", "0 as queue_id", "'c' as consumer",
        "'c' as consumer_before", "1 as generation", "1 as generation_before", "id as t_before",
        "id as t_recv",
    )  # fmt: skip
    acks = session.range(0).selectExpr(
        "'g' as grp", "'t' as topic", "0 as queue_id", "'commit' as kind", "'ok' as outcome",
        "id as t_inv", "id as t_cmp",
    )  # fmt: skip
    monkeypatch.setattr(Context, "table", lambda context, name: acks)

    def plan(number: int) -> str:
        return shape(_explained(context_with(session, tmp_path, number, number), again, []))

    assert plan(2) == plan(CHANGES)


def test_slot_never_falls_and_an_interval_touches_all_of_its_own(session):
    line = timeline([1_000, 5_000_000])
    moments = session.range(-5, 2 * SLOTS).select((F.col("id") * 4_000).alias("t"))
    rows = moments.select("t", line.slot(F.col("t")).alias("slot")).orderBy("t").collect()
    slots = [row.slot for row in rows]
    assert slots == sorted(slots)
    assert (slots[0], slots[-1]) == (0, SLOTS - 1)
    one = session.range(1).select(line.slots(F.lit(10_000), F.lit(50_000)).alias("touched"))
    low, high = (line.width, 0)
    touched = one.first().touched
    low, high = (10_000 - 1_000) // line.width, (50_000 - 1_000) // line.width
    assert touched == list(range(low, high + 1))


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A thousand kills and leader changes, a loss, a redelivery, a copy at thirty places."""
    run = HistoryBuilder(queues=1)
    messages = run.traffic(40)
    plant_lost(run, messages[5])
    begin = run.clock
    run.run["coverage"] = {"any": FAULTS // 2}
    for number in range(CHANGES):
        run.probe(f"n{number % 3}", "leader", number + 1, begin + number * MS)
        if number < FAULTS:
            run.fault("kill", [f"n{number % 3}"], begin + number * MS, begin + number * MS + 10)
    run.fault("kill", ["n0"], NEVER, NEVER + 1)  # behind the end of all service
    run.send(outcome="info", t_cmp=None)
    run.clock = begin + 20_000 * MS
    last = run.traffic(4)
    run.commit(0, 44)
    run.add("acks", op_id=run.op(), grp=run.grp, topic=run.topic, queue_id=0, kind="fetch",
            value_offset=44, t_inv=run.clock, t_cmp=run.clock, outcome="ok")  # fmt: skip
    run.deliver(last[0])
    run.deliver(messages[39])  # the faults explain it
    for place in range(100, 130):
        run.deliver(messages[0], queue_offset=place)
    run.add("events", idx=0, type="info", f="start", role="consumer", node="c", t_mono_ns=0)
    return run.write(tmp_path_factory.mktemp("crowded") / "run")


def test_both_checkers_answer_alike_in_a_crowd(session, crowded, tmp_path):
    checks = ("A1", "A8", "A9", "A18", "A41", "A45", "A47")
    report = report_of(session, crowded, tmp_path, only=checks)
    assert not report.problems
    ours = check_history(load_history(crowded)).results
    found = {r.check: r for r in report.results}
    assert {c: (r.verdict, r.count) for c, r in found.items()} == {
        check: (ours[check].verdict, ours[check].count) for check in checks
    }
    assert (found["A1"].count, found["A8"].count, found["A9"].count) == (1, 1, 1)
    assert found["A47"].summary == ours["A47"].summary
    assert found["A41"].details == ours["A41"].details
    assert found["A41"].summary == ours["A41"].summary
    assert found["A9"].details["by_cause"] == ours["A9"].details["by_cause"]
    explain = found["A8"].evidence[0]["explain"]
    assert "lies at 31 places" in explain
    assert explain.count("orders/0@") == 20


def test_event_that_is_earlier_is_found_at_the_edge_of_a_stretch(session, tmp_path, monkeypatch):
    monkeypatch.setattr("spark.checks.minimum_evidence.EVENTS_PER_STRETCH", 4)
    run = HistoryBuilder()
    run.traffic(4)
    # 3 and 4 lie in two stretches, 5 and 6 in one.
    for idx, t in enumerate((0, 1, 2, 9, 4, 5, 3, 8, 10)):
        run.add("events", idx=idx, type="ok", f="send", t_mono_ns=(1_000 + t) * MS)
    report = report_of(session, run, tmp_path, only=["A45"])
    assert "2 events are earlier than the one before" in report.results[0].summary
