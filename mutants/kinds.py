"""Planted bugs in each kind of messages: delayed, given back, in order, to everybody.

Sources: RocketMQ ScheduleMessageService, SendMessageProcessor.asyncConsumerSendMsgBack,
RebalanceLockManager, SelectMessageQueueByHash, LocalFileOffsetStore.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

KINDS: Final = (
    Mutant(
        name="waiting-lost-at-a-change",
        breaks="A new leader delivers what is put by from then on, not what has waited before.",
        source="RocketMQ #3473: delayed messages lost when a broker takes over.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._add_level",
            ("min(max(said, first), end)", "end or min(max(said, first), end)"),
        ),
    ),
    Mutant(
        name="delayed-in-the-first-queue",
        breaks="The copy of a delayed message goes to the first queue of its topic.",
        source="ScheduleMessageService.messageTimeup: REAL_QID.",
        plant=patch(
            "broker.delays.copies:scheduled_of", ("queue_id = int(digits)", "queue_id = 0")
        ),
    ),
    Mutant(
        name="times-not-counted",
        breaks="A message that is given back counts as delivered as often as before.",
        source="asyncConsumerSendMsgBack: setReconsumeTimes(getReconsumeTimes() + 1).",
        plant=patch(
            "broker.sends.send_back:copy_of",
            ("message.reconsume_times + 1", "message.reconsume_times"),
        ),
    ),
    Mutant(
        name="ladder-stands-still",
        breaks="Each retry waits as long as the first one.",
        source="asyncConsumerSendMsgBack: delayLevel = 3 + reconsumeTimes.",
        plant=patch(
            "broker.sends.send_back:destination_of", ("FIRST_LEVEL + times", "FIRST_LEVEL")
        ),
    ),
    Mutant(
        name="dead-one-too-early",
        breaks="The last delivery that a group allows is left out.",
        source="asyncConsumerSendMsgBack: reconsumeTimes >= maxReconsumeTimes.",
        plant=patch(
            "broker.sends.send_back:destination_of",
            ("times >= _times_max", "times + 1 >= _times_max"),
        ),
    ),
    Mutant(
        name="retry-of-a-retry",
        breaks="The second retry says that its original was the first retry.",
        source="asyncConsumerSendMsgBack: ORIGIN_MESSAGE_ID is kept.",
        plant=patch(
            "broker.sends.send_back:_properties",
            ('find_property(text, b"ORIGIN_MESSAGE_ID") or message', "message"),
        ),
    ),
    Mutant(
        name="lock-given-twice",
        breaks="Who asks for a lock has it, whoever else does.",
        source="RebalanceLockManager.tryLockBatch: isLocked by another, and not expired.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable.grantable",
            ("if owner in (None, change.client_id) and (", "if ("),
        ),
    ),
    Mutant(
        name="lock-given-while-on-its-way",
        breaks="A lock that is being written to the log is free for others until it is.",
        source="RebalanceLockManager.tryLockBatch holds its lock meanwhile.",
        plant=patch(
            "broker.state.queue_lock:QueueLockTable._owner",
            ("if proposed is not None:", "if False:"),
        ),
    ),
    Mutant(
        name="key-hashed-otherwise",
        breaks="A key has another queue than for RocketMQ's clients.",
        source="SelectMessageQueueByHash: abs(hashCode) % size.",
        plant=patch(
            "ledgermq.client.selectors:select_by_hash",
            ("queues[code % len(queues)]", "queues[-1 - code % len(queues)]"),
        ),
    ),
    Mutant(
        name="orderly-finished-though-failed",
        breaks="What an orderly listener fails for counts as consumed.",
        source="ConsumeMessageOrderlyService: makeMessageToConsumeAgain.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService._hand_out",
            ("done = status is ConsumeStatus.CONSUME_SUCCESS", "done = True"),
        ),
    ),
    Mutant(
        name="offsets-of-the-file-before",
        breaks="A broadcasting member reads the file that its last one has replaced.",
        source="LocalFileOffsetStore.readLocalOffset: the backup is for a file that is damaged.",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets._load",
            ('(self.path, self.path + ".bak")', '(self.path + ".bak", self.path)'),
        ),
    ),
    Mutant(
        name="rollback-commits",
        breaks="A transaction that is rolled back is committed.",
        source="EndTransactionProcessor: TRANSACTION_ROLLBACK_TYPE deletes the half.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._finish",
            ("if header.commit_or_rollback == TRANSACTION_COMMIT:", "if True:"),
        ),
    ),
    Mutant(
        name="committed-without-its-copy",
        breaks="A half is told to be over, and the copy that consumers get is left out.",
        source="EndTransactionProcessor: sendFinalMessage comes before deletePrepareMessage.",
        plant=patch(
            "broker.transactions.endings:Endings.finish",
            ("if copy is not None:", "if copy is not None and half.asked:"),
        ),
    ),
    Mutant(
        name="half-shown",
        breaks="Half a transaction is stored where consumers read, before it is committed.",
        source="TransactionalMessageBridge.parseHalfMessageInner: RMQ_SYS_TRANS_HALF_TOPIC.",
        plant=patch("broker.sends.half:half_of", ("HALF_TOPIC_BYTES,", "message.topic,")),
    ),
)
