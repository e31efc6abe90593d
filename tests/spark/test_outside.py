"""The Spark job: what others write, by somebody who has not read the checks."""

import pytest

from tests.spark.minimal import write_minimal
from tests.spark.outside import ODD
from tests.spark.reports import SPARK_MARKS, alarms, report_of
from tests.spark.spoiled import differences

pytestmark = SPARK_MARKS
ASKED = ("A2", "A9", "A14", "A15", "A17", "A23", "A25", "A26", "A27", "A35", "A48")


NAMES = list(ODD)


@pytest.mark.parametrize(
    "name",
    [*NAMES[::2], *(pytest.param(name, marks=pytest.mark.further) for name in NAMES[1::2])],
)
def test_odd_history_is_judged_for_what_it_is(session, tmp_path, name):
    spoil, wanted = ODD[name]
    run = write_minimal(spoil, tmp_path)
    report = report_of(session, run, tmp_path, only=ASKED)
    assert alarms(report) == wanted, report.verdict.reasons
    compared = [line for line in differences(run, report) if line.split()[0] in ASKED]
    assert compared == []
