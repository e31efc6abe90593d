"""``messageDelayLevel``, such as ``1s 5s 10s``: how long the messages of each level wait. Pure.

Source: RocketMQ MessageStoreConfig, ScheduleMessageService.parseDelayLevel.
"""

from __future__ import annotations

import re
from typing import Final

from ledgermq.runtime.errors import FatalError
from store.origins import QUEUES_MAX

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's."""
DAYS_MAX: Final = 366

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)


def delay_levels_ms(name: str, text: str) -> tuple[int, ...]:
    """Return the delay of level 1, 2, ... Errors: `FatalError`, which names the key."""
    levels = []
    for part in text.split():
        match = _LEVEL.fullmatch(part)
        delay_ms = int(match[1]) * _UNITS_MS[match[2]] if match else -1
        if not 0 <= delay_ms <= DAYS_MAX * _UNITS_MS["d"]:
            raise FatalError(
                f"{name}={text}: {part!r} is no delay of up to {DAYS_MAX} days; delays such as"
                " 1s 5m 2h 1d, separated by blanks, are expected"
            )
        levels.append(delay_ms)
    if not 0 < len(levels) <= QUEUES_MAX:
        raise FatalError(f"{name}={text}: 1 to {QUEUES_MAX} delays are expected")
    return tuple(levels)
