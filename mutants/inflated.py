"""Planted bugs in what a client and a broker take from others: bombs, ends, long rows."""

from typing import Final

from mutants.planting import Mutant, patch

INFLATED: Final = (
    Mutant(
        name="bomb-not-counted",
        breaks="Bodies that inflate beyond the limit cost their consumer nothing, on paper.",
        source="A message of 66 KB that holds the loop of a consumer for 70 ms, 32 in a pull.",
        plant=patch(
            "ledgermq.client.pulled:inflate",
            ("CONTENT_BYTES_MAX if isinstance(error, ContentTooLarge) else 0", "0"),
        ),
    ),
    Mutant(
        name="zstd-body-cut-short",
        breaks="A zstd body that lacks its end passes for a shorter one.",
        source="zstandard's stream_reader: a frame without its end reads like one with it.",
        plant=patch(
            "ledgermq.remoting.protocol.compression:_zstd", ("if not is_whole:", "if False:")
        ),
    ),
    Mutant(
        name="late-reply-inflated",
        breaks="A reply that nobody waits for is decompressed first.",
        source="RocketMQ ClientRemotingProcessor.receiveReplyMessage: decompresses, then looks.",
        plant=patch(
            "ledgermq.client.request_reply:Requests.take",
            (
                "message = _decode(command.ext_fields, bytes(command.body))",
                "message = _inflated(_decode(command.ext_fields, bytes(command.body)))",
            ),
        ),
    ),
    Mutant(
        name="empty-pull-goes-back",
        breaks="A broker that sends an empty pull back is asked again without a pause.",
        source="A broker that answers 20 with a lower nextBeginOffset, for ever.",
        plant=patch(
            "ledgermq.client.puller:Puller._take",
            ("result.next_offset > process_queue", "result.next_offset != process_queue"),
        ),
    ),
    Mutant(
        name="subscriptions-in-one-turn",
        breaks="What a group subscribes to is made into text in one turn of the loop.",
        source="RocketMQ AdminBrokerProcessor.getConsumerConnectionList, which has threads.",
        plant=patch(
            "broker.processor.members:MembersProcessor.handle_consumers",
            ("answer(request, rows, body)", "answer(request, iter(list(rows)), body)"),
        ),
    ),
    Mutant(
        name="route-of-any-size",
        breaks="A route is decoded however many brokers it lists.",
        source="16 MiB of empty queueDatas: half a gigabyte of objects.",
        plant=patch(
            "ledgermq.remoting.protocol.bodies:decode_topic_route",
            ("values > ROUTE_VALUES_MAX", "values > 1 << 30"),
        ),
    ),
    Mutant(
        name="answer-of-any-values",
        breaks="What a tool is answered is decoded however many values it has.",
        source="16 MiB of empty arrays in an answer to 208: 360 MB of objects.",
        plant=patch(
            "ledgermq.remoting.protocol.tolerant_json:check_reach", ("values > most", "False")
        ),
    ),
    Mutant(
        name="bombs-hide-a-key",
        breaks="A query by key fails whole when strangers put bombs under the key.",
        source="Five messages of 16 KB that inflate to 16 MiB each, with somebody else's key.",
        plant=patch(
            "ledgermq.client.pulled:decode_found",
            ("messages = decode_records(body)", "messages = decode_pulled(body)[0]"),
        ),
    ),
    Mutant(
        name="moved-without-end",
        breaks="A broker that answers 21 within the limits for ever is asked without a pause.",
        source="A broker that names another legal offset each time: a rebalance for each answer.",
        plant=patch(
            "ledgermq.client.puller:Puller._on_illegal_offset",
            (
                "await asyncio.sleep(ILLEGAL_OFFSET_WAIT_MS / 1000)\n        if not process",
                "if not process",
            ),
        ),
    ),
)
