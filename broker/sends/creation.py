"""Creates topics and groups through the replicated log, and has new topics registered.

Whoever needs a missing topic waits here: requests for one topic share one proposal, and go on once
the topic is applied and the name servers know it, so that a client told "stored" finds the route.
Whatever a creation ends by, everybody who waits for it is answered. What an administrator sets up
is under way for a while, too: what clients create by default waits for that, and does not undo it.
Source: spec/wire.md 3.3 (auto-creation), 3.6 (retry topics), 3.9 (17); docs/adr/0002.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from broker.answers import BUSY, PUT_ANSWERS
from broker.limits import CREATIONS_MAX
from broker.sends.send_back import DEAD_LETTER_QUEUES, dead_letter, direct_to_dead_letters
from broker.sends.waiting import WaitingRoom
from broker.state.kinds import StateKind
from broker.state.subscription import GroupChange, GroupRemoval
from broker.state.topic_config import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    RETRY_PREFIX,
    TopicChange,
    TopicRemoval,
    auto_created,
    send_back_topic,
)
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.runtime.tasks import report_serving_failure
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
    from typing import Any

    from broker.state.replicated_state import Proposer
    from broker.state.subscription import SubscriptionGroupConfig, SubscriptionGroupTable
    from broker.state.topic_config import TopicTable
    from ledgermq.remoting.protocol.bodies import TopicConfig
    from ledgermq.remoting.protocol.headers import SendHeader
    from ledgermq.runtime.clock import Clock

    Answer = tuple[int, str]
    Resume = Callable[[Answer | None], None]

_BUSY: Final = (ResponseCode.SYSTEM_BUSY, BUSY)


class Publisher(Protocol):
    """Makes the name servers see the topic table."""

    async def publish(self) -> None:
        """Register now and wait for the reachable name servers."""


class UnderWay:
    """What administrators change, by name, until each change is applied or has failed."""

    def __init__(self) -> None:
        self._open: dict[str, list[asyncio.Future[None]]] = {}

    @contextmanager
    def change(self, name: str) -> Iterator[None]:
        """Have whoever creates it meanwhile wait until the end of this context."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        changes = self._open.setdefault(name, [])
        changes.append(ended)
        try:
            yield
        finally:
            changes.remove(ended)
            if not changes:
                del self._open[name]
            ended.set_result(None)

    async def waits(self, name: str, is_there: Callable[[], bool]) -> bool:
        """Wait while it is being changed and is not there yet; tell whether it was changed.

        Who sets it up again and again holds nobody up: once it is there, nothing is created.
        """
        has_waited = False
        while (changes := self._open.get(name)) and not (has_waited and is_there()):
            has_waited = True
            await asyncio.wait(changes)
        return has_waited


class Creator:
    """Creates what requests need and does not exist yet.

    Args:
        serve: runs a coroutine that may fail without ending the process.
        enter: returns when the log has room for sends that waited.
        is_orderly: tells of a group's name whether its consumers have locked queues.
    """

    def __init__(  # noqa: PLR0913 - collaborators, wired once
        self,
        *,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        proposer: Proposer,
        publisher: Publisher,
        clock: Clock,
        serve: Callable[[str, Coroutine[Any, Any, object]], object],
        enter: Callable[[], Awaitable[None]],
        is_orderly: Callable[[str], bool],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._proposer = proposer
        self._publisher = publisher
        self._clock = clock
        self._serve = serve
        self._is_orderly = is_orderly
        self.waiting = WaitingRoom(enter)
        self._pending_groups: dict[str, asyncio.Future[PutStatus]] = {}
        self._requested_groups: set[str] = set()
        """Those that a request had created, from then until that has ended."""
        self._changed_topics, self._changed_groups = UnderWay(), UnderWay()

    @property
    def parked(self) -> Mapping[str, object]:
        """Topics whose sends wait: a later one must not overtake them."""
        return self.waiting.topics

    def wait_behind(self, topic: str, resume: Resume, size_bytes: int) -> Answer | None:
        """Let a send go on behind those that wait for its topic already; as `topic_for_send`."""
        return None if self.waiting.add(topic, resume, size_bytes) else _BUSY

    def direct_retry(self, header: SendHeader) -> Answer | None:
        """Change a send to a retry topic into one to the dead letters, if it is one.

        Returns the answer that refuses a retry of a group that does not exist.
        """
        if header.batch or not header.topic.startswith(RETRY_PREFIX):
            return None
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            remark = f"subscription group not exist, {name}"
            return ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark
        if dead_letter(header, group, is_orderly=self._is_orderly(name)):
            direct_to_dead_letters(header, group)
        return None

    def topic_for_send(
        self, topic: str, default_topic: str, queues: int, resume: Resume, size_bytes: int
    ) -> Answer | None:
        """Create a missing topic for a send of so many bytes, then call ``resume``.

        Returns the answer that refuses the send at once, or None when ``resume`` will be called.
        """
        if topic in self.waiting.topics:
            return self.wait_behind(topic, resume, size_bytes)
        config = auto_created(topic, self._topics.get(default_topic), queues)
        if config is None and topic.startswith(RETRY_PREFIX):
            config = send_back_topic(topic, 1)
        if not default_topic and self._groups.find(_dead_group(topic)) is not None:
            # A retry that the broker directed here (`broker.sends.send_back`).
            config = send_back_topic(topic, DEAD_LETTER_QUEUES)
        if config is None:
            return _not_there(topic, default_topic)
        if len(self.waiting.topics) >= CREATIONS_MAX or self._topics.full:
            return _BUSY
        self.waiting.open(topic)
        answer = self.wait_behind(topic, resume, size_bytes)
        self._serve(f"create topic {topic}", self._create_parked(config))
        return answer

    async def topic_for_reply(self, topic: str, default_topic: str, queues: int) -> Answer | None:
        """Create a missing topic as for a send; returns what says why it could not be."""
        config = auto_created(topic, self._topics.get(default_topic), queues)
        if config is None:
            return _not_there(topic, default_topic)
        return _BUSY if self._topics.full else await self.ensure_topic(config)

    async def change_topic(self, config: TopicConfig) -> PutStatus:
        """Create or change a topic as an administrator wants it, whatever sends create."""
        with self._changed_topics.change(config.topic_name):
            return await self.put_topic(config)

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
        """Create a group that clients use; equal requests in flight share one proposal."""
        pending = self._pending_groups.get(config.group_name)
        if pending is not None:
            return await asyncio.shield(pending)
        if len(self._pending_groups) >= CREATIONS_MAX:
            return PutStatus.FULL
        future = asyncio.get_running_loop().create_future()
        self._pending_groups[config.group_name] = future
        status = PutStatus.UNKNOWN
        try:
            name = config.group_name
            has_waited = await self._changed_groups.waits(name, lambda: self._has_group(name))
            if has_waited and self._has_group(name):
                status = PutStatus.OK
                return status
            change = GroupChange(config, self._clock.wall_ms())
            status = await self._proposer.propose(StateKind.GROUP, msgspec.json.encode(change))
        finally:
            del self._pending_groups[config.group_name]
            future.set_result(status)
        return status

    async def change_group(self, config: SubscriptionGroupConfig) -> PutStatus:
        """Create or change a group as an administrator wants it, whatever clients create."""
        change = GroupChange(config, self._clock.wall_ms())
        with self._changed_groups.change(config.group_name):
            return await self._proposer.propose(StateKind.GROUP, msgspec.json.encode(change))

    async def remove_topic(self, topic: str) -> PutStatus:
        """Remove a topic; OK means that it is gone here, and from what is registered."""
        removal = TopicRemoval(topic, self._clock.wall_ms())
        payload = msgspec.json.encode(removal)
        status = await self._proposer.propose(StateKind.FORGET_TOPIC, payload)
        if status is PutStatus.OK:
            await self._publisher.publish()
        return status

    async def remove_group(self, group: str) -> PutStatus:
        """Remove the settings of a group."""
        removal = GroupRemoval(group, self._clock.wall_ms())
        return await self._proposer.propose(StateKind.FORGET_GROUP, msgspec.json.encode(removal))

    def group_for_request(self, config: SubscriptionGroupConfig) -> None:
        """Have a group that a request used with default settings created, without waiting."""
        name = config.group_name
        if self._proposer.writable and not self.is_creating_group(name):
            self._requested_groups.add(name)
            self._serve(f"create group {name}", self._put_group_quietly(config))

    def is_creating_group(self, name: str) -> bool:
        """Tell whether a group is being created that is not there yet."""
        return name in self._requested_groups or name in self._pending_groups

    async def consumer_group(self, group: SubscriptionGroupConfig) -> None:
        """Create a consumer's group and its retry topic if they are missing."""
        if self._groups.get(group.group_name) is None:
            await self.put_group(group)
        retry = RETRY_PREFIX + group.group_name
        if group.retry_queue_nums > 0:
            await self.ensure_topic(send_back_topic(retry, group.retry_queue_nums))

    async def ensure_topic(self, config: TopicConfig) -> Answer | None:
        """Have a topic created if it is missing; returns what says why it could not be."""
        name = config.topic_name
        if self._topics.get(name) is not None:
            return None
        if name not in self.waiting.topics:
            if len(self.waiting.topics) >= CREATIONS_MAX:
                return _BUSY
            self.waiting.open(name)
            return await self._create_parked(config)
        created: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def resume(answer: Answer | None) -> None:
            if not created.done():
                created.set_result(answer)

        return await created if self.waiting.add(name, resume, 0) else _BUSY

    def misses(self, group: SubscriptionGroupConfig) -> bool:
        """Tell whether a consumer's heartbeat has anything to create."""
        name = group.group_name
        if self._groups.get(name) is None:
            return True
        return group.retry_queue_nums > 0 and self._topics.get(RETRY_PREFIX + name) is None

    def _has_group(self, name: str) -> bool:
        return self._groups.get(name) is not None

    def _has_topic(self, name: str) -> bool:
        return self._topics.get(name) is not None

    async def _put_group_quietly(self, config: SubscriptionGroupConfig) -> None:
        try:
            await self.put_group(config)
        finally:
            self._requested_groups.discard(config.group_name)

    async def _create_parked(self, config: TopicConfig) -> Answer | None:
        """Create a topic and let go on whoever waits for it; returns why it could not be."""
        name = config.topic_name
        answer: Answer | None = None
        try:
            await self._changed_topics.waits(name, lambda: self._has_topic(name))
            if not self._has_topic(name):
                status = await self.put_topic(config)
                answer = None if status is PutStatus.OK else _creation_failure(status)
        except Exception as error:  # noqa: BLE001 - answered, and told
            report_serving_failure(f"create topic {name}", error)
            remark = f"topic[{name}] could not be created, {type(error).__name__}: not stored"
            answer = ResponseCode.SYSTEM_ERROR, remark
        await self.waiting.let_go(name, answer)
        return answer


def _not_there(topic: str, default_topic: str) -> Answer:
    """Return the answer to who sends to a topic that may not be made."""
    hint = "" if default_topic == AUTO_CREATE_TOPIC else f" (default topic {default_topic})"
    return ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{hint}"


def _dead_group(topic: str) -> str:
    """Return the group whose dead letters lie in a topic, empty for none."""
    return topic.removeprefix(DLQ_PREFIX) if topic.startswith(DLQ_PREFIX) else ""


def _creation_failure(status: PutStatus) -> Answer:
    """Return the answer to a send whose topic could not be made: the message was not stored."""
    code, remark = PUT_ANSWERS[status]
    if status.outcome_unknown or status.is_stored:  # the topic may be there soon, no message is
        return ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: topic not created"
    return code, remark
