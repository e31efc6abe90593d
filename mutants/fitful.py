"""Planted bugs that show where clients come and go, and change their minds.

Somebody wrote most of them who knew the product alone. A group stops before anything has come to
it, a member is sent back and starts again, somebody stops while another task works, a lock goes
while messages wait for their turn, and somebody speaks at a name server in another one's name.
Sources: docs/client.md; docs/consumption.md; spec/wire.md 3.1, 3.2.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

FITFUL: Final = (
    Mutant(
        name="committed-zero-is-none",
        breaks="A group that has committed 0 begins at the end when it starts again.",
        source="A new group commits where it begins: ledgermq.client.assignment.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._beginning",
            ("offset if offset >= 0 else", "offset if offset > 0 else"),
        ),
    ),
    Mutant(
        name="local-offsets-only-grow",
        breaks="A broadcasting member that was sent back keeps the offset before, and skips.",
        source="RocketMQ LocalFileOffsetStore.updateOffset (increaseOnly).",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets.put",
            (
                "if self._offsets.get(queue) != offset:",
                "if self._offsets.get(queue, -1) < offset:",
            ),
        ),
    ),
    Mutant(
        name="stop-commits-what-others-work-on",
        breaks="A stop commits what another task has polled and still works on.",
        source="LitePullConsumer.stop: while another task works on it, it comes again.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.stop",
            (
                "if poller is None or poller.done() or poller is asyncio.current_task():",
                "if poller is None or not self._polling:",
            ),
        ),
    ),
    Mutant(
        name="pull-anew-for-ever",
        breaks="A pull that a new subscription has dropped once cannot be ended any more.",
        source="ledgermq.client.puller: what was asked for counts for one pull.",
        plant=patch(
            "ledgermq.client.puller:Puller._pull",
            ("self._asks, self._asks_anew = None, False", "self._asks = None"),
        ),
    ),
    Mutant(
        name="listener-that-raises-rolls-back",
        breaks="A listener that raises has its transaction rolled back, whatever it had decided.",
        source="docs/transactions.md: who raises has not decided.",
        plant=patch(
            "ledgermq.client.deciding:_decided",
            (
                '_log.warning("%s_failed", label, exc_info=True)\n'
                "        return TransactionState.UNKNOWN",
                '_log.warning("%s_failed", label, exc_info=True)\n'
                "        return TransactionState.ROLLBACK",
            ),
        ),
    ),
    Mutant(
        name="order-remembered-in-routes",
        breaks="An order of a topic that is set after its route was asked for is in no route.",
        source="RocketMQ RouteInfoManager: the order is read for each answer.",
        plant=patch("namesrv.processor:Processor.put_kv", ("    self._table.version += 1\n", "")),
    ),
    Mutant(
        name="farewell-of-anybody",
        breaks="Whoever says so takes a broker out of the routes, also who is another process.",
        source="docs/security.md: by the connection that registered it, and no other.",
        plant=patch(
            "namesrv.processor:Processor.unregister",
            (
                "if not self._table.is_registered_by(header.broker_addr, connection.id):",
                "if header.broker_addr not in self._table.broker_addrs():",
            ),
        ),
    ),
    Mutant(
        name="holder-of-an-id-unasked",
        breaks="A second broker of a name and id displaces the first one, which lives, unasked.",
        source="docs/security.md, Name servers: who holds a name and id is asked.",
        plant=patch(
            "namesrv.route_table:RouteTable.holders",
            (
                "    if group is not None and registration.broker_id in group.addrs:\n"
                "        addrs.append(group.addrs[registration.broker_id])\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="commits-after-its-lock-is-lost",
        breaks="A member that has lost the lock of a queue still commits there as it gives it up.",
        source="What the next owner has committed must stand (ProcessQueue.lost).",
        plant=patch(
            "ledgermq.client.assignment:Assignment.lose",
            (
                "held.process_queue.dropped = held.process_queue.lost = True",
                "held.process_queue.dropped = True",
            ),
        ),
    ),
    Mutant(
        name="line-goes-on-behind-its-slot",
        breaks="A line that waited for a free slot hands out what its member has lost meanwhile.",
        source="ledgermq.client.orderly: who has the queue is looked at before each call.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService._work",
            ("if self._goes_on(line):", "if line.waiting:"),
        ),
    ),
    Mutant(
        name="fence-outlives-its-take",
        breaks="A queue that is taken anew goes on where a reset had sent it some time before.",
        source="ledgermq.client.assignment: a fence counts for one take.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._take",
            ("self._fences.pop(queue, None)", "self._fences.get(queue)"),
        ),
    ),
)
