"""Planted bugs of kinds that no oracle looked for: they cost, or hide behind what is allowed.

Sources: docs/raft.md, docs/client.md and docs/transactions.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

UNWATCHED: Final = (
    Mutant(
        name="answer-to-a-question-dropped",
        breaks="How a transaction ended is not written once its producer had to be asked.",
        source="RocketMQ EndTransactionProcessor: fromTransactionCheck is as good as any.",
        plant=patch(
            "broker.processor.transaction:TransactionProcessor._finish",
            (
                "self._recent.forget(half.physical)\n",
                "self._recent.forget(half.physical)\n"
                "    if half.asked > 0:\n"
                "        answer(_OK)\n"
                "        return\n",
            ),
        ),
    ),
    Mutant(
        name="trim-past-a-follower",
        breaks="A log is trimmed past what a follower that lives has acknowledged.",
        source="docs/raft.md: a snapshot is for who was away; a slow follower is sent entries.",
        plant=patch(
            "dledger.trimming:Trimmer.limit",
            ("if lives and progress", "if not lives and progress"),
        ),
    ),
    Mutant(
        name="late-leader-left",
        breaks="A producer ends its connection to a leader that is slow to answer.",
        source="docs/client.md: only where the route names another leader.",
        plant=patch(
            "ledgermq.client.upkeep:Upkeep._leave_stalled",
            (
                "if self._routes.master(link.broker_name) not in {None, link.addr}:",
                "if self._routes.master(link.broker_name) is not None:",
            ),
        ),
    ),
    Mutant(
        name="transfer-without-end",
        breaks="A transfer of leadership that fails ends a thousand times too late.",
        source="Dissertation 3.10: the leader serves again after an election timeout.",
        plant=patch(
            "dledger.core.transfer:start",
            (
                "state.tick + state.config.election_ticks_min",
                "state.tick + 1000 * state.config.election_ticks_min",
            ),
        ),
        needs="transfer",
    ),
    Mutant(
        name="topic-told-before-routed",
        breaks="Who makes a topic hears of it before the name servers do.",
        source="docs/protocol.md, 17: a client that is told goes and asks for the route.",
        plant=patch(
            "broker.sends.creation:Creator.put_topic",
            ("        await self._publisher.publish()\n", "        pass\n"),
        ),
    ),
    Mutant(
        name="link-to-a-former-leader",
        breaks="A producer goes on sending to who led before, as long as that connection is open.",
        source="RocketMQ MQClientInstance: the address of each send comes from the route.",
        plant=patch(
            "ledgermq.client.links:Links.on_route_change",
            ("not in {None, link.addr}:", "in {None}:"),
        ),
    ),
    Mutant(
        name="leaving-told-to-nobody",
        breaks="The other members of a group hear nothing of one whose connection has closed.",
        source="RocketMQ ConsumerManager.doChannelCloseEvent: consumerIdsChangeListener.",
        plant=patch(
            "broker.processor.client:ClientProcessor.on_close",
            ("self._notifier.notify(group)", "pass"),
        ),
    ),
    Mutant(
        name="slow-client-unheard",
        breaks="A client that was slow to read its answers is never read from again.",
        source="RocketMQ NettyServerHandler.channelWritabilityChanged: setAutoRead(true).",
        plant=patch(
            "ledgermq.remoting.transport.connection:Connection.resume_writing",
            ("if not self._later:", "if self._later:"),
        ),
    ),
    Mutant(
        name="asked-in-one-pass-alone",
        breaks="A leader asks for open halves once, and then not for a hundred intervals.",
        source="RocketMQ TransactionalMessageCheckService: transactionCheckInterval.",
        plant=patch(
            "broker.transactions.service:Transactions._run",
            (
                "self._next_ms = now_ms + self._settings.interval_ms\n",
                "self._next_ms = now_ms + 100 * self._settings.interval_ms\n",
            ),
        ),
    ),
    Mutant(
        name="time-search-below-the-beginning",
        breaks="A search by time begins with units whose messages are gone.",
        source="RocketMQ ConsumeQueue.getOffsetInQueueByTime: minLogicOffset is its lower bound.",
        plant=patch(
            "store.read.reader:Reader._nearest",
            ("max(first, queue.min_offset), end - 1", "first, end - 1"),
        ),
    ),
)
