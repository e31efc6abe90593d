"""Tables of a group that are full: what is refused stays so, on every replica and after each start.

The limits are small here, so that few requests reach them.
"""

import asyncio
import json
import shutil

import pytest
import uvloop

from broker.limits import GROUPS_MAX, OFFSETS_BYTES_MAX, TOPICS_BYTES_MAX
from tests.integration.broker_cluster import cluster, send_fields
from tests.integration.test_broker_snapshot import compact, status
from tests.unit.broker.fakes import smaller

LONG = "x" * 100
TABLES = ("consumerOffset.json", "subscriptionGroup.json", "topics.json", "queueLock.json")


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    for where, limit, value in (
        ("topic_config.TOPICS_BYTES_MAX", TOPICS_BYTES_MAX, 30_000),
        ("subscription.GROUPS_MAX", GROUPS_MAX, 100),
        ("consumer_offset.OFFSETS_BYTES_MAX", OFFSETS_BYTES_MAX, 20_000),
    ):
        monkeypatch.setattr(f"broker.state.{where}", smaller(limit, value))


async def create(group, number, topic):
    settings = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
    answer = await group.ask(
        number, 17, topic=topic, defaultTopic="TBW102", topicFilterType="SINGLE_TAG",
        order="false", **settings,
    )  # fmt: skip
    return answer.code


async def commit(group, number, name, topic, queue_id=0):
    fields = {"consumerGroup": name, "topic": topic, "queueId": queue_id, "commitOffset": 7}
    return (await group.ask(number, 15, **fields)).code


async def fill(group, leader):
    """Make topics, groups and offsets until each is refused; return a topic."""
    number = 0
    while await create(group, leader, f"t{number:04}{LONG}") == 0:
        number += 1
    assert 20 < number < 300
    topic = f"t0000{LONG}"
    codes = [await commit(group, leader, f"g{n:04}{LONG}", topic, n % 4) for n in range(150)]
    assert 10 < codes.count(0) < 150
    assert codes[-1] != 0
    for _ in range(150):
        assert (await group.ask(leader, 310, b"z" * 900, **send_fields(topic))).code == 0
    await asyncio.sleep(1.5)  # offsets go into the log once a second
    return topic


async def caught_up(group, number, leader):
    async with asyncio.timeout(20):
        while True:
            one, other = await status(group, number), await status(group, leader)
            if (one["commit"], one["applied"]) == (other["commit"], other["applied"]):
                return one
            await asyncio.sleep(0.1)


async def restart(group):
    for number in range(3):
        await group.stop(number)
    for number in range(3):
        await group.start(number)
    return await group.leader()


def tables(path, number):
    folder = path / f"n{number}" / "config"
    return {name: json.loads((folder / name).read_text()) for name in TABLES}


async def scenario(path):
    async with cluster(path, 3, segment_bytes=1 << 16) as group:
        leader = await group.leader()
        topic = await fill(group, leader)
        for number in range(3):
            await compact(group, number)
        wiped = (leader + 1) % 3
        await group.stop(wiped)
        shutil.rmtree(path / f"n{wiped}")
        await group.start(wiped)
        assert (await caught_up(group, wiped, leader))["first_index"] > 0, "no snapshot was needed"
        leader = await restart(group)
        for number in range(3):
            await caught_up(group, number, leader)
        assert await create(group, leader, "one-more" + LONG) == 2
        assert await commit(group, leader, "one-more" + LONG, topic) != 0
        assert await commit(group, leader, f"g0000{LONG}", topic) == 0
        assert (await group.ask(leader, 310, b"z", **send_fields(topic))).code == 0
        assert await group.route(topic)
        await asyncio.sleep(1.5)
        await restart(group)
        for number in range(3):
            await group.stop(number)
        found = [tables(path, number) for number in range(3)]
        assert found[0] == found[1] == found[2]


def test_full_tables_are_full_on_every_replica_and_after_a_start(tmp_path):
    uvloop.run(asyncio.wait_for(scenario(tmp_path), 90))
