"""A broker whose tables are full, in a loop that says how long its longest turn took.

Turns are counted in processor time of the loop's thread, so that they mean the same on a machine
with other things to do.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import msgspec

from broker.state.kinds import StateKind
from broker.state.subscription import GroupChange, SubscriptionGroupConfig
from broker.state.topic_config import TopicChange
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.controller import BrokerController

TOPICS = 4_000
WIDE = "wide"
WIDE_GROUP = "group-00000"
WIDE_QUEUES = 8_192
GROUPS = 10_000
READERS = 25
"""Consumer groups with offsets in some queues of many topics."""
SLICE = 500


def topic_name(number: int) -> str:
    """Return the name of a topic."""
    return f"topic-{number:05}-{'t' * 20}"


class TimedLoop(asyncio.SelectorEventLoop):
    """A loop that notes its longest turn."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_ms = 0.0
        self._selected = 0.0
        self._select = self._selector.select
        self._selector.select = self._select_timed  # type: ignore[method-assign]

    def forget(self) -> None:
        """Begin to look for the longest turn anew, without the rubbish of what came before."""
        gc.collect()
        self.longest_ms = 0.0
        self._selected = time.thread_time()

    def _select_timed(self, timeout: float | None = None) -> Any:
        took_ms = (time.thread_time() - self._selected) * 1000
        self.longest_ms = max(self.longest_ms, took_ms)
        found = self._select(timeout)
        self._selected = time.thread_time()
        return found


def run_timed(scenario: Coroutine[Any, Any, None]) -> None:
    """Run something in a `TimedLoop`."""
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        runner.run(scenario)


async def fill(broker: BrokerController) -> None:
    """Fill the tables as the log would, without the time that takes."""
    apply = broker.tables.state.apply
    names = list(map(topic_name, range(TOPICS)))
    topics = [(WIDE, WIDE_QUEUES), *((name, 8) for name in names)]
    for number, (name, queues) in enumerate(topics):
        topic = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        apply(0, StateKind.TOPIC, msgspec.json.encode(TopicChange(topic, 1)))
        if number % SLICE == 0:
            await asyncio.sleep(0)
    for number in range(GROUPS):
        group = SubscriptionGroupConfig(group_name=f"group-{number:05}")
        apply(0, StateKind.GROUP, msgspec.json.encode(GroupChange(group, 1)))
        if number % SLICE == 0:
            await asyncio.sleep(0)
    eight = {str(queue): 10**6 for queue in range(8)}
    for reader in range(READERS):
        theirs = [names[(reader * 40 + number) % TOPICS] for number in range(40)]
        rows = {f"{topic}@group-{reader:05}": eight for topic in theirs}
        apply(0, StateKind.OFFSET, msgspec.json.encode(rows))
        await asyncio.sleep(0)
    wide = {f"{WIDE}@{WIDE_GROUP}": {str(queue): 7 for queue in range(WIDE_QUEUES)}}
    apply(0, StateKind.OFFSET, msgspec.json.encode(wide))
    assert broker.tables.state.quarantined == 0
    gc.collect()
    gc.freeze()


class Client:
    """A blocking client: what it does takes no time of the loop if it is used in a thread."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._file = self._socket.makefile("rb")

    def ask(self, code: int, body: bytes = b"", **fields: object) -> tuple[int, bytes]:
        """Return code and body of the answer."""
        texts = {name: str(value) for name, value in fields.items()}
        self._socket.sendall(
            b"".join(encode_command(RemotingCommand(code, ext_fields=texts, body=body)))
        )
        while True:
            (size,) = struct.unpack(">i", self._file.read(4))
            frame = self._file.read(size)
            header = int.from_bytes(frame[1:4], "big")
            head = json.loads(frame[4 : 4 + header])
            if head["flag"] & 1:
                return head["code"], frame[4 + header :]

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()
