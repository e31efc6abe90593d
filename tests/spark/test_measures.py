"""Spark tells the same numbers of what nobody judges as the in-process checker."""

from tests.spark.measures import measured
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS


def test_numbers_are_told_and_nothing_is_judged_by_them(session, tmp_path):
    run, numbers = measured()
    asked = ("A1", *numbers)
    found = {r.check: r for r in report_of(session, run, tmp_path, only=asked).results}
    for check, wanted in numbers.items():
        told = found[check]
        assert (told.verdict, told.count, told.details) == ("valid", 0, wanted), check
    assert found["A1"].count == 2


def test_one_that_is_asked_alone_makes_what_it_rests_on(session, tmp_path):
    run, numbers = measured()
    (told,) = report_of(session, run, tmp_path, only=("A59",)).results
    assert told.details == numbers["A59"]
