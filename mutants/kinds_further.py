"""Further planted bugs in kinds of messages: what the first ones of each question left unasked.

Sources: RocketMQ EndTransactionProcessor, SendMessageProcessor.asyncConsumerSendMsgBack,
ScheduleMessageService.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

KINDS_FURTHER: Final = (
    Mutant(
        name="unknown-commits",
        breaks="A producer that does not know how its transaction ended has committed it.",
        source="EndTransactionProcessor: TRANSACTION_NOT_TYPE changes nothing.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._find",
            (
                "    end = header.commit_or_rollback\n",
                "    end = header.commit_or_rollback = header.commit_or_rollback or 8\n",
            ),
        ),
    ),
    Mutant(
        name="usual-retry-is-dead",
        breaks="What a listener wants again at the usual time counts as given up.",
        source="asyncConsumerSendMsgBack: delayLevel 0 asks for the ladder, below 0 gives up.",
        plant=patch("broker.sends.send_back:destination_of", ("level < 0 or", "level <= 0 or")),
    ),
    Mutant(
        name="copy-of-a-client-dies-early",
        breaks="A retry that its consumer sends itself is dead in place of its last delivery.",
        source="handleRetryAndDLQ: the copy counts the delivery that it is for.",
        plant=patch(
            "broker.sends.send_back:dead_letter",
            ("(header.reconsume_times or 0) >", "(header.reconsume_times or 0) >="),
        ),
    ),
    Mutant(
        name="dead-letter-twice",
        breaks="A message that is given back for the last time is put by as two dead letters.",
        source="RocketMQ #2724; spec/proof.md A29.",
        plant=patch(
            "broker.processor.send_back:SendBackProcessor._give_back",
            (
                "status = await self._put(copy)\n",
                "status = await self._put(copy)\n"
                "    if not destination.delay_level:\n"
                "        status = await self._put(copy)\n",
            ),
        ),
    ),
    Mutant(
        name="dead-letters-dropped",
        breaks="A message that is given back for the last time is answered for, and not put by.",
        source="asyncConsumerSendMsgBack: %DLQ% keeps what nobody could take.",
        plant=patch(
            "broker.processor.send_back:SendBackProcessor._give_back",
            (
                "status = await self._put(copy)\n",
                "if not destination.delay_level:\n"
                "        return PutStatus.OK\n"
                "    status = await self._put(copy)\n",
            ),
        ),
    ),
    Mutant(
        name="retry-twice",
        breaks="A message that is given back comes again twice.",
        source="asyncConsumerSendMsgBack puts one copy for a request.",
        plant=patch(
            "broker.processor.send_back:SendBackProcessor._give_back",
            (
                "status = await self._put(copy)\n",
                "status = await self._put(copy)\n"
                "    if destination.delay_level:\n"
                "        status = await self._put(copy)\n",
            ),
        ),
    ),
    Mutant(
        name="due-four-seconds-later",
        breaks="A delayed message is taken for due four seconds after it is.",
        source="ScheduleMessageService: deliverTimestamp is the store time and the level's delay.",
        plant=patch(
            "broker.delays.agenda:Level._believed", ("return time_ms\n", "return time_ms + 4_000\n")
        ),
    ),
    Mutant(
        name="woken-for-the-last-level",
        breaks="The timer goes off for the level that is due last, not for the first one.",
        source="ScheduleMessageService has a timer for each level; ours has one for all.",
        plant=patch(
            "broker.delays.agenda:Agenda.wait_ms",
            ("max(0, min(times_ms) - now_ms)", "max(0, max(times_ms) - now_ms)"),
        ),
    ),
    Mutant(
        name="due-by-the-birth",
        breaks="A delay counts from a second before the message was stored.",
        source="ScheduleMessageService.computeDeliverTimestamp takes the store time.",
        plant=patch(
            "broker.delays.agenda:Level._believed", ("return time_ms\n", "return time_ms - 1_000\n")
        ),
    ),
)
