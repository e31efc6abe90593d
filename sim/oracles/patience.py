"""Nobody is told that his message waits for too long before it has waited for so long.

Who is told so sends again, and the first one is stored as well. How long is a setting
(``syncFlushTimeout``), by the clock of the broker, from when the message was put, which is no
earlier than the request came. Source: spec/wire.md 1.7, 3.3; docs/operations.md; `Uncommitted`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.oracles.wire import Said

NAME: Final = "A44 given up before its time"
FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SYSTEM_BUSY = 10, 12, 2
NO_MAJORITY: Final = "no majority within the wait limit"
"""In the remark of an answer that has the code of a broker that is busy."""


def is_given_up(answer: Said) -> bool:
    """Tell whether an answer says that a message has waited for too long."""
    if answer.code == SYSTEM_BUSY:
        return NO_MAJORITY in answer.remark
    return answer.code in {FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT}


def find_haste(answer: Said, waited_ms: int, limit_ms: int) -> str:
    """Return what is wrong with an answer to a send that came ``waited_ms`` before; or nothing."""
    if waited_ms >= limit_ms or not is_given_up(answer):
        return ""
    return f"gives a send up after {waited_ms} ms of {limit_ms}: {answer.code} {answer.remark}"
