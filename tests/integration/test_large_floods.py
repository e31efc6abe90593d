"""A client that floods a group with large messages, and a small send of another client beside it.

What is asserted is how much lies before the small message in the log's queue, and what is answered
before it: both are the same on a slow machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import uvloop

from broker.limits import LOG_ROOM_BYTES
from broker.sends.room import SMALL_BYTES
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.broker_cluster import cluster, send_fields, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.broker_cluster import Cluster

LARGE = 1024 * 1024
FLOODING = 12
EACH = 5
TOPIC = "T"
SEGMENT_BYTES = 1 << 27


class Client:
    """A connection from an address, with all its requests written at once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.answers: list[RemotingCommand] = []

    async def ask(self, group: Cluster, leader: int, bodies: list[bytes]) -> list[RemotingCommand]:
        """Send messages to queue 0, without waiting in between; return the answers as they come."""
        host, port = group.address(leader).split(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), local_addr=(self._address, 0)
        )
        for opaque, body in enumerate(bodies):
            fields = {name: str(value) for name, value in send_fields(TOPIC).items()}
            request = RemotingCommand(310, opaque=opaque, ext_fields=fields, body=body)
            writer.writelines(encode_command(request))
        decoder = FrameDecoder()
        while len(self.answers) < len(bodies):
            data = await reader.read(1 << 16)
            assert data, "the broker closed the connection"
            self.answers += [decode_command(frame) for frame in decoder.feed(data)]
        writer.close()
        return self.answers


@contextlib.contextmanager
def watched(group: Cluster, leader: int, most: list[int]) -> Iterator[None]:
    """Note how many bytes wait to be committed whenever something is appended."""
    controller = group.brokers[leader]
    assert controller is not None
    writer = controller.store.writer
    uncommitted = writer._commit_log.uncommitted
    add = writer._commit_log._add

    def note(own: object) -> None:
        add(own)
        most.append(uncommitted.size_bytes)

    writer._commit_log._add = note
    try:
        yield
    finally:
        writer._commit_log._add = add


def flood(directory: Path) -> tuple[int, int]:
    """Return the most that was on its way, and how many were answered before the small send."""
    found = []

    async def scenario() -> None:
        async with cluster(directory, 3, SEGMENT_BYTES) as group:
            leader = await group.leader()
            answer = await group.ask(leader, 310, b"first", **send_fields(TOPIC))
            assert answer.code == 0, answer.remark
            most: list[int] = []
            with watched(group, leader, most):
                clients = [Client("127.0.0.2") for _ in range(FLOODING)]
                floods = [
                    asyncio.ensure_future(one.ask(group, leader, [bytes(LARGE)] * EACH))
                    for one in clients
                ]
                await until(lambda: bool(most), "a large message")
                small = (await Client("127.0.0.1").ask(group, leader, [b"small"]))[0]
                answered = sum(len(one.answers) for one in clients)
                answers = [answer for one in floods for answer in await one]
            assert small.code == 0, small.remark
            assert [answer.code for answer in answers] == [0] * FLOODING * EACH
            offsets = sorted(int(answer.ext_fields["queueOffset"]) for answer in answers)
            assert len(set(offsets)) == len(offsets), "each is stored once"
            found.append((max(most), answered))

    uvloop.run(asyncio.wait_for(scenario(), 120))
    return found[0]


def test_a_small_send_waits_for_a_few_large_ones(tmp_path: Path) -> None:
    most, answered = flood(tmp_path)
    assert most <= LOG_ROOM_BYTES + 2 * LARGE
    assert answered < FLOODING * EACH // 2


def test_a_log_that_takes_the_whole_flood_is_found(tmp_path: Path) -> None:
    with planted(BY_TESTS["log-room-without-end"]):
        most, _ = flood(tmp_path)
    assert most > LOG_ROOM_BYTES + 2 * LARGE


def order_of_a_connection(directory: Path) -> list[int]:
    """Return the queue offsets of a connection's sends, large and small ones, as they were sent."""
    found = []

    async def scenario() -> None:
        async with cluster(directory, 3, SEGMENT_BYTES) as group:
            leader = await group.leader()
            answer = await group.ask(leader, 310, b"first", **send_fields(TOPIC))
            assert answer.code == 0, answer.remark
            sizes = [LARGE, LARGE, LARGE, SMALL_BYTES // 2, 10, LARGE, 10] * 4
            answers = await Client("127.0.0.1").ask(group, leader, [bytes(one) for one in sizes])
            answers.sort(key=lambda answer: answer.opaque)
            assert [answer.code for answer in answers] == [0] * len(sizes)
            found.extend(int(answer.ext_fields["queueOffset"]) for answer in answers)

    uvloop.run(asyncio.wait_for(scenario(), 120))
    return found


def test_sends_of_a_connection_keep_their_order(tmp_path: Path) -> None:
    offsets = order_of_a_connection(tmp_path)
    assert offsets == sorted(offsets)


def test_sends_that_overtake_are_found(tmp_path: Path) -> None:
    with planted(BY_TESTS["sends-overtake-one-that-waits"]):
        offsets = order_of_a_connection(tmp_path)
    assert offsets != sorted(offsets)
