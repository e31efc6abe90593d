"""Planted bugs of kinds that were right by luck, or whose proof nobody asked for.

Sources: Ongaro's dissertation; RocketMQ; docs/raft.md, docs/client.md, docs/protocol.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

OVERSIGHTS: Final = (
    Mutant(
        name="read-confirmed-by-an-earlier-round",
        breaks="A read is confirmed by answers to the heartbeats before those that it began.",
        source="Dissertation 6.4: the round of heartbeats begins behind the read.",
        plant=patch(
            "dledger.core.read_index:_maybe_confirm",
            ("follower.round_heard >= number", "follower.round_heard >= number - 1"),
        ),
    ),
    Mutant(
        name="snapshot-names-later-members",
        breaks="A snapshot has the members that the log ends with, not those of its own place.",
        source="Dissertation 5.1: the latest configuration as of the last included entry.",
        plant=patch(
            "dledger.trimming:Trimmer.trim",
            ("membership.at(plan.first_index - 1)", "membership.latest"),
        ),
        needs="add remove replace",
    ),
    Mutant(
        name="cut-still-counts-as-synced",
        breaks="What takes the place of entries that were cut counts as synced, as they did.",
        source="Paper 5.3; etcd raft, unstable.truncateAndAppend.",
        plant=patch(
            "dledger.core.log:RaftLog._cut",
            ("    self.persisted_index = min(self.persisted_index, self.last_index)\n", ""),
        ),
    ),
    Mutant(
        name="one-id-for-a-group-of-sends",
        breaks="Messages that are sent together by themselves all have the id of the first.",
        source="RocketMQ MessageClientIDSetter.createUniqID: each message has one of its own.",
        plant=patch(
            "ledgermq.client.grouping:Group.leave",
            (
                "unique_ids.take(born_ms, len(members))",
                "unique_ids.take(born_ms, len(members))[:1] * len(members)",
            ),
        ),
    ),
    Mutant(
        name="pull-commits-where-it-reads",
        breaks="A pull that carries an offset commits the place that it reads from instead.",
        source="RocketMQ PullMessageProcessor: commitOffset, not queueOffset.",
        plant=patch(
            "broker.processor.pull:PullProcessor.handle",
            ("header.queue_id, header.commit_offset", "header.queue_id, header.queue_offset"),
        ),
    ),
    Mutant(
        name="leader-keeps-its-former-place",
        breaks="A follower that comes to lead stays in the route at its former id as well.",
        source="RocketMQ RouteInfoManager.registerBroker: the same address has one id.",
        plant=patch("namesrv.route_table:RouteTable._forget_place", ("del its[broker_id]", "pass")),
    ),
    Mutant(
        name="woken-by-the-second-message",
        breaks="A held pull is answered when the second message behind it comes, not the first.",
        source="RocketMQ PullRequestHoldService.notifyMessageArriving: newestOffset > the pull's.",
        plant=patch(
            "broker.pulls.long_polling:HoldTable.arrived",
            ("if pull.offset < max_offset)", "if pull.offset < max_offset - 1)"),
        ),
    ),
    Mutant(
        name="boundary-passes-over-its-time",
        breaks="A search with the lower boundary passes over the messages of just that time.",
        source="RocketMQ 5 ConsumeQueue.binarySearchInQueueByTime: the first at or after it.",
        plant=patch(
            "store.read.reader:Reader.offset_by_time",
            ("if stored < timestamp or (", "if stored <= timestamp or ("),
        ),
    ),
    Mutant(
        name="restored-leases-are-over",
        breaks="Locks that a start or a snapshot brings are free at once.",
        source="docs/adr/0002; Chubby: a new master waits for the longest lease.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.restore_steps",
            ("until_ms = self._now_ms() + self._lease_ms", "until_ms = self._now_ms()"),
        ),
    ),
    Mutant(
        name="asked-once-too-often",
        breaks="The end of a transaction is asked for once more than transactionCheckMax says.",
        source="RocketMQ TransactionalMessageServiceImpl.needDiscard: checkTime >= checkMax.",
        plant=patch(
            "broker.transactions.service:Transactions._look_at_rows",
            (
                "if half.asked >= self._settings.check_max:",
                "if half.asked > self._settings.check_max:",
            ),
        ),
    ),
    Mutant(
        name="delays-restored-a-level-on",
        breaks="How far a level is delivered is taken, at a start, for that of the next level.",
        source="RocketMQ delayOffset.json: levels count from 1, queues from 0.",
        plant=patch(
            "broker.delays.progress:DelayProgress.restore", ("level - 1: offset", "level: offset")
        ),
    ),
    Mutant(
        name="back-to-where-it-was-ignored",
        breaks="A commit of what is applied already is dropped, though a newer one waits.",
        source="RocketMQ ConsumerOffsetManager.commitOffset: the last one that came counts.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.commit",
            (
                "if queues is None or queue_id not in queues:\n"
                "        applied = self.applied_offset(key, queue_id)\n"
                "        if applied == offset and not self._is_followed(key, queue_id, offset):\n"
                "            return True\n",
                "applied = self.applied_offset(key, queue_id)\n"
                "    if applied == offset:\n"
                "        return True\n"
                "    if queues is None or queue_id not in queues:\n",
            ),
        ),
    ),
    Mutant(
        name="rest-of-a-batch-one-further",
        breaks="Where a commit cuts a batch, what is left of it begins one offset further.",
        source="RocketMQ MessageExtBatch: the offsets of a batch follow each other.",
        plant=patch(
            "store.write.uncommitted:Uncommitted._cut_in_two",
            (
                "own.queue_offset + count, physicals[count:]",
                "own.queue_offset + count + 1, physicals[count:]",
            ),
        ),
    ),
    Mutant(
        name="offset-of-what-was-not-written",
        breaks="A message for which the disk had no room leaves a hole in its queue.",
        source="Paper 5.3; RocketMQ CommitLog: the queue offset is raised once it is stored.",
        plant=patch(
            "store.write.uncommitted:Uncommitted.forget_from",
            ("own.queue.next_offset = own.queue_offset", "pass"),
        ),
        needs="disk_full",
    ),
    Mutant(
        name="full-queues-end-the-broker",
        breaks="A broker ends when the disk has no room for its queues, though the log has some.",
        source="docs/testing.md: where the disk is full reads go on; sends once there is space.",
        plant=patch("store.queues.consume_queue:_flush_queue", ("in NO_SPACE", "in ()")),
        needs="disk_full",
    ),
    Mutant(
        name="dropped-sent-to-the-end",
        breaks="Who asks for what was dropped from a queue is sent to its end, not its beginning.",
        source="RocketMQ DefaultMessageStore.getMessage: OFFSET_TOO_SMALL goes on at minOffset.",
        plant=patch(
            "store.read.reader:_out_of_range",
            ("GetStatus.OFFSET_TOO_SMALL, low", "GetStatus.OFFSET_TOO_SMALL, high"),
        ),
    ),
)

OVERLOOKED: Final = (
    Mutant(
        name="newer-offset-dropped",
        breaks="An offset that waits is forgotten when an older one of its queue is applied.",
        source="docs/adr/0002: what a leader took it tells until it has another.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.apply",
            ("if pending.get(queue_id) == offset and not", "if queue_id in pending and not"),
        ),
    ),
    Mutant(
        name="hand-over-without-offsets",
        breaks="Offsets that wait are not replicated before leadership is handed over.",
        source="docs/raft.md: what was accepted before a transfer is committed before it.",
        plant=patch(
            "broker.offsets.replication:OffsetReplicator.before_hand_over",
            ("self._propose(None)", "pass"),
        ),
    ),
    Mutant(
        name="closed-with-the-one-before",
        breaks="A segment counts as old as the one before it, and goes too early.",
        source="RocketMQ MappedFileQueue.deleteExpiredFileByTime: by its own last change.",
        plant=patch(
            "broker.retention_policy:expired_before",
            (
                "closed = _closing_times(segments, situation.now_ms)",
                "closed = _closing_times(segments, situation.now_ms)\n"
                "    closed = [*closed[:1], *closed[:-1]]",
            ),
        ),
    ),
    Mutant(
        name="woken-and-not-at-the-end",
        breaks="A pull that was woken waits on though messages behind the last read may be for it.",
        source="spec/wire.md 7.2; RocketMQ MessageFilter: a read looks at so many messages only.",
        plant=patch(
            "broker.processor.pull:PullProcessor._rerun",
            ("seen_all = result.next_offset >= result.max_offset", "seen_all = True"),
        ),
    ),
)
"""What few plans show: found by tests."""
