"""Pulls outside of a queue, of a broker on its own and of a group: answers, and what is stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import uvloop

from broker.offsets.moved import TOPIC
from ledgermq.remoting.protocol.message import MessageExt, decode_records
from ledgermq.remoting.protocol.properties import java_string_hash, parse_properties
from tests.integration.broker_cluster import cluster, pull_fields, send_fields, until
from tests.integration.plain_broker import plain

if TYPE_CHECKING:
    from pathlib import Path

#: Of queue 0 with messages 0, 1, 2: what is asked for; code, remark, where to go on.
CASES = [
    (0, 0, (0, "FOUND", 3)),
    (0, 2, (0, "FOUND", 3)),
    (0, 3, (19, "OFFSET_OVERFLOW_ONE", 3)),
    (0, 4, (21, "OFFSET_OVERFLOW_BADLY", 3)),
    (0, 1 << 40, (21, "OFFSET_OVERFLOW_BADLY", 3)),
    (0, -1, (21, "OFFSET_TOO_SMALL", 0)),
    (1, 0, (19, "NO_MATCHED_LOGIC_QUEUE", 0)),
    (1, 5, (21, "NO_MATCHED_LOGIC_QUEUE", 0)),
]


def event(queue_id: int, request: int, new: int, broker: str) -> dict[str, object]:
    """Return the body of an event."""
    return {
        "consumerGroup": f"g{queue_id}_{request}".replace("-", "m"),
        "messageQueue": {"brokerName": broker, "queueId": queue_id, "topic": "T"},
        "offsetNew": new,
        "offsetRequest": request,
    }


def check(messages: list[MessageExt], broker: str, host: bytes) -> None:
    """Compare the events that were stored with the cases."""
    moved = [(queue_id, asked, new) for queue_id, asked, (code, _, new) in CASES if code == 21]
    assert [json.loads(message.body) for message in messages] == [
        event(*case, broker=broker) for case in moved
    ]
    for message in messages:
        group = json.loads(message.body)["consumerGroup"]
        properties = parse_properties(message.properties)
        assert properties == {"TAGS": group, "KEYS": group, "DELAY": "0"}
        assert (message.topic, message.queue_id) == ("OFFSET_MOVED_EVENT", 0)
        assert message.born_host == message.store_host == host


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_broker_on_its_own(tmp_path: Path, repeats: int) -> None:
    uvloop.run(on_its_own(tmp_path, repeats))


async def on_its_own(tmp_path: Path, repeats: int) -> None:
    async with plain(tmp_path) as broker:
        for number in range(3):
            await broker.send("T", 0, b"%d" % number)
        for queue_id, asked, expected in [case for case in CASES for _ in range(repeats)]:
            group = event(queue_id, asked, 0, "")["consumerGroup"]
            fields = {"queueId": queue_id, "consumerGroup": group}
            answer = await broker.ask(11, **pull_fields("T", asked, **fields))
            found = answer.code, answer.remark, int(answer.ext_fields["nextBeginOffset"])
            assert found == expected, (queue_id, asked)
            assert answer.ext_fields["suggestWhichBrokerId"] == "0"
        messages = await broker.read_all(TOPIC, 0)
        check(messages, "b", broker.config.store_host)
        by_key = await broker.ask(
            12, topic=TOPIC, key="g0_4", maxNum=9, beginTimestamp=0, endTimestamp=1 << 60
        )
        assert decode_records(by_key.body) == messages[:1]


def test_a_group_stores_it_in_its_log(tmp_path: Path) -> None:
    uvloop.run(in_a_group(tmp_path))


async def in_a_group(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as group:
        leader = await group.leader()
        for number in range(3):
            sent = await group.ask(leader, 310, b"%d" % number, **send_fields("T", 0))
            assert sent.code == 0
        followers = [number for number in range(3) if number != leader]
        for queue_id, asked, expected in CASES:
            fields = {
                "queueId": queue_id,
                "consumerGroup": event(queue_id, asked, 0, "")["consumerGroup"],
            }
            refused = await group.ask(followers[0], 11, **pull_fields("T", asked, **fields))
            assert refused.code == 14
            answer = await group.ask(leader, 11, **pull_fields("T", asked, **fields))
            assert (answer.code, answer.remark) == expected[:2]
        count = sum(code == 21 for _, _, (code, _, _) in CASES)
        stores = [broker.store for broker in group.brokers if broker is not None]
        for store in stores:
            await until(
                lambda store=store: store.reader.max_offset(TOPIC, 0) == count, "all events"
            )
            tag = frozenset({java_string_hash("g0_4")})
            assert store.reader.get(TOPIC, 0, 0, 32, 1 << 20, tag).count == 1
        answer = await group.ask(leader, 11, **pull_fields(TOPIC, 0))
        check(decode_records(answer.body, check_crc=True), "g0", group.config(leader).store_host)
        route = json.loads(await group.route(TOPIC))
        queue = route["queueDatas"][0]
        assert (queue["readQueueNums"], queue["writeQueueNums"], queue["perm"]) == (1, 1, 6)
        refused = await group.ask(leader, 310, b"x", **send_fields(TOPIC, 0))
        assert refused.code == 16
