"""What groups committed to this broker while it was a slave, and its master does not have.

Consumers commit to a slave while their master is gone. When it is back, it has older offsets; the
slave keeps the newer ones until the master says something else than it said before: then somebody
has committed there, or an administrator has moved the group, and that counts. Nor is one given back
that is before the master's: who sets a group back does so at the master. One that has no
offset any more lost it when it died. Meanwhile the slave gives them back to the master. RocketMQ's
slave overwrites them with what the master says.

They lie beside the replicated offsets (`ConsumerOffsetTable`, as what is pending), in a file of
their own. A broker that is started as the master on this directory replicates them as its own, up
to where its queues end: what the dead master gave out beyond that is lost, and other messages will
take its place.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from broker.state.table import ReplicatedTable
from broker.table_text import text_in_steps
from ledgermq.remoting.protocol.bodies import decode_file
from ledgermq.remoting.protocol.limits import Int64  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from broker.state.consumer_offset import ConsumerOffsetTable, OffsetMap
    from broker.state.table import Gauge


_log = logging.getLogger(__name__)

ROWS_PER_STEP: Final = 500
"""Compared in one turn of the loop."""
ROWS_OF_A_WEIGHT: Final = 8
"""So many offsets of one topic and group are as much work as an ordinary row of a text."""


class OwnOffset(NamedTuple):
    """One offset that this broker took as a slave."""

    topic: str
    group: str
    queue_id: int
    offset: int
    told: int | None
    """What the master has instead, as it says."""


class _Row(msgspec.Struct, array_like=True):
    own: Int64
    base: Int64 | None
    """What the master had said before."""
    given: Int64 | None = None
    """What it took of these, and has not told since."""


class _Saved(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[int, _Row]]
    """topic@group -> queue id -> the row."""


class _Text(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[int, tuple[int | None, ...]]]
    """As `_Saved`; without the third column where there is none, as earlier versions read it."""


def _is_news(own: int, now: int | None) -> bool:
    """Tell whether the master lacks an offset: it moves nobody back who committed there.

    A consumer that began at the slave's older offset commits lower ones at first.
    """
    return now is None or own > now


def _said(offset: int | None) -> int | None:
    """Return what a master's offset says: a negative one, as RocketMQ reads it, is none."""
    return None if offset is None or offset < 0 else offset


class OwnOffsets(ReplicatedTable):
    """Those of one broker. No record of the log changes it."""

    file = "slaveOffset.json"

    def __init__(self, offsets: ConsumerOffsetTable) -> None:
        self._offsets = offsets
        self._bases: dict[str, dict[int, int | None]] = {}
        self._given: dict[tuple[str, int], int] = {}
        """What the master took of these, and has not told since."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take a committed offset; see `ConsumerOffsetTable.commit`."""
        key = topic + "@" + group
        base = _said(self._offsets.applied_offset(key, queue_id))
        is_first = self._offsets.pending_offset(key, queue_id) is None
        if not self._offsets.commit(group, topic, queue_id, offset):
            return False
        if self._offsets.pending_offset(key, queue_id) is not None:
            if is_first:
                self._bases.setdefault(key, {})[queue_id] = base
            self.changes += 1
        return True

    def compare_steps(self, told: OffsetMap) -> Generator[None, None, list[OwnOffset]]:
        """Forget what the master has by now or knows better; return what it should be given.

        Groups commit between two steps.
        """
        due: list[OwnOffset] = []
        behind: list[OwnOffset] = []
        looked_at = 0
        for key in list(self._bases):
            bases = self._bases.get(key, {})
            looked_at += 1 + len(bases)
            if looked_at >= ROWS_PER_STEP:
                looked_at = 0
                yield
            self._compare_key(key, told.get(key, {}), due, behind)
        if behind:
            _log.info("event=offsets_behind_the_masters count=%d first=%s", len(behind), behind[0])
        return due

    def _compare_key(
        self, key: str, said: Mapping[int, int], due: list[OwnOffset], behind: list[OwnOffset]
    ) -> None:
        """Add to ``due`` what the master should be given of one topic and group."""
        bases = self._bases.get(key, {})
        topic, _, group = key.rpartition("@")
        for queue_id, base in list(bases.items()):
            own = self._offsets.pending_offset(key, queue_id)
            now, given = _said(said.get(queue_id)), self._given.get((key, queue_id), base)
            is_as_before = now in {base, given, None}
            if now is not None and now == given != base:
                self._note_told(key, queue_id, now)
            if own is not None and is_as_before and _is_news(own, now):
                due.append(OwnOffset(topic, group, queue_id, own, now))
                continue
            if own is not None and now is not None and own < now:
                behind.append(OwnOffset(topic, group, queue_id, own, now))
            self._offsets.drop(key, queue_id)
            del bases[queue_id]
            self._given.pop((key, queue_id), None)
            self.changes += 1
        if not bases:
            self._bases.pop(key, None)

    def _note_told(self, key: str, queue_id: int, now: int) -> None:
        """Take that the master tells what it was given, some seconds later, and so has it on disk.

        What it had before that is said by somebody who moves the group, from now on.
        """
        self._bases[key][queue_id] = now
        self._given.pop((key, queue_id), None)
        self.changes += 1

    def note_given(self, one: OwnOffset) -> None:
        """Take that the master has taken one: that it says so from now on is nobody else's word.

        A group may have committed here again meanwhile.
        """
        key = one.topic + "@" + one.group
        if one.queue_id in self._bases.get(key, {}):
            self._given[key, one.queue_id] = one.offset
            self.changes += 1

    def bound(self, max_offset: Callable[[str, int], int]) -> None:
        """Take back what is past the end of a queue; of the master, before it proposes any.

        Args:
            max_offset: returns where a queue ends, by topic and queue id.
        """
        for key, bases in self._bases.items():
            topic, _, group = key.rpartition("@")
            for queue_id, base in bases.items():
                own = self._offsets.pending_offset(key, queue_id)
                end = max_offset(topic, queue_id)
                if own is None or own <= end:
                    continue
                self._offsets.drop(key, queue_id)
                if base is None or end > base:
                    self._offsets.commit(group, topic, queue_id, end)
                self.changes += 1
                _log.warning(
                    "event=offset_past_the_end group=%s topic=%s queue=%d offset=%d end=%d",
                    group, topic, queue_id, own, end,
                )  # fmt: skip

    def forget_settled(self, count_max: int | None = None) -> None:
        """Forget what is replicated, or was taken away; of the master, again and again.

        What is in the file would come back at a start, once the offset is again what it was.
        ``count_max``: so many topics and groups are looked at; those that stay come behind all
        others then.
        """
        for key in list(islice(self._bases, count_max)):
            bases = self._bases.pop(key)
            for queue_id in list(bases):
                if self._offsets.pending_offset(key, queue_id) is None:
                    del bases[queue_id]
                    self._given.pop((key, queue_id), None)
                    self.changes += 1
            if bases:
                self._bases[key] = bases

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """See `ReplicatedTable`; the log does not contain it."""
        return {}

    def gauges(self) -> Iterable[Gauge]:
        """See `ReplicatedTable`; they are counted as offsets."""
        return ()

    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the parts of ``slaveOffset.json``, each row as it is when its turn has come.

        No record of the log changes it, so there is no entry that it would have to be as of; what
        has changed since this call is written again.
        """
        return text_in_steps(
            lambda keys: _Text({key: self._rows_of(key) for key in keys}),
            list(self._bases),
            lambda key: 1 + len(self._bases.get(key, ())) // ROWS_OF_A_WEIGHT,
        )

    def _rows_of(self, key: str) -> dict[int, tuple[int | None, ...]]:
        bases = self._bases.get(key, {})
        pending = {number: self._offsets.pending_offset(key, number) for number in bases}
        rows: dict[int, tuple[int | None, ...]] = {}
        for number, own in pending.items():
            if own is not None:
                given = self._given.get((key, number))
                rows[number] = (own, bases[number], *(() if given is None else (given,)))
        return rows

    def restore(self, data: bytes) -> None:
        """See `ReplicatedTable`; called after the offsets were restored.

        Where these have changed since an offset was taken, it is of the past.
        """
        self._bases, self._given = {}, {}
        for key, rows in decode_file(data, _Saved).offset_table.items():
            topic, _, group = key.rpartition("@")
            for queue_id, row in rows.items():
                now = _said(self._offsets.applied_offset(key, queue_id))
                is_due = now == _said(row.base) or (now is not None and now == row.given)
                if is_due and self._offsets.commit(group, topic, queue_id, row.own):
                    self._bases.setdefault(key, {})[queue_id] = row.base
                    if row.given is not None:
                        self._given[key, queue_id] = row.given
                else:
                    self.changes += 1
