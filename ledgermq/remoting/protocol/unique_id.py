"""UNIQ_KEY, the id a client gives each message: 32 upper-case hex digits (56 with IPv6).

| ip 4 or 16 | pid 2 | generator hash 4 | milliseconds since the month began 4 | counter 2 |

Source: MessageClientIDSetter (spec/wire.md 4.5). Java counts from local midnight of the first of
the month; this one from midnight UTC, which no reader can tell apart.
"""

from typing import Final

DAY_MS: Final = 86_400_000


class UniqueIdGenerator:
    """Makes ids that are unique as long as (ip, pid, generator_hash) is."""

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_prefix")

    def __init__(self, ip: bytes, pid: int, generator_hash: int) -> None:
        packed = ip + (pid & 0xFFFF).to_bytes(2, "big")
        self._prefix = (packed + (generator_hash & 0xFFFFFFFF).to_bytes(4, "big")).hex().upper()
        self._counter = -1
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self, now_ms: int) -> str:
        """Return a new id; ``now_ms`` is wall time since the Unix epoch."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = month_bounds_ms(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        since_ms = (now_ms - self._month_start_ms) & 0xFFFFFFFF
        return f"{self._prefix}{since_ms:08X}{counter:04X}"

    def take(self, now_ms: int, count: int) -> list[str]:
        """Return ``count`` new ids of one moment, as `next` would one by one; each is cheaper."""
        if count < 1:
            return []
        first = self.next(now_ms)
        head, begin = first[:-4], self._counter + 1
        self._counter = (self._counter + count - 1) & 0xFFFF
        rest = [f"{head}{number & 0xFFFF:04X}" for number in range(begin, begin + count - 1)]
        return [first, *rest]


def month_bounds_ms(now_ms: int) -> tuple[int, int]:
    """Return the first millisecond of the month (UTC) and of the next one."""
    days = now_ms // DAY_MS
    # Days to civil date, counted in eras of 400 years from 0000-03-01 (Howard Hinnant).
    shifted = days + 719_468
    day_of_era = shifted % 146_097
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5
    start = days - day
    year = year_of_era + shifted // 146_097 * 400 + (month >= 10)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29 if leap else 28)
    return start * DAY_MS, (start + lengths[month]) * DAY_MS
