"""Planted bugs of the transaction producer.

Sources: RocketMQ DefaultMQProducerImpl.sendMessageInTransaction, checkTransactionState 4.9.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

TRANSACTIONS_CLIENT: Final = (
    Mutant(
        name="client-tx-failed-listener-commits",
        breaks="A local transaction that raised counts as one that succeeded.",
        source="sendMessageInTransaction: a Throwable leaves the state UNKNOW.",
        plant=patch(
            "ledgermq.client.deciding:_decided",
            (
                '_log.warning("%s_failed", label, exc_info=True)\n'
                "        return TransactionState.UNKNOWN",
                '_log.warning("%s_failed", label, exc_info=True)\n'
                "        return TransactionState.COMMIT",
            ),
        ),
    ),
    Mutant(
        name="client-tx-checked-while-it-runs",
        breaks="The listener is asked how a transaction ended that has not ended.",
        source="A check that finds nothing yet says rollback, and then the transaction commits.",
        plant=patch(
            "ledgermq.client.checks:Checks.take",
            ("if self._deciding.is_executing(msg_id):", "if False:"),
        ),
    ),
    Mutant(
        name="client-tx-first-place-answered",
        breaks="A half that was asked about twice is decided at its first place.",
        source="TransactionalMessageServiceImpl: each check stores the half anew.",
        plant=patch(
            "ledgermq.client.checks:Checks.take",
            ("known.half, known.connection = half, connection", "pass"),
        ),
    ),
    Mutant(
        name="client-tx-unstored-half-executed",
        breaks="The local transaction runs although the half is not stored as it should be.",
        source="sendMessageInTransaction: FLUSH_DISK_TIMEOUT and the like roll back.",
        plant=patch(
            "ledgermq.client.transaction:TransactionProducer.send_in_transaction",
            ("if sent.status is SendStatus.SEND_OK:", "if True:"),
        ),
    ),
    Mutant(
        name="client-tx-stop-forgets-decisions",
        breaks="A producer that is stopped closes before its transactions are decided.",
        source="Each of them would wait for the broker to ask, a minute later.",
        plant=patch(
            "ledgermq.client.transaction:TransactionProducer._is_drained",
            ("not self._pending and not self._open and", "not self._pending and"),
        ),
    ),
    Mutant(
        name="client-tx-ends-with-its-function",
        breaks="A local transaction counts as ended while what its function returned still runs.",
        source="docs/client.md: while it runs, the answer is unknown.",
        plant=patch(
            "ledgermq.client.deciding:_Call.begin",
            ('running = {"thread", "task"}', 'running = {"thread"}'),
        ),
    ),
    Mutant(
        name="client-tx-questions-take-its-threads",
        breaks="Checks that hang take the threads of local transactions.",
        source="Each kind of call has threads of its own.",
        plant=patch(
            "ledgermq.client.deciding:Deciding.__init__",
            ("OffLoop(options.checks_max)", "self._execute_threads"),
        ),
    ),
    Mutant(
        name="client-tx-unknown-over-its-new-connection",
        breaks="A broker that was away gets halves over a new connection, and does not know for up"
        " to 30 s whom to ask about them.",
        source="RocketMQ MQClientInstance.onChannelActive 5.3: a heartbeat behind each connection.",
        plant=patch(
            "ledgermq.client.transaction:TransactionProducer._make_known",
            ("if link is not None:", "if False:"),
        ),
    ),
    Mutant(
        name="client-tx-refused-greeting-counts",
        breaks="A heartbeat that its broker refused counts: the next half brings none.",
        source="A review of what marks a connection as one that its broker knows.",
        plant=patch("ledgermq.client.instance:ClientInstance.heartbeat", ("else:", "finally:")),
    ),
)
