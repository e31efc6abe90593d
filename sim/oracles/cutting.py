"""What is cut off a log is cut for good: no loss of power brings it back.

Behind the end of a log all is zero, in its entries and in their index, so that nothing that was cut
can come back. An entry that does shows only where the power goes before the next sync. So it is
judged before the first entry is written behind the cut: the disk of the simulation knows what
would survive.

Which sums a queue has of the blocks of its files is compared with these whenever the files have
moved on: a sum that belongs to a file which has gone is believed at the next start.
Source: `dledger.segments.row`; docs/raft.md (recovery); spec/disk.md 5.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from sim.oracles.base import Findings, Oracle, Violation, guarded
from sim.oracles.trimming import Trimming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.core.ready import Ready
    from dledger.segments.row import Segments
    from sim.oracles.replica import Change, Replica
    from store.queues.consume_queue import ConsumeQueue

SUM_BYTES: Final = 4
LOOK_STEP: Final = 64
"""Changes of a replica between two looks at its queues."""


class Cutting:
    """Listens to what cuts a log."""

    name = "A38 cut off and not for good"

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def on_boot(self, replica: Replica) -> None:
        """Listen to a process that has just opened its log."""
        cuts: list[tuple[Segments, int]] = []
        for row in (replica.store._data, replica.store._index):
            self._listen(row, cuts)
        driver = replica.node._driver
        complete = driver.complete

        def listened(ready: Ready) -> bool:
            while cuts:
                self._check(replica, *cuts.pop())
            return complete(ready)

        driver.complete = listened  # type: ignore[method-assign]  # to listen to it

    def on_change(self, replica: Replica, change: Change) -> None:
        """It is judged before the first entry is written behind a cut."""

    @staticmethod
    def _listen(row: Segments, cuts: list[tuple[Segments, int]]) -> None:
        cut = row.cut

        def listened(position: int) -> None:
            cut(position)
            cuts.append((row, position))

        row.cut = listened  # type: ignore[method-assign]  # to listen to it

    @guarded
    def _check(self, replica: Replica, row: Segments, position: int) -> None:
        disk, offset = replica.disk, position % row.segment_bytes
        if disk.blocked:  # The process stands still in its sync, and what it does is not done yet.
            return
        if not row.start <= position - offset < row.end or disk.has_failed_syncs():
            return
        path = row.path(position)
        if not disk.is_durable(path, offset, row.segment_bytes - offset):
            text = f"{replica.name} has cut {path} at {offset}, and a loss of power now may bring"
            raise Violation(self.name, f"{text} back what was behind", node=replica.name)


class QueueSums:
    """Looks at what queues remember of their files."""

    name = "A34 sums of a queue that are not those of its files"

    def __init__(self) -> None:
        self._changes = 0
        self._begins: dict[tuple[str, str, int], int] = {}
        """By replica and queue, with which file it began when it was looked at."""

    def on_boot(self, replica: Replica) -> None:
        """What a start finds is looked at when its files have moved on."""

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look from time to time. Errors: `Violation`."""
        del change
        self._changes += 1
        if self._changes % LOOK_STEP:
            return
        for queue in replica.controller.store._queues.by_name.values():
            self._check(replica, queue)

    def _check(self, replica: Replica, queue: ConsumeQueue) -> None:
        files = queue._files
        count, at = divmod(queue.written - queue.first_file, files.file_bytes)
        blocks = count * files.file_blocks + at // files.block_bytes
        if len(queue.crcs) != SUM_BYTES * blocks:
            self._fail(replica, queue, f"{len(queue.crcs) // SUM_BYTES} sums of {blocks} blocks")
        place = (replica.name, queue.topic, queue.queue_id)
        before = self._begins.get(place, queue.first_file)
        self._begins[place] = queue.first_file
        if before == queue.first_file or replica.is_corrupt or replica.disk.is_watched:
            return
        for block in range(blocks):
            start, end = queue.block_range(block)
            at = start % files.file_bytes
            held = replica.disk.look(queue.path(start - at))[at : at + end - start]
            told = int.from_bytes(queue.crcs[SUM_BYTES * block :][:SUM_BYTES], "big")
            if not queue.unchecked >> block & 1 and crc32(held) != told:
                self._fail(replica, queue, f"another sum of block {block} than its file")

    def _fail(self, replica: Replica, queue: ConsumeQueue, what: str) -> None:
        text = f"{replica.name}: {queue.topic}/{queue.queue_id} has {what}"
        raise Violation(self.name, text, node=replica.name)


def oracles_of_files(
    findings: Findings, replicas: Mapping[str, Replica]
) -> tuple[Oracle, Oracle, Oracle]:
    """Return the oracles of what goes from the files of a log and of its queues."""
    return Trimming(findings, replicas), Cutting(findings), QueueSums()
