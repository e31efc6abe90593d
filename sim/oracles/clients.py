"""What clients saw, against what the cluster has committed: A1 A5 A7 A15 A38, reads, offsets.

An acknowledgement, a delivery, a read index and a committed offset are each judged at the moment
a client sees them. Source: spec/proof.md 3.1-3.4, 3.6; dissertation 6.4 (read index).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chaos.history.segment import EntryRow
    from sim.oracles.truth import Truth
    from sim.record import Row

Queue = tuple[str, int]

LEASE_NS: Final = 20_000_000_000
"""A lock holds a minute, by the clock of a broker, which may run at double speed."""


class Clients:
    """Judges what clients are told."""

    def __init__(self, truth: Truth, findings: Findings) -> None:
        self._truth = truth
        self.findings = findings
        self.dropped: dict[Queue, int] = {}
        """Below which offset some broker has ever dropped the messages of a queue."""
        self._ordered: dict[tuple[str, Queue], tuple[int, int]] = {}
        self._offered: dict[Queue, set[int]] = defaultdict(set)
        self._audited: dict[Queue, int] = {}
        self._locks: dict[Queue, tuple[str, int]] = {}
        self.lease_ns = LEASE_NS
        """For how long nobody else gets a lock in this run."""
        self.requests_of: Callable[[int], int | None] = lambda _key: None
        """By the network, how many requests may have stored a message; None if nobody knows."""

    @guarded
    def on_acknowledged(self, queue: Queue, offset: int, keys: Sequence[int]) -> None:
        """A send was acknowledged: its messages are committed at the places that were told."""
        for number, key in enumerate(keys):
            row = self._row(queue, offset + number)
            if row is None or row.msg_key != key:
                held = None if row is None else row.msg_key
                self._report(
                    "A38 acknowledged, not committed",
                    f"message {key} was acknowledged at {queue[0]}/{queue[1]}@{offset + number}, "
                    f"where the committed log has {held}",
                    key=key,
                )

    @guarded
    def on_ordered(self, stream: str, queue: Queue, sequence: int, offset: int) -> None:
        """A send of a stream that waits for each was acknowledged: places rise with it."""
        known, place = self._ordered.get((stream, queue), (-1, -1))
        if sequence > known and offset <= place:
            self._report(
                "A20 order of a queue",
                f"{stream}: message {sequence} lies at {queue[0]}/{queue[1]}@{offset}, "
                f"message {known}, sent before, at {place}",
                stream=stream,
            )
        self._ordered[stream, queue] = (sequence, offset)

    @guarded
    def on_delivered(self, queue: Queue, offset: int, key: int | None, body_hash: int) -> None:
        """A message was handed to a reader: it is committed there, with this content."""
        row = self._row(queue, offset)
        if row is None:
            self._report(
                "A5 read before the commit",
                f"{queue[0]}/{queue[1]}@{offset} was delivered (message {key}) and is not "
                "committed anywhere",
                key=key,
            )
            return
        if row.msg_key != key or row.body_hash != body_hash:
            self._report(
                "A15 another message at a place",
                f"{queue[0]}/{queue[1]}@{offset} was delivered as message {key}, "
                f"the committed log has {row.msg_key}",
                key=key,
            )

    @guarded
    def on_offered(self, queue: Queue, offset: int) -> None:
        """A consumer asks to commit an offset."""
        self._offered[queue].add(offset)

    @guarded
    def on_fetched(self, queue: Queue, offset: int) -> None:
        """A consumer was told the committed offset: one that was offered once, or the beginning."""
        if offset > 0 and offset not in self._offered[queue]:
            self._report(
                "A24 offset that nobody committed",
                f"the group's offset in {queue[0]}/{queue[1]} is {offset}, never committed",
                offset=offset,
            )

    @guarded
    def on_read_index(self, before: int, index: int, node: str) -> None:
        """A read index was confirmed: not below what was committed as it was asked for."""
        if index < before:
            self._report(
                "A38 stale read",
                f"{node} confirmed read index {index}, {before} was committed before the question",
                node=node,
                index=index,
            )

    @guarded
    def on_shown(self, node: str, index: int) -> None:
        """A broker has shown an entry to who asked for it by its id: it is committed."""
        if index >= len(self._truth.committed):
            self._report(
                "A5 read before the commit", f"{node} shows entry {index} by its id", node=node
            )

    @guarded
    def on_pulled(self, queue: Queue, passed: range, tag: str, got: set[int]) -> None:
        """A read went past some offsets: what is there, with the tag asked for, was handed out."""
        truth = self._truth
        for offset in passed:
            row = self._row(queue, offset)
            if row is None:
                self._report(
                    "A5 read before the commit",
                    f"a read of {queue[0]}/{queue[1]} goes past {offset}, which is not committed",
                )
                return
            held = truth.tags.get((row.entry_index, row.term), "")
            if offset in got and tag not in {"", held}:
                self._report(
                    "A22 a tag that was not asked for",
                    f"{queue[0]}/{queue[1]}@{offset} has the tag {held!r}, asked was {tag!r}",
                )
            if offset not in got and tag in {"", held}:
                self._report(
                    "A22 passed over by a read",
                    f"{queue[0]}/{queue[1]}@{offset} has the tag {held!r}; a read for "
                    f"{tag or '*'!r} went past it to {passed.stop} with {sorted(got)}",
                )
                return

    def choose_time(self, queue: Queue, choice: int) -> int | None:
        """Return when some message of a queue was stored (ms), None if it has few."""
        rows = self._truth.queues.get(queue, [])
        row = rows[choice % len(rows)] if rows else None
        return None if row is None else self._stored(row)

    @guarded
    def on_searched(self, queue: Queue, stored_ms: int, found: int, held: tuple[int, int]) -> None:
        """A search by time was answered: the first message at or after it, of those ``held``.

        Who answered may have dropped more than whoever was asked where the queue begins.
        """
        begin, end = max(held[0], self.dropped.get(queue, 0)), held[1]
        if self._truth.may_fall or begin >= end:
            return  # a queue that is empty, or was dropped to its end, has 0
        before, at = self._row(queue, found - 1), self._row(queue, found)
        is_late = found > begin and before is not None and self._stored(before) >= stored_ms
        if is_late or (found < end and at is not None and self._stored(at) < stored_ms):
            self._report(
                "A39 search by time",
                f"{queue[0]}/{queue[1]} has {found} for {stored_ms}, of {held}; times there: "
                f"{[row and self._stored(row) for row in (before, at)]}",
            )

    @guarded
    def on_locked(self, queue: Queue, owner: str, now_ns: int) -> None:
        """A lock was granted to a client that never asked for it before: nobody else has it."""
        known, since_ns = self._locks.get(queue, ("", -self.lease_ns))
        if known and now_ns - since_ns < self.lease_ns:
            self._report(
                "A21 a queue locked by two",
                f"{queue[0]}/{queue[1]} was granted to {owner}, and {known} has had it since "
                f"{since_ns / 1e9:.3f} s",
            )
        self._locks[queue] = (owner, now_ns)

    @guarded
    def on_renewed(self, queue: Queue, owner: str, now_ns: int, *, is_granted: bool) -> None:
        """Who has a lock has asked for it again: it is given, as long as it has not run out."""
        known, since_ns = self._locks.get(queue, ("", -self.lease_ns))
        if known != owner:
            return  # it ran out, and another has it
        if is_granted:
            self._locks[queue] = (owner, now_ns)
        elif now_ns - since_ns < self.lease_ns:
            self._report(
                "A21 a lock that is not renewed",
                f"{owner} has had {queue[0]}/{queue[1]} since {since_ns / 1e9:.3f} s, and is "
                f"refused",
            )

    @guarded
    def on_unlocking(self, queue: Queue, owner: str) -> None:
        """A client gives a lock back, or has at least asked for that."""
        if self._locks.get(queue, ("",))[0] == owner:
            del self._locks[queue]

    @guarded
    def on_audited(self, queue: Queue, offset: int) -> None:
        """The auditor read a message: no gap, but for what some broker has dropped."""
        expected = self._audited.get(queue, offset)
        if offset < expected or max(expected, self.dropped.get(queue, 0)) < offset:
            self._report(
                "A22 gap in a queue",
                f"{queue[0]}/{queue[1]} continues at {offset}, expected {expected}",
                offset=offset,
            )
        self._audited[queue] = offset + 1

    @guarded
    def on_audit_end(self, queue: Queue, first: int, committed: int) -> None:
        """The auditor has read a queue from ``first`` on; it had ``committed`` messages before."""
        read = self._audited.get(queue, first)
        if read < committed:
            self._report(
                "A1 committed but not readable",
                f"{queue[0]}/{queue[1]}: the auditor read up to {read} of {committed} messages",
            )

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

    def has(self, key: int) -> bool:
        """Tell whether a message is committed."""
        return bool(self._truth.keys.get(key))

    def at_end(self, sends: Sequence[Row]) -> None:
        """Judge all sends, rows of the record. Errors: `Violation`."""
        truth = self._truth
        for send in sends:
            key, outcome = send["msg_key"], send["outcome"]
            lies_in = send.get("lies_in", send.get("topic"))
            places = [one for one in truth.keys.get(key, ()) if lies_in in {None, one[0]}]
            possible: int = send["possible"] if "possible" in send else send["attempts"]
            requests = self.requests_of(key)
            possible = possible if requests is None else requests
            if send["t_cmp"] is not None and outcome != "fail" and len(places) > possible:
                raise Violation(
                    "A8 more copies than attempts",
                    f"message {key} was sent {send['attempts']} times, of which {possible} were "
                    f"not refused, and lies at {places}",
                    key=key,
                )
            if outcome == "ok" and not places:
                raise Violation("A1 acknowledged but lost", f"message {key} is gone", key=key)
            if outcome == "fail" and places:
                raise Violation(
                    "A7 refused and yet there",
                    f"message {key} was refused, and is committed at {places}",
                    key=key,
                )

    def _report(self, oracle: str, text: str, **evidence: object) -> None:
        self.findings.report(Violation(oracle, text, **evidence))

    def _stored(self, row: EntryRow) -> int:
        return self._truth.times.get((row.entry_index, row.term), 0)

    def _row(self, queue: Queue, offset: int) -> EntryRow | None:
        rows = self._truth.queues.get(queue, [])
        return rows[offset] if 0 <= offset < len(rows) else None
