"""What a group passed over on purpose: its queue was set forth. A1 and A55 do not owe it that.

A reset skips what lies between how far the group had come and where it was put. What lies behind an
offset to which a later one put the group back is owed to it again.
Source: spec/proof.md A1; docs/checking.md.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from chaos.checker.model import History, is_reset
from chaos.history.columns import Row

Queue = tuple[str, str | None, int | None]
"""Group, topic, queue."""
ALWAYS: Final = -1
"""When a reset was that does not say when."""
OWED, SKIPPED, IN_DOUBT = range(3)
"""What becomes of a message: the group is owed it, is not, or nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jump:
    """A reset: when, where to, how far the group had come, and whether it was acknowledged."""

    at: int
    to: int | None
    reached: int
    is_sure: bool

    def says(self, offset: int) -> int | None:
        """Return what it makes of the message at an offset; None if nothing."""
        if self.reached < offset and (self.to is None or offset < self.to):
            return SKIPPED if self.is_sure and self.to is not None else IN_DOUBT
        return OWED if self.is_sure and self.to is not None and self.to <= offset else None


class Skips:
    """The resets of all queues, and what they make of messages."""

    def __init__(self, history: History) -> None:
        resets = [ack for ack in history.acks if is_reset(ack)]
        reached = _Reached(history) if resets else None
        self._jumps: dict[Queue, list[_Jump]] = defaultdict(list)
        for ack in resets if reached else ():
            at, queue = _time_of(ack), (ack["grp"], ack["topic"], ack["queue_id"])
            self._jumps[queue].append(
                _Jump(
                    at=at,
                    to=ack["value_offset"],
                    reached=reached.before(queue, at) if reached else -1,
                    is_sure=ack["outcome"] == "ok",
                )
            )

    def of(self, group: str, send: Row) -> int:
        """Return `OWED`, `SKIPPED` or `IN_DOUBT` for a message, by the last reset that says so."""
        jumps = self._jumps.get((group, send["topic"], send["queue_id"]), ())
        offset = send["queue_offset"]
        told = [] if offset is None else [(one.at, one.says(offset)) for one in jumps]
        return max(((at, said) for at, said in told if said is not None), default=(0, OWED))[1]


class _Reached:
    """How far groups had come in their queues, and when, as deliveries and commits tell."""

    def __init__(self, history: History) -> None:
        seen: dict[Queue, list[tuple[int, int]]] = defaultdict(list)
        for queue, at, offset in _steps(history):
            seen[queue].append((at, offset))
        self._highest: dict[Queue, tuple[list[int], list[int]]] = {}
        """Of each queue the times at which its group was told to be somewhere, in order, and how
        far it had come by then."""
        for queue, told in seen.items():
            told.sort()
            highest = accumulate((offset for _, offset in told), max)
            self._highest[queue] = [at for at, _ in told], list(highest)

    def before(self, queue: Queue, t: int) -> int:
        """Return the highest offset that the group had been given, or committed, before a time."""
        times, highest = self._highest.get(queue, ((), ()))
        count = bisect_left(times, t)
        return highest[count - 1] if count else -1


def _steps(history: History) -> Iterator[tuple[Queue, int, int]]:
    for row in history.placed:
        if not row.get("auditor") and row["queue_offset"] is not None:
            yield (row["grp"], row["topic"], row["queue_id"]), row["t_recv"], row["queue_offset"]
    for ack in _commits(history.acks):
        queue = (ack["grp"], ack["topic"], ack["queue_id"])
        yield queue, _time_of(ack), ack["value_offset"] - 1


def _commits(acks: Iterable[Row]) -> Iterator[Row]:
    for ack in acks:
        is_done = ack["kind"] == "commit" and ack["outcome"] == "ok"
        if is_done and ack["value_offset"] is not None:
            yield ack


def _time_of(ack: Row) -> int:
    """Return when a statement began, as far as it says."""
    known = [ack[name] for name in ("t_inv", "t_cmp") if ack[name] is not None]
    return min(known, default=ALWAYS)
