"""The names below ``consumequeue/`` that a queue may need one day, whoever has them now.

A start knows the queues that there are. What stands under any other name is met when the first
message of such a topic comes: by then the broker serves, and what it has acknowledged makes each
later start end at the same place. So a start looks at the names, and opens nothing. A name that no
topic can have is left alone.
Source: RocketMQ TopicValidator, which allows these characters.
"""

import re
from typing import Final

from ledgermq.runtime.regular import check_directories

LOOKED_INTO_MAX: Final = 10_000
"""Of so many topics the queues are looked at, too: a start must not wait for the names of all."""

_is_topic: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z").match
_is_number: Final = re.compile(r"0\Z|[1-9][0-9]{0,9}\Z").match


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
