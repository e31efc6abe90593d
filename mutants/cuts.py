"""Bugs of what is left behind where a log is cut, files are dropped, or a lock is refused.

An outsider planted them; nothing looked at what they leave, which is believed much later.
Sources: docs/raft.md (recovery); spec/disk.md 5.3; RocketMQ RebalanceImpl.lockAll.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

CUTS: Final = (
    Mutant(
        name="cut-without-a-sync",
        breaks="What is cut off a segment comes back after a loss of power.",
        source="dledger.segments.row: a cut survives a loss of power; Raft 5.3.",
        plant=patch(
            "dledger.segments.row:Segments.cut", ("                file.fdatasync()\n", "")
        ),
    ),
    Mutant(
        name="sums-of-files-that-are-gone",
        breaks="A queue whose first files are gone goes on with the sums of their blocks.",
        source="spec/disk.md 5.3; each block has a sum, counted from the first file on.",
        plant=patch(
            "store.queues.consume_queue:ConsumeQueue.drop_files",
            ("        self.crcs = self.crcs[self._files.file_blocks * CRC_BYTES :]\n", ""),
        ),
    ),
)

REFUSED_AND_HELD: Final = (
    Mutant(
        name="refused-lock-is-held",
        breaks="A member goes on with a queue whose lock a broker has refused to renew.",
        source="RocketMQ RebalanceImpl.lockAll: what is not in the answer is not locked any more.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._renew",
            (
                "        for queue in refused:\n"
                '            self._lose(queue, "the broker refused to renew it")\n',
                "",
            ),
        ),
    ),
)
