"""Processor time of processes, from /proc, and what it comes to for a message.

User and system time of all threads, in ticks of 10 ms: seconds of load give a microsecond or so a
message. Knows nothing of brokers or clients; who is measured has a name.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_USER_TICKS = 11
"""utime, the field behind the name's closing bracket; stime follows."""


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, 0 for one that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_USER_TICKS]) + int(fields[_USER_TICKS + 1])) / _TICKS_A_SECOND


class ProcessorWatch:
    """The processor time of named processes between two moments."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        """Watch processes by their names."""
        self._pids = dict(pids)
        self._began: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        """What each used between `begin` and `end`."""

    def begin(self) -> None:
        """Begin to count."""
        self._began = self._now()

    def end(self) -> None:
        """Note what was used since `begin`."""
        self.seconds = {name: now - self._began[name] for name, now in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {name: processor_seconds(pid) for name, pid in self._pids.items()}


CLIENT = "client"
LEADER = "leader"
FOLLOWER = "each follower"
ROLES = (LEADER, FOLLOWER, CLIENT)
"""The columns of a table."""


def by_role(seconds: Mapping[str, float], leader: str | None, messages: float) -> dict[str, float]:
    """Return microseconds a message by role; followers get their mean.

    ``leader``: its name; None, and it is the broker that did most, where nobody says who leads.
    """
    brokers = {name: used for name, used in seconds.items() if name != CLIENT}
    if not brokers or messages <= 0:
        return {}
    chosen = max(brokers, key=brokers.__getitem__) if leader not in brokers else leader
    assert chosen is not None
    others = [used for name, used in brokers.items() if name != chosen]
    columns = {LEADER: brokers[chosen], FOLLOWER: _mean(others), CLIENT: seconds.get(CLIENT, 0.0)}
    return {
        role: round(used * 1e6 / messages, 1)
        for role, used in columns.items()
        if role != FOLLOWER or others
    }


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0
