"""Who judges what clients see: by the group of brokers that a queue lies in.

Also what a message is made of, for those who send and those who compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.client import Message
from sim.oracles.base import Violation
from sim.oracles.records import KEYS, TAGS
from sim.oracles.routes import Heard
from sim.workload import PULL_GROUP, colour_of, keys_of

if TYPE_CHECKING:
    from ledgermq.client import MessageExt, MessageQueue
    from sim.oracles.alone import Alone
    from sim.oracles.answers import Answers
    from sim.oracles.clients import Clients
    from sim.record import Record

COLOUR: Final = "colour"
GROUP_NAME: Final = "RaftGroup0"
"""Of the brokers that replicate."""
ALONE_NAME: Final = "BrokerAlone"
"""Of a broker outside the group."""


class Validators:
    """The oracles of a run, as clients need them."""

    pull_group = PULL_GROUP

    def __init__(
        self, record: Record, clients: Clients, answers: Answers, alone: Alone | None = None
    ) -> None:
        self.record = record
        self.alone = alone
        self.routes = Heard(GROUP_NAME)
        self.alone_host = b""
        """The packed address of the broker outside the group, as messages have it."""
        self._clients = clients
        self._answers = answers
        self.levels = 0
        """How many levels of delay there are."""
        self.questions: list[tuple[str, tuple[object, ...], tuple[MessageExt, ...]]] = []
        """Queries: the question, what was committed before it, and the answer."""

    def of(self, queue: MessageQueue) -> Clients | Alone:
        """Return who judges a queue."""
        if self.alone is not None and not self.is_known(queue):
            return self.alone
        return self._clients

    def answers(self, queue: MessageQueue) -> Answers | Alone:
        """Return who judges answers about a queue."""
        if self.alone is not None and not self.is_known(queue):
            return self.alone
        return self._answers

    @property
    def brokers(self) -> int:
        """Return how many names of brokers there are: a topic is to be made at each."""
        return 1 if self.alone is None else 2

    @property
    def group_answers(self) -> Answers:
        """Return who judges answers about the replicated group."""
        return self._answers

    def is_known(self, queue: MessageQueue) -> bool:
        """Tell whether the log of a queue's group is known."""
        return queue.broker_name == GROUP_NAME

    def is_of(self, message: MessageExt, queue: MessageQueue) -> bool:
        """Tell whether a message that was found may be of the group of a queue."""
        return (message.store_host == self.alone_host) != self.is_known(queue)

    def message(self, topic: str, key: int, body: bytes) -> Message:
        """Return the message of a key."""
        record = self.record
        colour = colour_of(key, is_rich=record.is_rich)
        return Message(
            topic,
            body,
            tags=record.tag_of(key),
            keys=keys_of(key, is_rich=record.is_rich),
            properties={} if colour is None else {COLOUR: colour},
        )

    def note(self, message: MessageExt, queue: MessageQueue, group: str, client: str) -> None:
        """Take a message that was handed out, and judge it."""
        key, digest = self.record.delivered(message, group, client)
        self.record.deliveries[-1]["broker"] = queue.broker_name
        place = (message.topic, message.queue_id)
        validator = self.of(queue)
        validator.on_delivered(place, message.queue_offset, key, digest)
        told = tuple(message.maybe_property(name) for name in (KEYS, TAGS, COLOUR))
        validator.on_properties(place, message.queue_offset, told, self._sent(key))

    def check_content(self, message: MessageExt, queue: MessageQueue, key: int) -> None:
        """Judge a message that was asked for by a key."""
        told = tuple(message.maybe_property(name) for name in (KEYS, TAGS, COLOUR))
        place = (message.topic, message.queue_id)
        validator = self.of(queue)
        validator.on_properties(place, message.queue_offset, told, self._sent(key))

    def is_there(self, key: int) -> bool:
        """Tell whether a message is in the log of the group."""
        return self._clients.has(key)

    def report(self, oracle: str, text: str) -> None:
        """Report what somebody else has found."""
        self._clients.findings.report(Violation(oracle, text))

    def _sent(self, key: int | None) -> tuple[str | None, ...]:
        record = self.record
        keys = None if key is None else keys_of(key, is_rich=record.is_rich)
        return (keys, record.tag_of(key) or None, colour_of(key, is_rich=record.is_rich))
