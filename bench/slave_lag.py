"""How long a slave lacks what its master has acknowledged.

``python -m bench.slave_lag --rate 5000 --seconds 10``. A process of its own sends to an
asynchronous master at a steady rate. Meanwhile the slave's commit log file is looked at every
millisecond: a record is there when its size is. The lag of a message is the time from its
acknowledgement until then, 0 for one that was there before.
"""

import argparse
import asyncio
import json
import mmap
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from bench import steady
from bench.pair import Pair
from bench.topics import create_topic

TOPIC = "lag"
LOOK_S = 0.001
SETTLE_S = 2.0
"""Of sends that are not counted, and of looks behind the last one."""
_SIZE = Struct(">i")


class LogEnd:
    """The end of a commit log that somebody else writes, and when it was where."""

    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self.times_ns: list[int] = []
        self.ends: list[int] = [0]
        """Where the log ended from each time on; one more, before the first."""

    def look(self, now_ns: int) -> None:
        """Walk to the end as it is now."""
        at = self.ends[-1]
        while size := _SIZE.unpack_from(self._view, at)[0]:
            at += size
        if at > self.ends[-1]:
            self.times_ns.append(now_ns)
            self.ends.append(at)

    def when_had(self, position: int) -> int | None:
        """Return when the record that begins at ``position`` was first seen; None: never."""
        number = bisect_right(self.ends, position) - 1
        return self.times_ns[number] if number < len(self.times_ns) else None


def lags_ms(sent: Sequence[steady.Sent], end: LogEnd, since_ns: int) -> tuple[list[float], int]:
    """Return the lag of each message acknowledged since, in order, and how many never came."""
    found: list[float] = []
    missing = 0
    for one in sent:
        had_ns = end.when_had(one.position)
        if had_ns is None:
            missing += 1
        elif one.acknowledged_ns >= since_ns:
            found.append(max(0, had_ns - one.acknowledged_ns) / 1e6)
    return sorted(found), missing


def measure(rate: float, seconds: float) -> dict[str, float]:
    """Return the lags, and how long sends took."""
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-lag-") as home,
        Pair(Path(home), is_sync=False) as pair,
    ):
        asyncio.run(create_topic(pair.namesrv_addr, TOPIC))
        (file,) = (pair.store(1) / "commitlog").iterdir()
        with file.open("rb") as opened:
            view = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        end = LogEnd(view)
        begin_ns = time.monotonic_ns()
        sender = steady.start(pair.namesrv_addr, TOPIC, rate, seconds + SETTLE_S)
        until_ns = begin_ns + int((seconds + 3 * SETTLE_S) * 1e9)
        while (now_ns := time.monotonic_ns()) < until_ns:
            end.look(now_ns)
            time.sleep(LOOK_S)
        sent = steady.finish(sender)
    since_ns = min(one.sent_ns for one in sent) + int(SETTLE_S * 1e9)
    lags, missing = lags_ms(sent, end, since_ns)
    took = sorted((one.acknowledged_ns - one.sent_ns) / 1e6 for one in sent)
    return {
        "acknowledged_per_s": round(len(lags) / seconds, 1),
        "lag_p50_ms": _at(lags, 0.5),
        "lag_p99_ms": _at(lags, 0.99),
        "lag_max_ms": _at(lags, 1.0),
        "send_p99_ms": _at(took, 0.99),
        "missing": missing,
    }


def _at(ordered: Sequence[float], part: float) -> float:
    return round(ordered[min(int(len(ordered) * part), len(ordered) - 1)], 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.slave_lag", description=__doc__)
    parser.add_argument("--rate", type=float, default=5_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=10, help="that count")
    options = parser.parse_args(argv)
    print(json.dumps(measure(options.rate, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
