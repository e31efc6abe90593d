"""What it costs to note every step of a replica: ``python -m bench.events``.

One `Ready` with a span and an advance of the commit index, as a busy leader has them in each turn,
and one vote, which is written at once.
"""

import sys
import tempfile
import time
from collections.abc import Callable

from dledger.codec.entry import encode_span
from dledger.config import DLedgerConfig
from dledger.core.model import Role
from dledger.core.ready import Event, EventKind, Ready
from dledger.recorder import Recorder
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk

TURNS = 50_000
RARE = 20_000
ROUNDS = 3


def main() -> int:
    """Measure and print; return the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        config = DLedgerConfig(group="g", self_id="n0", peers={"n0": ""}, directory=directory)
        recorder = Recorder(config, RealDisk(), SystemClock(), "bench")
        recorder.open(0, -1, -1)
        span = encode_span(0, 1, 0, [b"x" * 100] * 20)
        turns = [Ready(None, None, (span,), (), (), index, ()) for index in range(TURNS)]
        vote = Event(EventKind.VOTE, 1, Role.FOLLOWER, "n1", 3, 3)

        def busy() -> None:
            for ready in turns:
                recorder.on_done(ready)
            recorder.flush()

        def rare() -> None:
            for _ in range(RARE):
                recorder.note(vote)

        print(f"append or commit  {best(busy) / (2 * TURNS) * 1e6:.2f} us an event")
        print(f"vote              {best(rare) / RARE * 1e6:.2f} us an event")
        recorder.close()
    return 0


def best(work: Callable[[], None]) -> float:
    """Return the shortest of some rounds, in seconds."""
    spent = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return min(spent)


if __name__ == "__main__":
    sys.exit(main())
