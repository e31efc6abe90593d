"""Planted bugs in corners that plans did not draw, or that no oracle looked at.

Sources: docs/client.md (where a new group begins); RocketMQ's RebalancePushImpl, FlushDiskType and
DefaultMQProducerImpl, and what their issues tell.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

CORNERS: Final = (
    Mutant(
        name="last-begins-at-the-first",
        breaks="A new group that wants what is sent from now on gets all that the queues hold.",
        source="RocketMQ RebalancePushImpl.computePullFromWhere; docs/client.md.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.first_offset",
            ("if origin is ConsumeFrom.LAST_OFFSET and is_old:", "if False:"),
        ),
    ),
    Mutant(
        name="timestamp-begins-at-the-end",
        breaks="A new group that begins at a time misses what was stored since.",
        source="RocketMQ RebalancePushImpl.computePullFromWhere, CONSUME_FROM_TIMESTAMP.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.first_offset",
            (
                "lambda addr: api.search_offset(addr, queue, when_ms)",
                "lambda addr: api.max_offset(addr, queue)",
            ),
        ),
    ),
    Mutant(
        name="plain-sync-lies",
        breaks="A plain broker says under SYNC_FLUSH that it has synced, and asks no disk.",
        source="RocketMQ CommitLog.GroupCommitService: MappedFileQueue.flush comes first.",
        plant=patch("store.plain.flusher:sync_files", ("segments.sync(files)", "pass")),
    ),
    Mutant(
        name="plain-acknowledged-unsynced",
        breaks="A plain broker counts under SYNC_FLUSH what is written as synced.",
        source="RocketMQ CommitLog.submitFlushRequest: SYNC_FLUSH waits for the flush.",
        plant=patch(
            "store.plain.log:PlainLog._find_own",
            (
                "flusher.synced_position if self._is_sync else flusher.written_position",
                "flusher.written_position",
            ),
        ),
    ),
    Mutant(
        name="renewal-refused",
        breaks="Who has a lock and asks for it again is refused, as anybody else.",
        source="RocketMQ RebalanceLockManager.tryLockBatch: its own lock counts as locked.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.grantable",
            ("owner in (None, change.client_id)", "owner is None"),
        ),
    ),
    Mutant(
        name="renewal-without-effect",
        breaks="A lock that is asked for again runs out when it would have before.",
        source="RocketMQ RebalanceLockManager.tryLockBatch: setLastUpdateTimestamp.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.apply_lock",
            (
                "_Lease(change.client_id, now_ms + self._lease_ms)",
                "_Lease(change.client_id, lease.until_ms if lease is not None"
                " and lease.client_id == change.client_id else now_ms + self._lease_ms)",
            ),
            (
                "        if self._leases.pop(key, None) is None:\n",
                "        lease = self._leases.pop(key, None)\n        if lease is None:\n",
            ),
        ),
    ),
)
