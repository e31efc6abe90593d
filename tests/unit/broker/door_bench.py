"""A send processor over a real commit log whose entries are kept in a list."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from broker.processor.send import SendProcessor
from broker.sends.creation import Creator
from broker.sends.door import Door
from broker.sends.properties import PropertyRewriter
from broker.state.subscription import SubscriptionGroupTable
from broker.state.topic_config import TopicTable
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from store.config import StoreConfig
from store.queues.consume_queue import ConsumeQueues
from store.results import PutStatus
from store.write.commit_log import CommitLog
from tests.unit.broker.fakes import FakeConnection, FakeRng, frame, free_room, no_wait

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

    from broker.state.kinds import StateKind
    from ledgermq.remoting.protocol.message import MessageExt
    from store.results import BatchCallback, PutBatch, PutCallback, PutMessage

BODY_MAX = 4 * 1024**2
NOW_MS = 1_700_000_000_000
STORE_HOST = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")


class ListNode:
    """A leader whose entries lie in a list, and never commit."""

    header_bytes = 48
    term = 1
    commit_index = first_index = first_position = committed_position = 0

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    @property
    def end_index(self) -> int:
        return len(self.bodies) - 1

    def reserve(self, body_bytes: int) -> int:
        return 48

    def append(self, parts: Sequence[bytes], body_bytes: int) -> int:
        self.bodies.append(b"".join(parts))
        assert len(self.bodies[-1]) == body_bytes
        return self.end_index

    def append_batch(self, bodies: Sequence[bytes]) -> list[int]:
        return [self.append((body,), len(body)) for body in bodies]

    def last_body(self) -> None:
        return None


class StepProposer:
    """Applies a topic at once, and says so when let; raises what it is told to raise."""

    def __init__(self, topics: TopicTable) -> None:
        self.writable = True
        self.error: Exception | None = None
        self.proposed: list[bytes] = []
        self._topics = topics

    async def propose(self, _kind: StateKind, payload: bytes) -> PutStatus:
        self.proposed.append(payload)
        if self.error is not None:
            raise self.error
        self._topics.apply(payload)
        return PutStatus.OK


class SlowPublisher:
    """Publishes when the test says so."""

    def __init__(self) -> None:
        self.published = asyncio.Event()

    async def publish(self) -> None:
        await self.published.wait()


class HandedStore:
    """Notes the sysFlag of what it is handed, and hands it on."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.flags: list[int] = []

    @property
    def writable(self) -> bool:
        return self._log.writable

    def put(self, message: PutMessage, done: PutCallback) -> None:
        self.flags.append(message.sys_flag)
        self._log.put(message, done)

    def put_batch(self, batch: PutBatch, done: BatchCallback) -> None:
        self.flags.append(batch.sys_flag)
        self._log.put_batch(batch, done)


class Bench:
    """Sends go in, and records come out."""

    def __init__(self, directory: Path) -> None:
        config = StoreConfig(directory=str(directory), store_host=STORE_HOST)
        self.node = ListNode()
        self.log = CommitLog(config, ConsumeQueues(config, RealDisk()), SystemClock(), self.node)
        self.log.writable = True
        self.store = HandedStore(self.log)
        auto = TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7)
        self.topics = TopicTable([auto], 0)
        self.topics._put(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
        self.proposer, self.publisher = StepProposer(self.topics), SlowPublisher()
        self.served: list[Coroutine[Any, Any, None]] = []
        self.creator = Creator(
            topics=self.topics,
            groups=SubscriptionGroupTable(0),
            proposer=self.proposer,
            publisher=self.publisher,
            clock=SystemClock(),
            serve=lambda _, coroutine: self.served.append(coroutine),
            enter=no_wait,
            is_orderly=lambda _: False,
        )
        self.ids_made = 0
        self.connection = FakeConnection()
        self.puts: defaultdict[str, int] = defaultdict(int)
        self.processor = SendProcessor(
            topics=self.topics.entries,
            store=self.store,
            maker=self.creator,
            door=Door(PropertyRewriter("C", self._unique_id, lambda: NOW_MS), BODY_MAX, 18),
            rng=FakeRng(),
            store_host=STORE_HOST,
            on_half=lambda *_: None,
            room=free_room(),
            puts=self.puts,
        )

    def send(self, body: bytes = b"x", code: int = 310, flag: int = 0, **fields: Any) -> None:
        header = {"a": "p", "b": "T", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 5, "h": 0}
        header |= {"i": "UNIQ_KEY\x01u", "j": 0, "k": "false", "m": "false"} | fields
        handle = self.processor.handle_batch if code == 320 else self.processor.handle
        handle(self.connection, frame(code, body, flag, **header))

    def _unique_id(self) -> bytes:
        self.ids_made += 1
        return b"ID"

    def close(self) -> None:
        """Forget what was to be served."""
        for coroutine in self.served:
            coroutine.close()

    @property
    def codes(self) -> list[int]:
        """The codes of all answers so far; what is stored has none yet."""
        return [answer.code for answer in self.connection.answers]

    @property
    def records(self) -> list[MessageExt]:
        """What was appended, read back."""
        return [decode_record(body, check_crc=True) for body in self.node.bodies]
