"""Planted bugs of tables that others made of what they were told, and of queues that are moved.

Sources: RocketMQ ConsumerManager, RouteInfoManager and MQClientInstance; docs/client.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

AFRESH: Final = (
    Mutant(
        name="closed-members-stay",
        breaks="Members whose connections have closed are members until their time is up.",
        source="RocketMQ ConsumerManager.doChannelCloseEvent.",
        plant=patch(
            "broker.groups.client_registry:ConsumerRegistry.close",
            ("if self.unregister(name, connection_id)]", "if name not in self._groups]"),
        ),
    ),
    Mutant(
        name="rows-taken-once",
        breaks="Queues that a topic gets later are in no route.",
        source="RocketMQ RouteInfoManager.createAndUpdateQueueData.",
        plant=patch(
            "namesrv.rows:TopicRows.put",
            ("rows[group.number] = data", "rows.setdefault(group.number, data)"),
        ),
    ),
    Mutant(
        name="moved-and-committed-as-before",
        breaks="A queue that is sent elsewhere is given away with the offset from before.",
        source="RocketMQ MQClientInstance.resetOffset: updateOffset, then removeUnnecessary.",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.move", ("self.reset(offset)", "pass")
        ),
    ),
    Mutant(
        name="oneway-sent-twice",
        breaks="A message that nobody answers is written twice.",
        source="RocketMQ DefaultMQProducer.sendOneway: one attempt.",
        plant=patch(
            "ledgermq.client.producer:Producer._send_oneway",
            (
                "await self._oneway.write(link.connection, header, outgoing.body)",
                "await self._oneway.write(link.connection, header, outgoing.body)\n"
                "    await self._oneway.write(link.connection, header, outgoing.body)",
            ),
        ),
    ),
    Mutant(
        name="list-without-its-last-batch",
        breaks="The last batch of a long list is not sent.",
        source="docs/client.md: send_all sends all, in batches that are small enough.",
        plant=patch(
            "ledgermq.client.producer:Producer.send_all",
            (
                "min(BATCH_BYTES, self.config.max_message_bytes)):",
                "min(BATCH_BYTES, self.config.max_message_bytes)):\n"
                "        if results and sent + len(batch) == len(messages):\n"
                "            break",
            ),
        ),
    ),
    Mutant(
        name="seek-to-the-other-end",
        breaks="A seek to the end of a queue goes to its beginning.",
        source="RocketMQ DefaultLitePullConsumer.seekToEnd.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.seek_to_end",
            ("api.max_offset(a, queue)", "api.min_offset(a, queue)"),
        ),
    ),
    Mutant(
        name="stops-without-what-was-given",
        breaks="A consumer that stops does not commit what its last poll gave out.",
        source="docs/client.md: stop commits what was given out.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.stop",
            ("            self._polled.finish()\n", "            self._polled.keep()\n"),
        ),
    ),
    Mutant(
        name="request-that-has-ended-waits",
        breaks="A request that got no reply in time stays among those that wait.",
        source="RocketMQ RequestFutureHolder: removed at the end, however it came.",
        plant=patch(
            "ledgermq.client.request_reply:Requests.request",
            (
                "    del self._waiting[correlation_id]\n",
                "    if not reply.cancelled():\n            del self._waiting[correlation_id]\n",
            ),
        ),
    ),
    Mutant(
        name="unlocked-before-its-offset",
        breaks="A queue that is given away is unlocked before its offset is committed.",
        source="RocketMQ RebalancePushImpl.removeUnnecessaryMessageQueue: persist, then unlock.",
        plant=patch(
            "ledgermq.client.assignment:Assignment._release",
            (
                "    era: int | None = None\n",
                "    era: int | None = None\n"
                "    if host.locks is not None:\n"
                "        await host.locks.give_back([queue])\n",
            ),
        ),
    ),
    Mutant(
        name="not-of-unknown-is-true",
        breaks="A filter that denies what is unknown of a message lets it by.",
        source="SQL92, three values: NOT UNKNOWN is UNKNOWN; ActiveMQ LogicExpression.",
        plant=patch(
            "broker.pulls.sql92:_negated", ("None if found is None else not found", "not found")
        ),
    ),
    Mutant(
        name="acknowledged-to-its-own-end",
        breaks="A follower acknowledges all that it holds, and not what it was sent alone.",
        source="etcd raft, handleAppendEntries: mlastIndex is that of the message.",
        plant=patch(
            "dledger.core.replication:on_append",
            ("acknowledge(state, match_index)", "acknowledge(state, log.last_index)"),
        ),
    ),
)
