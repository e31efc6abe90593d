"""A slower disk for the servers of a benchmark: a library before libc has syncs take longer.

How much a sync costs decides what sync flush costs, and disks differ by a factor of a hundred. So
that two servers can be compared on such a disk without having it, each of their syncs (``fsync``,
``fdatasync``, ``syncfs``, ``msync``) returns later by the same time. Nothing else is slower.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chaos.shim.build import build

SOURCE: Final = Path(__file__).with_name("slow_sync.c")
PRELOAD: Final = "LD_PRELOAD"
SYNC_US: Final = "LEDGERMQ_BENCH_SYNC_US"


@contextmanager
def slow_syncs(sync_us: int) -> Iterator[None]:
    """Have syncs of processes that are started inside the block take so many microseconds longer.

    Errors: `chaos.shim.build.NotBuilt` without a C compiler.
    """
    if not sync_us:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="ledgermq-bench-sync-") as home:
        library = Path(home) / "slow_sync.so"
        build(library, (SOURCE,))
        before = {name: os.environ.get(name) for name in (PRELOAD, SYNC_US)}
        os.environ[PRELOAD] = ":".join(filter(None, (str(library), before[PRELOAD])))
        os.environ[SYNC_US] = str(sync_us)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
