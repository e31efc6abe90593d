"""Planted bugs of what flows between master and slaves, and of what controllers say and write down.

What is wrong is put right by the next message, or shows only after a loss of power at the wrong
moment; so it is judged where it happens (`sim.oracles.streams`, `sim.switch`).
Sources: docs/replication.md, docs/adr/0020; Raft, figure 2.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

STREAMS: Final = (
    Mutant(
        name="vote-in-memory-only",
        breaks="A controller that knew of a term before it voted has its vote in memory only.",
        source="Raft, figure 2: votedFor is persistent state.",
        plant=patch(
            "namesrv.controller.journal:SyncedJournal.setCurrentTerm",
            (
                "    self._disk.replace(self._vote_path, msgspec.json.encode(vote))\n",
                "    if term != self._vote.term:\n"
                "        self._disk.replace(self._vote_path, msgspec.json.encode(vote))\n",
            ),
        ),
    ),
    Mutant(
        name="master-told-by-who-does-not-lead",
        breaks="A controller that follows, or is cut off, answers who is master by what it knows.",
        source="RocketMQ ControllerRequestProcessor: a controller that does not lead refuses.",
        plant=patch(
            "namesrv.controller.processor:ControllerProcessor.replica_info",
            ("    if not self._controller.leads:\n", "    if not self._controller.leader:\n"),
        ),
    ),
    Mutant(
        name="loss-outside-the-set-unnoticed",
        breaks="A replica that lost the end of its log is let in by a request from before that.",
        source="docs/adr/0020: a loss ends the epoch of the set.",
        plant=patch(
            "namesrv.controller.machine:_without_end_of",
            (
                "in_sync_epoch=group.in_sync_epoch + 1,",
                "in_sync_epoch=group.in_sync_epoch + (command.id in group.in_sync),",
            ),
        ),
    ),
    Mutant(
        name="confirmed-before-it-reconnected",
        breaks="What a slave confirmed over another connection counts, though it may have lost it.",
        source="docs/adr/0020: its disk is asked again.",
        plant=patch(
            "store.ha.switch.in_sync:InSync.on_connected",
            (
                "found.confirmed = found.target = found.target_ms = 0",
                "found.target = found.target_ms = 0",
            ),
        ),
    ),
    Mutant(
        name="slave-asks-from-its-end",
        breaks="A slave asks from its end on, and so compares nothing of its master's log.",
        source="docs/replication.md: a slave asks for its own last record again.",
        plant=patch(
            "store.ha.intake:Intake.__init__",
            ("max(written.last_start, 1)", "max(log.own_position, 1)"),
        ),
    ),
    Mutant(
        name="rest-of-a-share-waits-for-a-message",
        breaks="A slave that was sent its share of a turn gets the rest when a message comes.",
        source="docs/replication.md: who catches up goes on by itself.",
        plant=patch(
            "store.ha.master:SlaveLink._send_some",
            (
                "    if sent >= PUSH_BYTES_MAX and not self._scheduled:\n",
                "    if sent >= 2 * PUSH_BYTES_MAX and not self._scheduled:\n",
            ),
        ),
    ),
    Mutant(
        name="given-back-unasked",
        breaks="A slave gives its master offsets back that others have committed past meanwhile.",
        source="docs/replication.md: it is asked for each right before it is given one.",
        plant=patch(
            "broker.slave_sync.giving_back:give_back",
            (
                "            if not _is_as_told(one, await client.request(addr, _question(one), "
                "TIMEOUT_MS)):\n                continue\n",
                "",
            ),
        ),
    ),
)
