"""What a lying broker or name server answers, and what others put into messages: bounded here."""

import asyncio
import zlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ledgermq.client import ConsumeStatus, PushConsumer, pulled
from ledgermq.client import puller as puller_module
from ledgermq.client.limits import REBALANCES_IN_A_SECOND_MAX
from ledgermq.client.message import MessageQueue, PullResult, PullStatus
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.pulled import decode_pulled
from ledgermq.client.puller import EMPTY_PULL_MS_MIN, ILLEGAL_OFFSET_WAIT_MS, Puller
from ledgermq.remoting.protocol import bodies, compression
from ledgermq.remoting.protocol.bodies import QueueData
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.limits import ANSWER_VALUES_MAX, ROUTE_VALUES_MAX
from ledgermq.remoting.protocol.message import FLAG_COMPRESSED, MessageExt, encode_record
from ledgermq.remoting.protocol.tolerant_json import ANSWER, loads
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

HOST = pack_host("127.0.0.1", 10911)
QUEUE = MessageQueue("T", "b", 0)
GROUP = "ordered-about"


def record(offset: int, body: bytes) -> bytes:
    return encode_record(
        MessageExt(
            topic="T", queue_id=0, flag=0, sys_flag=FLAG_COMPRESSED, queue_offset=offset,
            physical_offset=offset, born_timestamp=1, born_host=HOST, store_timestamp=1,
            store_host=HOST, reconsume_times=0, prepared_offset=0, body=body, properties=b"",
        )
    )  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    """A thousand bytes are too large for one body, as many are enough for an answer."""
    monkeypatch.setattr(compression, "CONTENT_BYTES_MAX", 1_000)
    monkeypatch.setattr("ledgermq.client.pulled.CONTENT_BYTES_MAX", 1_000)
    monkeypatch.setattr("ledgermq.client.pulled.PULLED_CONTENT_BYTES_MAX", 1_000)


def taken(*bodies: bytes) -> tuple[int, bool]:
    messages, is_whole = decode_pulled(b"".join(record(at, one) for at, one in enumerate(bodies)))
    return len(messages), is_whole


@pytest.mark.usefixtures("small")
def test_a_bomb_is_the_last_that_an_answer_inflates():
    bomb, corrupt, fine = zlib.compress(bytes(9_000)), b"no zlib stream", zlib.compress(b"x")
    assert taken(bomb, bomb, bomb) == (1, False)
    assert taken(fine, bomb, fine) == (2, False)
    assert taken(corrupt, corrupt, fine) == (3, True), "what fails at once costs nothing"
    with planted(BY_TESTS["bomb-not-counted"]):
        assert taken(bomb, bomb, bomb) == (3, True)


@pytest.mark.usefixtures("small")
def test_a_bomb_is_handed_on_as_it_is():
    bomb = zlib.compress(bytes(9_000))
    (message,), _ = decode_pulled(record(0, bomb))
    assert (message.body, message.sys_flag & FLAG_COMPRESSED) == (bomb, FLAG_COMPRESSED)


def pauses_after(result: PullResult, monkeypatch) -> list[float]:
    """Return how long a pull loop at offset 7 sleeps after an answer."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    host = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ns=lambda: 5),
        routes=SimpleNamespace(master=lambda _name: "here:1"),
        move=lambda _offsets: slept.append(0.0),
    )
    queue = ProcessQueue(QUEUE, 7)
    with monkeypatch.context() as patched:
        patched.setattr(puller_module.asyncio, "sleep", sleep)
        asyncio.run(Puller(host, queue)._take(result, 5, "here:1"))
    if result.status is not PullStatus.OFFSET_ILLEGAL:
        assert queue.next_offset == max(7, result.next_offset)
    return slept


@pytest.mark.parametrize("status", [PullStatus.NO_MATCHED_MESSAGE, PullStatus.NO_NEW_MESSAGE])
def test_an_empty_pull_that_does_not_get_on_is_followed_by_a_pause(status, monkeypatch):
    def pauses(next_offset: int) -> list[float]:
        result = PullResult(
            status=status, next_offset=next_offset, min_offset=0, max_offset=9, messages=[],
            suggested_broker_id=0,
        )  # fmt: skip
        return pauses_after(result, monkeypatch)

    pause = [EMPTY_PULL_MS_MIN / 1000]
    assert [pauses(at) for at in (7, 0, -5, 8)] == [pause, pause, pause, []]
    with planted(BY_TESTS["empty-pull-goes-back"]):
        assert pauses(0) == []


def test_a_route_has_an_end():
    entry = msgspec.json.encode(
        QueueData(broker_name="b", perm=6, read_queue_nums=1, write_queue_nums=1)
    )
    values = entry.count(b",") + entry.count(b"{") + 1

    def route(entries: int) -> bytes:
        return b'{"brokerDatas":[],"queueDatas":[%b]}' % b",".join([entry] * entries)

    most = ROUTE_VALUES_MAX // values
    assert len(bodies.decode_topic_route(route(most - 1)).queue_datas) == most - 1 > 10_000
    with pytest.raises(RemoteProtocolError, match="more than"):
        bodies.decode_topic_route(route(most + 1))
    with planted(BY_TESTS["route-of-any-size"]):
        assert bodies.decode_topic_route(route(most + 1))


def test_who_moves_a_queue_for_ever_is_asked_again_after_a_pause(monkeypatch):
    result = PullResult(
        status=PullStatus.OFFSET_ILLEGAL, next_offset=3, min_offset=0, max_offset=9, messages=[],
        suggested_broker_id=0,
    )  # fmt: skip
    assert pauses_after(result, monkeypatch) == [ILLEGAL_OFFSET_WAIT_MS / 1000, 0.0]
    with planted(BY_TESTS["moved-without-end"]):
        assert pauses_after(result, monkeypatch) == [0.0]


@pytest.mark.usefixtures("small")
def test_bombs_under_a_key_hide_nobodys_message():
    bomb, fine = zlib.compress(bytes(9_000)), zlib.compress(b"x")
    body = b"".join(record(at, one) for at, one in enumerate((bomb, bomb, bomb, fine)))
    found = pulled.decode_found(body)
    assert [one.queue_offset for one in found] == [0, 1, 2, 3]
    assert found[3].content() == b"x"
    with planted(BY_TESTS["bombs-hide-a-key"]):
        assert len(pulled.decode_found(body)) == 1


@pytest.mark.parametrize("read", [loads, partial(bodies.decode_body, kind=list[Any])])
@pytest.mark.parametrize("item", [b"[],", b"{},", b'"a",', b"1,"])
def test_an_answer_has_so_many_values_and_no_more(item, read):
    most = ANSWER_VALUES_MAX // 2
    assert len(read(b"[" + item * (most - 1) + b"0]", reach=ANSWER)) == most
    with pytest.raises(RemoteProtocolError, match="values, more than 1000000"):
        read(b"[" + item * (2 * most) + b"0]", reach=ANSWER)
    with planted(BY_TESTS["answer-of-any-values"]):
        assert read(b"[" + item * (2 * most) + b"0]", reach=ANSWER)


def rebalances_under_orders() -> tuple[int, int]:
    """How often a consumer asks who its group is while a broker orders it to for a second.

    And how often it may: a rebalance asks once for each topic, its own and that of its group's
    retries. Where the machine stands still, the second is a longer one.
    """
    asked = []

    async def body(cluster):
        broker = cluster.replicas[0]
        config = cluster.config(group=GROUP)
        consumer = PushConsumer(config, lambda *_: ConsumeStatus.CONSUME_SUCCESS)
        consumer.subscribe(TOPIC)
        time = asyncio.get_running_loop().time
        begun_s = time()
        async with consumer:
            await broker.wait_for(lambda: broker.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
            before = broker.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
            for _ in range(100):
                broker.notify(GROUP)
                await asyncio.sleep(0.01)
            asked.append(broker.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) - before)
            asked.append(2 * REBALANCES_IN_A_SECOND_MAX * (int(time() - begun_s) + 1))

    run(body)
    found, allowed = asked
    return found, allowed


def test_orders_to_rebalance_without_end_wait():
    asked, allowed = rebalances_under_orders()
    assert 2 <= asked <= allowed
    with planted(BY_TESTS["rebalances-without-pause"]):
        asked, allowed = rebalances_under_orders()
        assert asked > allowed
