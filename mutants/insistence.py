"""Planted bugs of who is refused, or gives away: what is believed, and kept, all the same.

An outsider planted them; they show where brokers fail by chance (`sim.unwilling`), or to oracles of
what clients ask and keep while nothing happens. Source: docs/client.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

INSISTENCE: Final = (
    Mutant(
        name="failed-request-is-owed",
        breaks="An answer that did not come is owed for ever: the route is asked for all the time.",
        source="docs/client.md (stalls): a link that owes answers is looked at ten times a second.",
        plant=patch(
            "ledgermq.client.producer:Producer.attempt",
            (
                "        t_end_ns = link.t_progress_ns = monotonic_ns()\n"
                "    finally:\n"
                "        link.pending -= 1",
                "        t_end_ns = link.t_progress_ns = monotonic_ns()\n"
                "        link.pending -= 1\n"
                "    finally:\n"
                "        pass",
            ),
        ),
    ),
    Mutant(
        name="commit-noted-before-it-is-taken",
        breaks="An offset counts as committed when it is sent, whatever the broker says.",
        source="RocketMQ RemoteBrokerOffsetStore.persistAll sends all offsets each time.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._commit_now",
            (
                "await host.api.commit_offset(addr, queue, offset, "
                "claim if host.claims else None)\n"
                "        held.committed, held.taken_by, held.era = offset, addr, era",
                "held.committed, held.taken_by, held.era = offset, addr, era\n"
                "        await host.api.commit_offset(addr, queue, offset, "
                "claim if host.claims else None)",
            ),
        ),
    ),
    Mutant(
        name="lock-of-an-untaken-queue-kept",
        breaks="A queue whose offset cannot be had stays locked where another one was taken.",
        source="docs/consumption.md (in order): who does not hold a queue gives its lock back.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._take_all",
            ("not all(taken):", "not any(taken):"),
        ),
    ),
    Mutant(
        name="renewed-though-given-back",
        breaks="A renewal asks for queues that were given back while it waited for its turn.",
        source="docs/consumption.md (in order): a lock that nobody needs starves others.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._renew",
            (
                "    async with self._turn(name):\n"
                "        queues = _by_broker(self._until_ms).get(name)",
                "    queues = _by_broker(self._until_ms).get(name)\n"
                "    async with self._turn(name):",
            ),
        ),
    ),
    Mutant(
        name="lines-of-lost-queues-kept",
        breaks="What waits in order of a queue is kept, with its messages, when it is given away.",
        source="RocketMQ RebalanceImpl.removeProcessQueue: what was pulled goes with the queue.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService._work",
            ("if line.process_queue.dropped or not line.waiting:", "if not line.waiting:"),
        ),
    ),
)
