"""What the Raft log costs: the core's step per span, the appender per entry, and whole nodes.

    python -m bench.raft_core [--json] [--seconds 1]

Three nodes run in one process and one event loop, so the rate is what one core gives for all
three, without the sends, parses and answers of a broker around it. Absolute times depend on the
machine; nothing is asserted.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import uvloop

from chaos.backends.ports import take_ports
from dledger.appender import Appender
from dledger.codec.entry import encode_span, index_units
from dledger.codec.peer import PeerCodec
from dledger.config import DLedgerConfig, FlushDiskType
from dledger.core.log import RaftLog
from dledger.core.messages import Append, AppendReply, PreVoteReply, VoteReply
from dledger.core.model import HardState, LogIndex, NodeId, Role, Span, Term
from dledger.core.raft import Raft
from dledger.core.state import RaftConfig
from dledger.errors import NotLeader
from dledger.listener import DLedgerListener
from dledger.node import DLedgerNode
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.runtime.rng import SystemRng

BODY = (b"h" * 100, b"x" * 924)
BODY_BYTES = 1024
VOTERS = ("n0", "n1", "n2")
SPANS = 2000


class EmptyView:
    """A `LogView` of nothing, which forgets what is written: the core's own tail is enough."""

    first_index = 0
    last_index = -1
    base_term = 0
    snapshot = None

    def read_snapshot(self, offset: int, size: int) -> bytes:
        """Never needed here."""
        raise AssertionError((offset, size))

    def term_runs(self) -> list[tuple[LogIndex, Term]]:
        """Return none."""
        return []

    def read(self, first_index: LogIndex, last_index: LogIndex, bytes_max: int) -> Span:
        """Never needed here."""
        raise AssertionError((first_index, last_index, bytes_max))

    def position_after(self, index: LogIndex) -> int:
        """Return the beginning."""
        return 0


def make_core(node_id: NodeId) -> Raft:
    """Return a core over an empty log."""
    return Raft(
        RaftConfig(self_id=node_id, voters=VOTERS),
        log=RaftLog(EmptyView(), -1),
        hard_state=HardState(),
        rng=SystemRng(1),
        make_noop=lambda index, term, position: encode_span(index, term, position, (b"",)),
    )


def settle(raft: Raft) -> None:
    """Do what a driver does, without a disk."""
    while (ready := raft.ready()) is not None:
        raft.advance(ready)
        if ready.entries:
            raft.persisted(ready.entries[-1].last_index)


def measure(work: Callable[[int], None], seconds: float) -> float:
    """Return microseconds a call of ``work``, the best of five."""
    count, best = 0, float("inf")
    for _ in range(5):
        begun, calls = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds / 5:
            for _ in range(20):
                work(count)
                count += 1
            calls += 20
        best = min(best, (time.perf_counter() - begun) / calls)
    return best * 1e6


def spans(entries: int, count: int) -> list[Span]:
    """Return spans of term 1 that follow the entry which opens the term."""
    made, index, position = [], 1, 48
    for _ in range(count):
        made.append(encode_span(index, 1, position, [b"x" * 16] * entries))
        index, position = index + entries, made[-1].end_position
    return made


def follower_step(entries: int) -> float:
    """Measure step, ready and advance of a follower for one span."""
    raft = make_core("n0")
    raft.step(Append("n1", "n0", 1, -1, 0, -1, encode_span(0, 1, 0, [b""])))
    settle(raft)
    appends = [
        Append("n1", "n0", 1, span.first_index - 1, 1, span.first_index - 1, span)
        for span in spans(entries, SPANS)
    ]
    begun = time.perf_counter()
    for append in appends:
        raft.step(append)
        settle(raft)
    return (time.perf_counter() - begun) / SPANS * 1e6


def leader_step(entries: int) -> float:
    """Measure a leader's whole share of one span: propose, send twice, two replies, commit."""
    raft = make_core("n0")
    raft.campaign()
    raft.step(PreVoteReply("n1", "n0", 1, granted=True))
    raft.step(VoteReply("n1", "n0", 1, granted=True))
    settle(raft)
    for peer in ("n1", "n2"):
        raft.step(AppendReply(peer, "n0", 1, 0))
    settle(raft)
    made = spans(entries, SPANS)
    begun = time.perf_counter()
    for span in made:
        raft.propose(span)
        settle(raft)
        raft.step(AppendReply("n1", "n0", 1, span.last_index))
        raft.step(AppendReply("n2", "n0", 1, span.last_index))
        settle(raft)
    took = time.perf_counter() - begun
    assert raft.state.log.commit_index == made[-1].last_index
    return took / SPANS * 1e6


def appender_cost(seconds: float) -> float:
    """Measure reserve and append of 1 KiB, CRC and the closing of 64-entry batches included."""
    config = DLedgerConfig(group="g", self_id="n0", peers={"n0": ""}, directory="/nowhere")

    def refuse() -> NotLeader:
        return NotLeader(None)

    committed = 0
    appender = Appender(config, schedule=lambda: None, refusal=refuse, committed=lambda: committed)
    appender.propose = lambda _: None
    appender.restart(1, 0, 0)
    appender.accepting = True

    def work(number: int) -> None:
        nonlocal committed
        appender.reserve(BODY_BYTES)
        appender.append(BODY, BODY_BYTES)
        if number % 64 == 63:
            appender.close_batch()
            committed = (number + 1) * (BODY_BYTES + 48)

    return measure(work, seconds)


def codec_cost(entries: int, seconds: float) -> tuple[float, float, float]:
    """Measure encoding, decoding, and the header walk alone, of an append of 1 KiB entries."""
    span = encode_span(1, 1, 4096, [b"".join(BODY)] * entries)
    append = Append("n0", "n1", 1, 0, 1, 0, span)
    sender, receiver = PeerCodec("g", "n0", ("n1",)), PeerCodec("g", "n1", ("n0",))
    frame = FrameDecoder().feed(b"".join(sender.encode(append)))[0]
    encode = measure(lambda _: _ignore(sender.encode(append)), seconds)
    decode = measure(lambda _: _ignore(receiver.decode(frame)), seconds)
    walk = measure(lambda _: _ignore(index_units(span.data, 1, entries, 1)), seconds)
    return encode, decode, walk


def _ignore(_: object) -> None:
    """Take a value and forget it."""


class Feeder(DLedgerListener):
    """A listener that keeps a window of appends under way at one node."""

    def __init__(self) -> None:
        self.commit_index: LogIndex = -1
        self.feed: Callable[[], None] = lambda: None

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the body of a leader's first entry."""
        return b"noop"

    def on_committed(self, commit_index: LogIndex) -> None:
        """Append as many as were committed."""
        self.commit_index = commit_index
        self.feed()

    def on_role(self, role: Role, term: Term, leader_id: NodeId | None) -> None:
        """Do nothing."""


async def node_rate(
    size: int, window: int, flush: FlushDiskType, seconds: float
) -> dict[str, float]:
    """Return acknowledged appends a second, and CPU microseconds an append in the process."""
    ports = enumerate(take_ports(size))
    peers = {f"n{number}": f"127.0.0.1:{port}" for number, port in ports}
    with tempfile.TemporaryDirectory() as path:
        pairs: list[tuple[DLedgerNode, Feeder]] = []
        for node_id in peers:
            config = DLedgerConfig(
                group="bench",
                self_id=node_id,
                peers=peers,
                directory=f"{path}/{node_id}",
                flush_disk_type=flush,
                data_segment_bytes=256 << 20,
                index_segment_bytes=64 << 20,
            )
            feeder = Feeder()
            pairs.append((DLedgerNode(config), feeder))
        for node, feeder in pairs:
            await node.start(feeder)
        while not any(  # noqa: ASYNC110  # an election takes its time
            node.is_leader and feeder.commit_index >= 0 for node, feeder in pairs
        ):
            await asyncio.sleep(0.01)
        node, feeder = next(pair for pair in pairs if pair[0].is_leader)
        result = await _feed(node, feeder, window, seconds)
        for other, _ in pairs:
            await other.stop()
    return result


async def _feed(node: DLedgerNode, feeder: Feeder, window: int, seconds: float) -> dict[str, float]:
    base = feeder.commit_index
    appended = 0
    done = asyncio.Event()
    deadline = time.perf_counter() + seconds

    def feed() -> None:
        nonlocal appended
        if time.perf_counter() > deadline:
            if feeder.commit_index == base + appended:
                done.set()
            return
        while base + appended - feeder.commit_index < window:
            node.reserve(BODY_BYTES)
            node.append(BODY, BODY_BYTES)
            appended += 1

    feeder.feed = feed
    begun, cpu = time.perf_counter(), time.process_time()
    feed()
    await done.wait()
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    feeder.feed = lambda: None
    return {"per_second": appended / took, "cpu_us": used / appended * 1e6}


def run(seconds: float) -> dict[str, float]:
    """Run everything; return name -> value."""
    results: dict[str, float] = {}
    for entries in (1, 64, 1024):
        results[f"core follower step, span of {entries} (us)"] = follower_step(entries)
        results[f"core leader share, span of {entries} (us)"] = leader_step(entries)
    results["appender, 1 KiB entry with CRC (us)"] = appender_cost(seconds)
    for entries in (1, 64):
        encode, decode, walk = codec_cost(entries, seconds)
        results[f"peer encode, span of {entries} x 1 KiB (us)"] = encode
        results[f"peer decode, span of {entries} x 1 KiB (us)"] = decode
        results[f"  of it header walk, span of {entries} (us)"] = walk
    for flush in FlushDiskType:
        for size in (1, 3):
            for window in (1, 64, 256):
                name = f"{size} nodes, {flush.value}, window {window}"
                rate = uvloop.run(node_rate(size, window, flush, seconds))
                results[f"{name} (appends/s)"] = rate["per_second"]
                results[f"{name} (cpu us, all nodes)"] = rate["cpu_us"]
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.raft_core", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each measurement")
    options = parser.parse_args(argv)
    results = run(options.seconds)
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        for name, value in results.items():
            print(f"{name:55} {value:12,.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
