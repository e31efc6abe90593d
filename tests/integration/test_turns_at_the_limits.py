"""No request holds the loop for long, whatever it asks for within its limits.

All requests that may take long are asked of a broker whose tables are full, and the longest turn of
its loop is measured meanwhile, in processor time. It is the shortest of a few tries, since a turn
may also be that of something else. On a machine that is slower than the one on which the bound was
set, or shared, a turn may take longer by as much as a fixed piece of work does.
"""

import asyncio
import json
import struct
import time
from itertools import count

from broker.limits import LOCK_QUEUES_MAX
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.broker_cluster import cluster, pull_fields, send_fields
from tests.integration.full_broker import (
    GROUPS,
    TOPICS,
    WIDE,
    WIDE_GROUP,
    Client,
    fill,
    run_timed,
    topic_name,
)

TURN_MS = 20
REFERENCE_MS = 20
TRIES = 4
T = topic_name(0)
LARGE = b"x" * (4 * 1024 * 1024 - 1000)
GROUP = "group-00001"
numbers = count()


def batch(messages):
    """Return the body of a batch of tiny messages."""
    return messages * (struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"b" + struct.pack(">h", 0))


def heartbeat(groups, topics=(T,), client="c1"):
    """Return the body of a heartbeat of a member of these groups."""
    subscriptions = [{"topic": topic, "subString": "a||b", "subVersion": 1} for topic in topics]
    said = {
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }
    members = [{"groupName": group, **said} for group in groups]
    return json.dumps(
        {"clientID": client, "consumerDataSet": members, "producerDataSet": []}
    ).encode()


def locks():
    queues = [
        {"brokerName": "g0", "queueId": queue, "topic": WIDE} for queue in range(LOCK_QUEUES_MAX)
    ]
    body = {"clientId": "c1", "consumerGroup": WIDE_GROUP, "mqSet": queues}
    return json.dumps(body).encode()


def sql(terms):
    expression = " or ".join(f"a{term} = {term}" for term in range(terms))
    data = {"topic": T, "subString": expression, "expressionType": "SQL92"}
    return json.dumps({"clientId": "c", "group": GROUP, "subscriptionData": data}).encode()


def new_topic():
    return {
        "topic": f"new-{next(numbers)}", "defaultTopic": "TBW102", "readQueueNums": 65_536,
        "writeQueueNums": 65_536, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
        "order": "false",
    }  # fmt: skip


def properties():
    return "".join(f"{number}\x01{number}\x02" for number in range(2_600))


REQUESTS = {
    "send, large": lambda: (310, LARGE, send_fields(T, next(numbers) % 8)),
    "send, many properties": lambda: (310, b"x", send_fields(T, 0, properties())),
    "batch": lambda: (320, batch(1_000), send_fields(T) | {"m": "true"}),
    "pull": lambda: (11, b"", pull_fields(T, 0)),
    "all topics": lambda: (21, b"", {}),
    "settings": lambda: (26, b"", {}),
    "runtime": lambda: (28, b"", {}),
    "heartbeat, groups": lambda: (34, heartbeat([f"group-{n:05}" for n in range(1_000)]), {}),
    "heartbeat, topics": lambda: (34, heartbeat([GROUP], map(topic_name, range(1_000))), {}),
    "heartbeat, new groups": lambda: (34, heartbeat([f"n-{n}" for n in range(1_000)]), {}),
    "lock": lambda: (41, locks(), {}),
    "unlock": lambda: (42, locks(), {}),
    "SQL92": lambda: (46, sql(100), {}),
    "new topic": lambda: (17, b"", new_topic()),
    "all groups": lambda: (201, b"", {}),
    "queues of a topic": lambda: (202, b"", {"topic": WIDE}),
    "queues of a topic, large messages": lambda: (202, b"", {"topic": T}),
    "queues of a group": lambda: (208, b"", {"consumerGroup": WIDE_GROUP}),
    "queues of all groups": lambda: (317, b"", {"isOrder": "false"}),
    "times": lambda: (303, b"", {"topic": WIDE, "group": WIDE_GROUP}),
    "times, large messages": lambda: (303, b"", {"topic": T, "group": GROUP}),
    "groups of a topic": lambda: (300, b"", {"topic": T}),
    "topics of a group": lambda: (343, b"", {"group": GROUP}),
    "reset": lambda: (
        222, b"", {"topic": WIDE, "group": WIDE_GROUP, "timestamp": -1, "isForce": "true"},
    ),
    "producers": lambda: (328, b"", {}),
    "status": lambda: (29_001, b"", {}),
    "remove a group": lambda: (
        207, b"", {"groupName": f"group-{next(numbers) + 100:05}", "removeOffset": "true"},
    ),
    "compaction": lambda: (29_004, b"", {"upto": 2**40}),
}  # fmt: skip


def slowness():
    """Return how much longer than `REFERENCE_MS` a fixed piece of work takes now, at least 1."""
    began = time.thread_time()
    rows = [{"broker": "g0", "queue": number, "topic": "t"} for number in range(10_000)]
    places = {(row["topic"], row["queue"]): row for row in json.loads(json.dumps(rows))}
    assert len(places) == len(rows)
    return max(1.0, (time.thread_time() - began) * 1000 / REFERENCE_MS)


async def longest_ms(client, make):
    """Return how long the longest turn took while a request was answered, at best.

    In milliseconds of a machine that does the fixed piece of work in `REFERENCE_MS`.
    """
    loop, best = asyncio.get_running_loop(), float("inf")
    for _ in range(TRIES):
        loop.forget()
        code, body, fields = make()
        await asyncio.to_thread(client.ask, code, body, **fields)
        await asyncio.sleep(0.03)  # what is done behind the answer
        best = min(best, loop.longest_ms / slowness())
        if best <= TURN_MS / 2:
            break
    return best


def measured(path, names):
    """Return the longest turns in milliseconds by the names of the requests."""
    found = {}

    async def scenario():
        def prepare(group):
            group.settings.update(namesrv_addr="")

        async with cluster(path, segment_bytes=1 << 26, prepare=prepare) as group:
            await group.leader()
            broker = group.brokers[0]
            await fill(broker)
            client = await asyncio.to_thread(Client, broker.server_port)
            for queue in range(8):
                await asyncio.to_thread(client.ask, 310, LARGE, **send_fields(T, queue))
            for name in names:
                found[name] = await longest_ms(client, REQUESTS[name])
            await asyncio.to_thread(client.close)

    run_timed(scenario())
    return found


def test_no_request_at_its_limits_holds_the_loop(tmp_path):
    assert TOPICS + GROUPS > 10_000
    found = measured(tmp_path, REQUESTS)
    assert {name: took for name, took in found.items() if took > TURN_MS} == {}


def test_planted_answers_in_one_turn_are_found_here(tmp_path):
    with planted(BY_TESTS["long-answer-in-one-turn"]):
        found = measured(tmp_path, ["queues of all groups", "times"])
    assert max(found.values()) > TURN_MS
