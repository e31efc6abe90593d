"""Planted bugs of retries: how often, and of what.

Sources: RocketMQ SendMessageProcessor.asyncConsumerSendMsgBack, DefaultMQPushConsumerImpl.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

RETRIES: Final = (
    Mutant(
        name="retry-never-dead",
        breaks="A message that was delivered too often comes again all the same.",
        source="asyncConsumerSendMsgBack: reconsumeTimes >= maxReconsumeTimes is a dead letter.",
        plant=patch(
            "broker.sends.send_back:destination_of",
            ("level < 0 or times >= _times_max", "level < 0 or times > _times_max"),
        ),
    ),
    Mutant(
        name="retry-forgets-its-topic",
        breaks="The second retry says that the message was sent to the retry topic.",
        source="asyncConsumerSendMsgBack: RETRY_TOPIC is set where it is missing.",
        plant=patch(
            "broker.sends.send_back:_properties",
            ('find_property(text, b"RETRY_TOPIC") or message', "message"),
        ),
    ),
    Mutant(
        name="retry-answered-before-it-is-stored",
        breaks="A consumer forgets a message whose copy is not committed yet.",
        source="asyncConsumerSendMsgBack: the answer waits for the put.",
        plant=patch(
            "broker.processor.send_back:SendBackProcessor._put",
            ("    return await future\n", "    return PutStatus.OK\n"),
        ),
    ),
    Mutant(
        name="copies-without-turns",
        breaks="All requests that copy a whole message are served in one turn of the loop.",
        source="Seen in this system: 128 small requests held the loop for 2.5 s.",
        plant=patch("broker.one_a_turn:OneATurn.turn", ("if self._is_taken:", "if False:")),
    ),
    Mutant(
        name="copies-by-arrival",
        breaks="A request that copies a message waits for all of another address that came before.",
        source="256 such requests of each of its connections, one in a turn.",
        plant=patch(
            "broker.one_a_turn:OneATurn.turn",
            ("self._waiting.add(address, mine)", 'self._waiting.add("", mine)'),
        ),
    ),
    Mutant(
        name="copy-keeps-foreign-flags",
        breaks="A copy has the bits of sysFlag that its original claims, half a transaction's too.",
        source="A record of somebody else's store, or one found in a body, says what it likes.",
        plant=patch(
            "broker.sends.send_back:copy_of", ("message.sys_flag & KEPT_FLAGS", "message.sys_flag")
        ),
    ),
    Mutant(
        name="dead-letters-of-nobody",
        breaks="A send makes a topic of dead letters for a group that there is none of.",
        source="autoCreateSubscriptionGroup=false: clients do not fill the table of topics.",
        plant=patch(
            "broker.sends.creation:Creator.topic_for_send",
            (
                "self._groups.find(_dead_group(topic)) is not None",
                "topic.startswith(DLQ_PREFIX)",
            ),
        ),
    ),
)
