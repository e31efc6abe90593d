"""Registration with name servers: in order, and nobody waits for a dead one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from broker.cluster.registration import Registrar
from broker.cluster.registration_body import register_request, unregister_request
from broker.cluster.role import broker_id, replica_number
from broker.config import BrokerConfig
from broker.limits import CREATIONS_MAX
from broker.state.topic_config import TopicChange, TopicTable
from ledgermq.remoting.protocol.bodies import TopicConfig, body_crc32, decode_register_body
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import ConnectFailed
from ledgermq.remoting.protocol.limits import REGISTER_BYTES_MAX
from mutants.patches import BY_TESTS
from mutants.planting import planted

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from typing import Any


class FakeNameServers:
    """Notes what arrives; an address in `gates` answers only when its gate opens."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.down: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}
        self.arrived = asyncio.Event()

    async def request(
        self, addr: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert timeout_ms > 0
        if addr in self.down:
            raise ConnectFailed(addr)
        self.seen.append((addr, command.remark or ""))
        self.arrived.set()
        if addr in self.gates:
            await self.gates[addr].wait()
        return RemotingCommand(0)


class Bench:
    def __init__(self, *servers: str) -> None:
        self.tables = "v1"
        self.answers: list[Mapping[str, str]] = []
        self.is_enough = True
        self.client = FakeNameServers()
        self.registrar = Registrar(
            servers,
            self.client,
            build=lambda: RemotingCommand(103, remark=self.tables),
            build_leave=lambda: RemotingCommand(104, remark="leave"),
            on_registered=self.take,
            period_ms=30_000,
        )

    def take(self, answer: Mapping[str, str]) -> bool:
        self.answers.append(answer)
        return self.is_enough


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(5):
            await scenario

    asyncio.run(bounded())


def test_all_name_servers_are_told_at_once_and_at_a_change() -> None:
    async def scenario() -> None:
        bench = Bench("a", "b")
        bench.registrar.start()
        await bench.registrar.publish()
        bench.tables = "v2"
        await bench.registrar.publish()
        assert ("a", "v2") in bench.client.seen
        assert ("b", "v2") in bench.client.seen
        await bench.registrar.stop()
        assert bench.client.seen[-2:] == [("a", "leave"), ("b", "leave")]

    run(scenario())


def test_an_older_registration_never_arrives_after_a_newer_one() -> None:
    """A change during a request waits for its end; several changes become one registration."""

    async def scenario() -> None:
        bench = Bench("a")
        gate = bench.client.gates["a"] = asyncio.Event()
        bench.registrar.start()
        await bench.client.arrived.wait()
        publishing = []
        for version in ("v2", "v3", "v4"):
            bench.tables = version
            publishing.append(asyncio.create_task(bench.registrar.publish()))
            await asyncio.sleep(0)
        assert bench.client.seen == [("a", "v1")]
        gate.set()
        await asyncio.gather(*publishing)
        assert bench.client.seen == [("a", "v1"), ("a", "v4")]
        await bench.registrar.stop()

    run(scenario())


def test_a_dead_name_server_delays_nobody() -> None:
    async def scenario() -> None:
        bench = Bench("dead", "b")
        bench.client.down.add("dead")
        bench.registrar.start()
        await bench.registrar.publish(timeout_ms=100_000)
        assert ("b", "v1") in bench.client.seen
        await bench.registrar.stop()
        assert ("dead", "leave") not in bench.client.seen

    run(scenario())


def test_a_name_server_that_hangs_delays_a_send_only_so_long() -> None:
    async def scenario() -> None:
        bench = Bench("a")
        bench.client.gates["a"] = asyncio.Event()
        bench.registrar.start()
        await bench.registrar.publish(timeout_ms=20)
        bench.client.gates["a"].set()
        await bench.registrar.stop()

    run(scenario())


def test_without_name_servers_nothing_waits() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.registrar.start()
        await bench.registrar.publish()
        await bench.registrar.stop()
        assert bench.client.seen == []

    run(scenario())


def test_a_slave_without_a_master_asks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.cluster.registration.ASK_AGAIN_S", 0.01)

    async def scenario() -> None:
        bench = Bench("a")
        bench.is_enough = False
        bench.registrar.start()
        while len(bench.answers) < 3:
            await asyncio.sleep(0.005)
        bench.is_enough = True
        await bench.registrar.publish()
        asked = len(bench.answers)
        await asyncio.sleep(0.1)
        assert len(bench.answers) == asked
        await bench.registrar.stop()

    run(scenario())


def test_a_registration_says_what_rocketmq_says() -> None:
    config = BrokerConfig(
        broker_cluster_name="C",
        broker_ip1="127.0.0.1",
        listen_port=10_911,
        enable_dledger=True,
        dledger_group="g0",
        dledger_self_id="n1",
        dledger_peers="n0-127.0.0.1:1;n1-127.0.0.1:2",
    )
    topics = TopicTable([TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)], 99)
    request = register_request(config, topics, 0, 5)
    assert request.ext_fields == {
        "brokerName": "g0",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "C",
        "brokerId": "0",
        "haServerAddr": "127.0.0.1:10912",
        "compressed": "false",
        "bodyCrc32": str(body_crc32(request.body)),
        "raftTerm": "5",
    }
    body = json.loads(request.body)
    assert body["filterServerList"] == []
    wrapper = body["topicConfigSerializeWrapper"]
    assert wrapper["dataVersion"] == {"counter": 0, "timestamp": 99}
    assert wrapper["topicConfigTable"]["T"]["writeQueueNums"] == 2
    leave = unregister_request(config, 2)
    assert (leave.code, leave.ext_fields["brokerId"]) == (104, "2")


def test_a_broker_registers_no_more_than_it_permits() -> None:
    rows = [TopicConfig(topic_name="T"), TopicConfig(topic_name="W", perm=2, order=True)]
    for permission, perms in ((6, {"T": 6, "W": 2}), (4, {"T": 4, "W": 0}), (2, {"T": 2, "W": 2})):
        topics = TopicTable(rows, 99, permission=permission)
        request = register_request(CONFIG, topics, 0, 5)
        assert request.ext_fields["bodyCrc32"] == str(body_crc32(request.body))
        found = decode_register_body(request.body, compressed=False).topic_config_serialize_wrapper
        assert {name: one.perm for name, one in found.topic_config_table.items()} == perms
        assert found.topic_config_table["W"].order
        assert found.data_version == topics.data_version
        assert topics.configs()["T"].perm == 6, "the topic itself is as it was"


def full_table(length: int) -> TopicTable:
    table = TopicTable([], 1)
    while not table.full:
        name = f"{len(table.entries):0{length}}"
        change = TopicChange(TopicConfig(topic_name=name), 1)
        table.apply(msgspec.json.encode(change))
    return table


CONFIG = BrokerConfig(broker_cluster_name="C", broker_ip1="127.0.0.1", listen_port=10_911)


@pytest.mark.parametrize("length", [8, 127])
def test_a_full_table_is_one_that_name_servers_take(length: int) -> None:
    table = full_table(length)
    for number in range(CREATIONS_MAX):  # that were on their way when it became full
        change = TopicChange(TopicConfig(topic_name=f"{number:0262}"), 1)
        table.apply(msgspec.json.encode(change))
    request = register_request(CONFIG, table, 0, 5)
    assert len(request.body) <= REGISTER_BYTES_MAX
    assert request.ext_fields["compressed"] == "false"
    found = decode_register_body(request.body, compressed=False).topic_config_serialize_wrapper
    assert found.topic_config_table == table.configs()
    assert found.data_version == table.data_version


def test_planted_topics_without_bound_are_none_that_name_servers_take() -> None:
    table = TopicTable([], 1)
    with planted(BY_TESTS["topics-without-bound"]):
        for number in range(25_000):
            change = TopicChange(TopicConfig(topic_name=f"{number:0127}"), 1)
            table.apply(msgspec.json.encode(change))
        assert not table.full
    request = register_request(CONFIG, table, 0, 5)
    assert len(table.encode()) > REGISTER_BYTES_MAX
    assert request.ext_fields["compressed"] == "true", "a table of old is sent all the same"
    assert request.ext_fields["bodyCrc32"] == str(body_crc32(request.body))
    found = decode_register_body(request.body, compressed=True).topic_config_serialize_wrapper
    assert found.topic_config_table == table.configs()


def test_the_bytes_of_a_table_are_those_that_it_takes() -> None:
    table = TopicTable([TopicConfig(topic_name="S")], 1)
    for number in (1, 2, 1, 3):
        config = TopicConfig(topic_name=f"T{number}", perm=number, read_queue_nums=10**number)
        table.apply(msgspec.json.encode(TopicChange(config, 1)))
        assert json.loads(table.encode())[f"T{number}"]["perm"] == number
        assert table.encoded_bytes == len(table.encode()) - 1


@pytest.mark.parametrize(
    ("self_id", "writable", "expected"),
    [("n0", True, 0), ("n0", False, 1), ("n1", False, 2), ("node12", False, 13)],
)
def test_only_a_leader_that_takes_writes_is_broker_0(
    self_id: str, writable: bool, expected: int
) -> None:
    assert broker_id(self_id, writable=writable) == expected


def test_an_id_without_a_number_counts_as_the_first() -> None:
    assert replica_number("leader") == 0
