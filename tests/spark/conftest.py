"""One Spark session per module of tests."""

import gc
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.session import open_session


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with open_session("local[2]", partitions=2, quick=True) as opened:
        yield opened
    # What is left of pyspark's sockets goes now, while the marks of these tests allow it.
    gc.collect()
