"""Recorded requests of mqadmin 4.9.7, sent to our broker as they were, and compared.

Our broker has what the recorded one had: a topic with 20 messages in two queues, a live consumer
and a live producer, offsets at the end. Then code, remark, fields and body are the recorded ones,
but for times and ports; where a body tells of all that a broker has, the members that both have.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.remoting.protocol.tolerant_json import ANSWER, loads
from ledgermq.remoting.transport.client import RemotingClient
from tests.conformance.test_broker_replay import Frame, broker
from tests.conformance.test_queries import ask_raw, command_of, compare, exchanges
from tests.integration.broker_cluster import pull_fields, send_fields, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker.controller import BrokerController

RECORDED = "mqadmin497_admin"
GROUP, TOPIC, PRODUCERS = "cg_idle", "fx_idle", "pg_idle"
SINCE_ANY_RECORDING = 1_700_000_000_000
ASK_MS = 5_000
VARIES = frozenset({"clientAddr", "remoteIP", "consumeTps"})


def recorded(code: int, status: int = 0) -> tuple[Frame, Frame]:
    """Return a recorded request of a code, and its answer of a status."""
    return next(
        (asked, answer) for asked, answer in exchanges(RECORDED, code) if answer["code"] == status
    )


def as_json(text: bytes) -> Any:
    """Return a body, with what differs from run to run made the same."""
    return _masked(loads(text, ANSWER))


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "varies" if key in VARIES else _masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    is_time = isinstance(value, int) and value > SINCE_ANY_RECORDING
    return "time" if is_time else value


class Scene:
    """Our broker with what the recorded one had."""

    def __init__(self, controller: BrokerController) -> None:
        self.controller = controller
        self.port = controller.server_port
        self.told: list[RemotingCommand] = []
        """Requests of the broker to the consumer."""
        self.tells: dict[int, tuple[str | None, bytes]] = {}
        """Remark and body of the consumer's answers, by code."""
        codes = (220, 221, 307, 309)
        self._client = RemotingClient(handlers=dict.fromkeys(codes, self._on_request))

    async def close(self) -> None:
        await self._client.close()

    async def _on_request(self, _: object, command: RemotingCommand) -> RemotingCommand | None:
        self.told.append(command)
        if command.code not in self.tells:
            return None
        remark, body = self.tells[command.code]
        return make_response(command, 0, remark, body=body)

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, ext_fields=texts, body=body)
        answer = await self._client.request(f"127.0.0.1:{self.port}", request, ASK_MS)
        assert answer.code == 0, answer
        return answer

    async def fill(self) -> None:
        await self.ask(
            17, topic=TOPIC, readQueueNums=2, writeQueueNums=2, perm=6, topicFilterType="SINGLE_TAG"
        )
        beat = {
            "clientID": client_id(203),
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": GROUP,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [
                        {"topic": topic, "subString": "*", "subVersion": SINCE_ANY_RECORDING + 1}
                        for topic in (f"%RETRY%{GROUP}", TOPIC)
                    ],
                }
            ],
        }
        await self.ask(34, json.dumps(beat).encode())
        producer = {"clientID": client_id(204), "producerDataSet": [{"groupName": PRODUCERS}]}
        await self.ask(34, json.dumps(producer).encode())
        for number in range(20):
            await self.ask(310, b"x", **send_fields(TOPIC, number % 2, ""))
        for queue_id in range(2):
            await self.ask(11, **pull_fields(TOPIC, 0, queueId=queue_id, consumerGroup=GROUP))
            await self.commit(TOPIC, queue_id, 10)
        await self.commit(f"%RETRY%{GROUP}", 0, 0)

    async def commit(self, topic: str, queue_id: int, offset: int) -> None:
        await self.ask(15, consumerGroup=GROUP, topic=topic, queueId=queue_id, commitOffset=offset)

    async def compare(self, code: int, status: int = 0) -> tuple[Any, Any]:
        """Ask as recorded, compare all but the body, and return both bodies."""
        asked, answer = recorded(code, status)
        ours = await ask_raw(self.port, asked)
        compare(ours, answer)
        theirs = command_of(answer).body
        return (without_pulled(as_json(ours.body)), as_json(theirs)) if theirs else (ours.body, b"")


def without_pulled(body: Any) -> Any:
    """Return an answer as 4.9 gives it: where groups have pulled to is told since RocketMQ 5."""
    if isinstance(body, dict):
        return {key: without_pulled(one) for key, one in body.items() if key != "pullOffset"}
    return [without_pulled(one) for one in body] if isinstance(body, list) else body


def client_id(code: int) -> str:
    """Return the id of the client that the recorded broker told of."""
    (client,) = json.loads(recorded(code)[1]["body"])["connectionSet"]
    return str(client["clientId"])


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    async with broker(directory) as controller:
        one = Scene(controller)
        try:
            await one.fill()
            yield one
        finally:
            await one.close()


def test_what_tools_look_at_is_answered_as_the_real_broker_did(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            for code, status in ((202, 0), (203, 0), (203, 206), (204, 0), (208, 0)):
                found, theirs = await ours.compare(code, status)
                assert found == theirs, code
            found, theirs = await ours.compare(300)
            assert found["groupList"] == [GROUP]
            assert GROUP in theirs["groupList"]
            found, theirs = await ours.compare(328)
            assert found["data"][PRODUCERS] == theirs["data"][PRODUCERS]
            found, theirs = await ours.compare(317)
            assert found.keys() == theirs.keys()
            of_group = {
                name: one for row in theirs["consumeStatsList"] for name, one in row.items()
            }
            ((name, stats),) = [item for row in found["consumeStatsList"] for item in row.items()]
            assert [sorted(map(str, stats))] == [sorted(map(str, of_group[name]))]

    uvloop.run(scenario())


def test_what_tools_are_told_of_everything_has_the_members_of_the_real_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            found, theirs = await ours.compare(201)
            table = "subscriptionGroupTable"
            assert found.keys() == theirs.keys()
            assert found[table][GROUP] == theirs[table][GROUP]
            found, theirs = await ours.compare(21)
            assert found.keys() == theirs.keys()
            for topic in (TOPIC, "TBW102", "SELF_TEST_TOPIC"):
                assert found["topicConfigTable"][topic] == theirs["topicConfigTable"][topic]
            found, theirs = await ours.compare(305)
            assert set(theirs["topicList"]) <= set(found["topicList"])
            found = as_json((await ours.ask(315, statsName="TOPIC_PUT_NUMS", statsKey=TOPIC)).body)
            theirs = as_json(command_of(recorded(315)[1]).body)
            assert found.keys() == theirs.keys()
            assert all(found[name].keys() == theirs[name].keys() for name in found)

    uvloop.run(scenario())


def test_traffic_is_counted_by_topic_and_by_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            keys = {"TOPIC_PUT_NUMS": TOPIC, "GROUP_GET_NUMS": f"{TOPIC}@{GROUP}"}
            keys |= {"BROKER_PUT_NUMS": "FixtureCluster", "BROKER_GET_NUMS": "FixtureCluster"}
            for name, key in keys.items():
                body = json.loads((await ours.ask(315, statsName=name, statsKey=key)).body)
                assert [one["sum"] for one in body.values()] == [20, 20, 20], name
            asked, answer = recorded(315, 1)
            compare(await ask_raw(ours.port, asked), answer)

    uvloop.run(scenario())


def test_a_broker_tells_of_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            found, theirs = await ours.compare(28)
            kept = {"brokerVersion", "brokerVersionDesc", "runtime", "putTps", "getTransferedTps"}
            kept |= {"msgPutTotalTodayNow", "commitLogMaxOffset", "sendThreadPoolQueueSize"}
            assert kept <= found["table"].keys() & theirs["table"].keys()
            assert found["table"]["brokerVersionDesc"] == theirs["table"]["brokerVersionDesc"]
            assert found["table"]["msgPutTotalTodayNow"] == "20"
            assert found["table"]["msgGetTotalTodayNow"] == "20"
            of_messages = {name for name in theirs["table"] if name.startswith("msg")}
            assert of_messages <= found["table"].keys()

    uvloop.run(scenario())


def test_settings_are_shown_without_secrets_and_not_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            asked, answer = recorded(26)
            found = await ask_raw(ours.port, asked)
            compare(found, answer)
            assert json.loads(found.ext_fields["version"]).keys() == {"counter", "timestamp"}
            names = {line.partition("=")[0] for line in found.body.decode().splitlines()}
            theirs = command_of(answer).body.decode()
            assert {"brokerName", "maxMessageSize", "fileReservedTime"} <= names
            assert {"brokerName", "maxMessageSize"} <= {
                line.partition("=")[0] for line in theirs.splitlines()
            }
            assert not [name for name in names if name.startswith(("peerShared", "peerTls"))]

    uvloop.run(scenario())


def test_a_group_is_made_and_changed_through_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            await ours.compare(200)
            wanted = json.loads(recorded(200)[0]["body"] or command_of(recorded(200)[0]).body)
            one = await ours.ask(352, group=wanted["groupName"])
            assert json.loads(one.body) == wanted
            await ours.ask(200, json.dumps(wanted | {"retryMaxTimes": 5}).encode())
            one = await ours.ask(352, group=wanted["groupName"])
            assert json.loads(one.body)["retryMaxTimes"] == 5

    uvloop.run(scenario())


def test_a_group_and_its_topics_are_removed_through_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            tables = ours.controller.tables
            await ours.compare(200)
            await ours.compare(207)
            assert tables.groups.get("adm_group") is None
            await ours.compare(207)
            await ours.ask(207, groupName=GROUP, removeOffset="true")
            assert tables.groups.get(GROUP) is None
            assert not [one for one in tables.offsets.readers() if one[1] == GROUP]
            for asked, answer in exchanges(RECORDED, 215):
                compare(await ask_raw(ours.port, asked), answer)
            await ours.ask(215, topic=TOPIC)
            assert tables.topics.get(TOPIC) is None
            await ours.ask(
                17, topic=TOPIC, readQueueNums=2, writeQueueNums=2, perm=6,
                topicFilterType="SINGLE_TAG",
            )  # fmt: skip
            await ours.ask(310, b"x", **send_fields(TOPIC, 0, ""))
            body = as_json((await ours.ask(202, topic=TOPIC)).body)
            ends = sorted(one["maxOffset"] for one in body["offsetTable"].values())
            assert ends == [10, 11], "offsets go on"

    uvloop.run(scenario())


def test_a_live_group_is_told_where_to_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            found, theirs = await ours.compare(222)
            assert found == theirs
            await until(lambda: bool(ours.told), "what the client is told")
            (told,) = ours.told
            assert told.code == 220
            assert told.ext_fields == {
                "topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"
            }  # fmt: skip
            assert as_json(told.body) == theirs
            fields = {"topic": TOPIC, "group": GROUP, "isForce": "false"}
            end = as_json((await ours.ask(222, **fields, timestamp=-1)).body)
            assert set(end["offsetTable"].values()) == {10}
            one = as_json((await ours.ask(222, **fields, timestamp=-1, queueId=1, offset=3)).body)
            assert list(one["offsetTable"].values()) == [3]

    uvloop.run(scenario())


def test_a_group_without_members_is_left_to_the_tool(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            ours.controller.tables.consumers.close(
                next(iter(ours.controller.tables.consumers.connections(GROUP))).id
            )
            asked, _ = recorded(222)
            answer = await ask_raw(ours.port, asked)
            assert (answer.code, answer.body) == (206, b"")
            nobody = await ask_raw(ours.port, asked, group="never_seen")
            assert (nobody.code, nobody.remark) == (1, "THe consumer group <never_seen> not exist")
            assert ours.told == []

    uvloop.run(scenario())


def test_a_consumer_is_asked_through_its_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            remark = "not set any response code"
            for code in (307, 309):
                asked, answer = recorded(code)
                ours.tells[code] = remark, command_of(answer).body
                fields = {}
                if code == 309:
                    sent = await ours.ask(310, b"now", **send_fields(TOPIC, 0, ""))
                    fields = {"msgId": sent.ext_fields["msgId"]}
                found = await ask_raw(ours.port, asked, **fields)
                compare(found, answer)
                assert found.body == command_of(answer).body
            assert [command.code for command in ours.told] == [307, 309]
            (record,) = decode_records(ours.told[1].body, check_crc=True)
            assert record.body == b"now"
            assert ours.told[1].ext_fields["brokerName"] == "broker-a"
            ours.tells[221] = (
                None,
                b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:7}}',
            )
            status = as_json((await ours.ask(223, topic=TOPIC, group=GROUP)).body)
            assert list(status["consumerTable"]) == [client_id(203)]
            assert list(status["consumerTable"][client_id(203)].values()) == [7]
            for fields in ({"clientId": "nobody"}, {"consumerGroup": "nobody"}):
                found = await ask_raw(ours.port, recorded(307)[0], **fields)
                assert found.code == 1
                assert "not online" in (found.remark or "")

    uvloop.run(scenario())


def test_entries_of_a_queue_are_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scene(tmp_path / "n0") as ours:
            found, theirs = await ours.compare(321)
            assert (found["maxQueueIndex"], found["minQueueIndex"]) == (10, 0)
            assert len(found["queueData"]) == len(theirs["queueData"]) == 5
            assert found["queueData"][0].keys() == theirs["queueData"][0].keys()
            one = await ours.ask(33, offset=found["queueData"][2]["physicOffset"])
            (record,) = decode_records(one.body)
            assert (record.queue_id, record.queue_offset) == (0, 2)
            beyond = json.loads(
                (await ours.ask(321, topic=TOPIC, queueId=0, index=10, count=5)).body
            )
            assert beyond["queueData"] == []

    uvloop.run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"not a body",
        b'{"groupName":"a b"}',
        b'{"groupName":"g","retryQueueNums":-1}',
        b'{"groupName":"g","retryQueueNums":70000}',
        b'{"groupName":"g","brokerId":-1}',
        b'{"groupName":"g","whichBrokerWhenConsumeSlowly":-2}',
        b'{"groupName":"g","retryMaxTimes":-2}',
        b'{"groupName":"g","retryMaxTimes":3000000000}',
        b'{"groupName":"g","brokerId":"x"}',
        b'{"groupName":"' + b"g" * 256 + b'"}',
    ],
)
def test_settings_of_a_group_that_make_no_sense_are_refused(body: bytes, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path / "n0") as controller:
            client = RemotingClient()
            request = RemotingCommand(200, body=body)
            answer = await client.request(f"127.0.0.1:{controller.server_port}", request, ASK_MS)
            await client.close()
            assert answer.code == 1
            assert answer.remark
            assert controller.tables.groups.get("g") is None

    asyncio.run(scenario())
