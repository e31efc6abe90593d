"""Planted bugs of brokers that are worn: what waits for space, for a disk, or for a repair.

An outsider planted them, who saw the product alone; plans with worn brokers show most of them
(`sim.faults.worn`): disks that hang one after the other, saved tables with damage, a follower
without room for a snapshot, little that may wait for a majority.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

WORN: Final = (
    Mutant(
        name="backup-of-a-table-taken-for-current",
        breaks="Where a table's file is damaged, its backup counts as of the saved index: what came"
        " between two saves is missing.",
        source="broker/state/snapshot.py: with a backup the whole log is applied again.",
        plant=patch(
            "broker.state.snapshot:Snapshot._load_table",
            (
                'file=%s.bak error=%s", path, error)\n',
                'file=%s.bak error=%s", path, error)\n        else:\n            return True\n',
            ),
        ),
    ),
    Mutant(
        name="blocked-since-its-disk-hung",
        breaks="A replica whose disk hung once never leads again; when all have, nobody leads.",
        source="spec/proof.md D7; dledger/disk/watch.py.",
        plant=patch(
            "dledger.node:DLedgerNode._probe_disk",
            (
                "if reason != self._raft.state.blocked:",
                "if reason is not None and reason != self._raft.state.blocked:",
            ),
        ),
    ),
    Mutant(
        name="pending-limit-stands-still",
        breaks="What is committed does not move the limit of what may be pending: after so many"
        " bytes in all a leader refuses every send.",
        source="dledger/appender.py: pendingBytesMax bounds what waits for a majority.",
        plant=patch(
            "dledger.appender:Appender._check_pending",
            ("    committed = self._committed()\n", "    committed = 0\n"),
        ),
    ),
    Mutant(
        name="shown-by-its-id-before-the-commit",
        breaks="A message is found by its id before it is committed, and may never have been.",
        source="Raft dissertation 6.4: nobody reads what is not committed.",
        plant=patch(
            "store.read.reader:Reader.message_at",
            ("physical_offset < log.committed_position", "physical_offset < log.end_position"),
        ),
    ),
    Mutant(
        name="chunk-without-space-is-waited-for",
        breaks="A follower whose disk had no room for a chunk of a snapshot takes no snapshot any"
        " more.",
        source="docs/raft.md (snapshots): what could not be kept is sent again.",
        plant=patch(
            "dledger.core.install:on_staged",
            ("    if not kept:\n        state.staging = None\n", "    if not kept:\n"),
        ),
    ),
    Mutant(
        name="learners-keep-a-leader",
        breaks="A leader that hears learners alone counts them for its majority and goes on.",
        source="Raft dissertation 4.2.1, 6.2 (check quorum): only voters count.",
        plant=patch(
            "dledger.core.election:check_quorum",
            (
                "sum(progress.contact_tick > oldest for progress in state.voting)",
                "sum(progress.contact_tick > oldest for progress in state.progress.values())",
            ),
        ),
    ),
    Mutant(
        name="damaged-message-is-passed-over",
        breaks="A read that meets a damaged message goes on behind it: whoever reads never gets it,"
        " though a peer would have repaired it.",
        source="docs/storage.md (corruption): it is read again when it is repaired.",
        plant=patch(
            "store.read.reader:Reader._collect",
            (
                "            scanned -= 1\n"
                "            self._note(queue, offset + scanned, physical, error)\n"
                "            status = status if scanned else",
                "            self._note(queue, offset + scanned - 1, physical, error)\n"
                "            status = status if scanned > 1 else",
            ),
        ),
    ),
    Mutant(
        name="renewed-lease-stays-in-front",
        breaks="A renewed lease keeps its place in front of others: those that run out behind it"
        " stay in the table for ever.",
        source="docs/security.md (limits): locks of a group; broker/state/queue_lock.py.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.apply_lock",
            ("if self._leases.pop(key, None) is None:", "if key not in self._leases:"),
        ),
    ),
)
