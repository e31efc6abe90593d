"""Blocking calls that signals interrupt, that are made late or in a forked process."""

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

from ledgermq import ClientConfig, ConsumeFrom, LitePullOptions, Message, MessageQueue, NotRunning
from ledgermq.sync import LitePullConsumer, Producer
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC
from tests.unit.client.test_sync import LOOP, Server

NOWHERE = ClientConfig(namesrv_addrs=("127.0.0.1:1",), group="g")
QUEUE = MessageQueue(TOPIC, "group-0", 0)


@pytest.fixture
def server():
    with Server() as running:
        yield running
    assert not loops()


def loops():
    return [one for one in threading.enumerate() if one.name == LOOP]


@contextlib.contextmanager
def handled(handler):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def ctrl_c(*_):
    raise KeyboardInterrupt


def signal_main():
    """Interrupt the main thread, in the loop, which goes on only after that."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    time.sleep(0.2)


def polled(server, count):
    with Producer(server.config(group="pg")) as producer:
        for number in range(count):
            producer.send(Message(TOPIC, b"%d" % number), QUEUE)
    options = LitePullOptions(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200)
    consumer = LitePullConsumer(server.config(), options)
    consumer.subscribe(TOPIC)
    return consumer


def committed(server):
    return server.cluster.group.offsets.get(("test-group", TOPIC, 0), -1)


def interrupt_a_poll_that_found_something(consumer, monkeypatch):
    poll = consumer._client.poll

    async def interrupted(timeout_s, max_count):
        found = await poll(timeout_s, max_count)
        signal_main()
        return found

    with monkeypatch.context() as patched, handled(ctrl_c):
        patched.setattr(consumer._client, "poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(5, 3)


def test_messages_of_an_interrupted_poll_come_with_the_next_one(server, monkeypatch):
    consumer = polled(server, 8)
    with consumer:
        assert [one.body for one in consumer.poll(5, 2)] == [b"0", b"1"]
        interrupt_a_poll_that_found_something(consumer, monkeypatch)
        assert consumer.position(QUEUE) == 2
        found = []
        while len(found) < 6:
            found += [one.body for one in consumer.poll(5, 4)]
        assert found == [b"2", b"3", b"4", b"5", b"6", b"7"]
    assert committed(server) == 8


def test_messages_of_an_interrupted_poll_are_not_committed_by_the_stop(server, monkeypatch):
    consumer = polled(server, 8)
    with consumer:
        assert len(consumer.poll(5, 2)) == 2
        interrupt_a_poll_that_found_something(consumer, monkeypatch)
    assert committed(server) == 2


def test_one_can_poll_behind_an_interrupted_poll_that_takes_a_while_to_end(server, monkeypatch):
    consumer = polled(server, 0)
    wait = consumer._client._polled.arrived.wait

    async def slow():
        try:
            await wait()
        finally:
            await asyncio.sleep(0.1)

    with consumer, handled(ctrl_c):
        monkeypatch.setattr(consumer._client._polled.arrived, "wait", slow)
        threading.Timer(0.1, consumer._loop.call_soon_threadsafe, (signal_main,)).start()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(10)
        assert consumer.poll(0.01) == []


def test_what_is_taken_back_is_the_last_poll_or_nothing(server):
    consumer = polled(server, 4)
    with consumer:
        first = consumer.poll(5, 1)
        second = consumer.poll(5, 1)
        consumer._client.take_back(first)
        assert consumer.position(QUEUE) == 1
        consumer._client.take_back(second)
        consumer._client.take_back(second)
        assert [one.body for one in consumer.poll(5, 1)] == [b"1"]


def test_a_stop_by_another_thread_commits_nothing_that_is_in_hand(server):
    consumer = polled(server, 4)
    in_hand, over = threading.Event(), threading.Event()

    def work():
        consumer.poll(5, 1)
        consumer.poll(5, 1)
        in_hand.set()
        over.wait(5)

    with consumer:
        worker = threading.Thread(target=work)
        worker.start()
        assert in_hand.wait(5)
        consumer.stop()
        over.set()
        worker.join()
    assert committed(server) == 1


def test_a_stop_inside_of_a_stop_returns(monkeypatch):
    producer = Producer(NOWHERE)
    producer.start()
    stop, nested = producer._client.stop, []

    async def slow():
        signal_main()
        await stop()

    def handler(*_):
        producer.stop()
        nested.append(producer._loop is not None)

    monkeypatch.setattr(producer._client, "stop", slow)
    with handled(handler):
        producer.stop()
    assert nested == [True]
    assert not loops()


def test_a_stop_that_was_interrupted_can_be_called_again(server, monkeypatch):
    consumer = polled(server, 0)
    with Producer(server.config(group="other")):
        consumer.start()
        consumer.wait_joined(5)
        stop = consumer._client.stop

        async def slow():
            signal_main()
            await asyncio.sleep(10)

        with monkeypatch.context() as patched, handled(ctrl_c):
            patched.setattr(consumer._client, "stop", slow)
            with pytest.raises(KeyboardInterrupt):
                consumer.stop()
        assert consumer._client.stop == stop
        assert consumer._client._instance.running
        consumer.stop()
        assert not consumer._client._instance.running


def test_a_start_that_was_interrupted_leaves_no_member(server, monkeypatch):
    consumer = polled(server, 0)
    start = consumer._client.start

    async def slow():
        await start()
        signal_main()

    with Producer(server.config(group="other")):
        with monkeypatch.context() as patched, handled(ctrl_c):
            patched.setattr(consumer._client, "start", slow)
            with pytest.raises(KeyboardInterrupt):
                consumer.start()
        assert consumer._client._instance._has_left
    consumer.stop()


def test_a_call_that_comes_behind_the_last_stop_is_told(monkeypatch):
    producer = Producer(NOWHERE)
    producer.start()
    running_loop = producer._running_loop

    def late():
        found = running_loop()
        monkeypatch.undo()
        producer.stop()
        return found

    monkeypatch.setattr(producer, "_running_loop", late)
    with pytest.raises(NotRunning):
        producer.fetch_publish_queues(TOPIC)


def test_the_last_stop_ends_what_begins_while_others_end():
    producer = Producer(NOWHERE)
    producer.start()
    began, ended, left = threading.Event(), [], []

    async def second():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("second")

    async def first():
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            left.append(asyncio.ensure_future(second()))
            await asyncio.sleep(0)
            ended.append("first")

    def call():
        try:
            producer._call(first())
        except NotRunning:
            ended.append("call")

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert began.wait(5)
    producer.stop()
    thread.join(5)
    assert sorted(ended) == ["call", "first", "second"]


FORK = """
import os, signal, sys
from ledgermq import ClientConfig
from ledgermq.sync import Producer
config = ClientConfig(namesrv_addrs=("127.0.0.1:1",), group="g")
before = Producer(config)
before.start()
child = os.fork()
if child == 0:
    signal.alarm(10)
    try:
        before.fetch_publish_queues("orders")
    except RuntimeError as error:
        print(error, flush=True)
    before.stop()
    with Producer(config) as mine:
        print(mine.client_id != before.client_id, flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
before.stop()
print(status)
"""


def test_a_forked_process_has_clients_of_its_own():
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    told, own, status = done.stdout.splitlines()
    assert "make a new one" in told
    assert (own, status) == ("True", "0")


def test_an_interrupted_poll_that_is_done_is_found_here(server, monkeypatch):
    with planted(BY_TESTS["interrupted-poll-is-done"]), pytest.raises(AssertionError):
        test_messages_of_an_interrupted_poll_are_not_committed_by_the_stop(server, monkeypatch)


def test_a_stop_by_another_thread_that_commits_is_found_here(server):
    with planted(BY_TESTS["stop-by-another-thread-commits"]), pytest.raises(AssertionError):
        test_a_stop_by_another_thread_commits_nothing_that_is_in_hand(server)


def test_an_interrupted_stop_that_leaves_a_member_is_found_here(server, monkeypatch):
    with planted(BY_TESTS["interrupted-stop-leaves-a-member"]), pytest.raises(AssertionError):
        test_a_stop_that_was_interrupted_can_be_called_again(server, monkeypatch)
    with warnings.catch_warnings():  # The bug leaves its connections open.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
