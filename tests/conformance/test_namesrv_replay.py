"""What recorded clients and brokers asked a real name server, asked again of ours.

Routes are the facts of the recording: before a question that the real one answered with a route,
the broker of that route registers with our server, as it had with the real one.
"""

import asyncio
import itertools

import pytest
import uvloop

from ledgermq.remoting.protocol.bodies import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    TopicRouteData,
    body_crc32,
    decode_body,
    encode_body,
)
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.headers import RegisterBrokerHeader, header_fields
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from tests.fixtures import Recorded, route_of_5, wire, wire_names

TIMEOUT_S = 5
NAMES = [name for name in wire_names() if name.startswith("java497_")]


class Replay:
    """A name server of ours, a broker that registers, and one raw connection a recorded one."""

    def __init__(self, port: int) -> None:
        self._addr = f"127.0.0.1:{port}"
        self._port = port
        self._broker = RemotingClient()
        self._streams: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._topics: dict[str, TopicConfig] = {}
        self._versions = itertools.count(1)

    async def ask(self, recorded: Recorded) -> RemotingCommand:
        """Send a recorded request over its connection and return our answer."""
        connection = recorded.row["conn"]
        if connection not in self._streams:
            self._streams[connection] = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams[connection]
        writer.write(recorded.raw)
        prefix = await reader.readexactly(4)
        rest = await reader.readexactly(int.from_bytes(prefix, "big"))
        (frame,) = FrameDecoder().feed(prefix + rest)
        return decode_command(frame)

    async def register(self, topic: str, route: TopicRouteData) -> None:
        """Register the broker of a recorded route with the queues of the topic."""
        (broker,), (queues,) = route.broker_datas, route.queue_datas
        self._topics[topic] = TopicConfig(
            topic_name=topic,
            perm=queues.perm,
            read_queue_nums=queues.read_queue_nums,
            write_queue_nums=queues.write_queue_nums,
            topic_sys_flag=queues.topic_sys_flag,
        )
        wrapper = TopicConfigWrapper(topic_config_table=self._topics)
        wrapper.data_version.counter = next(self._versions)
        body = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
        header = RegisterBrokerHeader(
            broker_name=broker.broker_name,
            broker_addr=broker.broker_addrs[0],
            cluster_name=broker.cluster,
            broker_id=0,
            body_crc32=body_crc32(body),
        )
        command = RemotingCommand(
            RequestCode.REGISTER_BROKER, ext_fields=header_fields(header), body=body
        )
        response = await self._broker.request(self._addr, command, 3000)
        assert response.code == 0, response

    async def close(self) -> None:
        """Close all connections."""
        await self._broker.close()
        for _, writer in self._streams.values():
            writer.close()
            await writer.wait_closed()


def exchanges(name: str) -> list[tuple[Recorded, Recorded]]:
    """Return the recorded requests to the name server that were answered, with the answers."""
    frames = [one for one in wire(name) if one.row["to"] == "namesrv"]
    answers = {
        (one.row["conn"], one.row["opaque"]): one for one in frames if one.kind == "response"
    }
    return [
        (one, answers[one.row["conn"], one.row["opaque"]])
        for one in frames
        if one.kind == "request" and (one.row["conn"], one.row["opaque"]) in answers
    ]


def replay(name: str, *, bodies: bool = True) -> int:
    """Compare all answers of a recording; return how many there were."""
    return uvloop.run(asyncio.wait_for(_replay(name, bodies=bodies), 60))


async def _replay(name: str, *, bodies: bool) -> int:
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1")
    server = NameServer(config, SystemClock(), RealDisk())
    session = Replay(await server.start())
    known: dict[str, bytes] = {}
    try:
        for request, expected in exchanges(name):
            real = decode_command(FrameDecoder().feed(expected.raw)[0])
            topic = request.ext_fields.get("topic", "")
            if request.code == 105 and expected.code == 0 and known.get(topic) != real.body:
                known[topic] = real.body
                await session.register(topic, decode_body(real.body, TopicRouteData))
            ours = await asyncio.wait_for(session.ask(request), TIMEOUT_S)
            if not bodies:
                ours.body = real.body
            compare(ours, real)
    finally:
        await session.close()
        await server.stop()
    return len(exchanges(name))


def compare(ours: RemotingCommand, real: RemotingCommand) -> None:
    """Assert that our answer is the real one; nothing in it depends on time or ports."""
    version, ours.version = ours.version, real.version
    real.body = route_of_5(real.body)
    assert ours == real
    assert version == 407


@pytest.mark.parametrize("name", NAMES)
def test_answers_to_recorded_clients_are_the_real_ones(name):
    replay(name)


def test_answers_to_a_recorded_broker_start_are_the_real_ones():
    assert replay("broker_boot_namesrv") == 2


def test_answers_to_a_recorded_start_of_a_5_broker_have_the_codes_and_fields_of_the_real_ones():
    assert replay("broker533_boot_namesrv", bodies=False) >= 2


def test_the_recordings_do_ask_the_name_server():
    asked = {request.code for name in NAMES for request, _ in exchanges(name)}
    refused = [answer.code for name in NAMES for _, answer in exchanges(name) if answer.code != 0]
    assert RequestCode.GET_ROUTEINFO_BY_TOPIC in asked
    assert 17 in refused
