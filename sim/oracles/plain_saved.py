"""What brokers with a plain log write down of queues and tables is what their log makes of them.

The checkpoint of the queues names the last byte of an entry, and so does the file that says what
the tables include. Judged as `sim.oracles.queue_files` and `sim.oracles.saved_tables` do it in a
group, when the file gets its name.
Source: docs/storage.md; spec/disk.md 5.5, 5.6.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.oracles.base import guarded
from sim.oracles.model import Model
from sim.oracles.plain_tables import count_before, entries_before
from sim.oracles.queue_files import QueueFiles
from sim.oracles.records import ENTRY_HEADER_BYTES
from sim.oracles.saved_tables import INDEX_FILE, SavedTables
from sim.oracles.tables import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.controller import BrokerController
    from sim.disk import SimDisk
    from sim.oracles.base import Findings
    from sim.oracles.copies import Book, Copy
    from sim.oracles.plain_truth import PlainTruth
    from store.plain import PlainLog

NUMBER: Final = re.compile(rb"([{,])\s*(-?\d+)\s*:")
"""A number that is a key, as Java writes it."""
_entry: Final = attrgetter("entry_index")


class Alone(Protocol):
    """What is known of a broker outside the group; see `sim.alone_log.AloneLog`."""

    @property
    def truth(self) -> PlainTruth:
        """Return its log."""
        ...

    @property
    def first_position(self) -> int:
        """Return where its log begins."""
        ...

    @property
    def judged(self) -> BrokerController | None:
        """Return the broker that runs, None where its log has lost its end, or nothing runs."""
        ...


class Keeper(Protocol):
    """One broker that copies a log, or is copied."""

    copy: Copy
    is_up: bool

    @property
    def log(self) -> PlainLog:
        """Return its log, as the production has it."""
        ...

    @property
    def running(self) -> BrokerController:
        """Return the production object."""
        ...


def ends_alone(
    disk: SimDisk, alone: Alone, index: int, _term: int
) -> Iterator[tuple[str, int, int]]:
    """Yield topic, queue id and end of each queue as the entry leaves them that ends at a place."""
    controller, truth = alone.judged, alone.truth
    if controller is None or index >= truth.end or disk.damages:
        return
    count = entries_before(truth, index + 1)
    by_name, begin = controller.store._queues.by_name, alone.first_position
    for queue, rows in truth.queues.items():
        end = bisect_right(rows, count - 1, key=_entry)
        if end and queue in by_name and rows[end - 1].pos + ENTRY_HEADER_BYTES >= begin:
            yield *queue, end


def ends_copied(
    book: Book, keeper: Keeper, index: int, _term: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the same of a broker whose log is a line, or the beginning of one."""
    copy = keeper.copy
    if not keeper.is_up or index >= copy.end or copy.files.disk.damages:
        return
    line, running = book.lines[max(copy.lines)], keeper.running
    rows = (line.rows[at] for at in line.between(keeper.log.first_position, index + 1))
    ends = {row.queue: row.offset + 1 for row in rows}
    for queue in ends.keys() & running.store._queues.by_name.keys():
        yield *queue, ends[queue]


class PlainSaved(SavedTables):
    """Judges what a broker outside the group saves of its tables."""

    def __init__(self, disk: SimDisk, alone: Alone, findings: Findings) -> None:
        super().__init__(disk, alone.truth, findings, lambda: 0)
        self._alone = alone

    @guarded
    def on_rename(self, source: str, target: str) -> None:
        """A file is about to get its name."""
        controller, truth = self._alone.judged, self._alone.truth
        if controller is None or not target.endswith(INDEX_FILE):
            return
        index = json.loads(bytes(self._disk.look(source)))["appliedIndex"]
        if controller.state_index <= index < truth.end:
            model = Model()
            for statement in truth.statements[: count_before(truth, index + 1)]:
                model.apply(statement)
            if model.knows and model.rows <= LARGE:
                self._compare(target.removesuffix(INDEX_FILE), index, model)

    def _decode(self, document: bytes) -> dict[str, Any]:
        """Read a text of which RocketMQ may read and write the like."""
        read: dict[str, Any] = json.loads(NUMBER.sub(rb'\1"\2":', document))
        return read


def judge_alone(disk: SimDisk, alone: Alone | None, findings: Findings) -> None:
    """Have what a broker outside the group writes down judged; ``alone``: what its log is."""
    if alone is None:
        QueueFiles(disk, findings)
        return
    QueueFiles(disk, findings, partial(ends_alone, disk, alone))
    PlainSaved(disk, alone, findings)
