"""Planted bugs like those that outsiders planted and no oracle saw.

Sources: docs/protocol.md and docs/adr/0007; RocketMQ's AdminBrokerProcessor, RebalanceLockManager,
RouteInfoManager, DefaultMQProducerImpl and ProcessQueue, and what their issues tell.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

BLIND: Final = (
    Mutant(
        name="recovered-queue-one-short",
        breaks="A queue that is taken over at a start ends one message too early.",
        source="RocketMQ ConsumeQueue.truncateDirtyLogicFiles; an off-by-one.",
        plant=patch(
            "store.recovery.start:_restore",
            ("queue.max_offset = mark.max_offset", "queue.max_offset = mark.max_offset - 1"),
        ),
    ),
    Mutant(
        name="lease-of-a-thousand-minutes",
        breaks="A lock of a queue outlives its owner by most of a day.",
        source="RocketMQ RebalanceLockManager.LockEntry.isExpired: a minute.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.apply_lock",
            ("now_ms + self._lease_ms", "now_ms + 1000 * self._lease_ms"),
        ),
    ),
    Mutant(
        name="locks-not-saved",
        breaks="The tables on disk have no locks: a restart gives them free.",
        source="The tables are what the log was, up to an entry; none may be left out.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.snapshot_steps",
            ("self._leases.copy().items()", "[]"),
        ),
    ),
    Mutant(
        name="offset-applied-before-replicated",
        breaks="A leader puts an offset into its replicated table when it takes it.",
        source="RocketMQ ConsumerOffsetManager, which has one table for both.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.commit",
            (
                "    queues[queue_id] = offset\n",
                "    queues[queue_id] = offset\n"
                "    self._applied.setdefault(key, {})[queue_id] = offset\n",
            ),
        ),
    ),
    Mutant(
        name="queue-begins-one-late",
        breaks="The first message that is left of a queue after a compaction is hidden.",
        source="RocketMQ ConsumeQueue.correctMinOffset; an off-by-one.",
        plant=patch(
            "store.queues.start:LogStart.advance_to",
            (
                "queue.min_offset = self._offset_at(queue, position)",
                "queue.min_offset = min(self._offset_at(queue, position) + 1, queue.max_offset)",
            ),
        ),
    ),
    Mutant(
        name="topic-change-not-counted",
        breaks="A change of a topic leaves the version of the table as it was.",
        source="RocketMQ TopicConfigManager.updateTopicConfig: dataVersion.nextVersion().",
        plant=patch(
            "broker.state.topic_config:TopicTable.apply",
            ("self.data_version.counter + 1", "self.data_version.counter"),
        ),
    ),
    Mutant(
        name="batch-repeats-first-id",
        breaks="The answer to a batch gives all its messages the id of the first one.",
        source="RocketMQ SendMessageProcessor.handlePutMessageResult for MessageExtBatch.",
        plant=patch(
            "broker.processor.send:SendProcessor._answer_batch",
            ("*physical_offsets)", "*physical_offsets[:1] * len(physical_offsets))"),
        ),
    ),
    Mutant(
        name="id-of-the-message-before",
        breaks="The id in an acknowledgement is that of the entry and not of the record in it.",
        source="spec/wire.md 3.3: the id holds the physical offset of the record.",
        plant=patch(
            "broker.processor.send:SendProcessor._answer",
            (
                "self._message_id % physical_offset,\n",
                "self._message_id % (physical_offset - 48),\n",
            ),
        ),
    ),
    Mutant(
        name="follower-tells-max-offset",
        breaks="Any replica answers where a queue ends, and other queries, as far as it knows.",
        source="ADR 7: the end that a follower knows may lie before what was acknowledged.",
        plant=patch(
            "broker.requests:leader_only",
            ("if not is_writable():", "if False:"),
        ),
    ),
    Mutant(
        name="min-offset-told-one-high",
        breaks="The first message of a queue is told to be the second one.",
        source="RocketMQ ConsumeQueue.getMinOffsetInQueue; an off-by-one.",
        plant=patch(
            "store.read.reader:Reader.min_offset",
            ("return queue.min_offset if", "return queue.min_offset + (queue.queue_id == 0) if"),
        ),
    ),
    Mutant(
        name="batch-keys-mixed",
        breaks="All messages of a batch are sent with the properties of the first.",
        source="RocketMQ MessageBatch.generateFromList and MessageDecoder.encodeMessages.",
        plant=patch(
            "ledgermq.client.send_codec:prepare_batch",
            ("encode_properties(message, msg_id)", "encode_properties(messages[0], msg_id)"),
        ),
    ),
    Mutant(
        name="born-time-of-the-broker",
        breaks="The time at which a message was born is that of its arrival.",
        source="RocketMQ MessageExtBrokerInner.bornTimestamp comes from the request.",
        plant=patch(
            "broker.processor.send:SendProcessor.handle",
            ("header.born_timestamp,", "header.born_timestamp // 1000 * 1000,"),
        ),
    ),
    Mutant(
        name="released-lock-stays",
        breaks="A lock that is given back is free only when its lease ends.",
        source="RocketMQ RebalanceLockManager.unlockBatch removes it.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.apply_unlock",
            ("self._drop(key)", "pass"),
        ),
    ),
    Mutant(
        name="commit-of-minus-one",
        breaks="A consumer that has nothing unfinished commits the offset before where it is.",
        source="RocketMQ ProcessQueue.removeMessage: msgTreeMap empty, queueOffsetMax + 1.",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.maybe_commit_offset",
            ("if self._order else self.next_offset", "if self._order else self.next_offset - 1"),
        ),
    ),
    Mutant(
        name="next-offset-skips-one",
        breaks="A full answer to a pull lets the next one begin one message too far on.",
        source="RocketMQ GetMessageResult.nextBeginOffset; an off-by-one.",
        plant=patch(
            "broker.processor.pull:PullProcessor._answer",
            (
                "            result.next_offset,\n            result.min_offset,",
                "            result.next_offset + (len(buffers) >= 16),\n"
                "            result.min_offset,",
            ),
        ),
    ),
    Mutant(
        name="unknown-told-as-failed",
        breaks="A send is told to have failed for certain if its last attempt did.",
        source="spec/proof.md 1: one attempt with an unknown outcome makes it unknown.",
        plant=patch(
            "ledgermq.client.errors:SendFailed.__init__",
            ("super().__init__(message)", "Exception.__init__(self, message)"),
            ("for attempt in attempts)", "for attempt in attempts[-1:])"),
        ),
    ),
    Mutant(
        name="timeout-told-as-failed",
        breaks="A request without an answer is told to have stored nothing.",
        source="RocketMQ RemotingTimeoutException, which says nothing of the broker.",
        plant=patch(
            "ledgermq.client.delivery:Delivery._record",
            (
                "error.outcome,",
                "error.outcome if isinstance(error, ResponseError) else Outcome.FAILED,",
            ),
        ),
    ),
    Mutant(
        name="attempts-forgotten",
        breaks="A result names the last attempt only.",
        source="docs/architecture.md: a result lists all attempts.",
        plant=patch(
            "ledgermq.client.producer:Producer.attempt",
            ("(*earlier, attempt) if earlier else (attempt,)", "(attempt,)"),
        ),
    ),
    Mutant(
        name="offset-of-a-group-of-sends",
        breaks="Sends that shared a request are all told the offset of the first.",
        source="RocketMQ 4.9 batches give the first offset only; each sender wants its own.",
        plant=patch(
            "ledgermq.client.grouping:Group._results",
            ("queue, offset, attempts, ", "queue, stored.queue_offset, attempts, "),
        ),
    ),
    Mutant(
        name="revoked-queue-still-pulled",
        breaks="A queue that went to another member is pulled and handed out on.",
        source="RocketMQ RebalanceImpl.updateProcessQueueTableInRebalance: setDropped(true).",
        plant=patch(
            "ledgermq.client.assignment:Assignment._release",
            ("await _cancel([held.task])", "pass"),
            ("held.process_queue.dropped = True", "pass"),
        ),
    ),
    Mutant(
        name="dead-broker-kept-in-routes",
        breaks="A broker whose connection has closed stays in the routes until it expires.",
        source="RocketMQ RouteInfoManager.onChannelDestroy.",
        plant=patch(
            "namesrv.server:NameServer._on_close",
            ("self.table.on_connection_closed(connection.id)", "()"),
        ),
    ),
    Mutant(
        name="finished-messages-again",
        breaks="What a pull brings is handed out twice where the queue was empty before.",
        source="RocketMQ ProcessQueue.putMessage and dispatchToConsume.",
        plant=patch(
            "ledgermq.client.puller:Puller._take",
            (
                "host.service.submit(process_queue, messages, (t_start_ns, t_end_ns))",
                "again = messages[:1] if len(messages) == 3 else []\n"
                "        host.service.submit(process_queue, messages + again,"
                " (t_start_ns, t_end_ns))",
            ),
        ),
    ),
    Mutant(
        name="healthy-leader-deposed",
        breaks="A leader gives up leadership now and then although a majority answers it.",
        source="Dissertation 9.6: leaders that are deposed for nothing.",
        plant=patch(
            "dledger.core.election:check_quorum",
            ("if heard < state.quorum:", "if heard < state.quorum or state.tick % 120 == 119:"),
        ),
    ),
)
