"""Replies: passed on to who asked, kept, refused, and bounded."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from broker.groups.client_registry import Client, ProducerRegistry
from broker.limits import REPLIES_BYTES_MAX, REPLIES_MAX, REPLIES_OF_CLIENT_MAX
from broker.processor.reply import PUSH_MS, ReplyProcessor
from broker.sends.creation import Creator
from broker.state.replicated_state import ReplicatedState
from broker.state.subscription import SubscriptionGroupTable
from broker.state.topic_config import TopicTable
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RequestTimeout
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import (
    ApplyingProposer,
    FakeClock,
    FakeConnection,
    FakePublisher,
    FakeStore,
    free_room,
    no_wait,
    request,
)
from tests.unit.broker.test_send import STORE_HOST, door

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOPIC = "C_REPLY_TOPIC"
ASKER = "10.0.0.1@asker"
PROPERTIES = (
    f"MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01{ASKER}\x02CORRELATION_ID\x01id-1\x02TTL\x013"
)


class Asker(FakeConnection):
    """The connection of who asked: takes what is passed on, as told."""

    def __init__(self, number: int = 9) -> None:
        super().__init__(number)
        self.pushed: list[tuple[RemotingCommand, int]] = []
        self.code = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.silent = False

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.pushed.append((command, timeout_ms))
        await self.gate.wait()
        if self.silent:
            raise RequestTimeout("no answer")
        return RemotingCommand(self.code)


class Bench:
    """A processor with fakes around it; what is stored is stored at once."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.producers = ProducerRegistry()
        self.store = FakeStore()
        self.asker = Asker()
        self.join(self.asker)
        self.puts: defaultdict[str, int] = defaultdict(int)
        self.status = PutStatus.OK
        topics = TopicTable(
            [
                TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1),
                TopicConfig(topic_name="SCHEDULE_TOPIC_XXXX"),
                TopicConfig(topic_name="shut", perm=4),
                TopicConfig(topic_name="TBW102", perm=7),
            ],
            0,
        )
        self.topics, state = topics, ReplicatedState(topics)
        creator = Creator(
            topics=topics, groups=SubscriptionGroupTable(0), proposer=ApplyingProposer(state),
            publisher=FakePublisher(), clock=FakeClock(), serve=lambda *_: None, enter=no_wait,
            is_orderly=lambda _: False,
        )  # fmt: skip
        self.processor = ReplyProcessor(
            topics=topics.entries,
            maker=creator,
            producers=self.producers,
            store=self.store if keeps else None,
            door=door(),
            clock=FakeClock(),
            store_host=STORE_HOST,
            puts=self.puts,
            room=free_room(),
        )

    def join(self, connection: Asker, client_id: str = ASKER) -> None:
        self.producers.register("askers", Client(connection, client_id, 0, 407, 0))

    async def reply(self, body: bytes = b"re", **changes: Any) -> RemotingCommand:
        fields = {
            "a": "repliers", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 11, "h": 7,
            "i": PROPERTIES, "j": 0, "k": "false", "m": "false",
        } | changes  # fmt: skip
        task = asyncio.ensure_future(
            self.processor.handle(FakeConnection(2), request(325, body, **fields))
        )
        while not task.done() and (self.asker.gate.is_set() or not self.asker.pushed):
            await self.turn()
        return await task

    async def turn(self) -> None:
        """Let everybody go on, and store what there is to store."""
        await asyncio.sleep(0)
        self.store.finish(self.status)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_a_reply_is_passed_on_and_kept() -> None:
    async def body() -> None:
        bench = Bench()
        answer = await bench.reply()
        assert answer.code == 0
        assert answer.ext_fields == {
            "queueId": "0", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion",
            "msgId": STORE_HOST.hex().upper() + "0" * 16, "queueOffset": "0",
        }  # fmt: skip
        ((pushed, timeout_ms),) = bench.asker.pushed
        assert (pushed.code, pushed.body, timeout_ms) == (326, b"re", PUSH_MS)
        assert pushed.ext_fields["properties"].endswith(PROPERTIES)
        assert pushed.ext_fields["properties"].startswith("PUSH_REPLY_TIME\x011700000001000\x02")
        assert bench.puts == {TOPIC: 1}
        assert (bench.processor.running, bench.processor.running_bytes) == (0, 0)

    run(body)


def test_the_long_form_is_the_same() -> None:
    async def body() -> None:
        bench = Bench()
        names = (
            "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp "
            "flag properties"
        )
        values = ("repliers", TOPIC, "TBW102", 4, -1, 0, 11, 7, PROPERTIES)
        command = request(324, b"re", **dict(zip(names.split(), values, strict=True)))
        task = asyncio.ensure_future(bench.processor.handle(FakeConnection(2), command))
        while not task.done():
            await asyncio.sleep(0)
            bench.store.finish()
        assert (await task).code == 0
        assert bench.asker.pushed[0][0].ext_fields["producerGroup"] == "repliers"

    run(body)


def test_without_keeping_them_replies_have_no_place() -> None:
    async def body() -> None:
        bench = Bench(keeps=False)
        answer = await bench.reply()
        assert (answer.ext_fields["msgId"], answer.ext_fields["queueOffset"]) == ("0", "0")
        assert not bench.puts
        bench = Bench()
        bench.status = PutStatus.DISK_FULL
        answer = await bench.reply()
        assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")
        assert not bench.puts

    run(body)


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("A\x01b", "REPLY_TO_CLIENT is null, can not reply message"),
        ("REPLY_TO_CLIENT\x01x", "push reply message fail, channel of <x> not found."),
        (PROPERTIES, f"push reply message to {ASKER}fail."),
    ],
)
def test_who_is_not_there_or_refuses_gets_nothing_and_it_is_told(properties, remark) -> None:
    async def body() -> None:
        bench = Bench()
        bench.asker.code = 1
        answer = await bench.reply(i=properties)
        assert (answer.code, answer.remark) == (1, remark)
        assert bench.puts == {TOPIC: 1}  # It is kept all the same, as by RocketMQ.

    run(body)


def test_a_silent_client_is_not_waited_for_without_end() -> None:
    async def body() -> None:
        bench = Bench()
        bench.asker.silent = True
        assert (await bench.reply()).code == 1

    run(body)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "no-such-topic", "c": TOPIC}, 17),
        ({"b": "no such topic"}, 1),
        ({"b": "%RETRY%g"}, 17),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"b": "shut"}, 16),
        ({"e": 1}, 1),
        ({"i": PROPERTIES + "\x02DELAY\x013"}, 13),
    ],
)
def test_what_is_no_reply_is_refused(changes: dict[str, Any], code: int) -> None:
    async def body() -> None:
        bench = Bench()
        assert (await bench.reply(**changes)).code == code
        assert not bench.asker.pushed
        assert not bench.puts

    run(body)


async def reply_in_a_namespace(**changes: Any) -> tuple[int, list[str]]:
    """Return the answer to a reply whose producer has a namespace, and the topics made for it."""
    bench = Bench()
    there = set(bench.topics.entries)
    answer = await bench.reply(b="ns%C_REPLY_TOPIC", **changes)
    assert len(bench.asker.pushed) == (not answer.code)
    assert (bench.processor.running, bench.processor.running_bytes) == (0, 0)
    return answer.code, sorted(set(bench.topics.entries) - there)


def test_the_topic_of_a_reply_is_made_as_that_of_a_send() -> None:
    """Java's client puts its namespace in front of the topic, whose route nobody knows."""

    async def body() -> None:
        assert await reply_in_a_namespace() == (0, ["ns%C_REPLY_TOPIC"])
        assert await reply_in_a_namespace(i=PROPERTIES + "\x02DELAY\x013") == (13, [])
        with planted(BY_TESTS["no-topic-for-a-reply"]):
            assert await reply_in_a_namespace() == (17, [])

    run(body)


def test_a_reply_without_a_body_is_passed_on_and_not_kept() -> None:
    """As the Go client's CreateReplyMessage makes it, and RocketMQ 4.9.7 takes it."""

    async def body() -> None:
        bench = Bench()
        answer = await bench.reply(b"")
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
        ((pushed, _),) = bench.asker.pushed
        assert (pushed.body, pushed.ext_fields["producerGroup"]) == (b"", "repliers")
        assert not bench.puts

    run(body)


def test_half_messages_are_no_replies() -> None:
    async def body() -> None:
        bench = Bench()
        assert (await bench.reply(f=4)).code in {13, 16}
        assert (await bench.reply(i=PROPERTIES + "\x02TRAN_MSG\x01true")).code in {13, 16}
        assert not bench.asker.pushed

    run(body)


def last_connection_gets_it() -> None:
    async def body() -> None:
        bench = Bench()
        again = Asker(10)
        bench.join(again)
        await bench.reply()
        assert (len(bench.asker.pushed), len(again.pushed)) == (0, 1)
        bench.producers.close(10)
        await bench.reply()
        assert len(bench.asker.pushed) == 1
        bench.producers.close(9)
        assert bench.producers.find(ASKER) is None

    run(body)


def test_the_last_connection_of_a_client_gets_its_replies() -> None:
    last_connection_gets_it()


def test_one_client_in_two_groups_leaves_one_of_them() -> None:
    producers = ProducerRegistry()
    client = Client(FakeConnection(1), ASKER, 0, 407, 0)  # type: ignore[arg-type]
    producers.register("a", client)
    producers.register("b", client)
    producers.unregister("a", 1)
    assert producers.find(ASKER) == client
    producers.unregister("b", 1)
    assert producers.find(ASKER) is None


def replies_that_nobody_takes() -> None:
    async def body() -> None:
        bench = Bench()
        bench.asker.gate.clear()
        taken = [asyncio.ensure_future(bench.reply()) for _ in range(REPLIES_OF_CLIENT_MAX)]
        while len(bench.asker.pushed) < REPLIES_OF_CLIENT_MAX:
            await bench.turn()
        assert bench.processor.running == REPLIES_OF_CLIENT_MAX
        async with asyncio.timeout(1):
            assert (await bench.reply()).code == 2
        bench.asker.gate.set()
        while bench.processor.running:
            await bench.turn()
        assert {one.code for one in await asyncio.gather(*taken)} == {0}
        assert (await bench.reply()).code == 0

    run(body)


def test_a_client_that_takes_nothing_holds_only_so_much() -> None:
    assert REPLIES_OF_CLIENT_MAX < REPLIES_MAX
    replies_that_nobody_takes()


def test_all_that_is_under_way_is_bounded() -> None:
    async def body() -> None:
        bench = Bench()
        bench.processor._share.take("others", int(REPLIES_MAX))
        assert (await bench.reply()).code == 2
        bench.processor._share.take("others", -int(REPLIES_MAX))
        bench.processor.running_bytes = int(REPLIES_BYTES_MAX)
        assert (await bench.reply()).code == 2
        assert not bench.asker.pushed

    run(body)


def replies_of_an_address_that_has_much() -> None:
    async def body() -> None:
        bench = Bench()
        much = int(REPLIES_MAX) // 5
        bench.processor._share.take("127.0.0.1", much)  # that of all connections here
        assert (await bench.reply()).code == 2
        bench.processor._share.take("127.0.0.1", -much)
        bench.processor._share.take("10.0.0.9", much)
        assert (await bench.reply()).code == 0

    run(body)


def test_an_address_leaves_room_for_the_others() -> None:
    replies_of_an_address_that_has_much()


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (BY_TESTS["replies-without-shares"], replies_of_an_address_that_has_much),
        (MUTANTS["reply-to-a-connection-that-is-gone"], last_connection_gets_it),
        (BY_TESTS["replies-without-room"], replies_that_nobody_takes),
    ],
)
def test_planted_bugs_are_found(mutant, check) -> None:
    with planted(mutant), pytest.raises((AssertionError, TimeoutError)):
        check()
