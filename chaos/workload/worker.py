"""What all worker processes share: settings from a file, commands on stdin, status on stdout.

A worker begins at once, reports one JSON line every quarter second, ends after a word on stdin,
when stdin closes, or when its time is up, and writes everything to its own recording.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ledgermq.runtime.log_format import configure_logging

REPORT_S = 0.25
STOP, LEAVE = b"stop\n", b"leave\n"
"""What ends a worker: all is quiet, or not."""
TAG_NUMBER = "number"
"""The property that says which of its producer's tags a message has, if it has one."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one worker, as the harness writes them."""

    run_id: str
    name: str
    worker: int
    raw: str
    """Path of the recording."""
    namesrv_addrs: tuple[str, ...]
    node_by_addr: dict[str, str]
    topic: str
    group: str
    seed: int
    seconds_max: float
    processes: int = 1
    first_process: int = 0
    rate: float = 0.0
    sizes: tuple[tuple[int, int], ...] = ((1, 200),)
    send_timeout_ms: int = 3_000
    batch: int = 1
    """Messages that a producer sends as one request."""
    tags: tuple[str, ...] = ("",)
    """Tags of a producer's messages in turn."""
    chosen_queues: int = 0
    """Producer: its processes choose their queue, of so many; 0: any queue will do."""
    broker_name: str = ""
    cancel_every: int = 0
    large_every: int = 0
    transactional: bool = False
    asks: bool = False
    """Producer: it wants a reply to each message."""
    linger_s: float = 0.0
    """How long a producer stays when it sends no more, so that it can be asked."""
    delay_every: int = 0
    delay_levels: tuple[int, ...] = ()
    """Levels, in turn, of a producer's messages that wait."""
    delays_ms: tuple[int, ...] = ()
    """How long the brokers let each level wait, 1 first."""
    expressions: dict[str, str] = {}
    """Consumer: what it subscribes to, by topic; empty: all of ``topic``."""
    sql: bool = False
    """Consumer: its expressions are of SQL92, not tags."""
    replies: bool = False
    """Consumer: it replies to what wants a reply."""
    from_last: bool = False
    fail_every: int = 0
    refuse_every: int = 0
    suspend_ms: int = 15_000
    mode: str = "concurrent"
    reconsume_max: int | None = None
    offsets_dir: str = ""
    continues: str = ""
    """Consumer: the member that it goes on as, with what that one kept; empty: itself."""

    @property
    def instance(self) -> str:
        """The name by which its client is known to brokers, and to itself when it comes back."""
        return self.continues or self.name

    @property
    def history_group(self) -> str:
        """The group as the history names it: a broadcasting member is one of its own."""
        return f"{self.group}@{self.instance}" if self.mode == "broadcast" else self.group


@dataclass(slots=True)
class Status:
    """What a worker said last."""

    counts: dict[str, int] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    """Committed offset by queue, ``topic/number`` (consumers)."""
    first: dict[str, int] = field(default_factory=dict)
    """The first offset that was committed of each queue: where the consumer began."""
    last_ack_ns: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    done: bool = False


def encode_status(status: Mapping[str, Any]) -> bytes:
    """Return a status as one line."""
    return json.dumps(status).encode() + b"\n"


def decode_status(line: bytes) -> Status:
    """Return the status of a line. Errors: ValueError, msgspec.MsgspecError for a broken one."""
    return msgspec.json.decode(line, type=Status, strict=False)


def read_spec(argv: list[str]) -> WorkerSpec:
    """Return the settings in the file that the command line names."""
    return msgspec.json.decode(Path(argv[0]).read_bytes(), type=WorkerSpec)


async def until_stopped(
    seconds_max: float, report: Callable[[], Mapping[str, Any]], done: asyncio.Event
) -> bool:
    """Report until a word comes, stdin ends, the time is up, or ``done`` is set.

    Returns whether the word was `STOP`: all is quiet, and whoever is owed something may say so.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    command = asyncio.create_task(reader.readline())
    ended = asyncio.create_task(done.wait())
    end = loop.time() + seconds_max
    while not command.done() and not ended.done() and loop.time() < end:
        say(report())
        await asyncio.wait({command, ended}, timeout=REPORT_S, return_when=asyncio.FIRST_COMPLETED)
    quiet = command.done() and command.result() == STOP
    for task in (command, ended):
        task.cancel()
    return quiet


def say(status: Mapping[str, Any]) -> None:
    """Write a status line to the harness."""
    sys.stdout.buffer.write(encode_status(status))
    sys.stdout.buffer.flush()


def run_worker(main: Callable[[WorkerSpec], Awaitable[None]]) -> int:
    """Run a worker's main coroutine to its end."""

    async def go() -> None:
        await main(spec)

    spec = read_spec(sys.argv[1:])
    configure_logging(spec.name, "WARNING")  # with levels and times: A62 reads it
    asyncio.run(go())
    return 0
