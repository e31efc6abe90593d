"""A broker beside the replicated group, judged from outside: what it acknowledged, it has.

It is RocketMQ's plain log, or a group of one. Nobody looks into its log: acknowledgements, reads
and what the auditor reads in the end must tell one story. A kill loses nothing. A loss of power
loses nothing that was acknowledged under SYNC_FLUSH, and under ASYNC_FLUSH nothing that is older
than the interval of flushes, with some time for the disk. Source: spec/disk.md 5.2, 5.5.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sim.oracles.answers import wanted_tags
from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ledgermq.client import MessageExt, MessageQueue
    from sim.record import Row

Queue = tuple[str, int]

INDEXED_NS: Final = 1_500_000_000
"""After so long an index knows a message."""
FLUSHED_NS: Final = 2_000_000_000
"""After so long what was written with ASYNC_FLUSH is on the disk."""


class Alone:
    """Judges what clients are told by one broker that replicates nothing.

    Args:
        tag_of: the tag that a message was sent with.
        now_ns: the virtual time.
        sent_ns: when the send of a message was begun.
    """

    def __init__(
        self,
        findings: Findings,
        *,
        is_sync: bool,
        tag_of: Callable[[int | None], str],
        now_ns: Callable[[], int],
        sent_ns: Callable[[int], int] = lambda _key: 0,
    ) -> None:
        self._sent_ns = sent_ns
        self.dropped: dict[Queue, int] = {}
        """Below which offset the messages of a queue were dropped."""
        self.findings = findings
        self._is_sync = is_sync
        self._tag_of = tag_of
        self._now_ns = now_ns
        self._acknowledged: dict[Queue, dict[int, tuple[int, int]]] = defaultdict(dict)
        """Key and time, by offset; what a loss of power may have taken is forgotten."""
        self._seen: dict[Queue, dict[int, tuple[int | None, int]]] = defaultdict(dict)
        """Key and hash of the body of what was handed out, likewise."""
        self._ordered: dict[tuple[str, Queue], tuple[int, int]] = {}
        self._offered: dict[Queue, set[int]] = defaultdict(set)
        self._read: dict[Queue, dict[int, int | None]] = {}
        self.has_lost_power = False
        self._lost_power_ns = 0
        """When it did last."""

    def on_power_loss(self) -> None:
        """Forget what the broker may have lost by its contract."""
        self.has_lost_power = True
        self._lost_power_ns = self._now_ns()
        self._ordered.clear()
        self._seen.clear()
        if self._is_sync:
            return
        oldest = self._now_ns() - FLUSHED_NS
        for queue, places in self._acknowledged.items():
            self._acknowledged[queue] = {
                offset: (key, at) for offset, (key, at) in places.items() if at <= oldest
            }

    @guarded
    def on_dropped(self, begins: dict[Queue, int], since_ns: int | None) -> None:
        """The log was dropped, and its queues begin later: all before that is older than a time.

        ``since_ns``: None where age does not count. A message is stored after its send begins.
        """
        for queue, begin in begins.items():
            for offset, (key, _) in self._acknowledged[queue].items():
                if since_ns is None or not self.dropped.get(queue, 0) <= offset < begin:
                    continue
                if self._sent_ns(key) > since_ns:
                    late_ms = (self._sent_ns(key) - since_ns) // 1_000_000
                    self._report(
                        "A22 dropped before its time",
                        f"{queue[0]}/{queue[1]}@{offset} was sent {late_ms} ms too late for that",
                    )
                    return
            self.dropped[queue] = max(begin, self.dropped.get(queue, 0))

    # As `sim.oracles.clients.Clients`

    @guarded
    def on_acknowledged(self, queue: Queue, offset: int, keys: Sequence[int]) -> None:
        """A send was acknowledged: nothing else was at its place.

        An answer may be on its way as the power goes, which then took what it acknowledges.
        """
        places, seen = self._acknowledged[queue], self._seen[queue]
        for number, key in enumerate(keys):
            if not self._is_sync and self._sent_ns(key) < self._lost_power_ns:
                continue
            at = offset + number
            held = places.get(at, (key,))[0], seen.get(at, (key,))[0]
            if held != (key, key):
                self._report(
                    "A15 another message at a place",
                    f"{key} was acknowledged at {queue[0]}/{queue[1]}@{at}, where {held} was",
                )
            places[at] = (key, self._now_ns())

    @guarded
    def on_ordered(self, stream: str, queue: Queue, sequence: int, offset: int) -> None:
        """A send of a stream that waits for each was acknowledged: places rise with it."""
        known, place = self._ordered.get((stream, queue), (-1, -1))
        if sequence > known and offset <= place:
            self._report(
                "A20 order of a queue",
                f"{stream}: {sequence} lies at {queue[0]}/{queue[1]}@{offset}, {known} at {place}",
            )
        self._ordered[stream, queue] = (sequence, offset)

    @guarded
    def on_delivered(self, queue: Queue, offset: int, key: int | None, body_hash: int) -> None:
        """A message was handed out: it is the one that was acknowledged there, or seen there.

        A listener may be at one for a while that the broker has lost since, as it may.
        """
        if self.has_lost_power and not self._is_sync:
            return
        places, seen = self._acknowledged[queue], self._seen[queue]
        told = (key, body_hash)
        if places.get(offset, (key,))[0] != key or seen.get(offset, told) != told:
            self._report(
                "A15 another message at a place",
                f"{queue[0]}/{queue[1]}@{offset} was delivered as {key}, it was "
                f"{places.get(offset)} and {seen.get(offset)}",
            )
        seen[offset] = told

    @guarded
    def on_pulled(self, queue: Queue, passed: range, tag: str, got: set[int]) -> None:
        """A read went past some offsets: what is there, with the tag asked for, was handed out."""
        places, begin = self._acknowledged[queue], self.dropped.get(queue, 0)
        for offset in passed:
            known = places.get(offset)
            if (
                known is None
                or offset < begin
                or offset in got
                or (tag and self._tag_of(known[0]) != tag)
            ):
                continue
            self._report(
                "A22 passed over by a read",
                f"{queue[0]}/{queue[1]}@{offset} is {known[0]}; a read for {tag or '*'!r} got "
                f"{sorted(got)}",
            )
            return

    @guarded
    def on_offered(self, queue: Queue, offset: int) -> None:
        """A consumer asks to commit an offset."""
        self._offered[queue].add(offset)

    @guarded
    def on_fetched(self, queue: Queue, offset: int) -> None:
        """A consumer was told the committed offset: one that was offered once, or the beginning."""
        if offset > 0 and offset not in self._offered[queue]:
            self._report("A24 offset that nobody committed", f"{queue[0]}/{queue[1]} has {offset}")

    @guarded
    def on_properties(
        self, queue: Queue, offset: int, told: tuple[str | None, ...], sent: tuple[str | None, ...]
    ) -> None:
        """A message was handed out with some properties: those it was sent with."""
        if told != sent:
            self._report(
                "A6 other properties than were sent",
                f"{queue[0]}/{queue[1]}@{offset} was sent with {sent}, and delivered with {told}",
            )

    def choose_time(self, queue: Queue, choice: int) -> int | None:
        """Return no time: nobody here knows when a message was stored."""
        del queue, choice
        return None

    def on_searched(self, queue: Queue, stored_ms: int, found: int, held: tuple[int, int]) -> None:
        """Nothing is asked."""

    def on_locked(self, queue: Queue, owner: str, now_ns: int) -> None:
        """Locks of a broker on its own end with its process."""

    def on_renewed(self, queue: Queue, owner: str, now_ns: int, *, is_granted: bool) -> None:
        """Likewise."""

    def on_unlocking(self, queue: Queue, owner: str) -> None:
        """Likewise."""

    def is_there(self, queue: Queue, offset: int, tags: str) -> bool:
        """Tell whether a message of some tags was acknowledged at a place, and is to be there."""
        known = self._acknowledged[queue].get(offset)
        # Who had read further than what is left of a log goes on there, and others came meanwhile.
        may_have_moved = self.has_lost_power and not self._is_sync
        if known is None or may_have_moved or offset < self.dropped.get(queue, 0):
            return False
        return tags == "*" or self._tag_of(known[0]) in wanted_tags(tags)

    # As `sim.oracles.answers.Answers`

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
                "A22 a tag that was not asked for", f"{queue}@{offset} has {held!r}, not {asked!r}"
            )

    def on_begun(self, group: str, queue: Queue, offset: int, first: int) -> None:
        """Where a group begins is judged where the log is known."""

    def places_of(self, key: int, topic: str) -> list[tuple[str, int, int]]:
        """Return where a message of a topic was acknowledged, if the index must know it by now."""
        oldest = self._now_ns() - INDEXED_NS
        return [
            (*queue, offset)
            for queue, places in self._acknowledged.items()
            for offset, (known, at) in places.items()
            if known == key and at <= oldest and offset >= self.dropped.get(queue, 0)
            if queue[0] == topic
        ]

    @guarded
    def on_found(
        self,
        question: str,
        before: Collection[tuple[str, int, int]],
        found: Sequence[MessageExt],
        limit: int,
    ) -> None:
        """A query was answered: with what was acknowledged before it, unless there is too much."""
        got = {(one.topic, one.queue_id, one.queue_offset) for one in found}
        still = {
            place
            for place in before
            if place[2] in self._acknowledged[place[:2]]
            and place[2] >= self.dropped.get(place[:2], 0)
        }
        if len(found) < limit and not still <= got:
            self._report("A39 query", f"{question}: {sorted(still - got)} not among {sorted(got)}")

    # The end of the run

    @guarded
    def on_audited(
        self, queue: Queue, messages: dict[int, int | None], first: int, end: int
    ) -> None:
        """The auditor has read a queue: all from first to end, and what was acknowledged."""
        self._read[queue] = messages
        begin = self.dropped.get(queue, 0)
        # What is dropped while it is read is no gap.
        missing = [offset for offset in range(max(first, begin), end) if offset not in messages]
        if missing:
            self._report("A22 gap in a queue", f"{queue[0]}/{queue[1]} lacks {missing[:5]}")
        if first > begin:
            self._report(
                "A22 begins too late", f"{queue[0]}/{queue[1]} begins at {first}, not at {begin}"
            )
        for offset, (key, _) in sorted(self._acknowledged[queue].items()):
            if offset >= begin and messages.get(offset) != key:
                self._report(
                    "A1 acknowledged but lost",
                    f"{key} was acknowledged at {queue[0]}/{queue[1]}@{offset}; there is "
                    f"{messages.get(offset)}, of {first}..{end}",
                )
                return

    @guarded
    def at_end(self, sends: Sequence[Row]) -> None:
        """Judge all sends: none lies here that was refused, none more often than it was tried."""
        places: dict[int, list[tuple[Queue, int]]] = defaultdict(list)
        for queue, messages in self._read.items():
            for offset, key in messages.items():
                if key is not None:
                    places[key].append((queue, offset))
        known = {send["msg_key"]: send for send in sends}
        for key, held in places.items():
            send = known.get(key)
            if send is None:
                self._report("A5 nobody sent it", f"{key} lies at {held}")
            elif send["outcome"] == "fail":
                self._report("A7 refused and yet there", f"{key} lies at {held}")
            elif send["t_cmp"] and len(held) > _possible(send):
                self._report("A8 more copies than attempts", f"{key} lies at {held}: {send}")

    def _report(self, oracle: str, text: str) -> None:
        self.findings.report(Violation(oracle, f"a broker alone: {text}"))


def _possible(send: Row) -> int:
    return int(send["possible"] if "possible" in send else send["attempts"])
