"""What blocks a push consumer is raised, told and logged; ``ledgermq consume`` says it."""

import asyncio
import logging

import pytest

from cli.consume import Printer, Wanted, check_expression, print_messages
from cli.main import run as command_line
from cli.messages import Tally
from cli.produce import Sending, send_all
from ledgermq.client import (
    ClientConfig,
    ConsumeStatus,
    Message,
    NameServersUnreachable,
    NoRoute,
    Producer,
    PushConsumer,
)
from ledgermq.remoting.protocol.codes import RequestCode
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

NOWHERE = "127.0.0.1:1"


def take(_messages, _context):
    return ConsumeStatus.CONSUME_SUCCESS


def consumer_of(config, topic=TOPIC):
    consumer = PushConsumer(config, take)
    consumer.subscribe(topic)
    return consumer


def wanted(**others):
    default = {
        "topic": TOPIC, "expression": "*", "sql": "", "group": "cli", "count": 1, "seconds": 2.0
    }  # fmt: skip
    return Wanted(**(default | others))


async def consume(servers, what):
    return await print_messages(servers, what, Printer(what))


async def given(*texts):
    for text in texts:
        yield text.encode()


async def never_answered():
    config = ClientConfig(namesrv_addrs=(NOWHERE,), group="g")
    async with consumer_of(config) as consumer:
        with pytest.raises(NameServersUnreachable, match=NOWHERE):
            await consumer.wait_joined(0.5)
        assert isinstance(consumer.problems[TOPIC], NameServersUnreachable)


def test_name_servers_that_do_not_answer_are_raised_and_a_warning_once(caplog):
    with caplog.at_level(logging.WARNING):
        asyncio.run(never_answered())
    said = [r.getMessage() for r in caplog.records if "event=not_consumed" in r.getMessage()]
    assert len(said) == 1
    assert NOWHERE in said[0]


def test_a_planted_silence_is_noticed():
    with planted(HARNESS_BUGS["silent-consumer"]), pytest.raises(pytest.fail.Exception):
        asyncio.run(never_answered())


def test_an_unknown_topic_is_raised_and_taken_up_once_it_exists():
    async def body(cluster):
        config = cluster.config(leader_check_ms=50)
        async with consumer_of(config, "later") as consumer:
            with pytest.raises(NoRoute, match="later"):
                await consumer.wait_joined(0.3)
            assert list(consumer.problems) == ["later"]
            cluster.publish("later")
            await consumer.wait_joined(5)
            assert consumer.problems == {}
            assert consumer.assigned_queues

    run(body)


def test_a_group_that_is_joined_blocks_nobody():
    async def body(cluster):
        async with consumer_of(cluster.config()) as consumer:
            await consumer.wait_joined(5)
            assert consumer.problems == {}

    run(body)


def test_consume_prints_what_it_takes_and_says_why_it_takes_nothing(capsys):
    async def body(cluster):
        servers = tuple(server.addr for server in cluster.name_servers)
        async with Producer(cluster.config(group="pg")) as producer:
            await producer.send(Message(TOPIC, b"hello", "red"))
        assert await consume(servers, wanted(seconds=8.0)) == 0
        assert "hello" in capsys.readouterr().out
        assert await consume(servers, wanted(topic="nobody-knows", seconds=0.5)) == 1
        said = capsys.readouterr().err
        assert "topic nobody-knows can not be consumed" in said
        assert await consume(servers, wanted(expression="blue", seconds=1.0)) == 1
        said = capsys.readouterr().err
        assert "0 of 1 messages of orders with tags blue came in 1 s" in said

    run(body)


@pytest.mark.parametrize("how", [{"orderly": True}, {"broadcast": True}, {}])
def test_consume_takes_messages_in_order_or_for_itself_alone(how, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    async def body(cluster):
        servers = tuple(server.addr for server in cluster.name_servers)
        sending = Sending(topic=TOPIC, shard="order-7", count=3)
        assert await send_all(servers, given("hello"), sending, Tally("sent")) == 0
        assert len(set(capsys.readouterr().out.split()[::3])) == 1
        assert await consume(servers, wanted(seconds=8.0, count=3, **how)) == 0
        assert capsys.readouterr().out.count("hello") == 3
        assert bool(cluster.replicas[0].count(RequestCode.LOCK_BATCH_MQ)) is ("orderly" in how)
        assert bool(list(tmp_path.rglob("offsets.json"))) is ("broadcast" in how)

    run(body)


def test_consume_names_the_name_servers_that_do_not_answer(capsys):
    assert command_line(["consume", "-t", "t", "-n", NOWHERE, "--seconds", "0.5"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"no answer from {NOWHERE}: " in captured.err


@pytest.mark.parametrize("tags", ["red | blue", "red ||", "red || || blue", "*x", "red blue"])
def test_an_expression_that_can_not_be_meant_is_wrong_usage(tags, capsys):
    assert command_line(["consume", "-t", "t", "--tags", tags]) == 2
    assert "--tags" in capsys.readouterr().err


@pytest.mark.parametrize("tags", ["*", "", "red", "red||blue", " red || blue-2_x "])
def test_expressions_that_are_meant_are_taken(tags):
    check_expression(tags)


@pytest.mark.parametrize("words", [["-t", "a b"], ["-t", "t", "-g", "no group"]])
def test_names_that_no_broker_takes_are_wrong_usage(words, capsys):
    assert command_line(["consume", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_second_start_is_refused_and_changes_nothing():
    async def body(cluster):
        async with consumer_of(cluster.config()) as consumer:
            await consumer.wait_joined(5)
            before = dict(consumer.subscriptions)
            with pytest.raises(RuntimeError, match="only once"):
                await consumer.start()
            assert consumer.subscriptions == before
            await consumer.wait_joined(0.01)

    run(body)


def test_a_start_behind_a_stop_is_refused():
    async def body(cluster):
        consumer = PushConsumer(cluster.config(), take)
        consumer.subscribe(TOPIC)
        for client in (consumer, Producer(cluster.config())):
            await client.stop()
            with pytest.raises(RuntimeError, match="starts only once"):
                await client.start()
            await client.stop()

    run(body)
