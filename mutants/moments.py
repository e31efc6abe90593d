"""Planted bugs that show for a moment, or after longer than most runs take.

Sources: RocketMQ; docs/protocol.md, docs/client.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

MOMENTS: Final = (
    Mutant(
        name="port-tried-by-listening",
        breaks="A start that looks whether its port is free accepts clients, and answers none.",
        source="Found by the simulator; asyncio's Server.close leaves connections open.",
        plant=patch("broker.ports:check_port_free", (", start_serving=False", "")),
    ),
    Mutant(
        name="accepted-at-the-stop-stays",
        breaks="A peer's connection that is accepted as a node stops stays open for ever.",
        source="Found in review; asyncio tells of a connection a turn after it was accepted.",
        plant=patch(
            "dledger.peers.rpc:TcpTransport.on_opened", ("if self._has_stopped:", "if False:")
        ),
    ),
    Mutant(
        name="sent-away-though-it-leads-again",
        breaks="A leader that leads again goes on sending held pulls away.",
        source="Found in review; docs/adr/0007.",
        plant=patch("broker.pulls.release:HeldPulls._go_on", ("not self._leads and ", "")),
    ),
    Mutant(
        name="stamps-fall-as-a-clock-leaps",
        breaks="When the wall clock leaps, a message is stamped older than the one before it.",
        source="RocketMQ MessageStore.getOffsetInQueueByTime searches by times that only rise.",
        plant=patch(
            "store.write.stamps:Stamps.now",
            ("self.last = max(self.last, wall_ms)", "self.last = wall_ms"),
        ),
    ),
    Mutant(
        name="old-lease-hides-a-grant",
        breaks="Where a lease has run out, a grant under way is overlooked: two get one queue.",
        source="RocketMQ RebalanceLockManager.tryLockBatch decides under one lock.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable._owner",
            (
                "    if proposed is not None:\n",
                "    if proposed is not None and key not in self._leases:\n",
            ),
        ),
    ),
    Mutant(
        name="wake-ends-at-a-closed-connection",
        breaks="Held pulls behind one whose connection has just closed are woken and not answered.",
        source="RocketMQ PullRequestHoldService.notifyMessageArriving goes through all of them.",
        plant=patch(
            "broker.processor.pull:PullProcessor.wake",
            (
                "            if not pull.connection.closed:\n                work -=",
                "            if pull.connection.closed:\n                break\n"
                "            work -=",
            ),
        ),
    ),
    Mutant(
        name="member-by-its-first-heartbeat",
        breaks="A consumer leaves its group two minutes after its first heartbeat and lives on.",
        source="RocketMQ ConsumerGroupInfo.updateChannel: setLastUpdateTimestamp at each.",
        plant=patch(
            "broker.groups.client_registry:ConsumerGroup.update_client",
            ("        known.last_seen_ms = client.last_seen_ms\n", ""),
        ),
    ),
    Mutant(
        name="offset-put-during-a-write-lost",
        breaks="An offset that moves while the file of offsets is written counts as written.",
        source="docs/client.md: broadcasting goes on where it stopped.",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets.flush",
            ("        self._has_changed = False\n", ""),
            (
                "_on_written)\n        await self._wait_for_write()\n",
                "_on_written)\n        await self._wait_for_write()\n"
                "        self._has_changed = False\n",
            ),
        ),
    ),
    Mutant(
        name="questions-of-another-term-awaited",
        breaks="A leader whose count of questions ended with its term asks nobody in later ones.",
        source="RocketMQ TransactionalMessageCheckService begins anew with each role.",
        plant=patch(
            "broker.transactions.service:Transactions.start",
            ("    self._counted = 0\n", ""),
        ),
    ),
    Mutant(
        name="own-end-acknowledged",
        breaks="Who gets an append again acknowledges its own end: entries the leader never saw.",
        source="Raft paper 5.3 and Figure 2: a follower answers for what matches its leader's log.",
        plant=patch(
            "dledger.core.replication:on_append",
            ("acknowledge(state, log.commit_index)", "acknowledge(state, log.last_index)"),
        ),
    ),
    Mutant(
        name="checkpoint-of-unwritten-queues",
        breaks="A checkpoint does not wait for queues that were not written when it fell due.",
        source="RocketMQ FlushConsumeQueueService writes the checkpoint behind the queues' flush.",
        plant=patch(
            "store.recovery.checkpointer:Checkpointer.tick",
            ("queues.flushed_count + len(queues.unwritten)", "queues.flushed_count"),
        ),
    ),
    Mutant(
        name="overtaken-sync-counted",
        breaks="A sync that ends when what it covers was cut counts for what came instead.",
        source="The simulator: a follower counted an entry that no sync had covered.",
        plant=patch(
            "dledger.core.raft:Raft.persisted",
            ("min(index, log.handed_index)", "min(index, log.last_index)"),
        ),
    ),
    Mutant(
        name="cut-by-a-former-master",
        breaks="A slave of a new master cuts its log where the epochs of the former one said.",
        source="RocketMQ AutoSwitchHAClient compares epochs anew with each master.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._be_slave",
            ("self._surplus if is_same else None", "self._surplus"),
        ),
    ),
    Mutant(
        name="commit-before-its-entries",
        breaks="What is committed is handed out while its entries still wait to be written.",
        source="dledger.core.ready: entries are written before anything is applied.",
        plant=patch(
            "dledger.core.raft:Raft._has_other_work",
            ("last_index != log.handed_index", "last_index < log.handed_index"),
        ),
    ),
)
"""Found by tests alone."""
