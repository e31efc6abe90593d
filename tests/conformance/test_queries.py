"""Recorded requests for messages by key and by id, sent to our broker as they were.

What the real 4.9.7 answered is compared: code, remark, names of the fields, and the message, but
for what depends on where and when it was stored. Its message is sent to our broker first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop

from ledgermq.remoting.protocol.command import RemotingCommand, decode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.message import MessageExt, decode_records
from ledgermq.remoting.transport.client import RemotingClient
from tests.conformance.test_broker_replay import ANSWER_TIMEOUT_S, Frame, broker, wire

if TYPE_CHECKING:
    from pathlib import Path

KEPT = ("topic", "flag", "sys_flag", "reconsume_times", "prepared_offset", "body", "body_crc")


def exchanges(name: str, code: int) -> list[tuple[Frame, Frame]]:
    """Return the requests of a code with their answers."""
    frames = wire(name)
    return [
        (asked, answer)
        for asked in frames
        if asked["kind"] == "request" and asked["code"] == code
        for answer in frames
        if answer.get("answers") == code
        and (answer["conn"], answer["opaque"]) == (asked["conn"], asked["opaque"])
    ]


def command_of(frame: Frame) -> RemotingCommand:
    (only,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
    return decode_command(only)


async def ask_raw(port: int, frame: Frame, **fields: str) -> RemotingCommand:
    """Send a recorded frame, but with these values of ``fields``, and return the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = bytes.fromhex(frame["hex"])
    for name, value in fields.items():
        was = command_of(frame).ext_fields[name]
        header = data[8:].replace(f'"{name}":"{was}"'.encode(), f'"{name}":"{value}"'.encode())
        data = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    writer.write(data)
    decoder = FrameDecoder()
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while True:
            frames = decoder.feed(await reader.read(65_536))
            if frames:
                break
    writer.close()
    await writer.wait_closed()
    return decode_command(frames[0])


async def send(port: int, message: MessageExt) -> int:
    """Store a message as the recorded one; return its offset in the log."""
    client = RemotingClient()
    fields = {
        "a": "pg", "b": message.topic, "c": "TBW102", "d": "1", "e": "0",
        "f": str(message.sys_flag), "g": str(message.born_timestamp), "h": str(message.flag),
        "i": message.properties.decode(), "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    request = RemotingCommand(310, ext_fields=fields, body=message.body)
    answer = await client.request(f"127.0.0.1:{port}", request, 5_000)
    await client.close()
    assert answer.code == 0, answer
    return int(answer.ext_fields["msgId"].split(",")[0][16:], 16)


def compare(ours: RemotingCommand, answer: Frame) -> None:
    header = answer["header"]
    assert ours.code == header["code"]
    assert (ours.remark or None) == header.get("remark")
    assert ours.flag == header["flag"]
    assert ours.version == header["version"]
    assert set(ours.ext_fields) == set(header.get("extFields", {}))


@pytest.mark.parametrize("code", [12, 33])
def test_what_is_there_is_answered_as_the_real_broker_did(code: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        found = exchanges("mqadmin497_query", code)
        assert found
        for number, (asked, answer) in enumerate(found):
            async with broker(tmp_path / str(number)) as controller:
                (theirs,) = decode_records(command_of(answer).body)
                physical = await send(controller.server_port, theirs)
                fields = {"offset": str(physical)} if code == 33 else {}
                ours = await ask_raw(controller.server_port, asked, **fields)
                compare(ours, answer)
                (record,) = decode_records(ours.body, check_crc=True)
                for name in KEPT:
                    assert getattr(record, name) == getattr(theirs, name), name
                left_out = {"CLUSTER": ""}
                assert record.property_map() | left_out == theirs.property_map() | left_out
                if code == 12:
                    last = ours.ext_fields
                    assert int(last["indexLastUpdatePhyoffset"]) == physical
                    assert int(last["indexLastUpdateTimestamp"]) == record.store_timestamp

    uvloop.run(scenario())


@pytest.mark.parametrize("code", [12, 33])
def test_what_is_not_there_is_refused_as_the_real_broker_did(code: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path / "n0") as controller:
            found = exchanges("java497_errors", code)
            assert found
            for asked, answer in found:
                ours = await ask_raw(controller.server_port, asked)
                compare(ours, answer)
                assert ours.ext_fields == answer["header"].get("extFields", {})
                assert not ours.body

    uvloop.run(scenario())
