"""One queue that holds everything, one message again and again, many lost: no task has it all.

Two hundred thousand rows, with stretches and bounds made smaller by as much as a run of a hundred
million is larger. What is asserted is read from Spark's own log of what it executed.
"""

import gc

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.window import Window

from bench.history import ROWS_PER_MESSAGE, write_history
from spark import facts, lines
from spark.checks.acknowledged import _with_floor
from spark.checks.reading import _overlapping
from spark.job import CHECKS
from spark.session import open_session
from tests.spark.plans import EventLog, logging_to
from tests.spark.reports import SPARK_MARKS, found, report_of

pytestmark = SPARK_MARKS
MESSAGES = 200_000 // ROWS_PER_MESSAGE
LOST, BROADCAST_MAX = 10_000, 1_000
PARTITIONS = 8


@pytest.fixture
def logged(tmp_path):
    """A function that does something in a session of its own, and returns its log."""

    def run(work):
        settings = logging_to(tmp_path / "events")
        with open_session(
            "local[2]", partitions=PARTITIONS, quick=True, settings=settings
        ) as session:
            work(session)
        gc.collect()
        return EventLog(tmp_path / "events")

    return run


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(lines, "OFFSET_BITS", 9)
    monkeypatch.setattr(lines, "TIME_BITS", 24)
    monkeypatch.setattr(facts, "BROADCAST_ROWS_MAX", BROADCAST_MAX)


@pytest.mark.parametrize(
    ("skew", "only"),
    [("queue", CHECKS), pytest.param("key", ("A1", "A8", "A9"), marks=pytest.mark.further)],
)
def test_no_window_and_no_task_has_all_rows(tmp_path, logged, skew, only):
    run, reports = tmp_path / "run", []
    write_history(run, MESSAGES, skew=skew, lost=LOST)
    log = logged(lambda session: reports.append(report_of(session, run, tmp_path, only=only)))
    (report,) = reports
    assert not report.problems
    assert found(report, "A1")[1] >= LOST
    if skew == "key":
        assert found(report, "A9")[1] > MESSAGES // 20
    assert log.windows()
    assert log.unpartitioned() == []
    assert log.quadratic() == []
    assert log.most_of_a_task() < MESSAGES - LOST  # the deliveries of one queue
    assert log.broadcast_rows() <= 2 * BROADCAST_MAX


def test_commits_of_one_queue_are_looked_at_in_stretches(tmp_path, logged):
    run, reports = tmp_path / "run", []
    write_history(run, MESSAGES, skew="queue", whole=True)
    log = logged(lambda session: reports.append(report_of(session, run, tmp_path, only=("A2",))))
    assert found(reports[0], "A2") == ("valid", 0)
    assert log.windows()
    assert log.quadratic() == []
    assert log.most_of_a_task() < MESSAGES


def test_calls_and_durable_commits_of_one_queue_are_looked_at_in_stretches(logged):
    """One call that lasts for a thousand others, and one commit so far ahead, over stretches."""
    step, middle, far = 1 << 16, MESSAGES // 2, 1_000
    found = {}

    def work(session):
        queue = [F.lit("t").alias("topic"), F.lit(0).alias("queue_id")]
        at, is_far = F.col("id") * step, F.col("id") == middle
        calls = session.range(MESSAGES).select(
            F.lit("g").alias("gname"), *queue, F.lit("c").alias("consumer"),
            F.col("id").alias("op_id"), at.alias("t_proc_begin"),
            (at + F.when(is_far, far * step).otherwise(step // 2)).alias("t_proc_end"),
        )  # fmt: skip
        found["calls"] = _overlapping(calls, 0).count()
        grp = F.lit("g").alias("grp")
        got = session.range(MESSAGES).select(
            grp, *queue, F.col("id").alias("queue_offset"), at.alias("t")
        )
        commits = session.range(MESSAGES).select(
            grp, *queue, (at + step // 2).alias("t_cmp"),
            (F.col("id") + F.when(is_far, far).otherwise(0)).alias("value_offset"),
        )  # fmt: skip
        again = _with_floor(got, commits).filter("queue_offset < committed")
        found["commits"] = again.count()

    log = logged(work)
    assert found == {"calls": far - 1, "commits": far - 1}
    assert log.windows()
    assert log.quadratic() == []
    assert log.most_of_a_task() < MESSAGES


def test_a_window_over_all_rows_is_seen(logged):
    """The bug that the test above is for, planted."""

    def plant(session):
        rows = session.range(MESSAGES).withColumn("queue", F.lit(1))
        order = Window.orderBy("id")
        rows.withColumn("before", F.lag("id").over(order)).agg(F.sum("before")).collect()
        mine = Window.partitionBy("queue").orderBy("id")
        rows.withColumn("before", F.lag("id").over(mine)).agg(F.sum("before")).collect()

    log = logged(plant)
    assert len(log.windows()) == 2
    assert len(log.unpartitioned()) == 1
    assert log.most_of_a_task() >= MESSAGES


def test_a_window_that_reads_on_to_the_end_for_each_row_is_seen(logged):
    """Spark folds such a frame anew for each row: the check that had one took 24 times as long.

    So it was with ten times the rows.
    """

    def plant(session):
        rows = session.range(100).withColumn("queue", F.lit(1))
        order = Window.partitionBy("queue").orderBy("id")
        after = order.rowsBetween(0, Window.unboundedFollowing)
        rows.withColumn("after", F.min("id").over(after)).agg(F.sum("after")).collect()

    assert len(logged(plant).quadratic()) == 1
