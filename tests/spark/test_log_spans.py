"""Whether each index of the logs has one row: only then they are not folded."""

import pytest

from spark.log_entries import _is_single
from tests.spark.reports import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.mark.parametrize(
    ("indexes", "single"),
    [
        ({0: [0, 1, 2], 300: [3, 4]}, True),
        ({0: [0, 1, 2, 2]}, False),
        ({0: [0, 1, 3]}, False),
        ({0: [0, 1, 1, 3]}, False),  # one doubled and one missing: as many as there should be
        ({0: [0, 1, 2], 300: [2, 3]}, False),
    ],
)
def test_only_segments_without_doubles_and_gaps_are_single(session, indexes, single):
    rows = [("g", base, index, "data") for base, known in indexes.items() for index in known]
    contents = session.createDataFrame(rows, "`group` string, base long, index long, type string")
    assert _is_single(contents) is single
