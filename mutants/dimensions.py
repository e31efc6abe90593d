"""Planted bugs that one-valued clients never showed: what a run does has to differ for each.

Sources: RocketMQ's contracts, and bugs that others planted.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

DIMENSIONS: Final = (
    Mutant(
        name="compression-not-flagged",
        breaks="A body is compressed, and the message does not say so.",
        source="RocketMQ DefaultMQProducerImpl.tryToCompressMessage sets the flag.",
        plant=patch(
            "ledgermq.client.send_codec:prepare_single",
            ("compress(body), COMPRESSED_ZLIB", "compress(body), 0"),
        ),
    ),
    Mutant(
        name="tags-by-hash-alone",
        breaks="A consumer takes what the broker sent, whose tags only have the same hash.",
        source="RocketMQ PullAPIWrapper.processPullResult compares the tags themselves.",
        plant=patch(
            "ledgermq.client.subscription:Subscription.select",
            ("if not self.tags:", "if True:"),
        ),
    ),
    Mutant(
        name="other-groups-forgotten",
        breaks="A client that learns a route forgets the addresses of the other groups.",
        source="RocketMQ MQClientInstance.brokerAddrTable keeps all of them.",
        plant=patch(
            "ledgermq.client.route:RouteCache._store",
            (
                "self._addrs.update(told)",
                "self._addrs = dict(list(route.brokers.items())[:1])",
            ),
        ),
    ),
    Mutant(
        name="chosen-queue-ignored",
        breaks="A send to a queue of the user's choice goes to another when it is tried again.",
        source="RocketMQ DefaultMQProducerImpl.sendKernelImpl with a queue tries no other.",
        plant=patch(
            "ledgermq.client.producer:Producer.select",
            ("if queue is not None else", "if queue is not None and not avoid else"),
        ),
    ),
    Mutant(
        name="listener-that-raises-is-done",
        breaks="Messages whose listener raised count as consumed.",
        source="RocketMQ ConsumeMessageConcurrentlyService: an exception is RECONSUME_LATER.",
        plant=patch(
            "ledgermq.client.listening:_call",
            (
                '_log.exception("queue=%s event=listener_failed", context.queue)\n'
                "        return ConsumeStatus.RECONSUME_LATER",
                "return ConsumeStatus.CONSUME_SUCCESS",
            ),
        ),
    ),
    Mutant(
        name="failed-messages-dropped",
        breaks="What a listener wants again, and no broker takes back, is dropped.",
        source="RocketMQ ConsumeMessageConcurrentlyService.submitConsumeRequestLater.",
        plant=patch(
            "ledgermq.client.consume:ConsumeService._hand_back",
            ("kept.append(message)", "process_queue.finish([message])"),
        ),
    ),
    Mutant(
        name="user-properties-dropped",
        breaks="Properties of the user's are not sent.",
        source="RocketMQ MessageDecoder.messageProperties2String has all of them.",
        plant=patch(
            "ledgermq.client.send_codec:encode_attributes",
            ("for name, value in message.properties.items()", "for name, value in ()"),
        ),
    ),
    Mutant(
        name="first-key-only",
        breaks="A producer sends only the last of several keys.",
        source="RocketMQ Message.setKeys: keys are separated by spaces.",
        plant=patch(
            "ledgermq.client.send_codec:encode_attributes",
            ("{message.keys}", "{message.keys.split(' ')[-1]}"),
        ),
    ),
    Mutant(
        name="age-without-patience",
        breaks="A closed segment is dropped whatever its age.",
        source="RocketMQ MappedFileQueue.deleteExpiredFileByTime.",
        plant=patch(
            "broker.retention_policy:expired_before",
            ("situation.now_ms - config.reserved_ms", "situation.now_ms + config.reserved_ms"),
        ),
    ),
    Mutant(
        name="seek-from-the-last",
        breaks="A pull does not begin where the user says, but one later when that is not 0.",
        source="RocketMQ DefaultMQPullConsumerImpl.pullSyncImpl.",
        plant=patch(
            "ledgermq.client.pull:PullConsumer.pull",
            ("offset=offset,", "offset=offset + (offset > 0),"),
        ),
    ),
)
