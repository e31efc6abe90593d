"""Topics, by what made them: how many queues one has, and into which of them messages go.

A send to a topic that does not exist makes it, with as many queues as its sender wants and the
topic that it names as its model has, whichever is less. Nothing is acknowledged in a queue that its
topic never had: nobody would read it. Topics are read from the committed records of state.
Source: spec/wire.md 3.3; RocketMQ TopicConfigManager.createTopicInSendMessageMethod.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

MADE_NAME: Final = "A39 topic made otherwise"
QUEUE_NAME: Final = "A39 stored in no queue"
MODEL: Final = "TBW102"
"""The topic that others are made like, unless their sender names another."""


class Topics:
    """Judges the topics of a group."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._read = 0
        self._most: dict[str, int] = {}
        """By topic: the most queues that it ever had."""
        self._first: dict[str, Any] = {}
        """By topic: the first configuration."""
        self._wanted: dict[str, set[int | None]] = defaultdict(set)
        """By topic that did not exist: how many queues its senders wanted, None: cannot be told."""
        self.model_queues = 0
        """Queues of the topic that others are made like; 0: not known."""

    def on_send(self, topic: str, request: Said) -> None:
        """A broker hears a send."""
        self._catch_up()
        if topic not in self._first:
            model = request.text("c") or request.text("defaultTopic")
            queues = request.text("d") or request.text("defaultTopicQueueNums")
            is_plain = model == MODEL and queues.isascii() and queues.isdigit()
            self._wanted[topic].add(int(queues) if is_plain else None)

    def on_change(self, topic: str) -> None:
        """A broker hears that somebody wants a topic to be as they say."""
        self._wanted[topic].add(None)

    def on_acknowledged(self, topic: str, queue_id: int, node: str) -> None:
        """A broker acknowledges a send. Errors: `Violation`."""
        self._catch_up()
        most = self._most.get(topic)
        if most is not None and not 0 <= queue_id < most:
            text = f"{node} stores in {topic}/{queue_id}; the topic never had more than {most}"
            raise Violation(QUEUE_NAME, f"{text} queues", node=node)
        self._check_made(topic, node)

    def _check_made(self, topic: str, node: str) -> None:
        wanted = self._wanted.pop(topic, None)
        first = self._first.get(topic)
        if not wanted or None in wanted or first is None or not self.model_queues:
            return
        queues = (first["readQueueNums"], first["writeQueueNums"])
        fitting = {min(count, self.model_queues) for count in wanted if count is not None}
        if queues[0] != queues[1] or queues[0] not in fitting:
            text = f"{topic} was made with {queues} queues; senders wanted {sorted(fitting)}"
            raise Violation(MADE_NAME, f"{text} of {self.model_queues}", node=node)

    def _catch_up(self) -> None:
        statements = self._truth.statements
        while self._read < len(statements):
            statement = statements[self._read]
            self._read += 1
            if statement.kind == "topic" and isinstance(statement.content, dict):
                config = statement.content.get("config", {})
                name = config.get("topicName", "")
                most = max(config.get("readQueueNums", 0), config.get("writeQueueNums", 0))
                self._most[name] = max(most, self._most.get(name, 0))
                self._first.setdefault(name, config)
