"""The session that the job opens and stops."""

import signal

from spark.session import open_session
from tests.spark.reports import SPARK_MARKS

pytestmark = SPARK_MARKS


def test_ctrl_c_is_ours_again_when_the_job_is_over():
    """pyspark's handler would ask its context, which is gone by then."""
    before = signal.getsignal(signal.SIGINT)
    with open_session("local[1]", partitions=1, quick=True):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
