"""What the store costs per message, part by part, in process: put, dispatch, follow, read.

The log below is a real `DLedgerNode` of one replica for ``node``, and one that only keeps bytes in
memory for the store's own cost. Everything is the best of several rounds; nothing is asserted.
Run: ``python -m bench.store_append [--json]``.
"""

import argparse
import asyncio
import gc
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import uvloop

from dledger.config import ENTRY_HEADER_BYTES, DLedgerConfig
from dledger.core.model import Role
from dledger.mark import LogMark
from dledger.node import DLedgerNode
from dledger.replicated_log import ReplicatedLog
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.config import StoreConfig
from store.message_store import MessageStore
from store.ports import Body
from store.queues.start import QueueStart
from store.results import PutMessage, PutStatus

HOST = pack_host("127.0.0.1", 10911)
PROPERTIES = (
    b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01FD000000000000000000000000000002679\x02"
    b"CLUSTER\x01DefaultCluster\x02TRACE_ON\x01true\x02TAGS\x01TagA"
)
BODY = bytes(range(256)) * 4
TAGS_CODE = 2598919
QUEUES = 4
WINDOW = 64
MESSAGES = 20_000
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """Microseconds per 1 KiB message, and messages per second where it says so.

    Processor time of the loop thread, except ``node_*``, which is what a clock on the wall says.
    """

    put_us: float
    own_dispatch_us: float
    write_units_us: float
    node_end_to_end_us: float
    follow_us: float
    read_us: float
    node_messages_per_s: float


class MemoryLog:
    """A log that costs next to nothing: bodies by place, all of them committed."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.end_position = 0
        self.header_bytes = ENTRY_HEADER_BYTES
        self.first_position = 0
        self.entries = self.feed = self.marks = self.files = self

    @property
    def committed_position(self) -> int:
        """Everything is committed."""
        return self.end_position

    def maybe_term(self, applied: int) -> int | None:
        """See `Log`."""
        return 1 if applied > 0 else None

    def reserve(self, body_bytes: int) -> int:
        """See `Log`."""
        del body_bytes
        return self.end_position + ENTRY_HEADER_BYTES

    def append(self, parts: Sequence[bytes], body_bytes: int) -> None:
        """See `Log`."""
        physical = self.end_position + ENTRY_HEADER_BYTES
        self.bodies[physical] = parts[0] if len(parts) == 1 else b"".join(parts)
        self.end_position = physical + body_bytes

    def append_batch(self, bodies: Sequence[bytes]) -> None:
        """See `Log`; batches are not measured."""
        raise AssertionError(bodies)

    def next_batch(self, applied: int, most: int, least: int = 0) -> int:
        """See `Log`; nobody follows, and everything stays."""
        del applied, least
        return most

    def following(self, position: int) -> int:
        """See `Log`."""
        return position

    def walk(self, start: int, end: int, limit: int) -> Iterator[Body]:
        """See `Log`; only the first entry is ever read back."""
        del end, limit
        physical = start + ENTRY_HEADER_BYTES
        body = memoryview(self.bodies[physical])
        yield physical, body, 0, len(body)

    def maybe_hint(self, position: int) -> None:
        """See `Log`; there are no hints."""

    def last_body(self) -> memoryview | None:
        """See `Log`."""
        return memoryview(next(reversed(self.bodies.values()))) if self.bodies else None

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """See `Log`."""
        return memoryview(self.bodies[physical_offset])[:size]

    def maybe_size(self, physical_offset: int) -> int | None:
        """See `Log`; nothing is looked up by place."""
        raise AssertionError(physical_offset)

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """See `Log`; there is no disk."""

    def describe(self, physical_offset: int) -> str:
        """See `Log`."""
        return f"offset={physical_offset}"

    def mark(self, start: int, end: int) -> LogMark:
        """See `Log`."""
        return LogMark(end, 1, start)

    def maybe_end(self, mark: LogMark) -> int | None:
        """See `Log`; nothing is recovered."""
        raise AssertionError(mark)


class Listener:
    """Hears, and does nothing."""

    def on_message(self, topic: str, queue_id: int, max_offset: int) -> None:
        """See `StoreListener`."""

    def apply_state(self, position: int, kind: str, payload: bytes) -> None:
        """See `StoreListener`."""

    def restore_state(self, state: bytes) -> tuple[list[QueueStart], Iterator[None]]:
        """See `StoreListener`; no snapshot comes to a group of one."""
        del state
        return [], iter(())

    def on_writable(self, writable: bool, term: int) -> None:  # noqa: FBT001 - the contract's event
        """See `StoreListener`."""

    def on_hand_over(self) -> None:
        """See `StoreListener`."""


def make_messages(count: int) -> list[PutMessage]:
    """Return messages over `QUEUES` queues, each with objects of its own as after decoding."""
    return [
        PutMessage(
            bytes(bytearray(b"BenchTopic")), number % QUEUES, 0, 0, 1_700_000_000_000, HOST, 0, 0,
            PROPERTIES, BODY, TAGS_CODE,
        )
        for number in range(count)
    ]  # fmt: skip


def make_store(directory: str, soon: list[Callable[[], None]] | None = None) -> MessageStore:
    """Return a store with RocketMQ's sizes."""
    config = StoreConfig(directory=directory, store_host=HOST)
    call_soon = None if soon is None else soon.append
    return MessageStore(config, RealDisk(), SystemClock(), Listener(), call_soon=call_soon)


def measure(work: Callable[[], object]) -> float:
    """Return the microseconds of processor time that one call takes."""
    start = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - start) / 1000


def ignore(status: PutStatus, queue_offset: int, physical_offset: int) -> None:
    """Take an answer."""


def in_memory(directory: str) -> dict[str, float]:
    """Measure the store's own cost on a log in memory; microseconds per message."""
    log = MemoryLog()
    store = make_store(directory, [])
    store.attach(log)
    store.load()
    noop = store.log_user.noop_body(ENTRY_HEADER_BYTES)
    log.append((noop,), len(noop))
    store.log_user.on_role(Role.LEADER, 1, "n0")
    store.log_user.on_committed(log.end_position)
    messages = make_messages(MESSAGES)
    put_us = own_us = 0.0
    for first in range(0, MESSAGES, WINDOW):
        batch = messages[first : first + WINDOW]

        def put_all(batch: list[PutMessage] = batch) -> None:
            put = store.writer.put
            for message in batch:
                put(message, ignore)

        put_us += measure(put_all)
        own_us += measure(lambda: store.log_user.on_committed(log.end_position))
    write_us = measure(store.checkpoints.write_now)
    return {
        "put_us": put_us / MESSAGES,
        "own_dispatch_us": own_us / MESSAGES,
        "write_units_us": write_us / MESSAGES,
    }


def follow(store: MessageStore, soon: list[Callable[[], None]], committed: int) -> None:
    """Dispatch everything by reading it back."""
    store.log_user.on_committed(committed)
    while soon:
        soon.pop()()
    assert store.applied == committed


def drain(store: MessageStore) -> None:
    """Read every queue from its beginning, 32 messages at a time."""
    for queue_id in range(QUEUES):
        offset, end = 0, store.reader.max_offset("BenchTopic", queue_id)
        while offset < end:
            offset = store.reader.get("BenchTopic", queue_id, offset, 32, 262_144, None).next_offset


async def on_node(directory: str) -> dict[str, float]:
    """Measure on a real log of one replica: put to answer, dispatch as a follower, reads."""
    config = DLedgerConfig(
        group="bench", self_id="n0", peers={"n0": ""}, directory=f"{directory}/dledger-n0"
    )
    node = DLedgerNode(config)
    store = make_store(directory)
    log = ReplicatedLog(node)
    store.attach(log)
    log.serve(store.log_user)
    store.load()
    await node.start(log)
    store.start()
    while not store.writer.writable:  # noqa: ASYNC110 - once, before anything is measured
        await asyncio.sleep(0.01)
    messages = make_messages(MESSAGES)
    finished = asyncio.get_running_loop().create_future()
    answered = 0

    def on_answer(status: PutStatus, queue_offset: int, physical_offset: int) -> None:
        nonlocal answered
        del queue_offset, physical_offset
        assert status is PutStatus.OK, status
        answered += 1
        if messages:
            store.writer.put(messages.pop(), on_answer)
        elif answered == MESSAGES:
            finished.set_result(None)

    start = time.perf_counter_ns()
    for _ in range(WINDOW):
        store.writer.put(messages.pop(), on_answer)
    await finished
    elapsed_us = (time.perf_counter_ns() - start) / 1000
    soon: list[Callable[[], None]] = []
    follower = make_store(f"{directory}/follower", soon)
    follower.attach(log)
    follower.load()
    follow_us = measure(lambda: follow(follower, soon, node.committed_position))
    assert follower.checkpoints.write_now()
    read_us = measure(lambda: drain(follower))
    await store.stop()
    await node.stop()
    return {
        "node_end_to_end_us": elapsed_us / MESSAGES,
        "follow_us": follow_us / MESSAGES,
        "read_us": read_us / MESSAGES,
    }


def run() -> Figures:
    """Return the best of `ROUNDS` rounds of everything."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        directory = tempfile.mkdtemp(prefix="bench-store-")
        try:
            gc.collect()
            gc.freeze()
            found = in_memory(f"{directory}/memory")
            found |= uvloop.run(on_node(f"{directory}/node"))
        finally:
            gc.unfreeze()
            shutil.rmtree(directory)
        for name, value in found.items():
            best[name] = min(value, best.get(name, value))
    return Figures(**best, node_messages_per_s=1e6 / best["node_end_to_end_us"])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    figures = asdict(run())
    if options.json:
        print(json.dumps(figures))
        return
    print(f"store, 1 KiB messages, {QUEUES} queues, window {WINDOW}, best of {ROUNDS}")
    for name, value in figures.items():
        print(f"  {name:22} {value:12.2f}")


if __name__ == "__main__":
    main()
