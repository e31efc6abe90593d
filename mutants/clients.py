"""Planted bugs of the client library, of what clients are told, and of the harness itself.

The names of those that live in a client begin with ``client-``: a run plants them in its workers,
the others in its brokers. The demo finds them, and tests of the chaos harness do.

Sources: DefaultMQProducerImpl (an operation with an unknown attempt is unknown; a chosen queue is
not changed), RebalancePushImpl.removeUnnecessaryMessageQueue, ConsumeQueue.getMaxOffsetInQueue;
spec/proof.md 1, 2 (false passes: faults that did nothing).
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

CLIENTS: Final = (
    Mutant(
        name="failures-forgotten-by-the-next-send",
        breaks="A broker that failed is sent to again at once, though the user said to keep away.",
        source="RocketMQ MQFaultStrategy.updateFaultItem hears of failures, too.",
        plant=patch(
            "ledgermq.client.slow_brokers:SlowBrokers.note", ("if away_ms:", "if away_ms > 30_000:")
        ),
    ),
    Mutant(
        name="attempts-to-the-last-moment",
        breaks="The last try of a refused send comes too late for an answer: its end is unknown.",
        source="An attempt that began a millisecond before the end of the time.",
        plant=patches(
            patch(
                "ledgermq.client.delivery:Delivery._back_off",
                ("wait_ms + ATTEMPT_MS_MIN > self._left_ms()", "wait_ms >= self._left_ms()"),
            ),
            patch(
                "ledgermq.client.delivery:Delivery.run",
                ("self._left_ms() < ATTEMPT_MS_MIN", "self._left_ms() <= 0"),
            ),
        ),
    ),
    Mutant(
        name="client-ok-without-answer",
        breaks="A send whose first answer does not come is reported as stored.",
        source="spec/proof.md 1: whatever follows the first byte and is no answer proves nothing.",
        plant=patch(
            "ledgermq.client.producer:Producer.deliver",
            (
                "failed = error\n",
                "failed = error\n"
                "                    if error.outcome.name == 'UNKNOWN':\n"
                "                        from ledgermq.client.message import SendStatus\n"
                "                        return SendResult(SendStatus.SEND_OK,"
                " outgoing.msg_id, '', target.queue, 0, ())\n",
            ),
        ),
    ),
    Mutant(
        name="client-failed-though-stored",
        breaks="A send with an attempt of unknown outcome is reported as certainly not stored.",
        source="OpenChaos RocketMQChaosProducer: every exception was a definite failure.",
        plant=patch(
            "ledgermq.client.delivery:Delivery._record",
            ("    error.outcome,\n", "    Outcome.FAILED,\n"),
        ),
    ),
    Mutant(
        name="client-revoked-queue-pulled",
        breaks="A queue that went to another consumer is pulled on.",
        source="RebalancePushImpl: a dropped process queue is neither pulled nor consumed.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._release",
            ("    await _cancel([held.task])\n", ""),
            ("    held.process_queue.dropped = True  # No further listener call begins.\n", ""),
        ),
    ),
    Mutant(
        name="client-retried-on-another-queue",
        breaks="A send to a chosen queue is tried again on any other.",
        source="DefaultMQProducerImpl.sendKernelImpl: a send with a queue keeps it.",
        plant=patch(
            "ledgermq.client.delivery:Delivery.run",
            (
                "self._sender.select(self._outgoing.topic, self._queue, self._avoid)",
                "self._sender.select(self._outgoing.topic,"
                " None if self._attempts else self._queue, self._avoid)",
            ),
        ),
    ),
    Mutant(
        name="queue-end-one-short",
        breaks="The end of a queue is told one short of what was acknowledged.",
        source="ConsumeQueue.getMaxOffsetInQueue; a recovered queue that was cut one short.",
        plant=patch(
            "broker.processor.query:QueryProcessor.handle_max_offset",
            (
                "self._store.max_offset)",
                "lambda topic, queue: max(self._store.max_offset(topic, queue) - 1, 0))",
            ),
        ),
    ),
    Mutant(
        name="new-by-one-name-server",
        breaks="A topic that one name server does not know counts as new to its group, and is read"
        " from its beginning.",
        source="docs/client.md (where a group begins).",
        plant=patch(
            "ledgermq.client.route:RouteCache._is_nowhere",
            ("if self._name_servers.count == 1:", "if True:"),
        ),
    ),
)

KILL_WITNESS: Final = Mutant(
    name="kill-witness-believes-itself",
    breaks="The witness of a kill takes the command for the deed.",
    source="spec/proof.md 2: faults that did nothing were counted as coverage.",
    plant=patches(
        patch(
            "chaos.nemesis.process:Kill.probe_during",
            ("was_there and gone and not during.ok", "True"),
        ),
        patch("chaos.nemesis.process:Kill.undo", ("self.witness.effective and not heard", "True")),
        patch(
            "chaos.nemesis.process:Kill.probe_after", ("self.witness.effective and back", "True")
        ),
    ),
)
"""A bug of the harness: no product to run it in, so that it stands in no registry."""
