"""Transactions against real brokers: leaders that go, power that fails, stores of RocketMQ."""

from __future__ import annotations

import asyncio
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from broker.state.consumer_offset import TRANSACTION_CHECK_GROUP
from broker.transactions.takeover import HALF_TOPIC, OP_TOPIC
from ledgermq.remoting.protocol.message import MessageExt, decode_records, parse_offset_message_id
from tests import fixtures
from tests.conformance.test_broker_replay import Peer
from tests.integration.broker_cluster import Cluster, cluster, pull_fields, send_fields, until
from tests.integration.plain_broker import copy_running, plain

if TYPE_CHECKING:
    from pathlib import Path

    from broker.controller import BrokerController

TOPIC, GROUP = "orders", "payers"
COMMIT, ROLLBACK = 8, 12
PROPERTIES = "TRAN_MSG\x01true\x02PGROUP\x01payers\x02UNIQ_KEY\x01%s"

Place = tuple[int, int]
"""Where a half lies in the log, and its offset in the half topic."""


def half_fields(key: str) -> dict[str, object]:
    return send_fields(TOPIC, 0, PROPERTIES % key) | {"a": GROUP, "f": 4}


def end_fields(place: Place, end: int = COMMIT) -> dict[str, object]:
    return {
        "producerGroup": GROUP, "commitLogOffset": place[0], "tranStateTableOffset": place[1],
        "commitOrRollback": end, "fromTransactionCheck": "false", "msgId": "",
    }  # fmt: skip


def place_of(fields: dict[str, str]) -> Place:
    return parse_offset_message_id(fields["msgId"])[2], int(fields["queueOffset"])


def table_of(controller: BrokerController | None) -> Any:
    assert controller is not None
    return controller.tables.state.tables["openHalves.json"]


def bodies_in(controller: BrokerController | None, topic: str) -> list[bytes]:
    """Return what is in queue 0 of a topic, on that replica."""
    assert controller is not None
    store, found = controller.store.reader, []
    offset, end = store.min_offset(topic, 0), store.max_offset(topic, 0)
    while offset < end:
        result = store.get(topic, 0, offset, 32, 1 << 20, None)
        found += [decode_records(bytes(one))[0].body for one in result.buffers]
        offset = result.next_offset
    return found


async def half(group: Cluster, number: int, key: str) -> Place:
    answer = await group.ask(number, 310, key.encode(), **half_fields(key))
    assert answer.code == 0, answer
    return place_of(answer.ext_fields)


async def pulled(group: Cluster, number: int, topic: str) -> list[MessageExt]:
    answer = await group.ask(number, 11, **pull_fields(topic, 0))
    return decode_records(answer.body) if answer.code == 0 else []


async def agreed(group: Cluster, committed: list[bytes], ops: int) -> None:
    """Wait until all replicas have this of the topic, and no half is open."""
    for number, controller in enumerate(group.brokers):
        await until(
            lambda one=controller: len(bodies_in(one, OP_TOPIC)) == ops
            and not table_of(one).rows,
            f"no open half at n{number}",
        )  # fmt: skip
        assert bodies_in(controller, TOPIC) == committed


def test_halves_are_finished_by_the_next_leader_and_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            first = await group.leader()
            await until(lambda: group.leaders() == [first], "a leader")
            places = [await half(group, first, f"k{number}") for number in range(4)]
            assert await pulled(group, first, TOPIC) == []
            assert (await group.ask(first, 37, **end_fields(places[0]))).code == 0
            assert (await group.ask(first, 37, **end_fields(places[1], ROLLBACK))).code == 0
            assert (await group.ask(first, 37, **end_fields(places[0]))).code == 1
            await group.stop(first)
            second = await group.leader()
            assert [one.body for one in await pulled(group, second, TOPIC)] == [b"k0"]
            assert (await group.ask(second, 37, **end_fields(places[0]))).code == 1
            assert (await group.ask(second, 37, **end_fields(places[1]))).code == 1
            both = await asyncio.gather(
                *(group.ask(second, 37, **end_fields(places[2])) for _ in range(2))
            )
            assert sorted(one.code for one in both) == [0, 1]
            assert (await group.ask(second, 37, **end_fields(places[3], ROLLBACK))).code == 0
            follower = next(number for number in range(3) if number not in {first, second})
            assert (await group.ask(follower, 37, **end_fields(places[3]))).code == 14
            await group.start(first)
            await agreed(group, [b"k0", b"k2"], 4)

    uvloop.run(scenario())


def test_a_producer_is_asked_and_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        def hurried(group: Cluster) -> None:
            group.settings = {"transaction_timeout_ms": 100, "transaction_check_interval_ms": 400}

        async with cluster(tmp_path, 3, prepare=hurried) as group:
            leader = await group.leader()
            place = await half(group, leader, "k")
            port = int(group.address(leader).rpartition(":")[2])
            peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
            beat = {
                "clientID": "c",
                "producerDataSet": [{"groupName": GROUP}],
                "consumerDataSet": [],
            }
            body = json.dumps(beat).encode()
            header = b'{"code":34,"flag":2,"language":"JAVA","opaque":1,"version":407}'
            peer.writer.write((4 + len(header) + len(body)).to_bytes(4, "big"))
            peer.writer.write(len(header).to_bytes(4, "big") + header + body)
            async with asyncio.timeout(10):
                while not peer.pushed:
                    peer.notification.clear()
                    await peer.notification.wait()
            asked = peer.pushed[0]
            assert (asked.code, int(asked.ext_fields["commitLogOffset"])) == (39, place[0])
            assert (await group.ask(leader, 37, **end_fields(place))).code == 0
            await agreed(group, [b"k"], 1)
            await peer.close()

    uvloop.run(scenario())


def test_open_halves_outlive_a_loss_of_power(tmp_path: Path) -> None:
    """The directory as it is while the broker runs is what a loss of power leaves, at best."""

    async def scenario() -> None:
        async with plain(tmp_path / "one") as broker:
            places = []
            for number in range(3):
                key = f"k{number}"
                answer = await broker.ask(310, key.encode(), **half_fields(key))
                places.append(place_of(answer.ext_fields))
            assert (await broker.ask(37, **end_fields(places[0]))).code == 0
            await broker.controller._mode.saver.save()
            assert (await broker.ask(37, **end_fields(places[1], ROLLBACK))).code == 0
            copy_running(tmp_path / "one", tmp_path / "two")
        async with plain(tmp_path / "two") as broker:
            assert [one.offset for one in table_of(broker.controller).rows] == [2]
            codes = [(await broker.ask(37, **end_fields(place))).code for place in places]
            assert codes == [1, 1, 0]
            assert bodies_in(broker.controller, TOPIC) == [b"k0", b"k2"]
        async with plain(tmp_path / "two") as broker:
            assert bodies_in(broker.controller, OP_TOPIC) == [b"0", b"1", b"2"]

    uvloop.run(scenario())


@pytest.mark.parametrize(
    ("name", "done", "expected"),
    [
        ("clean", None, []),
        ("killed", None, []),
        ("killed", (2, 0), []),
        ("killed", (2, 5), [(4, 2), (5, 0), (6, 0)]),
    ],
)
def test_the_halves_of_a_real_store_are_known(
    tmp_path: Path, name: str, done: tuple[int, int] | None, expected: list[tuple[int, int]]
) -> None:
    """``done``: how far RocketMQ's check service says it has come, in halves and op messages."""

    async def scenario() -> None:
        with tarfile.open(fixtures.store(f"master-4.9.7-{name}")) as archive:
            archive.extractall(tmp_path, filter="data")
        if done is not None:
            _set_offsets(tmp_path / "store/config/consumerOffset.json", *done)
        async with plain(tmp_path / "store") as broker:
            table = table_of(broker.controller)
            await until(lambda: table.end == 10, "the half topic compared with the op topic")
            assert [(one.offset, one.asked) for one in table.rows] == expected

    uvloop.run(scenario())


def _set_offsets(path: Path, halves: int, ops: int) -> None:
    text = path.read_text()
    for topic, offset in ((HALF_TOPIC, halves), (OP_TOPIC, ops)):
        head, key, rest = text.partition(f'"{topic}@{TRANSACTION_CHECK_GROUP}":{{0:')
        text = head + key + str(offset) + rest[rest.index("\n") :]
    path.write_text(text)
