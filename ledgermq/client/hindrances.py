"""Why nothing arrives: what blocks the topics of a group member, and the pulls of its queues.

A topic may be unknown, or its queues may not be had; a broker may refuse every pull of a queue, as
it does where the group is disabled. Each reason is a warning once, and stands in `problems` for as
long as it holds. What a change of leader brings about is no reason before it has lasted a while.
"""

import logging
from collections.abc import Iterable, Sequence

from ledgermq.client.errors import NotTaken, Unfinished
from ledgermq.client.leader import leader_may_have_moved
from ledgermq.client.message import MessageQueue
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import RemotingError, ResponseError
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

LASTING_MS = 5_000
"""From when on what passes at a change of leader, or of members, counts as a reason."""
TWIN_MS = 130_000
"""Brokers forget a connection that says nothing in two minutes."""
NOT_REGISTERED = frozenset({
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
})  # fmt: skip
"""Answers to a pull that the next heartbeat mends."""


class Hindrances:
    """The reasons of one member; those of its retry topic, which its broker makes, are no news."""

    def __init__(self, clock: Clock, retry_topic: str) -> None:
        self._clock = clock
        self._retry_topic = retry_topic
        self._topics: dict[str, RemotingError] = {}
        self._queues: dict[MessageQueue, RemotingError] = {}
        self._since_ms: dict[str | MessageQueue, int] = {}
        """Since when the queues of a topic are not had, or a queue cannot be pulled."""
        self._without: set[str] = set()
        """Topics of which no queue is this member's share."""
        self._twin_since_ms: int | None = None
        self._twin_told = False

    def __bool__(self) -> bool:
        """Tell whether a topic is blocked."""
        return bool(self._topics)

    def problems(self, held: Iterable[MessageQueue]) -> dict[str, RemotingError]:
        """Return what blocks each topic, the ``held`` queues among it."""
        known = set(held)
        found = {
            queue.topic: error for queue, error in sorted(self._queues.items()) if queue in known
        }
        return found | self._topics

    def on_blocked(self, topic: str, error: RemotingError) -> None:
        """Take why a topic is not consumed."""
        if topic == self._retry_topic:
            _log.info("topic=%s event=not_consumed error=%s", topic, error)
            return
        before, self._topics[topic] = self._topics.get(topic), error
        self._tell(topic, before, error)

    def on_share(self, topic: str, *, taken: bool, empty: bool = False) -> None:
        """Take whether this member has all queues of a topic that are its share.

        An empty share is no problem, since others consume the topic, but it is said once.
        """
        if not empty:
            self._without.discard(topic)
        elif topic not in self._without:
            self._without.add(topic)
            level = logging.INFO if topic == self._retry_topic else logging.WARNING
            _log.log(level, "topic=%s event=no_queue_for_this_member", topic)
        now_ms = self._clock.monotonic_ms()
        lasts_ms = now_ms - self._since_ms.setdefault(topic, now_ms)
        if not taken and lasts_ms >= LASTING_MS:
            self.on_blocked(topic, NotTaken(topic))
            return
        self._topics.pop(topic, None)
        if taken:
            del self._since_ms[topic]

    def on_listed(self, client_id: str, ids: Sequence[str]) -> None:
        """Take the members of the group; one id that is there twice has the share of two.

        A connection that broke may be listed for two minutes beside the one that took its place.
        """
        now_ms = self._clock.monotonic_ms()
        if ids.count(client_id) < 2:
            self._twin_since_ms, self._twin_told = None, False
        elif self._twin_since_ms is None:
            self._twin_since_ms = now_ms
        elif now_ms - self._twin_since_ms >= TWIN_MS and not self._twin_told:
            self._twin_told = True
            _log.warning(
                "client_id=%s event=duplicate_instance another process uses this instance_name, or"
                " this one's connections keep breaking; two clients of one name read the same"
                " queues and leave the rest unread: give each its own name",
                client_id,
            )

    def on_pull_failed(self, queue: MessageQueue, error: RemotingError) -> None:
        """Take why a pull of a queue failed."""
        now_ms = self._clock.monotonic_ms()
        lasts_ms = now_ms - self._since_ms.setdefault(queue, now_ms)
        passes = leader_may_have_moved(error) or (
            isinstance(error, ResponseError) and error.code in NOT_REGISTERED
        )
        if passes and lasts_ms < LASTING_MS:
            return
        before = next((one for at, one in self._queues.items() if at.topic == queue.topic), None)
        self._queues[queue] = error
        self._tell(queue.topic, before, error)

    def on_full(self, queue: MessageQueue, reason: str) -> None:
        """Take that a queue is not pulled, since so much of it is not finished."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms.setdefault(queue, now_ms) < LASTING_MS:
            return
        before = self._queues.get(queue)
        error = Unfinished(f"{queue} is not pulled: {reason}, and the listener does not finish")
        self._queues[queue] = error
        if not isinstance(before, Unfinished):
            self._tell(queue.topic, before, error)

    def on_held(self, queue: MessageQueue) -> None:
        """Take that a queue is held anew: what hindered its pulls before may be over."""
        self.on_pulled(queue)

    def on_pulled(self, queue: MessageQueue) -> None:
        """Take that a queue can be pulled again."""
        self._since_ms.pop(queue, None)
        self._queues.pop(queue, None)

    def forget(self, topic: str) -> None:
        """A topic is consumed no more."""
        self._topics.pop(topic, None)
        self._since_ms.pop(topic, None)
        self._without.discard(topic)

    def _tell(self, topic: str, before: RemotingError | None, error: RemotingError) -> None:
        level = logging.INFO if str(before) == str(error) else logging.WARNING
        _log.log(level, "topic=%s event=not_consumed error=%s", topic, error)
