"""What one life of the machine of such clients has: names, addresses, who judges, how to ask."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ledgermq.client import MessageQueue, RemotingError
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.signing import KeyCredentials, sign
from sim.layout import PEER_KEY
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledgermq.client import ClientConfig, Producer, PullConsumer
    from ledgermq.remoting.protocol.codes import RequestCode
    from sim.context import Host
    from sim.rng import SplitRng
    from sim.validators import Validators

MS_PER_S: Final = 1_000
RETRY_S: Final = 0.2
ASK_MS: Final = 3_000
Queue = tuple[str, int]


class Habit(Protocol):
    """Something that is done again and again."""

    async def start(self) -> None:
        """Begin."""
        ...

    async def step(self, rng: SplitRng) -> None:
        """Do it once. Errors: `RemotingError`."""
        ...

    def missing(self) -> str:
        """Say what has not come yet of what must, once all is healed; empty for nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life.

    Args:
        name: of this life alone; what topics, groups and clients are called begins like it.
        brokers: members of the group, by the addresses at which clients reach them.
        dropped: before which offset a queue's messages are gone.
        topics_max: how many topics it makes beside those that it goes on with: routes tell of all.
    """

    name: str
    config: ClientConfig
    machine: Host
    rng: SplitRng
    validators: Validators
    brokers: Mapping[str, str]
    namesrvs: tuple[str, ...]
    dropped: Mapping[Queue, int]
    topics_max: int
    calm_since_ms: Callable[[], int | None] = lambda: None
    """Returns since when nothing has happened to anybody, by `now_ms`; None if something does."""
    made: list[str] = field(default_factory=list)
    signed: list[int] = field(default_factory=list)

    def named(self, what: str) -> ClientConfig:
        """Return settings of a client with a group of its own."""
        name = f"{self.name}-{what}"
        return dataclasses.replace(self.config, group=name, instance_name=name)

    def now_ms(self) -> int:
        """Return how late it is, whatever a clock on the wall shows."""
        return self.machine.clock.monotonic_ms()

    def report(self, oracle: str, text: str) -> None:
        """Report a violation."""
        self.validators.report(oracle, text)

    def count(self, what: str, times: int = 1) -> None:
        """Count what was done."""
        self.validators.record.count(what, times)

    def may_make(self, topic: str) -> bool:
        """Tell whether there may be one topic more."""
        self.made.append(topic)
        return len(self.made) <= self.topics_max

    def is_dropped(self, queue: MessageQueue, offset: int) -> bool:
        """Tell whether somebody had a message dropped before anybody might read it."""
        return offset < self.dropped.get((queue.topic, queue.queue_id), 0)

    async def make_topic(self, producer: Producer, topic: str, queues: int) -> None:
        """Have a topic, however long that takes."""
        while True:
            try:
                await producer.create_topic(topic, queues)
                if await producer.fetch_publish_queues(topic):
                    return
            except RemotingError:
                self.count("client_errors")
            await asyncio.sleep(RETRY_S)

    async def ask_leader(
        self,
        puller: PullConsumer,
        code: RequestCode,
        fields: dict[str, str],
        *,
        body: bytes = b"",
        signs: bool = False,
    ) -> RemotingCommand:
        """Ask who leads, as tools do. Errors: `RemotingError`."""
        addr = puller._leaders.master(MessageQueue("", GROUP_NAME, 0))
        command = RemotingCommand(code=code, ext_fields=fields, body=body)
        if signs and addr in self.brokers:
            self.signed.append(code)
            command = sign(
                command, KeyCredentials(PEER_KEY.encode(), self.name),
                now_ms=self.machine.clock.wall_ms(),
                nonce=f"{self.name}-{len(self.signed)}",
                audience=f"{GROUP_NAME}/{self.brokers[addr]}",
            )  # fmt: skip
        return await puller._instance.client.request(addr, command, ASK_MS)
