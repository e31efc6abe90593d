"""``python -m spark.trial``: start a session here and let Spark call Python, as the checks do.

Prints one line that says what ran; whatever fails is raised. Knows no history.
"""

import platform
import sys
from collections.abc import Iterator

import pyarrow as pa

from spark.session import open_session

ROWS = 3


def main() -> int:
    """Run the trial; return the exit code."""
    with open_session("local[1]", partitions=1, driver_memory="512m", quick=True) as session:
        rows = session.range(ROWS).mapInArrow(_same, "id long").count()
        version = session.version
    if rows != ROWS:
        raise RuntimeError(f"Spark gave {rows} rows for {ROWS}")
    sys.stdout.write(f"Spark {version} calls Python {platform.python_version()}\n")
    return 0


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    sys.exit(main())
