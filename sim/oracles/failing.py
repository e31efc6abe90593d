"""A leader whose disk does what it should answers who only looks, and means it.

RocketMQ has no code for what is not there: it says so in a remark, beside the code of failures.
That a message is damaged may be said where a fault has spoiled the disk, and nowhere else.
Source: spec/wire.md 3.5, 3.9; RocketMQ RemotingSysResponseCode.SYSTEM_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said

NAME: Final = "A44 a question that fails"
SYSTEM_ERROR, NOT_AVAILABLE = 1, 14
PULL, BY_KEY, BY_TIME, MAX_OFFSET, MIN_OFFSET, EARLIEST = 11, 12, 29, 30, 31, 32
TOPIC_STATS, MEMBERS, GROUP_STATS, RESET, READERS, UNITS = 202, 203, 208, 222, 300, 321
LOOKS: Final = frozenset(
    {
        *(PULL, BY_KEY, BY_TIME, MAX_OFFSET, MIN_OFFSET, EARLIEST),
        *(TOPIC_STATS, MEMBERS, GROUP_STATS, RESET, READERS, UNITS),
    }
)
"""What changes nothing, or nothing of the log."""
DAMAGED: Final = "the message is damaged"
"""Begins what is said of an entry that is not what was written."""
NOTHING_THERE: Final = "not exist"
"""In what is said of topics, queues and groups that are not there."""
BY_CHANCE: Final = "failed by chance"
"""What is said where a plan wants it so, see `sim.unwilling`."""


def check_failure(replica: Replica, request: Said, answer: Said) -> None:
    """Judge an answer of a leader to who means it. Errors: `Violation`."""
    is_damaged = answer.code == NOT_AVAILABLE and answer.remark.startswith(DAMAGED)
    if not is_damaged and (answer.code != SYSTEM_ERROR or request.code not in LOOKS):
        return
    is_hindered = replica.is_corrupt or replica.disk.is_watched
    if answer.remark == BY_CHANCE or (request.code == PULL and _is_narrower(replica, request)):
        return
    if not is_hindered and NOTHING_THERE not in answer.remark:
        text = f"fails at {request.code} {dict(request.fields)}: {answer.remark}"
        raise Violation(NAME, f"{replica.name} {text}", node=replica.name)


def _is_narrower(replica: Replica, request: Said) -> bool:
    """Tell whether somebody has taken a queue from those who read."""
    topic = replica.controller.tables.topics.entries.get(request.text("topic"))
    return topic is not None and request.number("queueId", 0) >= topic.read_queues
