"""Planted bugs written by somebody who had not looked at the others, and that no oracle saw.

Sources: docs/protocol.md, docs/client.md and docs/transactions.md; what RocketMQ's ConsumeQueue,
Broker2Client, DefaultLitePullConsumerImpl and TransactionalMessageServiceImpl do instead.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

FURTHER: Final = (
    Mutant(
        name="reset-never-goes-back",
        breaks="A group that is told to go on at a time never goes back to it.",
        source="RocketMQ Broker2Client.resetOffset: forced, or back, it is what was asked for.",
        plant=patch(
            "broker.processor.reset:ResetProcessor._targets",
            (
                "goes = target if header.is_force or target < now else now",
                "goes = max(target, now)",
            ),
        ),
    ),
    Mutant(
        name="earliest-time-of-the-last",
        breaks="The time of a queue's first message is told to be that of its last.",
        source="RocketMQ ConsumeQueue.getMinOffsetInQueue, DefaultMessageStore.getEarliestMessage.",
        plant=patch(
            "store.read.reader:Reader.earliest_store_time",
            (
                "return self._stored_at(queue, queue.min_offset)",
                "return self._stored_at(queue, queue.max_offset - 1)",
            ),
        ),
    ),
    Mutant(
        name="nearest-on-the-left",
        breaks="A search by time without a boundary never takes the message behind it.",
        source="RocketMQ ConsumeQueue.getOffsetInQueueByTime: the nearer one of two.",
        plant=patch(
            "store.read.reader:Reader._nearest",
            (
                "return right if timestamp - left_time > right_time - timestamp else left",
                "return left",
            ),
        ),
    ),
    Mutant(
        name="filter-skips-what-has-no-room",
        breaks="A read with a filter passes over the message that has no room in its answer.",
        source="The next offset of a read is behind what was looked into, and no further.",
        plant=patch(
            "store.read.reader:Reader._collect",
            (
                "size > max_bytes):\n            break",
                "size > max_bytes):\n            scanned += test is not None\n            break",
            ),
        ),
    ),
    Mutant(
        name="polled-is-done",
        breaks="What a poll gives out counts as consumed at once.",
        source="RocketMQ DefaultLitePullConsumerImpl.poll: once the next poll has come.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.poll",
            (
                "        self._polling = False\n    return found",
                "        self._polling = False\n    self._polled.finish()\n    return found",
            ),
        ),
    ),
    Mutant(
        name="seek-keeps-what-was-pulled",
        breaks="A seek leaves what was pulled before it to be given out behind it.",
        source="RocketMQ DefaultLitePullConsumerImpl.seek clears the queue's cache.",
        plant=patch(
            "ledgermq.client.assignment:Assignment.restart",
            (
                "held.process_queue.dropped = held.process_queue.lost = True",
                "held.process_queue.lost = True",
            ),
        ),
    ),
    Mutant(
        name="reply-to-the-longest-waiting",
        breaks="A reply goes to the request that has waited longest.",
        source="RocketMQ ClientRemotingProcessor.processReplyMessage: by the correlation id.",
        plant=patch(
            "ledgermq.client.request_reply:Requests.take",
            (
                "self._waiting.get(correlation_id)",
                "next(iter(self._waiting.values()), None)",
            ),
        ),
    ),
    Mutant(
        name="removed-leader-stays",
        breaks="A leader that is not a member any more goes on to lead.",
        source="Dissertation 4.2.2: it steps down once that is committed.",
        plant=patch(
            "dledger.core.membership:maybe_step_down",
            ("    state.become_follower(state.term, None)\n", ""),
        ),
        needs="remove replace",
    ),
    Mutant(
        name="pre-vote-against-the-leader",
        breaks="A replica that hears its leader gives pre-votes against it.",
        source="Dissertation 4.2.3 and 9.6: disruptive servers.",
        plant=patch(
            "dledger.core.election:on_pre_vote_request",
            ("        and not state.hears_leader()\n", ""),
        ),
    ),
    Mutant(
        name="retry-avoids-nobody",
        breaks="A send is tried again at the broker that has just failed, though another is there.",
        source="RocketMQ TopicPublishInfo.selectOneMessageQueue(lastBrokerName).",
        plant=patch(
            "ledgermq.client.delivery:Delivery.after",
            ("self._avoid = frozenset({broker_name})", "self._avoid = frozenset()"),
        ),
    ),
    Mutant(
        name="offsets-committed-once",
        breaks="An offset is committed again only when another broker leads, or at the end.",
        source="RocketMQ RemoteBrokerOffsetStore.persistAll: every few seconds.",
        plant=patch(
            "ledgermq.client.assignment:Held.is_due",
            (
                "return offset != self.committed or leader not in {None, self.taken_by}",
                "return self.committed is None or leader not in {None, self.taken_by}",
            ),
        ),
    ),
    Mutant(
        name="asked-before-its-time",
        breaks="Producers are asked for a half long before it is old enough.",
        source="RocketMQ TransactionalMessageServiceImpl.check: transactionTimeout.",
        plant=patch(
            "broker.transactions.service:Transactions._is_due",
            ("now_ms - since_ms >= wait_ms", "now_ms - since_ms >= wait_ms // 8"),
        ),
    ),
    Mutant(
        name="waiting-sends-in-reverse",
        breaks="Sends that wait for their topic are let go on in reverse.",
        source="docs/architecture.md: sends of a connection keep their order.",
        plant=patch(
            "broker.sends.waiting:WaitingRoom.let_go",
            ("waiting.popleft()", "waiting.pop()"),
        ),
    ),
)
