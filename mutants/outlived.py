"""Planted bugs of what outlives its time: in memory, on a disk, or until somebody comes by.

Each is believed much later, or never in a run of seconds; so the simulator compares what is
remembered and what is noted with the log itself, when it is written (`sim.oracles.remembered`,
`sim.oracles.saved_tables`, `sim.oracles.queue_files`), and lets everything be quiet at the end.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

OUTLIVED: Final = (
    Mutant(
        name="window-timer-stays-off",
        breaks="After an acknowledgement nobody waits for what is still out: it is not sent again.",
        source="Raft 5.3; spans that are lost while traffic pauses.",
        plant=patch(
            "dledger.core.progress:Progress.on_match",
            ("self.sent_tick = tick if inflight else None", "self.sent_tick = None"),
        ),
    ),
    Mutant(
        name="ends-outlive-a-cut",
        breaks="Where entries end is remembered of entries that were cut off.",
        source="Raft 5.3: what conflicts goes, and all that was known of it.",
        plant=patch(
            "dledger.storage.log_store:LogStore._erase_from", ("self._ends.clear()", "pass")
        ),
    ),
    Mutant(
        name="damage-outlives-a-trim",
        breaks="Damaged entries that were dropped are asked for, and keep from leading, for ever.",
        source="Retention over a segment with damage.",
        plant=patch(
            "dledger.storage.log_store:LogStore.trim",
            ("self.corruption.forget_below(plan.first_index)", "pass"),
        ),
    ),
    Mutant(
        name="mark-outlives-a-cut",
        breaks="What is noted as synced is lowered for now: a loss of power brings it back.",
        source="docs/raft.md (synced); a start refuses a log that lacks what was synced.",
        plant=patch(
            "dledger.storage.state_files:CheckpointFile._lower_mark",
            ("self._synced_file.sync()", "pass"),
        ),
    ),
    Mutant(
        name="checkpoint-names-what-is-in-memory",
        breaks="A checkpoint of the queues includes entries whose units are in memory alone.",
        source="RocketMQ StoreCheckpoint; a crash behind a checkpoint under load.",
        plant=patch(
            "store.recovery.checkpointer:Checkpointer.tick",
            ("Picture(planned, self._queues)", "Picture(applied, self._queues)"),
        ),
    ),
    Mutant(
        name="changed-while-it-was-saved",
        breaks="What a table takes while it is being written counts as written, and is lost.",
        source="RocketMQ ConfigManager.persist beside changes.",
        plant=patch(
            "broker.state.snapshot:Snapshot.write",
            ("capture.revisions[name]", "self._revision(self._tables[name])"),
        ),
    ),
    Mutant(
        name="given-back-at-work",
        breaks="A queue in order is committed for the last time before its listener has ended.",
        source="RocketMQ RebalancePushImpl.removeUnnecessaryMessageQueue (waits for the lock).",
        plant=patch(
            "ledgermq.client.assignment:Assignment._release",
            (
                "if not await host.settled(held.process_queue):",
                "await self._commit(held, Claim.NONE)\n"
                "    if not await host.settled(held.process_queue):",
            ),
        ),
    ),
    Mutant(
        name="beginning-not-written-down",
        breaks="Where a new group begins is not committed: who starts next begins at a later end.",
        source="CONSUME_FROM_LAST_OFFSET and a restart before the first message.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._take",
            ("if stored < 0 or fence not in", "if fence not in"),
        ),
    ),
    Mutant(
        name="one-commit-for-all",
        breaks="A commit of one queue commits what was given out of the others, too.",
        source="RocketMQ DefaultLitePullConsumer.commit(offsets).",
        plant=patch(
            "ledgermq.client.lite_pull:_ask_for",
            ("offsets.get(one.queue, one.asked)", "offsets.get(one.queue, one.position)"),
        ),
    ),
    Mutant(
        name="ghost-of-a-new-group",
        breaks="Whose connection ends while its group is made is a member of it all the same.",
        source="RocketMQ ConsumerManager.doChannelCloseEvent beside a registration.",
        plant=patch(
            "broker.processor.client:ClientProcessor._create_then_answer",
            ("if not connection.closed:", "if True:"),
        ),
    ),
    Mutant(
        name="nobody-sweeps-again",
        breaks="Once no pull was held, the next ones are answered by messages alone.",
        source="RocketMQ PullRequestHoldService (a loop that never ends).",
        plant=patch(
            "broker.pulls.long_polling:HoldTable.next_due_ms",
            (
                "self._awaited = min(self._by_deadline, default=None)",
                "self._awaited = min(self._by_deadline, default=self._awaited)",
            ),
            (
                "return None if self._awaited is None",
                "return None if not self._by_deadline",
            ),
        ),
    ),
)
