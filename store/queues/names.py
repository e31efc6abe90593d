"""What can name a queue, and the names below ``consumequeue/`` that one may need some day.

A start knows the queues that there are. What stands under any other name is met when the first
message of such a topic comes: by then the broker serves, and what it has acknowledged makes each
later start end at the same place. So a start looks at the names, and opens nothing. A name that no
topic can have is left alone.
Source: RocketMQ TopicValidator, which allows these characters.
"""

import re
from typing import Final

from ledgermq.runtime.regular import check_directories
from store.layout import TOPIC_BYTES_READ

QUEUE_ID_MAX: Final = 0x7FFFFFFF
LOOKED_INTO_MAX: Final = 10_000
"""Of so many topics the queues are looked at, too: a start must not wait for the names of all."""

_is_topic: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z").match
_is_number: Final = re.compile(r"0\Z|[1-9][0-9]{0,9}\Z").match


def names_queue(topic: bytes, queue_id: int) -> bool:
    """Tell whether there can be such a queue."""
    return 0 <= queue_id <= QUEUE_ID_MAX and maybe_names(topic) is not None


def maybe_names(topic: bytes) -> tuple[bytes, str, bytes] | None:
    """Return a topic encoded, decoded and as records have it; None if it can name no directory."""
    if not 0 < len(topic) <= TOPIC_BYTES_READ or topic in {b".", b".."}:
        return None
    if b"/" in topic or b"\0" in topic:
        return None
    try:
        return topic, topic.decode(), bytes((len(topic) & 0xFF,)) + topic
    except UnicodeDecodeError:
        return None


def may_be_topic(name: str) -> bool:
    """Tell whether queues may have to lie in a directory of this name."""
    return _is_topic(name) is not None


def may_be_queue(name: str) -> bool:
    """Tell whether the files of a queue may have to lie in a directory of this name."""
    return _is_number(name) is not None


def check_queue_names(directory: str) -> None:
    """Refuse what stands where queues must lie. Errors: `FatalError`; `OSError`."""
    for topic in check_directories(directory, may_be_topic)[:LOOKED_INTO_MAX]:
        check_directories(f"{directory}/{topic}", may_be_queue)
