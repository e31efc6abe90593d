"""Planted bugs that show where clients do what users do every day, and no other client of a run.

Somebody wrote most of them who knew the product alone. Nothing takes a fault: messages without
anything but a delay, topics that are made by sending to them, groups that are there before their
topics, other tags for a member that runs, groups that tools remove and set up, values at name
servers. Sources: docs/client.md; docs/security.md; spec/wire.md; RocketMQ.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

EVERYDAY: Final = (
    Mutant(
        name="delay-alone-is-forgotten",
        breaks="A message that has nothing but a delay is sent without it, and delivered at once.",
        source="docs/client.md; RocketMQ Message.setDelayTimeLevel.",
        plant=patch(
            "ledgermq.client.send_codec:encode_properties",
            ("        or message.delay_level\n", ""),
        ),
    ),
    Mutant(
        name="send-overtakes-parked",
        breaks="A send to a topic that has just been made overtakes those that wait for it.",
        source="docs/security.md (sends to a topic that is being created).",
        plant=patch(
            "broker.processor.send:SendProcessor.handle",
            ("        or (parked and header.topic in parked)\n", ""),
        ),
    ),
    Mutant(
        name="topic-of-later-begins-at-end",
        breaks="A group that begins at the end skips the first messages of a topic made later.",
        source="docs/client.md (where a group begins).",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._on_unknown",
            ("        self._queues_at_first.setdefault(topic, frozenset())\n", ""),
        ),
    ),
    Mutant(
        name="subscription-version-by-clock",
        breaks="Brokers go on filtering by a former expression where a clock was put back.",
        source="RocketMQ SubscriptionData.subVersion; spec/wire.md 3.2.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.subscribe",
            (
                "version = max(self.clock.wall_ms(), self._versions.get(topic, -1) + 1)",
                "version = self.clock.wall_ms()",
            ),
        ),
    ),
    Mutant(
        name="pull-filtered-by-older-subscription",
        breaks="A pull by a newer subscription than the broker knows is filtered by the older one.",
        source="spec/wire.md 3.5 (25); RocketMQ PullMessageProcessor.",
        plant=patch(
            "broker.processor.pull:PullProcessor._subscription",
            ("if subscription.version < header.sub_version:", "if subscription.version < 0:"),
        ),
    ),
    Mutant(
        name="pull-skips-at-changed-subscription",
        breaks="A held pull goes on behind what its group did not want, and wants by now.",
        source="RocketMQ PullRequestHoldService: a held pull runs anew.",
        plant=patch(
            "broker.processor.pull:_as_asked",
            ("next_offset=pull.asked_offset", "next_offset=pull.offset"),
        ),
    ),
    Mutant(
        name="offsets-removed-with-group-come-back",
        breaks="An offset that was taken a moment before its group was removed comes back.",
        source="RocketMQ ConsumerOffsetManager.removeOffset.",
        plant=patch(
            "broker.offsets.removal:OffsetRemoval.of_group",
            ("found = self._offsets.withdraw(group)", "found: dict[str, list[int]] = {}"),
        ),
    ),
    Mutant(
        name="group-settings-lost-in-creation",
        breaks="A group set up while a client has it made keeps the defaults, and 0 is told.",
        source="RocketMQ SubscriptionGroupManager.updateSubscriptionGroupConfig.",
        plant=patch(
            "broker.processor.groups:GroupsProcessor.handle_update",
            ("await self._creator.change_group(", "await self._creator.put_group("),
        ),
    ),
    Mutant(
        name="default-behind-what-a-tool-sets",
        breaks="A client has a group made with defaults behind the change that sets it up.",
        source="A bug of the product, found by the plans that these are for.",
        plant=patch(
            "broker.sends.creation:Creator.put_group",
            (
                "await self._changed_groups.waits(name, lambda: self._has_group(name))",
                "False",
            ),
        ),
    ),
    Mutant(
        name="kv-delete-unsaved",
        breaks="A value deleted at a name server is back once that was started again.",
        source="RocketMQ KVConfigManager.deleteKVConfig: persist.",
        plant=patch(
            "namesrv.kv_config:KvConfig.delete",
            (
                "    self._replace(table)\n",
                "    self._table = table\n    if not values:\n        self._replace(table)\n",
            ),
        ),
    ),
    Mutant(
        name="check-amid-execution",
        breaks="A listener is asked for a transaction that it runs, finds none and rolls it back.",
        source="docs/client.md (transactions): nobody can know its end yet.",
        plant=patch(
            "ledgermq.client.checks:Checks.take",
            (
                "    if self._deciding.is_executing(msg_id):\n"
                "        # The local transaction still runs, so that nobody can know its end.\n"
                "        self._answer(connection, half, message, TransactionState.UNKNOWN)\n"
                "        return\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="manual-commit-of-prefetched",
        breaks="`commit()` of a consumer that is polled commits what was pulled ahead.",
        source="RocketMQ DefaultLitePullConsumerImpl.commitAll.",
        plant=patch(
            "ledgermq.client.lite_pull:_ask_for",
            (
                "one.asked = one.position if offsets is None",
                "one.asked = one.next_offset if offsets is None",
            ),
        ),
    ),
    Mutant(
        name="group-retry-under-new-id",
        breaks="A message whose group failed is sent again under another unique key.",
        source="docs/client.md (unique keys); RocketMQ MessageClientIDSetter.setUniqID.",
        plant=patch(
            "ledgermq.client.producer:Producer._go_on_alone",
            ("    failed.msg_id,\n", "    self._next_id(group.born_ms),\n"),
        ),
    ),
    Mutant(
        name="greeted-by-address",
        breaks="Who asked a broker before asks it over a new connection that it does not know.",
        source="docs/client.md (request and reply).",
        plant=patch(
            "ledgermq.client.request_reply:Requests._is_greeted",
            (
                "return connection is not None and self._greeted.get(addr) == connection.id",
                "return connection is not None and addr in self._greeted",
            ),
        ),
    ),
    Mutant(
        name="paused-go-behind-later-ones",
        breaks="Messages of a paused queue are put back behind later ones of the same queue.",
        source="RocketMQ DefaultLitePullConsumerImpl.poll.",
        plant=patch(
            "ledgermq.client.polled:Polled.take",
            ("self._waiting.extendleft(reversed(put_back))", "self._waiting.extend(put_back)"),
        ),
    ),
    Mutant(
        name="equal-offset-of-before-ends-it",
        breaks="A group that goes back and forth within seconds is left at the offset between.",
        source="A bug of the product, found by the plans that these are for.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable._is_followed",
            ("any(one != offset for one in self._proposed.get((key, queue_id), ()))", "False"),
        ),
    ),
)
