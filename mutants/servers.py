"""Planted bugs of what our client does about servers that differ, and of what tools do to topics.

Sources: ConsumerManageProcessor of RocketMQ 4.9 and 5.3; DefaultMQAdminExtImpl.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

SERVERS: Final = (
    Mutant(
        name="zero-of-an-old-broker-believed",
        breaks="A group new to a young queue of RocketMQ 4.9 begins at 0, whatever it asked for.",
        source="ConsumerManageProcessor.queryConsumerOffset 4.9: 0 for a group without an offset.",
        plant=patch(
            "ledgermq.client.stored_offset:StoredOffsets.ask",
            ("if offset or STORED_FIELD in", "if True or STORED_FIELD in"),
        ),
    ),
    Mutant(
        name="reset-of-the-server-waited-out",
        breaks="A member does not go where RocketMQ 5 resets its group: it waits to be told twice.",
        source="PullMessageProcessor 5.3: a reset offset is answered to one pull, and forgotten.",
        plant=patch(
            "ledgermq.client.puller:Puller._on_illegal_offset",
            ("if is_legal and", "if not is_legal and False and"),
        ),
    ),
    Mutant(
        name="removed-topic-still-read",
        breaks="Who asks about the queues of a topic that was removed is told of them as before.",
        source="DefaultMessageStore.cleanUnusedTopic: the queues of such a topic are destroyed.",
        plant=patch(
            "broker.processor.query:QueryProcessor._number",
            ("if self._exists(header.topic):", "if True:"),
        ),
    ),
    Mutant(
        name="removal-signed-for-everybody",
        breaks="A signed removal of a topic counts at every broker, and can be repeated there.",
        source="spec/proof.md: what is signed says for whom.",
        plant=patch(
            "ledgermq.client.signer:Signer.for_broker",
            (
                "return self._sign(command, f\"{status.get('group', node)}/{node}\")",
                'return self._sign(command, "")',
            ),
        ),
    ),
)
