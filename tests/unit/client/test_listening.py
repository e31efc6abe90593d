"""A listener that raises a cancellation which nobody asked for has failed like any other."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageModel,
    MessageQueue,
    PushConsumer,
    Unfinished,
)
from ledgermq.client.listening import WatchedListener, call_listener, check_listener
from ledgermq.runtime.clock import SystemClock
from ledgermq.sync import PushConsumer as BlockingConsumer
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_live_changes import produce

QUEUE = MessageQueue(TOPIC, "group-0", 0)


class Listener:
    """Awaits a task of its own, which is cancelled the first time that a body comes."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.done: set[bytes] = set()

    async def __call__(self, messages, _context):
        body = messages[0].body
        self.seen.append(body)
        own = asyncio.ensure_future(asyncio.sleep(0))
        if self.seen.count(body) == 1:
            own.cancel()
        await own
        self.done.add(body)
        return ConsumeStatus.CONSUME_SUCCESS


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("way", ["concurrent", "orderly", "broadcast"])
def test_what_it_was_given_is_failed_and_the_others_are_consumed(way, tmp_path, caplog):
    async def body(cluster):
        listener = Listener()
        cluster.group.send_back_refusal = None
        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000,
            concurrency=1, order_suspend_ms=10, orderly=way == "orderly",
            model=MessageModel.BROADCASTING if way == "broadcast" else MessageModel.CLUSTERING,
            local_offsets_dir=str(tmp_path),
        )  # fmt: skip
        consumer = PushConsumer(cluster.config(persist_offset_ms=50), listener, options)
        consumer.subscribe(TOPIC)
        async with consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 8)
            await until(lambda: len(set(listener.seen)) == 8)
            if way == "concurrent":
                await until(lambda: len(cluster.group.sent_back) == 8)
            elif way == "broadcast":
                await until(lambda: caplog.text.count("event=broadcast_message_dropped") == 8)
            else:
                await until(lambda: len(listener.done) == 8)
        if way != "broadcast":
            assert cluster.group.offsets["test-group", TOPIC, 0] == 2
        assert len(cluster.group.sent_back) == (8 if way == "concurrent" else 0)
        assert caplog.text.count("event=listener_failed") == 8

    run(body)


def test_a_call_whose_own_task_is_to_end_ends():
    async def body():
        begun = asyncio.Event()

        async def listen(_messages, _context):
            begun.set()
            await asyncio.Event().wait()

        call = asyncio.ensure_future(call_listener(listen, [], ConsumeContext(QUEUE)))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(body())


def test_a_worker_that_ends_with_its_listener_is_found_here(tmp_path, caplog):
    with (
        planted(BY_TESTS["cancelled-listener-ends-its-worker"]),
        pytest.raises((AssertionError, TimeoutError)),
    ):
        test_what_it_was_given_is_failed_and_the_others_are_consumed("orderly", tmp_path, caplog)


@pytest.mark.parametrize(
    ("orderly", "name", "value"),
    [(False, "delay_level", "x"), (False, "delay_level", -7), (True, "suspend_ms", "soon")],
)
def test_a_listener_that_asks_for_nonsense_is_warned_of_and_gets_its_message_again(
    orderly, name, value, caplog
):
    seen = []

    def listen(messages, context):
        seen.append(messages[0].reconsume_times)
        if len(seen) > 1:
            return ConsumeStatus.CONSUME_SUCCESS
        setattr(context, name, value)
        return ConsumeStatus.RECONSUME_LATER

    async def body(cluster):
        cluster.group.send_back_refusal = None
        await produce(cluster, 1)
        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET, orderly=orderly, order_suspend_ms=20,
            suspend_ms=200, pull_timeout_ms=1_000,
        )  # fmt: skip
        consumer = PushConsumer(cluster.config(), listen, options)
        consumer.subscribe(TOPIC)
        async with consumer:
            await until(lambda: len(seen) == 2 if orderly else bool(cluster.group.sent_back))
        assert [fields["delayLevel"] for fields in cluster.group.sent_back] == ["0"] * (not orderly)

    run(body)
    assert f"event=listener_asked {name}={value!r}" in caplog.text


def in_one_turn(messages, _context):
    del messages
    time.sleep(0.02)
    return ConsumeStatus.CONSUME_SUCCESS


async def behind_a_wait(messages, context):
    await asyncio.sleep(0)
    return in_one_turn(messages, context)


def in_a_future(_messages, _context):
    async def behind():
        time.sleep(0.02)
        return ConsumeStatus.CONSUME_SUCCESS

    class Awaited:
        def __await__(self):
            return behind().__await__()

    return Awaited()


async def when_it_is_cancelled(messages, context):
    own = asyncio.ensure_future(asyncio.sleep(0))
    own.cancel()
    try:
        await own
    except asyncio.CancelledError:
        return in_one_turn(messages, context)


async def while_it_waits(_messages, _context):
    await asyncio.sleep(0.05)
    return ConsumeStatus.CONSUME_SUCCESS


@pytest.mark.parametrize(
    ("listen", "is_warned"),
    [
        (in_one_turn, True), (behind_a_wait, True), (in_a_future, True),
        (when_it_is_cancelled, True), (while_it_waits, False),
    ],
)  # fmt: skip
def test_each_step_of_a_listener_that_blocks_the_loop_is_a_warning(
    listen, is_warned, caplog, monkeypatch
):
    monkeypatch.setattr("ledgermq.client.listening.BLOCKED_NS", 20_000_000)

    async def body():
        figures = SimpleNamespace(on_consumed=lambda *_, **__: None)
        watched = WatchedListener(listen, SystemClock(), figures)
        return await call_listener(watched, [], ConsumeContext(QUEUE))

    assert asyncio.run(body()) is ConsumeStatus.CONSUME_SUCCESS
    assert ("event=listener_blocked_loop" in caplog.text) == is_warned


def test_steps_that_nobody_looks_at_are_found_here(caplog, monkeypatch):
    with planted(BY_TESTS["steps-unwatched"]), pytest.raises(AssertionError):
        test_each_step_of_a_listener_that_blocks_the_loop_is_a_warning(
            behind_a_wait, True, caplog, monkeypatch
        )


def test_a_watched_call_that_is_cancelled_ends_its_listener():
    ended = []

    async def listen(_messages, _context):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def body():
        figures = SimpleNamespace(on_consumed=lambda *_, **__: None)
        watched = WatchedListener(listen, SystemClock(), figures)
        call = asyncio.ensure_future(call_listener(watched, [], ConsumeContext(QUEUE)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(body())
    assert ended == [True]


def stalls(monkeypatch):
    """Tell whether a queue whose first message is never finished is said to stand still."""
    monkeypatch.setattr("ledgermq.client.hindrances.LASTING_MS", 50)

    async def body(cluster):
        await produce(cluster, 8)
        ends = asyncio.Event()

        async def listen(_messages, _context):
            await ends.wait()
            return ConsumeStatus.CONSUME_SUCCESS

        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET, max_cached_messages=1, suspend_ms=200,
            pull_timeout_ms=1_000, flow_control_wait_ms=5, pull_batch_count=2,
        )  # fmt: skip
        consumer = PushConsumer(cluster.config(stop_timeout_ms=50), listen, options)
        consumer.subscribe(TOPIC)
        async with consumer:
            await until(lambda: isinstance(consumer.problems.get(TOPIC), Unfinished))
            ends.set()
            await until(lambda: not consumer.problems)

    run(body)


def test_a_listener_that_finishes_nothing_is_a_problem_until_it_does(monkeypatch):
    stalls(monkeypatch)


def test_a_stand_still_without_a_word_is_found_here(monkeypatch):
    with planted(BY_TESTS["stand-still-unsaid"]), pytest.raises(TimeoutError):
        stalls(monkeypatch)


@pytest.mark.parametrize("consumer", [PushConsumer, BlockingConsumer])
@pytest.mark.parametrize("listener", [None, "listen", lambda: None, lambda messages: messages])
def test_what_cannot_be_called_as_a_listener_is_refused_before_it_fails_for_messages(
    consumer, listener
):
    with pytest.raises(TypeError, match=r"\(messages, context\)"):
        consumer(ClientConfig(namesrv_addrs=("127.0.0.1:9",), group="g"), listener)


@pytest.mark.parametrize("listener", [print, lambda *_: None, lambda one, two, three=3: None])
def test_what_can_be_called_so_is_a_listener(listener):
    check_listener(listener)


async def finished_of_a_list_taken_apart(cluster):
    """Consume by a listener that empties its list, at first in vain; return what came again."""
    again = []

    def listen(messages, _context):
        while messages:
            message = messages.pop()
            if message.reconsume_times:
                again.append(message.body)
            elif message.body == b"2":
                return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    await produce(cluster, 8)
    options = ConsumeOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000,
        consume_batch_count=4, local_retry_ms=20,
    )  # fmt: skip
    consumer = PushConsumer(cluster.config(), listen, options)
    consumer.subscribe(TOPIC)
    async with consumer:
        held = consumer.assignment
        await until(lambda: len(held.queues) == 4)
        await until(lambda: sum(one.process_queue.next_offset for one in held.held) == 8)
        await asyncio.sleep(0.2)
        return again, sum(one.process_queue.cached_count for one in held.held)


def test_a_listener_may_take_its_list_apart():
    async def body(cluster):
        again, left = await finished_of_a_list_taken_apart(cluster)
        assert b"2" in again
        assert left == 0

    run(body)


def test_a_batch_that_its_listener_owns_is_found_here():
    async def body(cluster):
        _, left = await finished_of_a_list_taken_apart(cluster)
        assert left == 8

    with planted(BY_TESTS["listener-owns-the-batch"]):
        run(body)
