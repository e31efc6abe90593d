"""Planted bugs behind which a consumer gets nothing, or not all, and nobody says why.

Sources: RocketMQ PullMessageProcessor, SubscriptionGroupConfig; each was a bug of this system.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

NOTHING_COMES: Final = (
    Mutant(
        name="changed-expression-passes-over",
        breaks="What a new expression wants is passed over by a pull that waits with the old one.",
        source="docs/client.md: another expression is for what is pulled from then on.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.subscribe",
            ("self.assignment.pull_anew(topic)", "pass"),
        ),
    ),
    Mutant(
        name="refused-pull-unsaid",
        breaks="A group that may not consume gets nothing, and no word about it.",
        source="SubscriptionGroupConfig.consumeEnable: pulls are answered 16.",
        plant=patch(
            "ledgermq.client.hindrances:Hindrances.on_pull_failed",
            ("self._queues[queue] = error", "return"),
        ),
    ),
    Mutant(
        name="own-limit-always",
        breaks="A consumer without a limit of its own never minds the one of its group.",
        source="SubscriptionGroupConfig.retryMaxTimes; asyncConsumerSendMsgBack.",
        plant=patch(
            "ledgermq.client.send_back:SendBack.__init__",
            ("None if reconsume_times_max < 0 else", "16 if reconsume_times_max < 0 else"),
        ),
    ),
    Mutant(
        name="queue-of-another-topic",
        breaks="A message goes to the queue of the same number in its own topic.",
        source="DefaultMQProducerImpl.send: message's topic not equal mq's topic.",
        plant=patch(
            "ledgermq.client.selectors:destination_of",
            ("or queue.topic != message.topic", "or False"),
        ),
    ),
    Mutant(
        name="copied-from-the-first-topic",
        breaks="Of a group whose offsets are copied, only those of one topic are.",
        source="AdminBrokerProcessor.cloneGroupOffset: whichTopicByConsumer, where none is named.",
        plant=patch(
            "broker.processor.other_groups:OtherGroupsProcessor._is_wanted",
            ('header.topic not in {"", topic}', '(header.topic or "T") != topic'),
        ),
    ),
    Mutant(
        name="reason-of-an-earlier-holding",
        breaks="A queue that was refused, went and came back is told as refused for ever.",
        source="A review: only who has failed before tells that a pull succeeds.",
        plant=patch(
            "ledgermq.client.puller:Puller.run", ("host.hindrances.on_held(queue)", "pass")
        ),
    ),
    Mutant(
        name="told-as-copied-when-dropped",
        breaks="Copied offsets are told as kept, and are gone with the leadership.",
        source="A review: what is pending no more was taken for applied.",
        plant=patch(
            "broker.processor.other_groups:OtherGroupsProcessor._unapplied",
            ("if offsets.drops != drops:", "if False:"),
        ),
    ),
    Mutant(
        name="delay-of-no-number",
        breaks="A message whose delay is not a number is delivered at once.",
        source="Message.getDelayTimeLevel: Integer.parseInt raises.",
        plant=patch(
            "broker.sends.rules:sent_level",
            ("if not level and", "if False and"),
        ),
    ),
    Mutant(
        name="stand-still-unsaid",
        breaks="A queue stands still, since a call of the listener hangs, without a word.",
        source="docs/client.md: every reason why nothing arrives is said.",
        plant=patch(
            "ledgermq.client.push:PushConsumer.on_full",
            ("self.hindrances.on_full(queue, reason)", "pass"),
        ),
    ),
)
