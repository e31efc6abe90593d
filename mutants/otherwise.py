"""Planted bugs that cost time alone, or wait for the next message: each step is judged by itself.

None of them loses anything, and most are put right by what comes next, so that what is judged at
the end of a run, or from outside, seldom shows them.
Sources: Raft paper 5.3, 5.4.1; RocketMQ DefaultMessageStore.getMessage, GroupTransferService,
ReplicasInfoManager; docs/replication.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

OTHERWISE: Final = (
    Mutant(
        name="vote-by-term-and-length",
        breaks="A vote is refused to whose log is of a later term and shorter.",
        source="Raft 5.4.1: of two logs the one of the later term is ahead, however long it is.",
        plant=patch(
            "dledger.core.log:RaftLog.is_up_to_date",
            (
                "return (last_term, last_index) >= (self.last_term, self.last_index)",
                "return last_term >= self.last_term and last_index >= self.last_index",
            ),
        ),
    ),
    Mutant(
        name="repeated-append-acknowledged-short",
        breaks="Who gets again what is committed acknowledges what lies before that.",
        source="etcd raft, handleAppendEntries: an append below the commit is told the commit.",
        plant=patch(
            "dledger.core.replication:on_append",
            ("acknowledge(state, log.commit_index)", "acknowledge(state, append.prev_index)"),
        ),
    ),
    Mutant(
        name="end-of-a-trimmed-queue-is-illegal",
        breaks="Who has read all of a queue that was trimmed once is told that its offset is none.",
        source="RocketMQ getMessage: OFFSET_OVERFLOW_ONE is the end of a queue, and waits.",
        plant=patch(
            "store.read.reader:_out_of_range",
            ("elif offset == high:", "elif offset == high and not low:"),
        ),
    ),
)
"""Of a group."""

OTHERWISE_COPIED: Final = (
    Mutant(
        name="first-slave-is-the-best",
        breaks="A synchronous master with two slaves waits for the one that connected first.",
        source="RocketMQ GroupTransferService: what any slave has confirmed counts.",
        plant=patch(
            "store.ha.gate:Gate.on_slaves",
            ("self.best = max(positions, default=None)", "self.best = next(iter(positions), None)"),
        ),
    ),
    Mutant(
        name="another-set-and-nobody-looks",
        breaks="What waits for who has left the in-sync set counts with the next report alone.",
        source="docs/replication.md: what is acknowledged is what the whole in-sync set has.",
        plant=patch(
            "broker.switch.in_sync_keeper:InSyncKeeper.on_view",
            ("        self._master.look_again()\n    has_let_in", "        pass\n    has_let_in"),
        ),
    ),
    Mutant(
        name="elected-is-the-last-that-lives",
        breaks="Controllers elect who has least of those that live.",
        source="RocketMQ 5 DefaultElectPolicy: of those in sync who has most comes first.",
        plant=patch(
            "namesrv.controller.machine:_elect", ("else candidates[0]", "else candidates[-1]")
        ),
    ),
)
"""Of masters and slaves; of these tests plant each, too."""
