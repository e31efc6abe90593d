"""Broadcast: each member gets each message, and knows after a stop how far it has come.

What a member was handed is known from its listener, how far it has come from the file on its disk,
read here with code of its own. Source: spec/wire.md 7.6; spec/proof.md 3.3 (A1 A18); RocketMQ
LocalFileOffsetStore.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.oracles.truth import Truth

KEPT: Final = "A18 a member does not know how far it has come"
LATE: Final = "A18 a member that was killed has not written in time"
BEGAN: Final = "A18 a member goes back behind what it had written"
SETTLED_NS: Final = 3_000_000_000
"""Who is killed sooner may have written nothing yet, and begins anew."""
WRITTEN_NS: Final = 2_200_000_000
"""So long after it was taken a message is in the file; it is written each second."""
_row: Final = re.compile(rb'\{"brokerName":"([^"]*)","queueId":(\d+),"topic":"([^"]*)"\}:(\d+)')

Queue = tuple[str, int]


class Broadcast:
    """Judges the members of a group, each on a host of its own.

    Args:
        broker: the name under which the group of brokers is known.
        topic: what the members take.
        is_first: whether they begin with the first message, or with what comes after they do.
        dropped: below which offset some broker has ever dropped the messages of a queue.
    """

    def __init__(
        self, truth: Truth, findings: Findings, names: tuple[str, str], *, is_first: bool,
        dropped: Mapping[Queue, int],
    ) -> None:  # fmt: skip
        self._truth = truth
        self.findings = findings
        self._broker, self._topic = names
        self._is_first = is_first
        self._dropped = dropped
        self._got: dict[str, dict[Queue, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        """By member and queue: offsets, and when each was taken first."""
        self._hand: dict[str, dict[Queue, int]] = defaultdict(dict)
        """The last of each queue in this life."""
        self._life: dict[str, dict[Queue, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        """By member and queue: when each was taken first in this life."""
        self._first: dict[str, dict[Queue, int]] = defaultdict(dict)
        """The lowest of each queue that its listener has begun with in this life."""
        self._written: dict[str, dict[Queue, int]] = {}
        """What was on the disk when the life before ended in good order."""
        self._loose: set[tuple[str, Queue]] = set()
        """Who was killed before it can have written where it begins."""

    @guarded
    def on_handed(self, member: str, queue: Queue, offset: int) -> None:
        """A member's listener begins with a message, which may take it long."""
        first = self._first[member]
        first[queue] = min(offset, first.get(queue, offset))

    @guarded
    def on_taken(self, member: str, queue: Queue, offset: int) -> None:
        """A member's listener is done with a message, be it that it failed."""
        got = self._got[member][queue]
        got.setdefault(offset, self._truth.now_ns())
        self._life[member][queue].setdefault(offset, self._truth.now_ns())
        if queue not in self._hand[member]:
            known = self._written.get(member, {}).get(queue, 0)
            if offset < known:
                text = f"{member} begins {queue} at {offset}, and had written {known}"
                self.findings.report(Violation(BEGAN, text))
        self._hand[member][queue] = max(offset, self._hand[member].get(queue, 0))

    @guarded
    def on_stopped(self, member: str, content: bytes | None) -> None:
        """A member has stopped in good order, with this file on its disk."""
        written = self._read(content)
        self._life.pop(member, None)
        self._first.pop(member, None)
        for queue, offset in self._hand.pop(member, {}).items():
            if written.get(queue, 0) <= offset:
                text = f"{member} stops after {queue}@{offset}, its file has {written.get(queue)}"
                self.findings.report(Violation(KEPT, text))
        self._written[member] = written

    def _read(self, content: bytes | None) -> dict[Queue, int]:
        return {
            (topic.decode(), int(number)): int(offset)
            for name, number, topic, offset in _row.findall(content or b"")
            if name.decode() == self._broker
        }

    @guarded
    def on_killed(self, member: str, content: bytes | None) -> None:
        """A member was killed, with this file on its disk: what it took long before is in it."""
        self._hand.pop(member, None)
        now_ns = self._truth.now_ns()
        written, begun = self._read(content), self._first.pop(member, {})
        for queue, taken in self._life.pop(member, {}).items():
            wanted = first = begun[queue]
            while now_ns - taken.get(wanted, now_ns) >= WRITTEN_NS:
                wanted += 1
            if wanted > first and written.get(queue, 0) < wanted:
                known = f"its file has {written.get(queue)}"
                text = f"{member} took all of {queue} before {wanted} {WRITTEN_NS} ns ago, {known}"
                self.findings.report(Violation(LATE, text))
        for queue in self._truth.queues:
            times = self._got[member][queue].values() if queue[0] == self._topic else ()
            if now_ns - min(times, default=now_ns) < SETTLED_NS:
                self._loose.add((member, queue))

    def unwritten(self, member: str, content: bytes) -> list[tuple[Queue, int]]:
        """Return what a member that has done its work was handed last and has not written down."""
        written = self._read(content)
        return [
            (queue, offset)
            for queue, offset in self._hand.get(member, {}).items()
            if written.get(queue, 0) <= offset
        ]

    def missing(self, member: str) -> list[tuple[Queue, int]]:
        """Return what a member should have been handed and was not."""
        found: list[tuple[Queue, int]] = []
        for queue, rows in self._truth.queues.items():
            if queue[0] != self._topic:
                continue
            got = self._got[member][queue]
            is_loose = not self._is_first and (member, queue) in self._loose
            if is_loose or (not self._is_first and not got):
                continue
            begin = max(self._dropped.get(queue, 0), 0 if self._is_first else min(got))
            found += [(queue, at) for at in range(begin, len(rows)) if at not in got]
        return found
