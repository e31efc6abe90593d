"""Planted bugs of what is refused, cancelled or left in the middle: half of it stands.

Sources: docs/client.md; RocketMQ.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

MIDWAY: Final = (
    Mutant(
        name="refused-commit-is-done",
        breaks="A `commit` that is refused commits what its caller still works at.",
        source="docs/client.md: what a poll gave out is done with at the next poll.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.commit",
            (
                "    for queue, offset in (offsets or {}).items():\n",
                "    self._polled.finish()\n    for queue, offset in (offsets or {}).items():\n",
            ),
        ),
    ),
    Mutant(
        name="refused-poll-is-done",
        breaks="A `poll` that is refused commits what its caller still works at.",
        source="docs/client.md: what a poll gave out is done with at the next poll.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.poll",
            ("    if count < 1:\n", "    self._polled.finish()\n    if count < 1:\n"),
        ),
    ),
    Mutant(
        name="folder-free-before-the-last-write",
        breaks="A write that outlasts its member replaces what the next one has written since.",
        source="docs/client.md: broadcasting goes on where it stopped.",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets.close",
            ("if self._pending is None:", "if True:"),
        ),
    ),
    Mutant(
        name="left-without-its-last-offsets",
        breaks="Offsets that moved during a member's last write are lost as it leaves.",
        source="docs/client.md: broadcasting goes on where it stopped.",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets.close",
            ("self._last = _render(self._offsets)", "self._last = None"),
        ),
    ),
    Mutant(
        name="cut-write-forgotten",
        breaks="Offsets whose flush was cancelled count as written, though their write failed.",
        source="docs/client.md: broadcasting goes on where it stopped.",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets.flush",
            ("    await self._wait_for_write()\n        if not", "    if not"),
        ),
    ),
    Mutant(
        name="left-before-it-was-in",
        breaks="Who leaves a group that is being made is a member of it, and holds its share.",
        source="RocketMQ ClientManageProcessor.heartBeat makes the group before it answers.",
        plant=patch(
            "broker.processor.client:ClientProcessor.handle_unregister",
            ("in self._waiting.get(connection.id, ()):", "in ():"),
        ),
    ),
    Mutant(
        name="another-id-told-to-nobody",
        breaks="Members go on sharing queues with a client id that its connection has changed.",
        source="spec/wire.md 7.1: a share is computed of the client ids.",
        plant=patch(
            "broker.groups.client_registry:ConsumerGroup.update_client",
            ("client\n    return True", "client\n    return known is None"),
        ),
    ),
    Mutant(
        name="greeted-though-refused",
        breaks="A broker that has refused who asks is not told again, and has nobody to reply to.",
        source="docs/client.md (request and reply).",
        plant=patch(
            "ledgermq.client.request_reply:Requests._greet_one",
            (" and GREETED in connection.state", ""),
        ),
    ),
    Mutant(
        name="kept-lock-freed-by-its-renewal",
        breaks="A stop amid a renewal unlocks a queue that the listener still has something of.",
        source="docs/adr/0004: a lease holds until its owner lets go.",
        plant=patch(
            "ledgermq.client.queue_locks:QueueLocks._give_back",
            (" if queue not in self._kept", ""),
        ),
    ),
    Mutant(
        name="given-up-and-a-problem",
        breaks="A topic given up while a rebalance looks at it is told as a problem for ever.",
        source="docs/client.md: problems tell what blocks the topics that are subscribed to.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._give_up_former",
            ("self.hindrances.forget(topic)", "pass"),
        ),
    ),
    Mutant(
        name="unsent-commit-told-as-done",
        breaks="A commit that is not sent, since its queue was moved, is told as a success.",
        source="ledgermq/client/observer.py: ok says that a commit was answered.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._commit_now",
            ("    ok = False\n", "    ok = True\n"),
        ),
    ),
    Mutant(
        name="commit-behind-the-last-told-as-done",
        breaks="A commit that waits for the last one of its queue, and is not sent, is a success.",
        source="docs/client.md: `commit` raises where a queue is not held.",
        plant=patch(
            "ledgermq.client.assignment:Assignment.has_committed",
            (
                "return self._held.get(queue) is held and not held.process_queue.dropped",
                "return True",
            ),
        ),
    ),
    Mutant(
        name="moved-as-it-is-given-away",
        breaks="A reset that comes amid the last commit of a queue is known to nobody afterwards.",
        source="RocketMQ MQClientInstance.resetOffset commits where the queue is to go on.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._release",
            ("while era != held.process_queue.era and", "while era is None and"),
        ),
    ),
    Mutant(
        name="listener-owns-the-batch",
        breaks="What a listener takes out of its list is neither finished nor sent back.",
        source="RocketMQ ConsumeMessageConcurrentlyService gives a list that nobody can change.",
        plant=patch(
            "ledgermq.client.consume:ConsumeService._consume",
            ("list(messages)", "messages"),
        ),
    ),
    Mutant(
        name="coroutine-called-outside",
        breaks="A transaction whose coroutine takes other arguments is executing for ever.",
        source="RocketMQ DefaultMQProducerImpl.sendMessageInTransaction catches what it throws.",
        plant=patch(
            "ledgermq.client.deciding:_Call.begin",
            ("self._run_here()", "self._ask()"),
        ),
    ),
    Mutant(
        name="properties-as-they-are-later",
        breaks="A send that shares its request goes with what its sender has changed since then.",
        source="RocketMQ ProduceAccumulator has a copy of the messages that wait.",
        plant=patch(
            "ledgermq.client.grouping:_as_it_is",
            ("properties=dict(message.properties)", "properties=message.properties"),
        ),
    ),
    Mutant(
        name="moved-between-release-and-lock",
        breaks="A reset of a queue that is being released, or locked, to be taken anew, is lost.",
        source="RocketMQ MQClientInstance.resetOffset waits until what is consumed has ended.",
        plant=patch(
            "ledgermq.client.assignment:Assignment.change",
            ("self._taking.update(mine)", "pass"),
        ),
    ),
    Mutant(
        name="slots-of-all-brokers",
        breaks="Commits at a broker that stands still keep those at the others waiting.",
        source="RocketMQ RemoteBrokerOffsetStore.persistAll goes on with the next one.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._slot",
            ("queue.broker_name", '"any"'),
        ),
    ),
    Mutant(
        name="kept-by-a-seek",
        breaks="A queue that a seek keeps from its next member is kept until the next rebalance.",
        source="RocketMQ RebalanceImpl.updateProcessQueueTableInRebalance drops it each time.",
        plant=patch(
            "ledgermq.client.assignment:Assignment.change",
            (" and not kept", ""),
        ),
    ),
    Mutant(
        name="left-by-a-cancelled-seek",
        breaks="Nobody pulls a queue in which a seek was cancelled, until the next rebalance.",
        source="RocketMQ DefaultLitePullConsumerImpl.seek ends as a whole.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.seek",
            ("self._wanted.set()", "pass"),
        ),
    ),
    Mutant(
        name="older-reset-stands",
        breaks="A reset that a broker told by a pull takes the place of a later one of a tool.",
        source="docs/client.md, resetOffsetByTime: no older offset follows.",
        plant=patch(
            "ledgermq.client.puller:Puller._on_illegal_offset",
            ("if not process_queue.dropped:", "if True:"),
        ),
    ),
    Mutant(
        name="given-up-pulls-go-on",
        breaks="Who gives a topic up and wants it otherwise at once is passed over by old pulls.",
        source="RocketMQ PullRequestHoldService: a held pull goes by the expression it came with.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.subscribe",
            (" or self._former.get(topic)", ""),
        ),
    ),
    Mutant(
        name="begun-behind-the-stop",
        breaks="What is in the middle as a client stops begins tasks that never end.",
        source="docs/client.md: stop ends all tasks.",
        plant=patch(
            "ledgermq.client.background:Background.spawn",
            ("if self._has_stopped:", "if False:"),
        ),
    ),
    Mutant(
        name="new-queue-taken-for-old",
        breaks="A group that begins at the end skips what a queue got that is newer than it.",
        source="docs/client.md (where a group begins).",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._give_up_former",
            (
                "if topic not in self._subscriptions:\n"
                "                self._queues_at_first.pop(topic, None)",
                "self._queues_at_first.pop(topic, None)\n"
                "            if topic not in self._subscriptions:",
            ),
        ),
    ),
    Mutant(
        name="joined-for-ever",
        breaks="Who has joined once has joined each topic that it subscribes to later.",
        source="docs/client.md: wait_joined waits for this member's share of every topic.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._tell_soon",
            ("self._joined.clear()", "pass"),
        ),
    ),
    Mutant(
        name="joined-by-an-older-order",
        breaks="A rebalance that was under way says of a topic of later that it is joined.",
        source="docs/client.md: wait_joined waits for this member's share of every topic.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._rebalance",
            (" and orders == self._orders", ""),
        ),
    ),
)
