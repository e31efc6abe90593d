"""Answers of the library that the committed log can judge: places, filters, queries, beginnings.

Source: spec/wire.md 3.5 (filters), 3.7 (where a group begins), 3.8 (queries).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.records import tags_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ledgermq.client import MessageExt, MessageQueue
    from sim.oracles.truth import Truth

Queue = tuple[str, int]


class Answers:
    """Judges answers of one group of brokers.

    ``dropped`` tells below which offset of a queue some broker has ever dropped messages;
    ``lacks_room`` whether the disk of one is full.
    """

    def __init__(
        self,
        truth: Truth,
        findings: Findings,
        dropped: dict[Queue, int],
        lacks_room: Callable[[], bool],
    ) -> None:
        self._truth = truth
        self.findings = findings
        self._dropped = dropped
        self._lacks_room = lacks_room

    @guarded
    def on_chosen(self, asked: MessageQueue, told: MessageQueue) -> None:
        """A send to a queue of the user's choice was acknowledged: it lies there."""
        if asked != told:
            self._report(
                "A20 another queue than was chosen", f"sent to {asked}, acknowledged in {told}"
            )

    @guarded
    def on_filtered(self, queue: Queue, offset: int, held: str | None, asked: str) -> None:
        """A message was handed out to who asked for some tags: it has one of them."""
        if asked != "*" and (held or "") not in wanted_tags(asked):
            self._report(
                "A22 a tag that was not asked for",
                f"{queue[0]}/{queue[1]}@{offset} has the tag {held!r}, asked for was {asked!r}",
            )

    @guarded
    def on_begun(self, group: str, queue: Queue, offset: int, first: int) -> None:
        """A group that began at ``first`` was handed a message."""
        if offset < first:
            self._report(
                "A24 a group begins too early",
                f"{group} was handed {queue[0]}/{queue[1]}@{offset}, and begins at {first}",
            )

    def ends(self, topic: str) -> dict[Queue, int]:
        """Return the ends of the queues of a topic, as far as they are committed."""
        return {place: len(rows) for place, rows in self._truth.queues.items() if place[0] == topic}

    def wanted(self, queue: Queue, first: int, tags: str) -> list[int]:
        """Return the offsets from ``first`` on that a subscription of ``tags`` wants."""
        truth, names = self._truth, wanted_tags(tags)
        rows = truth.queues.get(queue, [])
        begin = max(first, self._dropped.get(queue, 0))
        return [
            offset
            for offset in range(begin, len(rows))
            if tags == "*"
            or truth.tags.get((rows[offset].entry_index, rows[offset].term), "") in names
        ]

    def first_since(self, queue: Queue, stored_ms: int) -> int:
        """Return the first offset that was stored at or after a time; the end if there is none."""
        rows = self._truth.queues.get(queue, [])
        for offset, row in enumerate(rows):
            if self._truth.times.get((row.entry_index, row.term), 0) >= stored_ms:
                return offset
        return len(rows)

    @property
    def times_may_fall(self) -> bool:
        """Whether times say nothing."""
        return self._truth.may_fall

    def places_of(self, key: int, topic: str) -> list[tuple[str, int, int]]:
        """Return where a message is committed by now in a topic."""
        return [place for place in self._truth.keys.get(key, ()) if place[0] == topic]

    @guarded
    def on_found(
        self,
        question: str,
        before: Collection[tuple[str, int, int]],
        found: Sequence[MessageExt],
        limit: int,
    ) -> None:
        """A query was answered: with what was committed ``before`` it, unless there is too much.

        Who answers may have dropped the beginning of a queue; index files are dropped with it.
        Who has no room for queues and keys acknowledges all the same, and indexes later.
        """
        got = {(one.topic, one.queue_id, one.queue_offset) for one in found}
        for topic, queue_id, offset in got:
            rows = self._truth.queues.get((topic, queue_id), ())
            if offset >= len(rows):
                self._report(
                    "A5 read before the commit", f"{question}: {topic}/{queue_id}@{offset}"
                )
                return
        kept = {place for place in before if place[2] >= self._dropped.get((place[0], place[1]), 0)}
        if len(found) < limit and not kept <= got and not self._lacks_room():
            self._report(
                "A39 query", f"{question}: {sorted(kept - got)} not among {len(found)} found"
            )

    @guarded
    def on_expired(self, node: str, position: int, oldest_ms: int) -> None:
        """A broker has dropped its log before a position: all of it is older than that."""
        truth = self._truth
        for index, mark in enumerate(truth.committed):
            if mark.position >= position:
                return
            stored = truth.times.get((index, mark.term), 0)
            if stored > oldest_ms:
                self._report(
                    "A22 dropped before its time",
                    f"{node} drops entry {index}, stored {stored - oldest_ms} ms too late for that",
                )
                return

    def _report(self, oracle: str, text: str) -> None:
        self.findings.report(Violation(oracle, text))


def wanted_tags(expression: str) -> set[str]:
    """Return the tags of an expression."""
    return {one.strip() for one in expression.split("||")}


assert tags_code("Aa") == tags_code("BB")
