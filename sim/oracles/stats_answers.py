"""Where the queues of a topic are, and a group in them, as tools are told (202, 208).

On the wire, from the committed log: a queue begins no earlier than the log did when it was asked,
and ends where the log says at some moment of the answer; an offset was committed by somebody.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.getTopicStatsInfo, getConsumeStats.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from sim.oracles.replica import Replica
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

TOPIC_STATS, GROUP_STATS = 202, 208
SUCCESS: Final = 0
NAME: Final = "A44 answer that is not what the log says"
_row: Final = re.compile(rb'\{([^{}]*"queueId"[^{}]*)\}:(\{[^{}]*\})')
_entry_index: Final = attrgetter("entry_index")

Place = tuple[str, str, int]


class StatsAnswers:
    """Judges them.

    Args:
        offered: by group, topic and queue: what somebody has asked to commit.
    """

    def __init__(self, truth: Truth, offered: Mapping[Place, Container[int]]) -> None:
        self._truth = truth
        self._offered = offered
        self.judges = {TOPIC_STATS: self._on_topic, GROUP_STATS: self._on_group}

    def _on_topic(self, replica: Replica, request: Said, answer: Said) -> None:
        for topic, queue_id, told in _rows(answer):
            self._check_end(replica, request, (topic, queue_id), told["maxOffset"])
            rows = self._truth.queues.get((topic, queue_id), [])
            first = told["minOffset"]
            then, now = (
                bisect_left(rows, index, key=_entry_index)
                for index in (request.note.first_index, replica.store.first_index)
            )
            if rows and not then <= first <= now:
                text = f"says that {topic}/{queue_id} begins at {first}: {then} to {now}"
                _fail(replica, text)

    def _on_group(self, replica: Replica, request: Said, answer: Said) -> None:
        group = request.text("consumerGroup")
        for topic, queue_id, told in _rows(answer):
            self._check_end(replica, request, (topic, queue_id), told["brokerOffset"])
            offset = told["consumerOffset"]
            if offset and offset not in self._offered.get((group, topic, queue_id), ()):
                text = f"has {group} at {offset} of {topic}/{queue_id}, which nobody committed"
                _fail(replica, text)

    def _check_end(
        self, replica: Replica, request: Said, queue: tuple[str, int], told: int
    ) -> None:
        low = self._truth.end_of(*queue, request.note.applied)
        high = len(self._truth.queues.get(queue, ()))
        if not low <= told <= high:
            text = f"says that {queue[0]}/{queue[1]} ends at {told}, it had {low} and has {high}"
            _fail(replica, text)


def _rows(answer: Said) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield topic, queue and numbers of each row of an answer, none where it has failed."""
    if answer.code != SUCCESS:
        return
    for queue, told in _row.findall(answer.body):
        place = json.loads(b"{" + queue + b"}")
        yield place["topic"], place["queueId"], json.loads(told)


def _fail(replica: Replica, text: str) -> None:
    raise Violation(NAME, f"{replica.name} {text}", node=replica.name)
