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
)
