"""A recorded master and a recorded slave register with our name server as they did with a real one.

The answers tell the slave where its master is, byte for byte as far as fields and tables go, and
routes show both until the master leaves.
"""

import asyncio

import uvloop

from ledgermq.remoting.protocol.bodies import KvTable, TopicRouteData, decode_body
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from tests.fixtures import wire

ORDER_TOPICS = {"adm_topic": "broker-a:4", "adm_topic2": "broker-a:2"}
TOPIC = "TBW102"


class Line:
    """One raw connection to a name server."""

    async def open(self, port: int) -> "Line":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, raw: bytes) -> RemotingCommand:
        self._writer.write(raw)
        prefix = await self._reader.readexactly(4)
        rest = await self._reader.readexactly(int.from_bytes(prefix, "big"))
        return decoded(prefix + rest)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def decoded(raw: bytes) -> RemotingCommand:
    (frame,) = FrameDecoder().feed(raw)
    return decode_command(frame)


def registrations(name: str) -> list:
    return [one for one in wire(name) if one.kind == "request" and one.code == 103]


async def route(client: RemotingClient, addr: str) -> TopicRouteData:
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": TOPIC})
    answer = await client.request(addr, request, 3000)
    assert answer.code == 0, answer
    return decode_body(answer.body, TopicRouteData)


async def run() -> None:
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1")
    server = NameServer(config, SystemClock(), RealDisk())
    port = await server.start()
    addr, client = f"127.0.0.1:{port}", RemotingClient()
    lines = [await Line().open(port) for _ in range(2)]
    master, slave = lines
    try:
        for topic, value in ORDER_TOPICS.items():
            fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic, "value": value}
            put = RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields)
            assert (await client.request(addr, put, 3000)).code == 0
        first = registrations("broker_boot_namesrv")[0]
        assert (await master.ask(first.raw)).ext_fields == {}
        real = [one for one in wire("master_slave_ha") if one.answers == 103]
        asked = registrations("master_slave_ha")
        assert len(asked) == len(real) == 2
        for request, answer in zip(asked, real, strict=True):
            ours, theirs = await slave.ask(request.raw), decoded(answer.raw)
            assert ours.ext_fields == theirs.ext_fields
            assert ours.ext_fields["masterAddr"] == "127.0.0.1:10911"
            assert decode_body(ours.body, KvTable) == decode_body(theirs.body, KvTable)
        both = await route(client, addr)
        assert both.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
        await master.close()
        async with asyncio.timeout(5):
            while 0 in (await route(client, addr)).broker_datas[0].broker_addrs:
                await asyncio.sleep(0.01)
        alone = await route(client, addr)
        assert alone.broker_datas[0].broker_addrs == {1: "127.0.0.1:10921"}
        assert alone.queue_datas == both.queue_datas
        assert (await slave.ask(asked[0].raw)).ext_fields == {}
    finally:
        await client.close()
        await slave.close()
        await server.stop()


def test_a_recorded_slave_learns_its_recorded_master_and_outlives_it():
    uvloop.run(asyncio.wait_for(run(), 30))
