"""What members of groups promise, at our group and at RocketMQ's brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from ledgermq import (
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    LitePullConsumer,
    LitePullOptions,
    Message,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
    ResponseError,
    Sql92,
)
from tests.interop.servers import (
    QUEUES,
    Seen,
    Server,
    member,
    name,
    run,
    send_all,
    stored,
    topic_of,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ledgermq import ConsumeContext, MessageExt

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SUCCESS, LATER = ConsumeStatus.CONSUME_SUCCESS, ConsumeStatus.RECONSUME_LATER
QUIET_S = 1.5
"""How long a test waits for what must not come."""


def bodies(count: int, begin: int = 0) -> list[bytes]:
    """Return the bodies of so many messages."""
    return [b"%d" % number for number in range(begin, begin + count)]


def test_members_of_a_group_share_what_is_there(server: Server) -> None:
    async def body() -> None:
        topic, group = await topic_of(server, "shared"), name("sharing")
        seen = [Seen(), Seen()]
        async with AsyncExitStack() as stack:
            members = [member(server, group, one, topic) for one in seen]
            for one in members:
                await stack.enter_async_context(one)
            await until(lambda: [len(of(one, topic)) for one in members] == [2, 2], "fair share")
            await send_all(server, topic, bodies(60))
            await until(lambda: len(seen[0].bodies) + len(seen[1].bodies) >= 60, "message")
            await asyncio.sleep(0.2)
        assert Counter(seen[0].bodies + seen[1].bodies) == Counter(bodies(60))
        assert len(seen[0].bodies) == len(seen[1].bodies) == 30
        again = Seen()
        await send_all(server, topic, [b"next"])
        async with member(server, group, again, topic):
            await until(lambda: b"next" in again.bodies, "message after a restart")
        assert again.bodies == [b"next"]

    run(body())


def test_one_that_leaves_gives_its_queues_to_the_other(server: Server) -> None:
    async def body() -> None:
        topic, group = await topic_of(server, "left"), name("leaving")
        stays, leaves = Seen(), Seen()
        async with member(server, group, stays, topic) as one:
            async with member(server, group, leaves, topic) as other:
                both = [one, other]
                await until(lambda: [len(of(each, topic)) for each in both] == [2, 2], "fair share")
                await send_all(server, topic, bodies(20))
                await until(lambda: len(stays.bodies) + len(leaves.bodies) >= 20, "message")
            await until(lambda: len(of(one, topic)) == QUEUES, "all queues")
            await send_all(server, topic, bodies(20, 20))
            await until(lambda: len(stays.bodies) + len(leaves.bodies) >= 40, "message")
        assert Counter(stays.bodies + leaves.bodies) == Counter(bodies(40))

    run(body())


def of(consumer: PushConsumer | LitePullConsumer, topic: str) -> list[int]:
    """Return the numbers of the queues of a topic that a member has."""
    return [queue.queue_id for queue in consumer.assigned_queues if queue.topic == topic]


def test_queues_are_consumed_in_order_though_members_join(server: Server) -> None:
    async def body() -> None:
        topic, group = await topic_of(server, "ordered"), name("ordering")
        failed: set[bytes] = set()
        order: list[MessageExt] = []

        def listen(message: MessageExt, context: ConsumeContext) -> ConsumeStatus:
            if message.body.endswith(b"5") and message.body not in failed:
                failed.add(message.body)
                context.suspend_ms = 50
                return LATER
            order.append(message)
            return SUCCESS

        async with member(server, group, Seen(listen), topic, orderly=True):
            await send_all(server, topic, bodies(40))
            async with member(server, group, Seen(listen), topic, orderly=True) as second:
                await until(lambda: len(of(second, topic)) == 2, "half of the queues")
                await send_all(server, topic, bodies(40, 40))
                await until(lambda: {one.body for one in order} >= set(bodies(80)), "message")
        for queue_id in range(QUEUES):
            offsets = [one.queue_offset for one in order if one.queue_id == queue_id]
            assert offsets == sorted(offsets)
            assert sorted(set(offsets)) == list(range(20))
        assert len(order) == 80

    run(body())


def test_an_orderly_group_gives_up_what_fails_too_often(server: Server) -> None:
    async def body() -> None:
        topic, group = await topic_of(server, "stuck", 1), name("sticking")
        seen = Seen(lambda message, _: LATER if message.body == b"1" else SUCCESS)
        async with member(
            server, group, seen, topic, orderly=True, max_reconsume_times=2, order_suspend_ms=100
        ):
            await send_all(server, topic, bodies(3))
            await until(lambda: b"2" in seen.bodies, "message behind it")
        assert seen.bodies == [b"0", b"1", b"1", b"1", b"2"]
        [dead] = await stored(server, f"%DLQ%{group}", 1)
        assert dead.body == b"1"

    run(body())


def test_every_member_gets_what_is_broadcast(server: Server, tmp_path: Path) -> None:
    async def body() -> None:
        topic, group = await topic_of(server, "cast"), name("casting")
        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET, model=MessageModel.BROADCASTING,
            local_offsets_dir=str(tmp_path), suspend_ms=2_000,
        )  # fmt: skip
        seen = {"a": Seen(), "b": Seen()}

        def one(which: str) -> PushConsumer:
            config = server.config(group, instance_name=which)
            consumer = PushConsumer(config, seen[which], options)
            consumer.subscribe(topic)
            return consumer

        async with one("a"), one("b"):
            await send_all(server, topic, bodies(20))
            await until(lambda: all(len(s.bodies) == 20 for s in seen.values()), "message")
        seen["a"].messages.clear()
        async with one("a"):
            await send_all(server, topic, [b"next"])
            await until(lambda: b"next" in seen["a"].bodies, "message after a restart")
        assert seen["a"].bodies == [b"next"]
        assert Counter(seen["b"].bodies) == Counter(bodies(20))

    run(body())


async def send_goods(server: Server, topic: str) -> None:
    """Send ten messages with tags and properties."""
    async with Producer(server.config("goods")) as producer:
        for number in range(10):
            sent = Message(
                topic, b"%d" % number, tags="ABC"[number % 3],
                properties={"price": str(number)} | ({"city": "rome"} if number % 2 else {}),
            )  # fmt: skip
            await producer.send(sent)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("A", "0369"),
        ("A || C", "0235689"),
        (Sql92("price > 4"), "56789"),
        (Sql92("price BETWEEN 2 AND 7 AND city IS NULL"), "246"),
        (Sql92("TAGS = 'B' AND city = 'rome'"), "17"),
        (Sql92("city IN ('rome', 'oslo') OR price = 0"), "013579"),
    ],
)
def test_members_get_what_they_select(server: Server, expression: str | Sql92, wanted: str) -> None:
    async def body() -> None:
        topic, seen = await topic_of(server, "goods"), Seen()
        await send_goods(server, topic)
        async with member(server, name("choosing"), seen, topic, expression):
            await until(lambda: len(seen.bodies) >= len(wanted), "message")
            await asyncio.sleep(0.3)
        assert sorted(seen.bodies) == [one.encode() for one in wanted]

    run(body())


def test_a_wrong_expression_is_told(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "wrong")
        async with member(server, name("wrong"), Seen(), topic, Sql92("price >")) as consumer:
            with pytest.raises(ResponseError):
                await consumer.wait_joined(10)
            assert topic in consumer.problems

    run(body())


def test_failed_messages_come_again_as_they_were(server: Server) -> None:
    async def body() -> None:
        topic, group = await topic_of(server, "failed"), name("failing")

        def listen(message: MessageExt, context: ConsumeContext) -> ConsumeStatus:
            context.delay_level = 1
            return SUCCESS if message.reconsume_times == 2 else LATER

        seen = Seen(listen)
        async with (
            member(server, group, seen, topic),
            Producer(server.config("failed")) as producer,
        ):
            sent = await producer.send(
                Message(topic, b"one", tags="A", keys="k", properties={"city": "rome"})
            )
            await until(lambda: len(seen.bodies) == 3, "third delivery")
            await asyncio.sleep(QUIET_S)
        assert [one.reconsume_times for one in seen.messages] == [0, 1, 2]
        for one in seen.messages:
            assert (one.topic, one.body, one.message_id()) == (topic, b"one", sent.msg_id)
            properties = one.property_map()
            assert (properties["TAGS"], properties["KEYS"]) == ("A", "k")
            assert properties["city"] == "rome"
        for one in seen.messages[1:]:
            assert one.maybe_property("ORIGIN_MESSAGE_ID") == sent.offset_msg_id

    run(body())


@pytest.mark.parametrize("given_up", [True, False])
def test_what_fails_too_often_is_a_dead_letter(server: Server, given_up: bool) -> None:
    async def body() -> None:
        topic, group = await topic_of(server, "dying"), name("dying")

        def listen(message: MessageExt, context: ConsumeContext) -> ConsumeStatus:
            context.delay_level = -1 if given_up else 1
            return LATER if message.body == b"bad" else SUCCESS

        seen = Seen(listen)
        async with member(server, group, seen, topic, max_reconsume_times=1):
            await send_all(server, topic, [b"bad", b"good"], keys="dead")
            [dead] = await stored(server, f"%DLQ%{group}", 1)
        assert (dead.body, dead.maybe_property("KEYS")) == (b"bad", "dead")
        assert Counter(seen.bodies) == {b"good": 1, b"bad": 1 if given_up else 2}

    run(body())


@pytest.mark.parametrize("begin", list(ConsumeFrom))
def test_a_new_group_begins_where_it_says(server: Server, begin: ConsumeFrom) -> None:
    async def body() -> None:
        topic, seen = await topic_of(server, "begun", 1), Seen()
        await send_all(server, topic, bodies(5))
        await asyncio.sleep(1.1)
        await send_all(server, topic, bodies(5, 5))
        # RocketMQ 4.9 takes the message nearest to a time, the others the first one not before it.
        time_ms = (await stored(server, topic, 10))[5].store_timestamp
        consumer = member(
            server, name("begun"), seen, topic, consume_from=begin, consume_timestamp_ms=time_ms
        )
        async with consumer:
            await consumer.wait_joined()
            await until(lambda: of(consumer, topic) == [0], "queue")
            await asyncio.sleep(0.5)
            await send_all(server, topic, [b"last"])
            await until(lambda: b"last" in seen.bodies, "message")
        wanted = {
            ConsumeFrom.FIRST_OFFSET: [*bodies(10), b"last"],
            ConsumeFrom.TIMESTAMP: [*bodies(5, 5), b"last"],
            ConsumeFrom.LAST_OFFSET: [b"last"],
        }[begin]
        assert sorted(seen.bodies) == sorted(wanted)

    run(body())


def test_a_paused_member_pulls_nothing(server: Server) -> None:
    async def body() -> None:
        topic, seen = await topic_of(server, "paused", 1), Seen()
        async with member(server, name("paused"), seen, topic) as consumer:
            await send_all(server, topic, [b"before"])
            await until(lambda: seen.bodies == [b"before"], "message")
            consumer.pause()
            # A pull that the broker holds already may still bring the next message.
            await asyncio.sleep(2.5)
            await send_all(server, topic, [b"meanwhile"])
            await asyncio.sleep(QUIET_S)
            assert seen.bodies == [b"before"]
            consumer.resume()
            await until(lambda: seen.bodies == [b"before", b"meanwhile"], "message")

    run(body())


def test_subscriptions_change_while_a_member_runs(server: Server) -> None:
    async def body() -> None:
        first, second = await topic_of(server, "one"), await topic_of(server, "two")
        seen = Seen()
        async with member(server, name("changing"), seen, first, "A") as consumer:
            await send_all(server, first, [b"a"], tags="A")
            await until(lambda: seen.bodies == [b"a"], "message")
            consumer.subscribe(second)
            await send_all(server, second, [b"b"])
            await until(lambda: seen.bodies == [b"a", b"b"], "message of the second topic")
            consumer.unsubscribe(first)
            await until(lambda: not of(consumer, first), "end of the first topic")
            await send_all(server, first, [b"c"], tags="A")
            await asyncio.sleep(QUIET_S)
        assert seen.bodies == [b"a", b"b"]

    run(body())


def polling(config: ClientConfig, **more: object) -> LitePullConsumer:
    """Return a member that polls, from the first message on."""
    options = {
        "consume_from": ConsumeFrom.FIRST_OFFSET, "suspend_ms": 2_000, "pull_timeout_ms": 8_000,
        **more,
    }  # fmt: skip
    return LitePullConsumer(config, LitePullOptions(**options))  # type: ignore[arg-type]  # by name


async def poll_all(consumer: LitePullConsumer, count: int) -> list[bytes]:
    """Poll until so many messages have come."""
    found: list[bytes] = []
    for _ in range(60):
        found += [message.body for message in await consumer.poll(1)]
        if len(found) >= count:
            return found
    raise AssertionError(found)


def test_a_polled_member_goes_on_behind_its_commit(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "polled")
        config = server.config(name("polled"))
        await send_all(server, topic, bodies(20))
        consumer = polling(config)
        consumer.subscribe(topic)
        async with consumer:
            assert Counter(await poll_all(consumer, 20)) == Counter(bodies(20))
        await send_all(server, topic, [b"next"])
        consumer = polling(config)
        consumer.subscribe(topic)
        async with consumer:
            assert await poll_all(consumer, 1) == [b"next"]

    run(body())


def test_an_assigned_member_seeks_and_commits(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "assigned", 2)
        config = server.config(name("assigned"))
        async with Producer(config) as producer:
            queue = sorted(await producer.fetch_publish_queues(topic))[1]
            for number in range(10):
                if number == 5:
                    await asyncio.sleep(1.1)
                await producer.send(Message(topic, b"%d" % number), queue)
        found = await stored(server, topic, 10)
        async with polling(config, auto_commit=False) as consumer:
            assert sorted(await consumer.fetch_queues(topic))[1] == queue
            consumer.assign([queue])
            assert await consumer.committed(queue) == -1
            assert await poll_all(consumer, 10) == bodies(10)
            await consumer.seek(queue, 7)
            assert await poll_all(consumer, 3) == bodies(3, 7)
            await consumer.seek_to_begin(queue)
            assert await poll_all(consumer, 10) == bodies(10)
            await consumer.seek_to_timestamp(queue, found[5].store_timestamp)
            assert await poll_all(consumer, 5) == bodies(5, 5)
            await consumer.seek_to_end(queue)
            assert await consumer.poll(0.5) == []
            await consumer.commit({queue: 4})
            assert await consumer.committed(queue) == 4
        async with polling(config, auto_commit=False) as consumer:
            consumer.assign([queue])
            assert await poll_all(consumer, 6) == bodies(6, 4)

    run(body())


def test_queues_are_read_by_hand(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "read", 1)
        await send_goods(server, topic)
        found = await stored(server, topic, 10)
        async with PullConsumer(server.config(name("reading"))) as reader:
            [queue] = await reader.fetch_subscribe_queues(topic)
            assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 10)
            assert await reader.fetch_offset(queue) == -1
            await reader.commit_offset(queue, 3)  # 5.3.3 refuses it once, before a heartbeat
            assert await reader.fetch_offset(queue) == 3
            tagged = await reader.pull(queue, "A", 0)
            assert [one.body for one in tagged.messages] == [b"0", b"3", b"6", b"9"]
            nothing = await reader.pull(queue, "*", 10, block_ms=300)
            assert nothing.messages == []
            begin = found[0].store_timestamp
            assert await reader.search_offset(queue, begin) == 0
            waiting = asyncio.ensure_future(reader.pull(queue, "*", 10, block_ms=10_000))
            await asyncio.sleep(0.2)
            await send_all(server, topic, [b"fresh"])
            assert [one.body for one in (await waiting).messages] == [b"fresh"]

    run(body())
