"""Places meet the stretches they lie in, as by comparing all with all, however long these are."""

import random

from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.buckets import BUCKET, FEW, lie, touch
from tests.spark.reports import SPARK_MARKS

pytestmark = SPARK_MARKS
END = (1 << 62) - 1


def test_places_meet_the_stretches_they_lie_in(session):
    draw = random.Random(11)
    ends = [draw.randrange(1 << bits) for bits in range(1, 62) for _ in range(2)]
    stretches = [(q, *sorted(draw.sample(ends, 2))) for q in (0, 1) for _ in range(20)]
    stretches += [(0, 0, END), (1, 7, 7), (1, 31, 32)]
    places = [(draw.randrange(2), at + step) for at in ends for step in (0, 1)]
    touched = touch(
        session.createDataFrame(stretches, "queue int, low long, high long"),
        F.col("low"), F.col("high"),
    )  # fmt: skip
    most = touched.groupBy("queue", "low", "high").count().agg(F.max("count")).collect()[0][0]
    assert most <= FEW + 1
    met = (
        lie(session.createDataFrame(set(places), "queue int, at long"), F.col("at"), touched)
        .join(touched, ["queue", *BUCKET])
        .filter("at >= low and at <= high")
    )
    found = [tuple(row) for row in met.select("queue", "at", "low", "high").collect()]
    wanted = {(q, at, *s[1:]) for q, at in places for s in stretches if s[0] == q}
    wanted = {row for row in wanted if row[2] <= row[1] <= row[3]}
    assert set(found) == wanted
    assert len(wanted) > 500


def test_places_meet_nothing_where_there_are_no_stretches(session):
    none = session.createDataFrame([], "queue int, low long, high long")
    touched = touch(none, F.col("low"), F.col("high"))
    places = session.createDataFrame([(0, 5)], "queue int, at long")
    assert lie(places, F.col("at"), touched).count() == 0
