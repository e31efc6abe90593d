"""Creates topics and groups through the replicated log, and has new topics registered.

Whoever needs a missing topic waits here: requests for one topic share one proposal, and go on once
the topic is applied and the name servers know it, so that a client told "stored" finds the route.
Source: protocol.md 3.3 (auto-creation), 3.6 (retry topics), 3.10 (17); architecture.md 5.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from broker.answers import BUSY, PUT_ANSWERS
from broker.replicated_state import StateKind
from broker.subscription import GroupChange
from broker.topic_config import (
    AUTO_CREATE_TOPIC,
    RETRY_PREFIX,
    TopicChange,
    auto_created,
    send_back_topic,
)
from remoting.protocol.codes import ResponseCode
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from broker.replicated_state import Proposer
    from broker.subscription import SubscriptionGroupConfig, SubscriptionGroupTable
    from broker.topic_config import TopicTable
    from remoting.protocol.bodies import TopicConfig
    from runtime.clock import Clock

    Answer = tuple[int, str]
    Resume = Callable[[Answer | None], None]

#: Topics and groups being created at a time.
PENDING_MAX: Final = 1_024
#: Requests that wait for one topic.
PARKED_MAX: Final = 10_000

_BUSY: Final = (ResponseCode.SYSTEM_BUSY, BUSY)


class Publisher(Protocol):
    """Makes the name servers see the topic table."""

    async def publish(self) -> None:
        """Register now and wait for the reachable name servers."""


class Creator:
    """Creates what requests need and does not exist yet.

    Args:
        spawn: runs a coroutine under supervision.
    """

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        proposer: Proposer,
        publisher: Publisher,
        clock: Clock,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._proposer = proposer
        self._publisher = publisher
        self._clock = clock
        self._spawn = spawn
        self._parked: dict[str, list[Resume]] = {}
        self._pending_groups: dict[str, asyncio.Future[PutStatus]] = {}

    def topic_for_send(
        self, topic: str, default_topic: str, queues: int, resume: Resume
    ) -> Answer | None:
        """Create a missing topic for a send, then call ``resume``.

        Returns the answer that refuses the send at once, or None when ``resume`` will be called.
        """
        config = auto_created(topic, self._topics.get(default_topic), queues)
        if config is None and topic.startswith(RETRY_PREFIX):
            if self._groups.find(topic.removeprefix(RETRY_PREFIX)) is None:
                return (
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                    f"subscription group not exist, {topic.removeprefix(RETRY_PREFIX)}",
                )
            config = send_back_topic(topic, 1)
        if config is None:
            hint = "" if default_topic == AUTO_CREATE_TOPIC else f" (default topic {default_topic})"
            return (
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!{hint}",
            )
        parked = self._parked.get(topic)
        if parked is not None:
            if len(parked) >= PARKED_MAX:
                return _BUSY
            parked.append(resume)
            return None
        if len(self._parked) >= PENDING_MAX or self._topics.full:
            return _BUSY
        self._parked[topic] = [resume]
        self._spawn(f"create topic {topic}", self._create_parked(config))
        return None

    async def put_topic(self, config: TopicConfig) -> PutStatus:
        """Create or change a topic; OK means that it is applied and registered."""
        if self._topics.full and self._topics.get(config.topic_name) is None:
            return PutStatus.FULL
        change = TopicChange(config, self._clock.wall_ms())
        status = await self._proposer.propose(StateKind.TOPIC, msgspec.json.encode(change))
        if status is PutStatus.OK:
            await self._publisher.publish()
        return status

    async def put_group(self, config: SubscriptionGroupConfig) -> PutStatus:
        """Create or change a group; equal requests in flight share one proposal."""
        pending = self._pending_groups.get(config.group_name)
        if pending is not None:
            return await asyncio.shield(pending)
        if len(self._pending_groups) >= PENDING_MAX:
            return PutStatus.FULL
        future = asyncio.get_running_loop().create_future()
        self._pending_groups[config.group_name] = future
        status = PutStatus.UNKNOWN
        try:
            change = GroupChange(config, self._clock.wall_ms())
            status = await self._proposer.propose(StateKind.GROUP, msgspec.json.encode(change))
        finally:
            del self._pending_groups[config.group_name]
            future.set_result(status)
        return status

    def group_for_request(self, config: SubscriptionGroupConfig) -> None:
        """Have a group that a request used with default settings created, without waiting."""
        name = config.group_name
        if self._proposer.writable and name not in self._pending_groups:
            self._spawn(f"create group {name}", self._put_group_quietly(config))

    async def consumer_group(self, group: SubscriptionGroupConfig) -> None:
        """Create a consumer's group and its retry topic if they are missing."""
        if self._groups.get(group.group_name) is None:
            await self.put_group(group)
        retry = RETRY_PREFIX + group.group_name
        if self._topics.get(retry) is None and group.retry_queue_nums > 0:
            parked = self._parked.get(retry)
            if parked is not None:
                created = asyncio.Event()
                parked.append(lambda _: created.set())
                await created.wait()
            elif len(self._parked) < PENDING_MAX:
                self._parked[retry] = []
                await self._create_parked(send_back_topic(retry, group.retry_queue_nums))

    def misses(self, group: SubscriptionGroupConfig) -> bool:
        """Tell whether a consumer's heartbeat has anything to create."""
        name = group.group_name
        return self._groups.get(name) is None or self._topics.get(RETRY_PREFIX + name) is None

    async def _put_group_quietly(self, config: SubscriptionGroupConfig) -> None:
        await self.put_group(config)

    async def _create_parked(self, config: TopicConfig) -> None:
        """Create a topic and let go on whoever waits for it."""
        answer: Answer | None = PUT_ANSWERS[PutStatus.UNKNOWN]
        try:
            if self._topics.get(config.topic_name) is None:
                status = await self.put_topic(config)
                answer = None if status is PutStatus.OK else _creation_failure(status)
            else:
                answer = None
        finally:
            for resume in self._parked.pop(config.topic_name, []):
                resume(answer)


def _creation_failure(status: PutStatus) -> Answer:
    """Return the answer to a send whose topic could not be made: the message was not stored."""
    code, remark = PUT_ANSWERS[status]
    if status.outcome_unknown:
        return ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: topic not created"
    return code, remark
