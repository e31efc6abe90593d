"""Brokers over real sockets and files: what clients see, alone and through a change of leader."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
import uvloop

from ledgermq.remoting.protocol.message import BatchElement, decode_records, encode_batch
from tests.integration.broker_cluster import (
    cluster,
    pull_fields,
    send_fields,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.broker_cluster import Cluster

HEARTBEAT = {
    "clientID": "c1",
    "producerDataSet": [{"groupName": "p"}],
    "consumerDataSet": [
        {
            "groupName": "cg",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        }
    ],
}


def lock_body(client_id: str) -> bytes:
    queue = {"brokerName": "g0", "queueId": 0, "topic": "T"}
    body = {"clientId": client_id, "consumerGroup": "cg", "mqSet": [queue]}
    return json.dumps(body).encode()


async def send(group: Cluster, number: int, body: bytes, queue_id: int = 0) -> int:
    """Send until it is stored; return the queue offset."""
    answer = await group.ask(number, 310, body, **send_fields("T", queue_id))
    assert answer.code == 0, answer
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert answer.ext_fields["TRACE_ON"] == "true"
    return int(answer.ext_fields["queueOffset"])


def test_a_send_creates_its_topic_and_the_route_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as group:
            leader = await group.leader()
            assert await send(group, leader, b"one") == 0
            route = json.loads(await group.route("T"))
            assert route["queueDatas"][0]["writeQueueNums"] == 4
            assert route["queueDatas"][0]["perm"] == 6
            assert route["brokerDatas"][0]["brokerName"] == "g0"
            assert route["brokerDatas"][0]["brokerAddrs"] == {"0": group.address(leader)}

    uvloop.run(scenario())


def test_hostile_sends_leave_a_group_as_it_was(tmp_path: Path) -> None:
    """Each of these was acknowledged or fatal once, and ended followers or the leader."""

    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            for sys_flag in (0x10, 0x20, 0x30):
                fields = send_fields("T") | {"f": str(sys_flag)}
                assert (await group.ask(leader, 310, b"x", **fields)).code == 0
            digits = "DELAY\x01" + "9" * 5_000
            answer = await group.ask(leader, 310, b"x", **send_fields("T", 0, digits))
            assert answer.code == 0, "the highest level"
            body = encode_batch([BatchElement(b"x", b"DELAY\x013")])
            assert (await group.ask(leader, 320, body, **send_fields("T"))).code == 13
            assert await send(group, leader, b"after") == 3
            brokers = [broker for broker in group.brokers if broker is not None]
            assert len(brokers) == 3
            end = max(broker.applied_index for broker in brokers)
            for broker in brokers:
                await until(lambda b=broker: b.applied_index >= end, "all apply all")
            pulled = await group.ask(leader, 11, **pull_fields("T", 0))
            assert [record.body for record in decode_records(pulled.body)] == [b"x"] * 3 + [
                b"after"
            ]

    uvloop.run(scenario())


def test_sends_that_wait_for_one_topic_keep_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as group:
            leader = await group.leader()
            offsets = await asyncio.gather(
                *[send(group, leader, b"%d" % number) for number in range(50)]
            )
            assert offsets == list(range(50))

    uvloop.run(scenario())


def test_a_held_pull_is_woken_by_the_message_and_one_in_vain_by_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as group:
            leader = await group.leader()
            await send(group, leader, b"first")
            held = asyncio.create_task(
                group.ask(leader, 11, **pull_fields("T", 1, suspend_ms=4_000))
            )
            await until(lambda: len(tables(group, leader).held) == 1, "a held pull")
            await send(group, leader, b"second")
            answer = await held
            assert (answer.code, answer.remark) == (0, "FOUND")
            assert [one.body for one in decode_records(answer.body)] == [b"second"]
            answer = await group.ask(leader, 11, **pull_fields("T", 2, suspend_ms=150))
            assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
            assert answer.ext_fields["nextBeginOffset"] == "2"

    uvloop.run(scenario())


def tables(group: Cluster, number: int):
    controller = group.brokers[number]
    assert controller is not None
    return controller.tables


def test_a_message_that_the_filter_refuses_does_not_wake_a_pull(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as group:
            leader = await group.leader()
            await send(group, leader, b"first")
            fields = pull_fields("T", 1, suspend_ms=4_000, subscription="Wanted")
            held = asyncio.create_task(group.ask(leader, 11, **fields))
            await until(lambda: len(tables(group, leader).held) == 1, "a held pull")
            await send(group, leader, b"untagged")
            answer = await group.ask(
                leader, 310, b"tagged", **send_fields("T", properties="TAGS\x01Wanted")
            )
            assert answer.code == 0
            found = await held
            assert [one.body for one in decode_records(found.body)] == [b"tagged"]

    uvloop.run(scenario())


def test_groups_hear_of_members_that_come_and_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as group:
            leader = await group.leader()
            await send(group, leader, b"x")
            heard = asyncio.Event()
            await group.client.close()
            group.client = type(group.client)(handlers={40: lambda *_: heard.set()})
            answer = await group.ask(leader, 34, json.dumps(HEARTBEAT).encode())
            assert answer.code == 0
            await heard.wait()
            listed = await group.ask(leader, 38, consumerGroup="cg")
            assert json.loads(listed.body) == {"consumerIdList": ["c1"]}
            assert b"%RETRY%cg" not in await group.route("T")
            assert json.loads(await group.route("%RETRY%cg"))["queueDatas"][0]["readQueueNums"] == 1
            other = type(group.client)()
            group.client, first = other, group.client
            heard.clear()
            await group.ask(leader, 34, json.dumps(HEARTBEAT | {"clientID": "c2"}).encode())
            await heard.wait()
            heard.clear()
            await other.close()
            await heard.wait()
            group.client = first
            listed = await group.ask(leader, 38, consumerGroup="cg")
            assert json.loads(listed.body) == {"consumerIdList": ["c1"]}
            assert (await group.ask(leader, 35, clientID="c1", consumerGroup="cg")).code == 0
            listed = await group.ask(leader, 38, consumerGroup="cg")
            assert listed.code == 1

    uvloop.run(scenario())


def test_a_change_of_leader_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Messages, topics, groups, offsets and locks are in the log, not on the old leader."""

    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            for number in range(10):
                await send(group, leader, b"%d" % number)
            await group.ask(leader, 34, json.dumps(HEARTBEAT).encode())
            fields = {"consumerGroup": "cg", "topic": "T", "queueId": 0}
            assert (await group.ask(leader, 15, commitOffset=7, **fields)).code == 0
            locked = await group.ask(leader, 41, lock_body("c1"))
            assert len(json.loads(locked.body)["lockOKMQSet"]) == 1
            for number in {0, 1, 2} - {leader}:
                refused = await group.ask(number, 310, b"x", **send_fields("T"))
                assert refused.code == 14
            await group.stop(leader)
            successor = await group.leader()
            assert successor != leader
            assert (await group.ask(successor, 14, **fields)).ext_fields == {"offset": "7"}
            pulled = await group.ask(successor, 11, **pull_fields("T", 0))
            assert [one.body for one in decode_records(pulled.body)] == [
                b"%d" % number for number in range(10)
            ]
            refused = await group.ask(successor, 41, lock_body("c2"))
            assert json.loads(refused.body)["lockOKMQSet"] == []
            renewed = await group.ask(successor, 41, lock_body("c1"))
            assert len(json.loads(renewed.body)["lockOKMQSet"]) == 1
            assert await send(group, successor, b"10") == 10
            route = b""
            async with asyncio.timeout(5):
                while f'"0":"{group.address(successor)}"'.encode() not in route:
                    route = await group.route("T")
            await group.start(leader)
            returned = group.brokers[leader]
            assert returned is not None
            await until(
                lambda: returned.store.reader.max_offset("T", 0) == 11, "the old leader caught up"
            )
            assert tables(group, leader).offsets.query("cg", "T", 0) == 7

    uvloop.run(scenario())


def test_a_leader_without_a_majority_lets_go_of_who_waits_and_tells_no_limits(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            assert (await group.ask(leader, 310, b"m", **send_fields("T"))).code == 0
            pull = pull_fields("T", 1, suspend_ms=15_000)
            held = asyncio.create_task(group.ask(leader, 11, **pull))
            controller = group.brokers[leader]
            assert controller is not None
            await until(lambda: len(controller.tables.held) == 1, "a held pull")
            for number in {0, 1, 2} - {leader}:
                await group.stop(number)
            # It answers after an election timeout, not after the 15 s of the pull.
            assert (await asyncio.wait_for(held, 4)).code == 14
            for code in (30, 31, 32):
                assert (await group.ask(leader, code, topic="T", queueId=0)).code == 14
            assert (await group.ask(leader, 11, **pull)).code == 14

    uvloop.run(main())


def test_state_survives_a_restart_of_the_only_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as group:
            leader = await group.leader()
            await send(group, leader, b"x")
            fields = {"consumerGroup": "cg", "topic": "T", "queueId": 0}
            await group.ask(leader, 15, commitOffset=1, **fields)
            await group.stop(0)
            saved = json.loads((tmp_path / "n0/config/consumerOffset.json").read_text())
            assert saved["offsetTable"] == {"T@cg": {"0": 1}}
            topics = json.loads((tmp_path / "n0/config/topics.json").read_text())
            assert topics["topicConfigTable"]["T"]["writeQueueNums"] == 4
            await group.start(0)
            await group.leader()
            assert (await group.ask(0, 14, **fields)).ext_fields == {"offset": "1"}
            assert await send(group, 0, b"y") == 1

    uvloop.run(scenario())


@pytest.mark.parametrize("lost", ["topics.json", "appliedIndex.json", "consumerOffset.json"])
def test_a_damaged_snapshot_is_made_good_from_the_log(tmp_path: Path, lost: str) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as group:
            await group.leader()
            await send(group, 0, b"x")
            fields = {"consumerGroup": "cg", "topic": "T", "queueId": 0}
            await group.ask(0, 15, commitOffset=1, **fields)
            await group.stop(0)
            (tmp_path / "n0/config" / lost).write_bytes(b"{broken")
            await group.start(0)
            await group.leader()
            assert (await group.ask(0, 14, **fields)).ext_fields == {"offset": "1"}
            assert await send(group, 0, b"y") == 1

    uvloop.run(scenario())


def test_a_replica_tells_its_view_of_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            await send(group, leader, b"x")
            for number in range(3):
                status = json.loads((await group.ask(number, 29_001)).body)
                assert status["node"] == f"n{number}"
                assert status["leader"] == f"n{leader}"
                for name in [
                    "role",
                    "term",
                    "commit",
                    "applied",
                    "first_index",
                    "last_index",
                    "last_term",
                    "voted_for",
                    "boot_id",
                    "match",
                ]:
                    assert name in status, name

    uvloop.run(scenario())
