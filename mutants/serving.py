"""Planted bugs in what a broker serves, and in what is to happen in time.

Sources: the contracts of docs/raft.md (durability, transfer) and docs/protocol.md; RocketMQ's
ConsumerOffsetManager, PullRequestHoldService, RebalanceLockManager and IndexService.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

SERVING: Final = (
    Mutant(
        name="appends-during-a-transfer",
        breaks="A leader takes entries although it has asked its successor to campaign.",
        source="Dissertation 3.10; what it takes the successor does not have.",
        needs="transfer",
        plant=patch("dledger.node:DLedgerNode._may_accept", ("and state.transfer is None", "")),
    ),
    Mutant(
        name="background-sync-never-begun",
        breaks="With ASYNC_FLUSH nothing is synced unless something else asks for it.",
        source="docs/raft.md, what an acknowledgement means: at most 500 ms and one sync.",
        flush="ASYNC_FLUSH",
        plant=patch("dledger.disk.flusher:Flusher.pass_time", ("self.start_sync()", "pass")),
    ),
    Mutant(
        name="hung-disk-not-noticed",
        breaks="A leader whose sync does not return goes on leading.",
        source="hashicorp/raft 503, etcd 13527: leaders that kept on.",
        needs="hung_disk",
        plant=patch(
            "dledger.disk.watch:DiskWatch.look",
            ("hangs = waiting_ms >= self._hang_ms", "hangs = False"),
        ),
    ),
    Mutant(
        name="offsets-never-proposed",
        breaks="Group offsets are told by the leader that took them, and never replicated.",
        source="RocketMQ issue 7790 (mass re-consumption after a switch).",
        plant=patch(
            "broker.offsets.replication:OffsetReplicator._propose",
            ("if not self._log.writable:", "if True:"),
        ),
    ),
    Mutant(
        name="pending-offsets-kept",
        breaks="Offsets that a deposed leader had not replicated are told when it leads again.",
        source="An offset that goes back: others were committed meanwhile.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.drop_pending",
            ("self._pending.clear()", "pass"),
        ),
    ),
    Mutant(
        name="read-of-a-follower",
        breaks="Whoever is asked for messages answers, be it the leader or not.",
        source="ADR 7, reads belong to the leader; RocketMQ answers 20 there, and clients spin.",
        plant=patch(
            "broker.processor.pull:PullProcessor._check",
            ("if not self._store.readable:", "if False:"),
        ),
    ),
    Mutant(
        name="held-pull-not-woken",
        breaks="A pull that waits for a message is not told that one has come.",
        source="RocketMQ NotifyMessageArrivingListener; a lost wake-up.",
        plant=patch(
            "broker.pulls.wake_up:WakeUp.on_message",
            ("if self._held.waits(topic, queue_id):", "if False:"),
        ),
    ),
    Mutant(
        name="held-pull-not-answered",
        breaks="A pull is woken, and nobody answers it.",
        source="RocketMQ PullRequestHoldService.notifyMessageArriving; a lost answer.",
        plant=patch(
            "broker.processor.pull:PullProcessor.wake",
            ("if not pull.connection.closed:", "if False:"),
        ),
    ),
    Mutant(
        name="keys-not-indexed",
        breaks="A replica indexes the keys of the messages that it took itself, not of others.",
        source="RocketMQ IndexService.buildIndex, called by whoever dispatches.",
        plant=patches(
            patch(
                "store.dispatch.dispatcher:Dispatcher._dispatch_records",
                ("if self.keys is not None and keyed:", "if False:"),
            ),
            patch(
                "store.dispatch.dispatcher:Dispatcher._end_run",
                ("if self.keys is not None and run.hashes:", "if False:"),
            ),
        ),
    ),
    Mutant(
        name="store-time-falls",
        breaks="A clock that was set back makes messages older than those before them.",
        source="A search by time is a binary search: store times never fall along the log.",
        needs="clock_jump clock_strobe",
        plant=patch(
            "store.write.stamps:Stamps.now",
            ("if wall_ms > self.last:\n        if", "if True:\n        if"),
            ("max(self.last, wall_ms)", "wall_ms"),
        ),
    ),
    Mutant(
        name="search-one-too-low",
        breaks="A search by time answers with the message before the first of that time.",
        source="RocketMQ ConsumeQueue.getOffsetInQueueByTime; an off-by-one.",
        plant=patch(
            "store.read.reader:Reader.offset_by_time",
            ("        return low\n", "        return max(low - 1, queue.min_offset)\n"),
        ),
    ),
    Mutant(
        name="filter-passes-over",
        breaks="A read for some tags passes over messages when it has found a few.",
        source="RocketMQ DefaultMessageStore.getMessage: nextBeginOffset and the filter.",
        plant=patch(
            "store.read.reader:Reader._collect",
            (
                "if codes is not None and tags not in codes:",
                "if codes is not None and (tags not in codes or count >= 3):",
            ),
        ),
    ),
    Mutant(
        name="properties-spoiled",
        breaks="Some messages are stored with other properties than they were sent with.",
        source="RocketMQ MessageDecoder.messageProperties2String.",
        plant=patch(
            "store.write.commit_log:CommitLog._record",
            (
                "    properties = message.properties\n",
                "    properties = message.properties\n"
                "    if place[1] % 40 == 7:\n"
                '        properties = properties.replace(b"KEYS\\x01", b"KAYS\\x01")\n',
            ),
        ),
    ),
    Mutant(
        name="locks-not-inherited",
        breaks="Locks of queues are known to the leader that granted them alone.",
        source="RocketMQ RebalanceLockManager, whose table dies with the master.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.apply_lock",
            (
                "self._leases[key] = _Lease",
                "if key in self._proposed:\n            self._leases[key] = _Lease",
            ),
        ),
    ),
    Mutant(
        name="unlocked-by-anyone",
        breaks="Whoever gives a lock back frees it, be it its owner or not.",
        source="RocketMQ RebalanceLockManager.unlockBatch compares the client.",
        plant=patches(
            patch(
                "broker.state.queue_lock:QueueLockTable.apply_unlock",
                ("and lease.client_id == change.client_id", ""),
            ),
            patch(
                "broker.state.queue_lock:QueueLockTable.releasable",
                ("if change.client_id in self._holders(key)", "if self._holders(key)"),
            ),
        ),
    ),
)
