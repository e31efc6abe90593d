"""Planted bugs of requests and replies, in broker and client.

Sources: RocketMQ ReplyMessageProcessor, ClientRemotingProcessor, RequestFutureHolder 4.9.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

REPLIES: Final = (
    Mutant(
        name="reply-answered-before-it-is-taken",
        breaks="Who replies is told that the reply has arrived when it has only been sent.",
        source="ReplyMessageProcessor.pushReplyMessage: callClient waits for the answer.",
        plant=patch(
            "broker.processor.reply:ReplyProcessor._ask",
            ("answer = await connection.request(pushed, PUSH_MS)", "connection.send(pushed)"),
            (
                "return None if answer.code == ResponseCode.SUCCESS else refusal",
                "return None",
            ),
        ),
    ),
    Mutant(
        name="reply-to-a-connection-that-is-gone",
        breaks="A broker remembers who asked under the connection of its first heartbeat.",
        source="ProducerManager.clientChannelTable: the last channel of a client id counts.",
        plant=patch(
            "broker.groups.client_registry:ProducerRegistry.find",
            ("next(reversed(members.values()))", "next(iter(members.values()))"),
        ),
    ),
    Mutant(
        name="client-requests-wait-for-ever",
        breaks="A request without a reply stays in the table of those that wait.",
        source="RequestFutureHolder.scanExpiredRequest: what is over is removed.",
        plant=patch(
            "ledgermq.client.request_reply:Requests.request",
            ("del self._waiting[correlation_id]", "pass"),
        ),
    ),
    Mutant(
        name="replies-without-shares",
        breaks="One address takes all the room that there is for replies.",
        source="docs/security.md: fair shares.",
        plant=patch(
            "broker.processor.reply:ReplyProcessor._check_room",
            ("not self._share.fits(address)", "not self._share.fits('')"),
        ),
    ),
    Mutant(
        name="replies-without-room",
        breaks="Replies that nobody takes pile up in the broker.",
        source="A producer that does not answer would hold the memory of all replies to it.",
        plant=patch(
            "broker.processor.reply:ReplyProcessor._ask",
            ("if taken >= REPLIES_OF_CLIENT_MAX:", "if False:"),
        ),
    ),
)
