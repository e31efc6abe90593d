"""Every subcommand of RocketMQ's mqadmin, 4.9.7 and 5.3.3, against each kind of our brokers.

The table in docs/operations.md says what works and what is refused with which code; each command is
run at least once, with words with which it works on RocketMQ's own broker, and must do as it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import GROUP as BROKER
from bench.cluster import Cluster
from tests.integration.classic_brokers import classic
from tests.integration.test_controller import close, servers, trio
from tests.interop.java_program import JavaProgram
from tests.interop.mqadmin import LATE, MqAdmin
from tests.mqadmin_table import ROWS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC, GROUP, OTHER = "all_topic", "all_group", "all_other"
SETTINGS = {"traceTopicEnable": "true", "enablePropertyFilter": "true"}
ENDLESS = {"clusterRT"}
GIVES_UP = {"remappingStaticTopic"}
SILENT = {"setConsumeMode", "updateBrokerConfig -c"}
"""What is refused, and the tool does not say so."""
OF_CONTROLLERS = {"getControllerMetaData", "getSyncStateSet", "electMaster", "cleanBrokerMetadata"}
CODE = re.compile(r"CODE: (\d+)")
SETTLE_S = 60
TRACE_S, TRIES = 10, 5
Step = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where commands go: the broker that takes sends, and its name server.

    ``move``, where there is one, has another broker take sends, and returns its address.
    """

    namesrv: str
    cluster: str
    broker: str
    address: str
    logs: Path
    move: Callable[[], str] | None = None


def rules_of(home: Path, node: str) -> dict[str, str]:
    """Return settings of accounts for one broker: each has a file, which nothing copies."""
    rules = home.with_name(f"{home.name}-{node}.yml")
    rules.write_text("globalWhiteRemoteAddresses: [127.0.0.1]\n")
    return {"aclEnable": "true", "rocketmq.acl.plain.file": str(rules)}


class Guarded(Cluster):
    """Brokers with accounts."""

    def _broker_conf(self, node: int) -> str:
        own = [f"{key}={value}\n" for key, value in rules_of(self._home, f"n{node}").items()]
        return super()._broker_conf(node) + "".join(own)


@contextlib.asynccontextmanager
async def place_of(kind: str, home: Path) -> AsyncIterator[Place]:
    """Run brokers: a group of three, one alone, a synchronous master with its slave.

    The group may have another leader just before the commands: *handed over*.
    """
    if kind == "pair":
        home.mkdir()
        async with classic(home) as brokers:
            master = {**SETTINGS, **rules_of(home, "a0"), "brokerRole": "SYNC_MASTER"}
            await brokers.start("a0", **master)
            await brokers.start("a1", **SETTINGS, **rules_of(home, "a1"))
            yield Place(brokers.namesrv, "C", "broker-a", brokers.address("a0"), home)
        return
    lines = [f"{key}={value}" for key, value in SETTINGS.items()]
    replicas = 1 if kind == "alone" else 3
    with Guarded(home, replicas=replicas, sync_flush=False, settings=lines) as cluster:
        leader = cluster.leader()
        address = f"127.0.0.1:{cluster.ports[leader]}"
        place = Place(cluster.namesrv_addr, "BenchCluster", BROKER, address, home)
        if kind == "handed over":
            place = replace(place, move=lambda: hand_over(cluster, (leader + 1) % replicas))
        yield place


def hand_over(cluster: Cluster, target: int) -> str:
    """Hand the leadership over; return the address of who leads now."""
    words = ["admin", "transferLeader", f"n{target}", "-n", cluster.namesrv_addr]
    subprocess.run([sys.executable, "-m", "cli", *words], check=True, timeout=SETTLE_S)
    assert cluster.leader() == target
    return f"127.0.0.1:{cluster.ports[target]}"


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def tools(request: pytest.FixtureRequest) -> java.JavaTools:
    try:
        return java.prepare(request.param)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin {request.param} skipped: {error}")


def result_of(command: str, printed: str) -> str:
    """Return what a command came to, in the words of the table."""
    if LATE in printed.split():
        return "works" if command in ENDLESS else "hangs"
    if command in GIVES_UP:
        return "works" if "FAILED" in printed and not CODE.search(printed) else "failed"
    found = CODE.search(printed)
    if found is not None:
        return f"refused: {found[1]}"
    return "failed" if "FAILED" in printed else "works"


def due(command: str, words: Step) -> str:
    """Return what the table says that a command comes to."""
    (row,) = (row for row in ROWS if command in row.commands)
    if command in SILENT or " ".join(words[:2]) in SILENT:
        return "works"
    return f"refused: {row.refused}" if row.refused else "works"


@pytest.mark.parametrize("kind", ["group", "handed over", "alone", "pair"])
def test_every_command_does_what_the_table_says(
    tools: java.JavaTools, tmp_path: Path, kind: str
) -> None:
    async def main() -> None:
        async with place_of(kind, tmp_path / "brokers") as place:
            await asyncio.to_thread(run_all, tools, place, tmp_path)
            for log in place.logs.glob("*.log"):
                assert "Traceback" not in log.read_text(), log.read_text()[-2000:]

    asyncio.run(main())


def run_all(tools: java.JavaTools, place: Place, folder: Path) -> None:
    arguments = [place.namesrv, GROUP, TOPIC]
    wrong, done = [], set(OF_CONTROLLERS)
    with contextlib.ExitStack() as running:
        tool = running.enter_context(MqAdmin(tools, place.namesrv, folder / "tool"))
        is_5 = "updateTopicList" in tool.commands
        made = ("updateTopic", "-b", place.address, "-t", TOPIC, "-r", "4", "-w", "4")
        assert "success" in tool.run(*made)
        assert "success" in tool.run("updateSubGroup", "-c", place.cluster, "-g", GROUP)
        consumer = JavaProgram(tools, "ledgermq.Consume", arguments, folder / "consume.log")
        running.enter_context(consumer)
        consumer.wait_for(lambda: "STARTED" in consumer.lines, 90, "the consumer")
        known = prepared(tool, place, consumer)
        if place.move is not None:
            place = replace(place, address=place.move())
        for words in steps(place, known, folder, is_5=is_5):
            printed = tool.run(*words)
            done.add(words[0])
            found = result_of(words[0], printed)
            if found != due(words[0], words):
                wrong.append((words, found, printed[-600:]))
            if words[0] == "setConsumeMode":
                assert "success" not in printed
        left = set(tool.commands) - done
    assert not wrong, "\n".join(map(str, wrong))
    assert not left, f"commands that nobody tried: {left}"
    listed = {name for row in ROWS for name in row.commands if row.since != ("4" if is_5 else "5")}
    assert listed == set(tool.commands)


def prepared(tool: MqAdmin, place: Place, consumer: JavaProgram) -> dict[str, str]:
    """Send two messages; return their ids, and the id of the consumer."""
    unique = sent(tool, "-b", place.broker, "-i", "1")
    traced = sent_with_its_trace(tool)
    consumer.wait_for(lambda: len(consumer.words("GOT")) >= 2, 90, "both messages")
    deadline = time.monotonic() + SETTLE_S
    while "Diff Total: 0" not in (told := tool.run("consumerProgress", "-g", GROUP)):
        assert time.monotonic() < deadline, told
    connected = tool.run("consumerConnection", "-g", GROUP)
    stored = tool.run("queryMsgByOffset", "-t", TOPIC, "-b", place.broker, "-i", "1", "-o", "0")
    (client,) = re.findall(r"\S+@\S+", connected)
    return {
        "unique": unique,
        "traced": traced,
        "client": client,
        "id": re.findall(r"OffsetID: (\w+)", stored)[0],
    }


def sent(tool: MqAdmin, *more: str) -> str:
    """Send a message; return its id."""
    printed = tool.run("sendMessage", "-t", TOPIC, "-p", "body", "-k", "key1", *more)
    assert "SEND_OK" in printed, printed
    return printed.split()[-1]


def sent_with_its_trace(tool: MqAdmin) -> str:
    """Send a message until its trace is there; return its id.

    A producer of 4.9.7 that ends gives its traces half a second to leave
    (AsyncTraceDispatcher.flush). Where they do not get away in it, they are never sent.
    """
    for _ in range(TRIES):
        message = sent(tool, "-m", "true")
        deadline = time.monotonic() + TRACE_S
        while CODE.search(told := tool.run("queryMsgTraceById", "-i", message)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        else:
            return message
    raise AssertionError(told)


def steps(place: Place, known: dict[str, str], folder: Path, *, is_5: bool) -> Iterator[Step]:
    """Return commands with words with which they work on a broker of RocketMQ's."""
    yield from of_topics(place)
    yield from of_messages(place, known, is_5=is_5)
    yield from of_groups(place, known)
    yield from of_brokers(place, folder)
    yield from (of_5(place, folder) if is_5 else of_4(place))
    yield ("updateSubGroup", "-b", place.address, "-g", OTHER, "-r", "3")
    yield ("deleteSubGroup", "-c", place.cluster, "-g", OTHER)
    yield ("deleteTopic", "-c", place.cluster, "-t", OTHER)


def of_topics(place: Place) -> Iterator[Step]:
    """Topics, routes, configuration of name servers."""
    yield ("updateTopic", "-c", place.cluster, "-t", OTHER, "-o", "true")
    yield ("updateTopicPerm", "-b", place.address, "-t", OTHER, "-p", "4")
    for command in ("topicRoute", "topicStatus", "topicClusterList"):
        yield (command, "-t", TOPIC)
    yield ("topicList",)
    yield ("topicList", "-c")
    yield ("allocateMQ", "-t", TOPIC, "-i", "192.0.2.1,192.0.2.2")
    yield ("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"{place.broker}:4")
    yield ("updateOrderConf", "-t", TOPIC, "-m", "get")
    yield ("updateOrderConf", "-t", TOPIC, "-m", "delete")
    yield ("updateKvConfig", "-s", "NAMES", "-k", "a", "-v", "b")
    yield ("deleteKvConfig", "-s", "NAMES", "-k", "a")
    yield ("wipeWritePerm", "-b", place.broker)
    yield ("addWritePerm", "-b", place.broker)
    yield ("getNamesrvConfig",)
    yield ("updateNamesrvConfig", "-k", "listenPort", "-v", "1")


def of_messages(place: Place, known: dict[str, str], *, is_5: bool) -> Iterator[Step]:
    """Messages: sent, found, read."""
    topic = ("-t", TOPIC)
    queue = ("-b", place.broker, "-i", "1")
    yield ("sendMessage", *topic, "-p", "body", "-c", "tag")
    yield ("sendMsgStatus", "-b", place.broker, "-c", "2")
    yield ("checkMsgSendRT", *topic, "-a", "3", "-s", "128")
    yield ("consumeMessage", *topic, "-c", "2")
    yield ("consumeMessage", *topic, *queue, "-o", "0", "-c", "1")
    yield ("printMsg", *topic, "-d", "true")
    yield ("printMsgByQueue", *topic, "-a", place.broker, "-i", "1", "-p", "true", "-f", "true")
    yield ("queryMsgByOffset", *topic, *queue, "-o", "0")
    yield ("queryMsgByKey", *topic, "-k", "key1")
    yield ("queryMsgByUniqueKey", *topic, "-i", known["unique"])
    by_id = ("queryMsgById", *(topic if is_5 else ()), "-i", known["id"])
    yield by_id
    yield (*by_id, "-g", GROUP, "-d", known["client"])
    yield (*by_id, "-s", "true")
    yield ("queryMsgTraceById", "-i", known["traced"])
    yield ("queryCq", *topic, "-q", "1", "-i", "0", "-c", "3", "-b", place.address, "-g", GROUP)


def of_groups(place: Place, known: dict[str, str]) -> Iterator[Step]:
    """Groups, their members and offsets."""
    group = ("-g", GROUP)
    yield ("updateSubGroup", "-b", place.address, "-g", OTHER, "-r", "3")
    yield ("getConsumerConfig", *group)
    yield ("brokerConsumeStats", "-b", place.address)
    yield ("consumerProgress",)
    yield ("consumerProgress", *group)
    yield ("consumerConnection", *group)
    yield ("producerConnection", "-g", "CLIENT_INNER_PRODUCER", "-t", TOPIC)
    yield ("producer", "-b", place.address)
    yield ("consumerStatus", *group, "-i", known["client"], "-s")
    yield ("cloneGroupOffset", "-s", GROUP, "-d", OTHER, "-t", TOPIC)
    yield ("resetOffsetByTime", *group, "-t", TOPIC, "-s", "0")
    yield ("skipAccumulatedMessage", *group, "-t", TOPIC)
    yield ("statsAll", "-t", TOPIC)
    yield ("startMonitoring",)


def of_brokers(place: Place, folder: Path) -> Iterator[Step]:
    """Brokers as a whole."""
    cluster, broker = ("-c", place.cluster), ("-b", place.address)
    yield ("clusterList",)
    yield ("clusterList", "-m")
    yield ("brokerStatus", *broker)
    yield ("getBrokerConfig", *cluster)
    yield ("updateBrokerConfig", *broker, "-k", "deleteWhen", "-v", "05")
    yield ("updateBrokerConfig", *cluster, "-k", "deleteWhen", "-v", "05")
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        yield (command, *broker)
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        yield (command, *cluster, "-f", str(folder / command))
    yield ("clusterRT", "-a", "2", "-s", "16", "-i", "1")


def of_4(place: Place) -> Iterator[Step]:
    """What RocketMQ 5 no longer has."""
    cluster = ("-c", place.cluster)
    yield ("updateAclConfig", *cluster, "-a", "RocketMQ1", "-s", "12345678")
    yield ("deleteAclConfig", *cluster, "-a", "RocketMQ1")
    yield ("clusterAclConfigVersion", *cluster)
    yield ("updateGlobalWhiteAddr", *cluster, "-g", "192.0.2.1,127.0.0.1")
    yield ("getAclConfig", *cluster)


def of_5(place: Place, folder: Path) -> Iterator[Step]:
    """What only RocketMQ 5 has, but for controllers."""
    cluster, broker = ("-c", place.cluster), ("-b", place.address)
    topics, groups = folder / "topics.json", folder / "groups.json"
    topics.write_text('[{"topicName":"a","readQueueNums":2,"writeQueueNums":2,"perm":6}]')
    groups.write_text('[{"groupName":"a"}]')
    yield ("updateTopic", *cluster, "-t", OTHER, "-a", "+message.type=NORMAL")
    yield ("updateTopicList", *cluster, "-f", str(topics))
    yield ("updateSubGroupList", *broker, "-f", str(groups))
    yield ("setConsumeMode", *cluster, "-t", TOPIC, "-g", GROUP, "-m", "POP")
    yield ("updateStaticTopic", "-b", place.broker, "-t", "static", "-qn", "4")
    yield ("remappingStaticTopic", "-b", place.broker, "-t", TOPIC)
    yield ("getControllerConfig", "-a", place.namesrv)
    yield ("updateControllerConfig", "-a", place.namesrv, "-k", "a", "-v", "b")
    yield ("haStatus", *cluster)
    yield ("getBrokerEpoch", *cluster)
    yield ("resetMasterFlushOffset", *broker, "-o", "1")
    yield ("getColdDataFlowCtrInfo", *broker)
    yield ("updateColdDataFlowCtrGroupConfig", *broker, "-g", GROUP, "-v", "1")
    yield ("removeColdDataFlowCtrGroupConfig", *broker, "-g", GROUP)
    yield ("setCommitLogReadAheadMode", *broker, "-m", "1")
    for command in ("createUser", "updateUser"):
        yield (command, *broker, "-u", "u", "-p", "p")
    for command in ("getUser", "deleteUser"):
        yield (command, *broker, "-u", "u")
    yield ("listUser", *broker)
    yield ("copyUser", "-f", place.address, "-t", place.address, "-u", "u")
    for command in ("createAcl", "updateAcl"):
        yield (command, *broker, "-s", "User:u", "-r", "Topic:a", "-a", "Pub", "-d", "Allow")
    for command in ("getAcl", "deleteAcl"):
        yield (command, *broker, "-s", "User:u")
    yield ("listAcl", *broker)
    yield ("copyAcl", "-f", place.address, "-t", place.address, "-s", "User:u")
    yield ("addBroker", "-b", "a.conf", "-c", place.address)
    yield ("removeBroker", "-b", f"{place.cluster}:{place.broker}:0", "-c", place.address)
    yield ("rocksDBConfigToJson", *broker)
    yield ("checkRocksdbCqWriteProgress", *cluster, "-n", place.namesrv)
    yield ("exportPopRecord", *broker)
    yield ("exportMetadataInRocksDB", "-p", str(folder), "-t", "topics")
    yield ("dumpCompactionLog",)


def test_controllers_answer_the_tool_of_5(tmp_path: Path) -> None:
    try:
        tools = java.prepare("5.3.3")
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin 5.3.3 skipped: {error}")

    async def main() -> None:
        with servers(tmp_path, count=3) as group:
            replicas = await trio(group)
            namesrv = f"127.0.0.1:{group.ports[0]}"
            address = group.controllers[await replicas[0].leader()]
            with MqAdmin(tools, namesrv, tmp_path / "tool") as tool:

                async def run(*words: str) -> str:
                    return await asyncio.to_thread(tool.run, *words, "-a", address)

                told = await run("getControllerMetaData")
                assert f"#ControllerLeaderAddress {address}" in told, told
                assert told.count("#Peer:") == 3
                told = await run("getSyncStateSet", "-b", "a")
                assert "#MasterAddr" in told, told
                assert replicas[0].address in told, told
                for one in replicas:
                    await one.beat()
                told = await run("electMaster", "-b", "2", "-bn", "a", "-c", "C")
                assert result_of("electMaster", told) == "works", told
                assert (await replicas[0].master())[0] == 2
                told = await run("cleanBrokerMetadata", "-bn", "a", "-c", "C", "-b", "3", "-l")
                assert result_of("cleanBrokerMetadata", told) == "works", told
                assert replicas[2].address not in await run("getSyncStateSet", "-b", "a")
                for words in (
                    ("getControllerConfig",),
                    ("updateControllerConfig", "-k", "a", "-v", "b"),
                ):
                    told = await run(*words)
                    assert result_of(words[0], told) == "refused: 3", told
            await close(replicas)

    asyncio.run(main())
