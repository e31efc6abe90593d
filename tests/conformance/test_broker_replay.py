"""Recorded frames of real RocketMQ clients against our broker and name server.

Every request of a recording is sent as it was, byte for byte, in the recorded order and on a
connection of its own; every answer is compared with the one that the real 4.9.7 gave: code,
remark, fields, body. Left out is what depends on time, on ports, on physical offsets, or on the
order in which the threads of the real broker took requests that were sent together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import lzma
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from broker.config import BrokerConfig
from broker.controller import BrokerController
from chaos.backends.ports import take_ports
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.message import MessageExt, decode_records
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from store.origins import maybe_said
from tests.fixtures import route_of_5

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RECORDINGS = (
    "java497_produce",
    "java497_batch",
    "java497_push",
    "java497_pull",
    "java497_orderly",
    "java497_binary_produce",
    "java497_binary_push",
    "java497_broadcast",
    "java497_filter_tag",
    "java497_filter_sql",
    "java497_orderly_retry",
    "java497_litepull",
)
ANSWER_TIMEOUT_S = 5.0

Frame = dict[str, Any]


def wire(name: str) -> list[Frame]:
    path = Path(__file__).parents[1] / "fixtures/wire" / f"{name}.jsonl.xz"
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


def as_taken(frames: list[Frame]) -> list[Frame]:
    """Return the frames in the order in which the real broker took them, where that differs.

    Its pull threads overtook a heartbeat thread: pulls sent behind a heartbeat were answered 25
    (subscription not latest) before the heartbeat was. Such a heartbeat goes behind them.
    """
    ordered = list(frames)
    for beat in [one for one in frames if one["kind"] == "request" and one["code"] == 34]:
        key = (beat["conn"], beat["opaque"], 34)
        answer = next(
            one for one in frames if (one["conn"], one["opaque"], one.get("answers")) == key
        )
        between = ordered[ordered.index(beat) : ordered.index(answer)]
        if any(one["conn"] == beat["conn"] and one["code"] == 25 for one in between):
            ordered.remove(beat)
            ordered.insert(ordered.index(answer), beat)
    return ordered


def retry_topics_of_earlier_runs(frames: list[Frame]) -> list[str]:
    """Return the retry topics that the real broker already had when the recording began."""
    first_answers: dict[str, int] = {}
    asked: dict[tuple[int, int], str] = {}
    for frame in frames:
        key = (frame["conn"], frame["opaque"])
        if frame["code"] == 34 and frame["kind"] == "request":
            break
        if frame["to"] == "namesrv" and frame["kind"] == "request":
            asked[key] = frame["header"]["extFields"]["topic"]
        elif frame["to"] == "namesrv":
            first_answers.setdefault(asked[key], frame["code"])
    return [
        topic for topic, code in first_answers.items() if code == 0 and topic.startswith("%RETRY%")
    ]


def tells_broadcasters(name: str, frame: Frame) -> bool:
    """Whether 4.9.7 tells broadcasting members of others: it changes nothing, and we do not."""
    return name == "java497_broadcast" and frame["code"] == 40


class Peer:
    """One recorded connection, replayed: what came back, by opaque, and the notifications."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.answers: dict[int, asyncio.Future[RemotingCommand]] = {}
        self.notified: list[dict[str, str]] = []
        self.pushed: list[RemotingCommand] = []
        self.notification = asyncio.Event()
        self._reading = asyncio.create_task(self._read(reader))

    def answer(self, opaque: int) -> asyncio.Future[RemotingCommand]:
        if opaque not in self.answers:
            self.answers[opaque] = asyncio.get_running_loop().create_future()
        return self.answers[opaque]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(65_536):
            for frame in decoder.feed(data):
                command = decode_command(frame)
                if command.is_response:
                    self.answer(command.opaque).set_result(command)
                else:
                    self.notified.append(command.ext_fields)
                    self.pushed.append(command)
                    self.notification.set()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class Replay:
    """Plays one recording against one address per recorded side."""

    def __init__(self, frames: list[Frame], addresses: dict[str, int]) -> None:
        self._frames = as_taken([frame for frame in frames if frame["to"] in addresses])
        self._addresses = addresses
        self._peers: dict[int, Peer] = {}
        self._awaited = {
            (frame["conn"], frame["opaque"])
            for frame in self._frames
            if frame["kind"] == "response"
        }
        self.requests: dict[tuple[int, int], Frame] = {}
        self.compared = 0
        self.queue_offsets: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)

    async def run(self) -> None:
        try:
            for frame in self._frames:
                if frame["from"] == "client":
                    await self._send(frame)
                elif frame["kind"] == "response":
                    await self._compare(frame)
                else:
                    await self._expect_notification(frame)
        finally:
            for peer in self._peers.values():
                await peer.close()
        for recorded_and_ours in self.queue_offsets.values():
            recorded, ours = zip(*recorded_and_ours, strict=True)
            assert sorted(recorded) == sorted(ours)

    async def _send(self, frame: Frame) -> None:
        conn = frame["conn"]
        if conn not in self._peers:
            port = self._addresses[frame["to"]]
            self._peers[conn] = Peer(*await asyncio.open_connection("127.0.0.1", port))
        self.requests[(conn, frame["opaque"])] = frame
        self._peers[conn].writer.write(bytes.fromhex(frame["hex"]))
        await self._peers[conn].writer.drain()

    async def _expect_notification(self, frame: Frame) -> None:
        peer = self._peers[frame["conn"]]
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while frame["header"]["extFields"] not in peer.notified:
                peer.notification.clear()
                await peer.notification.wait()
        peer.notified.remove(frame["header"]["extFields"])

    async def _compare(self, frame: Frame) -> None:
        peer = self._peers[frame["conn"]]
        where = f"frame {frame['n']} answers {frame['answers']}"
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            ours = await peer.answer(frame["opaque"])
        header = frame["header"]
        assert ours.code == header["code"], (where, ours)
        assert stable_remark(ours.remark) == stable_remark(header.get("remark")), where
        assert ours.flag == header["flag"], where
        assert ours.version == header["version"], where
        assert int(ours.language) == 0, where
        recorded_fields = header.get("extFields", {})
        assert set(ours.ext_fields) == set(recorded_fields), where
        self._compare_fields(frame, recorded_fields, ours.ext_fields)
        self._compare_body(frame, bytes.fromhex(frame["hex"]), ours)
        self.compared += 1

    def _compare_fields(self, frame: Frame, recorded: dict[str, str], ours: dict[str, str]) -> None:
        where = f"frame {frame['n']}"
        for name, value in recorded.items():
            if name == "msgId":
                assert [len(one) for one in ours[name].split(",")] == [
                    len(one) for one in value.split(",")
                ], where
            elif name == "queueOffset":
                request = self.requests[(frame["conn"], frame["opaque"])]["header"]["extFields"]
                pair = (value, ours[name])
                self.queue_offsets[(request["b"], ours["queueId"])].append(pair)
            else:
                assert ours[name] == value, (where, name)

    def _compare_body(self, frame: Frame, raw: bytes, ours: RemotingCommand) -> None:
        size = frame.get("body_bytes") or 0
        body = raw[len(raw) - size :]
        if frame["answers"] == 11:
            recorded_messages = [stable(one) for one in decode_records(body, check_crc=True)]
            our_messages = [stable(one) for one in decode_records(ours.body, check_crc=True)]
            assert our_messages == recorded_messages, frame["n"]
        elif frame["to"] == "namesrv" and body:
            port = self._addresses["broker"]
            text = route_of_5(body).decode().replace("127.0.0.1:10911", f"127.0.0.1:{port}")
            assert json.loads(ours.body) == json.loads(text), frame["n"]
        else:
            assert ours.body == body, frame["n"]


def stable_remark(remark: str | None) -> str:
    """Return a remark; of an expression that is refused the place, which both parsers name."""
    place = re.search(r"at line \d+, column \d+", remark or "")
    return place.group() if place else remark or ""


def stable(message: MessageExt) -> dict[str, Any]:
    """Return what does not depend on time, ports and places."""
    names = (
        "topic queue_id flag sys_flag queue_offset born_timestamp reconsume_times prepared_offset "
        "body properties body_crc size"
    )
    values = {name: getattr(message, name) for name in names.split()}
    if maybe_said(message.prepared_offset, message.sys_flag):
        values["prepared_offset"] = 0  # where its original lies; of a delayed one, we alone say it
    return values | {"born_ip": message.born_host[:-4], "store_ip": message.store_host[:-4]}


@contextlib.asynccontextmanager
async def name_server() -> AsyncIterator[int]:
    config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0)
    server = NameServer(config, SystemClock(), RealDisk())
    try:
        yield await server.start()
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def broker(directory: Path, **settings: Any) -> AsyncIterator[BrokerController]:
    config = BrokerConfig(
        broker_cluster_name="FixtureCluster",
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=take_ports(1)[0],
        store_path=str(directory),
        segment_bytes=1 << 20,
        **settings,
    )
    controller = BrokerController(
        config, disk=RealDisk(), clock=SystemClock(), rng=SystemRng(1), tasks=Supervisor()
    )
    try:
        await controller.start()
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while not controller.store.writer.writable:
                await asyncio.sleep(0.005)
        yield controller
    finally:
        await controller.stop()


@pytest.mark.parametrize("name", RECORDINGS)
def test_real_clients_get_the_answers_they_got_from_the_real_broker(
    name: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            name_server() as namesrv_port,
            broker(tmp_path / "n0", namesrv_addr=f"127.0.0.1:{namesrv_port}") as controller,
        ):
            await registered(namesrv_port, "TBW102")
            frames = [frame for frame in wire(name) if not tells_broadcasters(name, frame)]
            for topic in retry_topics_of_earlier_runs(frames):
                await create_topic(controller.server_port, topic)
            ports = {"broker": controller.server_port, "namesrv": namesrv_port}
            replay = Replay(frames, ports)
            await replay.run()
            assert replay.compared > 5

    uvloop.run(scenario())


def test_a_delayed_message_comes_as_it_came_from_the_real_broker(tmp_path: Path) -> None:
    """When the name server knew the retry topic was a matter of threads there: it is left out."""

    async def scenario() -> None:
        # The recording waits for 5 s, which is all the time that an answer may take.
        async with broker(tmp_path / "n0", delay_levels="1s 1s") as controller:
            replay = Replay(wire("java497_delay"), {"broker": controller.server_port})
            await replay.run()
            pulls = [one for one in replay.requests.values() if one["code"] == 11]
            assert len(pulls) > 1
            assert replay.compared > 5

    uvloop.run(scenario())


async def create_topic(broker_port: int, topic: str) -> None:
    client = RemotingClient()
    fields = {"topic": topic, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    request = RemotingCommand(17, ext_fields=fields)
    answer = await client.request(f"127.0.0.1:{broker_port}", request, 5_000)
    assert answer.code == 0
    await client.close()


async def registered(namesrv_port: int, topic: str) -> None:
    """Wait until the name server shows the broker as the topic's master."""
    client = RemotingClient()
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while True:
            request = RemotingCommand(105, ext_fields={"topic": topic})
            answer = await client.request(f"127.0.0.1:{namesrv_port}", request, 1_000)
            if answer.code == 0 and b'"0":' in answer.body:
                break
            await asyncio.sleep(0.01)
    await client.close()
