"""An offset is removed when nobody can read on from it: its topic, queue or group is gone.

A queue that can only be read any more is still read: topics are made narrower by taking their
queues from those who write first. By the records of state in the log alone.
Source: RocketMQ ConsumerOffsetManager.scanUnsubscribedTopic; docs/security.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.model import Statement

NAME: Final = "A24 offset removed that is read from"


class Forgotten:
    """Judges the removal of offsets."""

    def __init__(self) -> None:
        self._queues: dict[str, int] = {}
        """By topic, how many queues can be read."""
        self._groups: set[str] = set()

    def on_statement(self, statement: Statement) -> None:
        """Take a committed record of state. Errors: `Violation`."""
        content: Any = statement.content
        if not isinstance(content, dict):
            return
        config = content.get("config", {})
        if statement.kind == "topic" and config:
            self._queues[config["topicName"]] = config["readQueueNums"]
        elif statement.kind == "group" and config:
            self._groups.add(config["groupName"])
        elif statement.kind == "forget-topic":
            self._queues.pop(content.get("topic", ""), None)
        elif statement.kind == "forget-group":
            self._groups.discard(content.get("group", ""))
        elif statement.kind == "forget-offsets":
            self._check(statement.entry, content.get("offsets", {}))

    def _check(self, entry: int, gone: dict[str, list[int]]) -> None:
        for key, queue_ids in gone.items():
            topic, _, group = key.rpartition("@")
            if group not in self._groups:
                continue
            for queue_id in queue_ids:
                if 0 <= queue_id < self._queues.get(topic, 0):
                    text = f"entry {entry} removes where {group} is in {topic}/{queue_id}"
                    raise Violation(NAME, f"{text}, which is there")
