"""Bytes in the body of a message are no message, whatever a sender makes them look like."""

import asyncio

import msgspec

from ledgermq.remoting.protocol.message import decode_record, encode_record
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.plain_broker import plain


async def made_up(path):
    """Return the answers to 33 and 36 for a record that a sender put into a body."""
    async with plain(path) as broker:
        for number in range(3):
            await broker.send("T", 0, b"true %d" % number)
        true = (await broker.read_all("T", 0))[-1]
        # A message before it is found by its place.
        assert (await broker.ask(33, offset=true.physical_offset)).code == 0
        place = broker.controller.applied_index + 1 + 88 + 4
        forged = msgspec.structs.replace(
            true, physical_offset=place, queue_offset=0, body=b"forged", topic="T"
        )
        body = b"head" + encode_record(forged)
        await broker.send("T", 0, body)
        stored = (await broker.read_all("T", 0))[-1]
        assert decode_record(stored.body[4:], check_crc=True).physical_offset == place
        assert place - stored.physical_offset == 88 + 4
        seen = await broker.ask(33, offset=place)
        back = await broker.ask(
            36, offset=place, group="g", delayLevel=0, originMsgId="", originTopic="T"
        )
        assert (await broker.ask(33, offset=stored.physical_offset)).code == 0
        return seen.code, back.code


def test_a_record_in_a_body_is_no_message(tmp_path):
    assert asyncio.run(made_up(tmp_path)) == (1, 1)


def test_planted_bodies_taken_for_messages_are_found_here(tmp_path):
    with planted(BY_TESTS["bodies-taken-for-messages"]):
        assert asyncio.run(made_up(tmp_path)) == (0, 0)
