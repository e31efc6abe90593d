"""The queues of one topic with their header templates, and whose turn it is."""

from functools import cached_property

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import NoRoute
from ledgermq.client.message import MessageQueue
from ledgermq.client.route import TopicRoute
from ledgermq.client.send_codec import SendTarget
from ledgermq.client.slow_brokers import SlowBrokers


class TopicTargets:
    """Those of one route; ``slow``: brokers that are passed over while there are others."""

    def __init__(
        self, route: TopicRoute, config: ClientConfig, first: int, slow: SlowBrokers | None = None
    ) -> None:
        self.route = route
        self.index = first
        self._config = config
        self._slow = slow
        self.all = [self._make(queue) for queue in route.publish_queues]
        self._by_queue = {target.queue: target for target in self.all}

    @cached_property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues as RocketMQ's selectors get them: brokers by their names."""
        return tuple(sorted(self.route.publish_queues))

    def next_any(self) -> SendTarget:
        """Return the next queue in turn."""
        self.index = index = self.index + 1
        target = self.all[index % len(self.all)]
        if self._slow is not None and self._slow.is_avoided(target.broker_name):
            return self._quick(index) or target
        return target

    def _quick(self, index: int) -> SendTarget | None:
        """Return the next queue of a broker that is not slow, None if all are."""
        assert self._slow is not None
        for at in range(index + 1, index + len(self.all)):
            target = self.all[at % len(self.all)]
            if not self._slow.is_avoided(target.broker_name):
                self.index = at
                return target
        return None

    def give_back(self) -> None:
        """Let the queue that `next_any` returned last be the next one again: it was not used.

        Otherwise a broker with one queue would lose each of its turns to the one behind it, and
        nobody would ever connect to it.
        """
        self.index -= 1

    def next(self, avoid: frozenset[str]) -> SendTarget:
        """Return the next queue of a broker not in ``avoid``, else simply the next."""
        if not self.all:
            raise NoRoute(f"topic {self.route.topic!r} has no writable queue")
        for _ in self.all:
            target = self.next_any()
            if target.broker_name not in avoid:
                return target
        return self.next_any()

    def find(self, queue: MessageQueue) -> SendTarget:
        """Return the target of a queue that the user chose, even if the route lacks it."""
        return self._by_queue.get(queue) or self._make(queue)

    def _make(self, queue: MessageQueue) -> SendTarget:
        config = self._config
        return SendTarget(
            config.group, queue, config.default_topic, config.default_topic_queues, config.account
        )
