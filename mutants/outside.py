"""Planted bugs of the kinds that were found, from outside, to pass every oracle.

Sources: contracts of RocketMQ and of our own documents that no oracle had looked at.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

OUTSIDE: Final = (
    Mutant(
        name="commits-before-it-ends",
        breaks="A consumer that stops commits before its listeners have ended.",
        source="docs/client.md: stop() finishes the calls in progress, then commits.",
        plant=patch(
            "ledgermq.client.push:PushConsumer.stop",
            (
                "await self.service.stop(self.config.stop_timeout_ms)\n"
                "        await self._commit_last()",
                "await self._commit_last()\n"
                "        await self.service.stop(self.config.stop_timeout_ms)",
            ),
        ),
    ),
    Mutant(
        name="route-remembered-too-long",
        breaks="A name server goes on answering with the queues that a topic had before.",
        source="RocketMQ RouteInfoManager; an answer that is kept must go when the table changes.",
        plant=patch(
            "namesrv.route_table:RouteTable._take_topics",
            ("self.version += 1\n        live.version = version", "live.version = version"),
        ),
    ),
    Mutant(
        name="topic-made-too-wide",
        breaks="A topic that a send makes has the larger number of queues, not the smaller.",
        source="RocketMQ TopicConfigManager.createTopicInSendMessageMethod.",
        plant=patch(
            "broker.state.topic_config:auto_created",
            (
                "max(min(client_queues, default.write_queues), 0)",
                "max(client_queues, default.write_queues, 0)",
            ),
        ),
    ),
    Mutant(
        name="queue-behind-the-last",
        breaks="A message is taken for the queue behind the last one of its topic.",
        source="RocketMQ AbstractSendMessageProcessor.msgCheck: queueIdInt >= idValid is refused.",
        plant=patch(
            "broker.processor.send:SendProcessor.handle",
            ("not 0 <= queue_id < topic.queues", "not 0 <= queue_id <= topic.queues"),
        ),
    ),
    Mutant(
        name="shares-overlap",
        breaks="Where queues do not divide evenly, two members of a group consume the same one.",
        source="RocketMQ AllocateMessageQueueAveragely: the first n mod k members get one more.",
        plant=patch(
            "ledgermq.client.rebalance:allocate_averagely",
            ("(index < larger)", "(index <= larger)"),
        ),
    ),
    Mutant(
        name="installed-configuration-ignored",
        breaks="Who takes a snapshot goes on counting the members that it knew before.",
        source="Ongaro's dissertation 5.1: a snapshot holds the latest configuration.",
        plant=patch(
            "dledger.core.install:on_staged",
            (
                "    state.membership.reset(installed.configuration)\n"
                "    membership.adopt(state)\n",
                "",
            ),
        ),
        needs="add remove replace",
    ),
    Mutant(
        name="cache-never-emptied",
        breaks="Messages that are done with go on counting as kept, until pulling stops.",
        source="RocketMQ ProcessQueue.removeMessage: msgSize.addAndGet(-size).",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.finish",
            ("self._bytes -= size_bytes", "pass"),
        ),
    ),
)
