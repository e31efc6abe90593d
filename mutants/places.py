"""Planted bugs of places: where messages are told to be, or lie, and what is handed out of queues.

Sources: spec/proof.md 3.4 (A11 to A14, A16, A19); RocketMQ CommitLog, ConsumeQueue, ProcessQueue.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

PLACES: Final = (
    Mutant(
        name="batch-told-where-the-first-one-was",
        breaks="Each batch of a queue is told to lie where the first one does.",
        source="RocketMQ: the offset of a batch is that of its first message.",
        plant=patch(
            "store.write.commit_log:_batch_end",
            (
                "    def finish(",
                "    _batch_end.__dict__.setdefault('start', start)\n"
                "    start = _batch_end.__dict__['start']\n"
                "\n"
                "    def finish(",
            ),
        ),
    ),
    Mutant(
        name="batch-written-backwards",
        breaks="The messages of a batch are written from the last to the first.",
        source="RocketMQ MessageExtBatch: messages lie in their order.",
        plant=patch(
            "broker.sends.door:_columns",
            (
                "flags, bodies, own = zip(*elements, strict=True)",
                "flags, bodies, own = zip(*reversed(elements), strict=True)",
            ),
        ),
    ),
    Mutant(
        name="batch-begins-with-its-second",
        breaks="The first message of a batch is written behind the others.",
        source="RocketMQ MessageExtBatch: messages lie in their order.",
        plant=patch(
            "broker.sends.door:_columns",
            (
                "flags, bodies, own = zip(*elements, strict=True)",
                "flags, bodies, own = zip(*elements[1:], elements[0], strict=True)",
            ),
        ),
    ),
    Mutant(
        name="last-pulled-is-first",
        breaks="Of what waits for a listener the last comes first.",
        source="RocketMQ ConsumeMessageConcurrentlyService: requests are taken in their order.",
        plant=patch(
            "ledgermq.client.consume:ConsumeService._work",
            ("self._ready.popleft()", "self._ready.pop()"),
        ),
    ),
    Mutant(
        name="selected-from-the-end",
        breaks="What a subscription selects of a pull is handed out from its end on.",
        source="RocketMQ PullAPIWrapper.processPullResult: the order stays.",
        plant=patch(
            "ledgermq.client.subscription:Subscription.select",
            ("return list(messages)", "return list(messages)[::-1]"),
        ),
    ),
    Mutant(
        name="rest-of-a-pull-dropped",
        breaks="What is left of a pull behind the last full call of the listener is dropped.",
        source="RocketMQ ConsumeMessageConcurrentlyService.submitConsumeRequest.",
        plant=patch(
            "ledgermq.client.consume:ConsumeService.submit",
            ("range(0, len(messages), size)", "range(0, max(1, len(messages) - size + 1), size)"),
        ),
    ),
    Mutant(
        name="first-of-a-full-pull-dropped",
        breaks="A pull that brings as many messages as it asked for loses the first of them.",
        source="RocketMQ ProcessQueue.putMessage: all that was pulled.",
        plant=patch(
            "ledgermq.client.puller:Puller._take",
            (
                ".select(result.messages)",
                ".select(result.messages[len(result.messages) >= 8 :])",
            ),
        ),
    ),
    Mutant(
        name="pull-commits-one-too-far",
        breaks="A consumer that commits with its pulls commits one message too many.",
        source="RocketMQ DefaultMQPushConsumerImpl.pullMessage: readOffset, the next to consume.",
        plant=patch(
            "ledgermq.client.puller:Puller._request",
            ("maybe_commit_offset() or None", "position + 1"),
        ),
    ),
    Mutant(
        name="retries-begin-one-late",
        breaks="A group that is new begins behind the first message that is given back to it.",
        source="RocketMQ RebalancePushImpl.computePullFromWhere: 0 of a retry topic.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.first_offset",
            (
                "nothing of it may be skipped.\n        return await",
                "nothing of it may be skipped.\n        return 1 + await",
            ),
        ),
    ),
    Mutant(
        name="handed-out-from-the-end",
        breaks="An answer to a pull has the last of its messages first.",
        source="RocketMQ DefaultMessageStore.getMessage: messages in the order of their queue.",
        plant=patch(
            "store.read.reader:Reader.get",
            ("low, high, buffers, len(buffers)", "low, high, buffers[::-1], len(buffers)"),
        ),
    ),
)

OF_ONE_ALONE: Final = (
    Mutant(
        name="place-within-its-file",
        breaks="A send is told the place in the file of its queue, not that in the queue.",
        source="RocketMQ SendMessageProcessor: queueOffset is the logical offset.",
        plant=patch(
            "broker.processor.send:SendProcessor._answer",
            ("    queue_offset,\n            )\n", "    queue_offset % 20,\n            )\n"),
        ),
    ),
    Mutant(
        name="stale-units-stay",
        breaks="Units of a queue behind its end stay in the file where a start cuts it.",
        source="RocketMQ ConsumeQueue.truncateDirtyLogicFiles; docs/storage.md.",
        plant=patch("store.recovery.start:_zero_behind", ("file.zero_from(used)", "pass")),
    ),
    Mutant(
        name="ahead-of-a-lost-end",
        breaks="A broker that has lost the end of its log keeps the offsets from behind it.",
        source="RocketMQ #4771: consumerOffset.json ahead of the consume queue.",
        plant=patch(
            "broker.offsets.bounds:OffsetsWithinQueues._bound",
            ("0 < end < offset and", "0 < end < offset < 0 and"),
        ),
    ),
    Mutant(
        name="own-progress-ends-the-comparison",
        breaks="RocketMQ's own offsets end the comparison, and groups behind them stay ahead.",
        source="A review: nobody may commit them, and the broker did as a client.",
        plant=patch(
            "broker.offsets.bounds:OffsetsWithinQueues._bound_some",
            ("group == TRANSACTION_CHECK_GROUP", "False"),
        ),
    ),
    Mutant(
        name="committed-before-the-move-counts",
        breaks="What a queue had committed before it was set back is not committed again.",
        source="RocketMQ RemoteBrokerOffsetStore.persistAll: all offsets, each time.",
        plant=patch(
            "ledgermq.client.assignment:Held.is_due",
            ("if self.era != self.process_queue.era:", "if self.era < 0:"),
        ),
    ),
)
"""Of a broker alone: found in plans about one, or by a test."""
