"""One Spark session per module of tests."""

import gc
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.session import start_session


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    started = start_session("local[2]", partitions=2, quick=True)
    yield started
    started.stop()
    # What is left of pyspark's sockets goes now, while the marks of these tests allow it.
    gc.collect()
