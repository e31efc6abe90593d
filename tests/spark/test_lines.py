"""What lies before a row is the same, however a line is cut, and nobody sorts a line as a whole."""

import random

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark import lines
from spark.lines import Line, before, by_offset, whole
from tests.spark.reports import SPARK_MARKS

pytestmark = SPARK_MARKS
DDL = "topic string, queue_id int, queue_offset long, t long"
KEYS = ("topic", "queue_id")
FOLDS = {"max": max, "min": min, "sum": sum}


@pytest.fixture(scope="module")
def rows():
    """Two hundred rows of four lines, one without a queue; no place is there twice."""
    draw = random.Random(7)
    places = [(t, q, n) for t, q in (("a", 0), ("a", 1), ("b", 0), ("b", None)) for n in range(80)]
    return [(*place, draw.randrange(1000)) for place in draw.sample(places, 200)]


def naive(rows, fold, *, back=False, ties=False):
    """By the definition: each row with each other."""
    found = {}
    for row in rows:
        at = -row[2] if back else row[2]
        others = [
            other[3]
            for other in rows
            if other[:2] == row[:2]
            and ((-other[2] if back else other[2]) < at or (ties and other[2] == row[2]))
        ]
        found[row[:3]] = FOLDS[fold](others) if others else (0 if fold == "sum" else None)
    return found


@pytest.mark.parametrize(
    ("fold", "back", "ties"),
    [("max", False, False), ("min", True, True), ("min", True, False), ("sum", False, False)],
)
@pytest.mark.parametrize("bits", [0, 3, 20])
def test_stretches_change_no_answer(session, rows, fold, back, ties, bits):
    line = Line(keys=KEYS, at=F.col("queue_offset"), bits=bits, back=back)
    table = session.createDataFrame(rows, DDL)
    found = before(table, line, "known", fold, F.col("t"), ties=ties).collect()
    assert {tuple(row)[:3]: row.known for row in found} == naive(rows, fold, back=back, ties=ties)
    assert found[0].asDict().keys() == {*KEYS, "queue_offset", "t", "known"}


def test_rows_at_one_place_are_ordered_by_what_follows(session):
    table = session.createDataFrame([("a", 0, 5, t) for t in (3, 1, 2)], DDL)
    line = Line(keys=KEYS, at=F.col("queue_offset"), bits=2, then=[F.col("t")])
    found = before(table, line, "known", "max", F.col("t")).collect()
    assert {row.t: row.known for row in found} == {1: None, 2: 1, 3: 2}


def test_a_whole_line_has_one_maximum(session, rows, monkeypatch):
    monkeypatch.setattr(lines, "OFFSET_BITS", 3)
    found = whole(session.createDataFrame(rows, DDL), by_offset(KEYS), "last", F.col("t"))
    most = {row[:2]: max(other[3] for other in rows if other[:2] == row[:2]) for row in rows}
    assert {tuple(row)[:2]: row["last"] for row in found.collect()} == most
