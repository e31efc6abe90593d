"""One broker's log and store in this process, for benchmarks: no sockets, a real directory.

A *plain* log is what a broker without a group has, and it is started and stopped as
`broker.modes.plain` does it; a *raft* log is a `DLedgerNode` that is a group of one. Messages are
1 KiB with the properties that a send through a broker has.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from bench.store_append import BODY, HOST, PROPERTIES, TAGS_CODE, Listener
from dledger.config import DLedgerConfig
from dledger.node import DLedgerNode
from dledger.replicated_log import ReplicatedLog
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import Disk, RealDisk
from store.config import IndexConfig, StoreConfig
from store.dispatch.anomalies import Unreplicated
from store.message_store import MessageStore
from store.plain import PlainLog
from store.plain.config import PlainLogConfig
from store.recovery.directory import StoreDirectory, SyncedTimes
from store.recovery.foreign import take_over
from store.results import PutMessage, PutStatus

WINDOW: Final = 256
TOPIC_QUEUES: Final = 16
"""Queues of one topic, where there are many."""


class Kind(Enum):
    """Which log lies below the store."""

    PLAIN = "plain"
    RAFT = "raft"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What kind of node is opened, and how."""

    kind: Kind = Kind.PLAIN
    has_index: bool = True
    checkpoint_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Node:
    """A store that takes messages, on its log."""

    log: DLedgerNode | PlainLog
    store: MessageStore


def queue_names(queues: int) -> list[tuple[str, int]]:
    """Return topic and queue id of so many queues."""
    return [(f"Topic{n // TOPIC_QUEUES}", n % TOPIC_QUEUES) for n in range(queues)]


def make_message(topic: bytes, queue_id: int, body: bytes = BODY) -> PutMessage:
    """Return one message of 1 KiB."""
    return PutMessage(
        topic, queue_id, 0, 0, 1_700_000_000_000, HOST, 0, 0, PROPERTIES, body, TAGS_CODE
    )


@asynccontextmanager
async def opened(
    directory: str, settings: NodeSettings = NodeSettings(), disk: Disk | None = None
) -> AsyncIterator[Node]:
    """Start a node in ``directory``, until it takes messages; stop it cleanly at the end."""
    disk = disk or RealDisk()
    config = StoreConfig(
        directory=directory,
        store_host=HOST,
        checkpoint_ms=settings.checkpoint_ms,
        index=IndexConfig() if settings.has_index else None,
    )
    store = MessageStore(config, disk, SystemClock(), Listener())
    begin = _plain if settings.kind is Kind.PLAIN else _raft
    async with begin(config, store, disk) as log:
        store.start()
        while not store.writer.writable:  # noqa: ASYNC110 - once, before anything is measured
            await asyncio.sleep(0.005)
        try:
            yield Node(log, store)
        finally:
            await store.stop()
            await log.stop()


@asynccontextmanager
async def _raft(config: StoreConfig, store: MessageStore, disk: Disk) -> AsyncIterator[DLedgerNode]:
    directory = config.directory
    log = DLedgerNode(
        DLedgerConfig(
            group="bench", self_id="n0", peers={"n0": ""}, directory=f"{directory}/dledger-n0"
        ),
        disk=disk,
    )
    replicated = ReplicatedLog(log)
    store.attach(replicated)
    replicated.serve(store.log_user)
    applied = Path(directory) / "applied"
    store.load(int(applied.read_text(encoding="ascii")) if applied.exists() else 0)
    await log.start(replicated)
    yield log
    applied.write_text(str(log.committed_position), encoding="ascii")  # as tables on disk would say


@asynccontextmanager
async def _plain(config: StoreConfig, store: MessageStore, disk: Disk) -> AsyncIterator[PlainLog]:
    directory = config.directory
    place = StoreDirectory(directory, disk)
    place.enter()
    log = PlainLog(PlainLogConfig(directory=f"{directory}/commitlog"), disk=disk)
    index_time = None if config.index is None else lambda: store.checkpoints.index_timestamp
    times = SyncedTimes(lambda: log.synced_timestamp, lambda: log.synced_position, index_time)
    store.attach(log, times, Unreplicated)
    safe_ms = min(place.times.physic, place.times.logics) - 3_000
    log.open(clean=place.was_clean, safe_timestamp_ms=max(0, safe_ms))
    store.load(
        log.end_position,
        recover=lambda queues: take_over(place, disk, queues, log),
        index_until=None if place.was_clean else place.times.index,
    )
    place.mark_unclean()
    times.last = place.times
    await log.start(store.log_user)
    yield log
    place.leave(clean=True, times=times.when_all_is_synced())


async def put_all(store: MessageStore, messages: Iterator[PutMessage], window: int = WINDOW) -> int:
    """Put messages, ``window`` of them outstanding; return how many were acknowledged."""
    finished = asyncio.get_running_loop().create_future()
    outstanding = answered = 0

    def on_answer(status: PutStatus, queue_offset: int, physical_offset: int) -> None:
        nonlocal outstanding, answered
        del queue_offset, physical_offset
        assert status is PutStatus.OK, status
        outstanding -= 1
        answered += 1
        put_next()

    def put_next() -> None:
        nonlocal outstanding
        message = next(messages, None)
        if message is not None:
            outstanding += 1
            store.writer.put(message, on_answer)
        elif outstanding == 0 and not finished.done():
            finished.set_result(None)

    for _ in range(window):
        put_next()
    await finished
    return answered


def spread(queues: int, count: int) -> Iterator[PutMessage]:
    """Yield messages, one after the other for each of so many queues."""
    templates = [make_message(topic.encode(), number) for topic, number in queue_names(queues)]
    for number in range(count):
        yield templates[number % queues]


def rss_anon_mib() -> float:
    """Return the private memory of this process."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def open_files() -> int:
    """Return how many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def mappings(of: str) -> int:
    """Return how many mappings of files whose path contains ``of`` this process has."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count(of)


def written_bytes() -> int:
    """Return the bytes that this process gave to write calls so far."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(dict(line.split(": ") for line in text.splitlines())["wchar"])


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of work took, in seconds."""

    wall_s: float
    cpu_s: float


class Stopwatch:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def cost(self) -> Cost:
        """Return what was used since."""
        return Cost(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def temporary(where: str | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Return a directory that is removed with all that is in it."""
    return tempfile.TemporaryDirectory(prefix="ledgermq-bench-", dir=where)
