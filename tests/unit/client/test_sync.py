"""The blocking facade: one loop thread, listeners in threads, no deadlock, clear errors."""

import asyncio
import inspect
import subprocess
import sys
import threading
import time

import pytest

import ledgermq
from ledgermq import (
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    LitePullOptions,
    Message,
    MessageQueue,
    NotRunning,
    SendFailed,
    TransactionState,
    sync,
)
from ledgermq.sync import (
    AdminClient,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, Cluster

LOOP = "ledgermq-loop"


class Server:
    """A fake cluster in a loop and a thread of its own."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.cluster = Cluster()

    def __enter__(self):
        self._thread.start()
        self.run(self.cluster.start())
        return self

    def __exit__(self, *_):
        self.run(self.cluster.stop())
        self.run(self._closed())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _closed(self):
        """Wait until connections that came last have learnt that they are closed."""
        deadline = time.monotonic() + 5
        await asyncio.sleep(0.05)
        while len(self._loop._selector.get_map()) > 1 and time.monotonic() < deadline:
            await asyncio.sleep(0.01)  # the one that stays wakes the loop up
        await asyncio.sleep(0)

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def config(self, **settings):
        return self.cluster.config(**settings)


@pytest.fixture
def server():
    with Server() as running:
        yield running
    assert not [one for one in threading.enumerate() if one.name == LOOP]


def push(server, listen, **settings):
    options = ConsumeOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000
    )
    consumer = PushConsumer(server.config(**settings), listen, options)
    consumer.subscribe(TOPIC)
    return consumer


def until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sends_from_many_threads_come_to_listeners_that_block(server):
    seen, at_once, most = [], threading.Semaphore(0), []
    running = set()

    def listen(messages, context):
        running.add(threading.get_ident())
        most.append(len(running))
        time.sleep(0.02)
        running.discard(threading.get_ident())
        seen.extend(message.body for message in messages)
        at_once.release()
        return ConsumeStatus.CONSUME_SUCCESS

    with push(server, listen) as consumer, Producer(server.config(group="pg")) as producer:
        consumer.wait_joined(5)
        assert len(consumer.assigned_queues) == 5 - 1
        assert consumer.problems == {}

        def work(number):
            for i in range(10):
                producer.send(Message(TOPIC, b"%d-%d" % (number, i)))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        until(lambda: len(seen) == 40)
        assert len(set(seen)) == 40
        assert max(most) > 1
        loops = [one for one in threading.enumerate() if one.name == LOOP]
        assert len(loops) == 1


def send_from_a_listener(server):
    """A listener that answers with a message by another client of the module; returns what came."""
    answers = []

    with Producer(server.config(group="pg")) as producer:

        def listen(messages, context):
            for message in messages:
                result = producer.send(
                    Message(TOPIC + "2", b"re " + message.body), timeout_ms=1_000
                )
                answers.append(result.msg_id)
            return ConsumeStatus.CONSUME_SUCCESS

        with push(server, listen) as consumer:
            consumer.wait_joined(5)
            producer.send(Message(TOPIC, b"question"))
            deadline = time.monotonic() + 2
            while not answers and time.monotonic() < deadline:
                time.sleep(0.01)
    return answers


def test_a_listener_may_use_other_clients(server):
    server.cluster.publish(TOPIC, TOPIC + "2")
    assert len(send_from_a_listener(server)) == 1


def test_a_listener_in_the_loop_is_found(server):
    server.cluster.publish(TOPIC, TOPIC + "2")
    with planted(BY_TESTS["listener-in-the-loop"]):
        assert send_from_a_listener(server) == []


def test_a_listener_cannot_stop_its_own_consumer(server):
    errors, done = [], threading.Event()

    def listen(messages, context):
        try:
            consumer.stop()
        except RuntimeError as error:
            errors.append(str(error))
        done.set()
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = push(server, listen)
    with consumer, Producer(server.config(group="pg")) as producer:
        consumer.wait_joined(5)
        producer.send(Message(TOPIC, b"x"))
        assert done.wait(5)
    assert "threading.Event" in errors[0]


def test_a_coroutine_is_told_to_use_the_other_classes(server):
    producer = Producer(server.config())

    async def main():
        with pytest.raises(RuntimeError, match="coroutine uses the same classes"):
            producer.start()
        with pytest.raises(RuntimeError, match="coroutine uses the same classes"):
            producer.send(Message(TOPIC, b"x"))
        with pytest.raises(RuntimeError, match="coroutine uses the same classes"):
            producer.stop()

    asyncio.run(main())

    async def listen(_messages, _context):
        return ConsumeStatus.CONSUME_SUCCESS

    with pytest.raises(TypeError, match=r"ledgermq\.PushConsumer"):
        PushConsumer(server.config(), listen)


def test_it_is_used_between_start_and_stop(server):
    producer = Producer(server.config())
    with pytest.raises(NotRunning):
        producer.send(Message(TOPIC, b"x"))
    producer.start()
    with pytest.raises(RuntimeError, match="started already"):
        producer.start()
    queues = producer.fetch_publish_queues(TOPIC)
    assert len(queues) == 4
    results = producer.send_all([Message(TOPIC, b"1"), Message(TOPIC, b"2")], queues[1])
    assert results[0].queue == queues[1]
    assert producer.send_batch([Message(TOPIC, b"3")]).msg_id
    assert producer.send_oneway(Message(TOPIC, b"4"))
    producer.create_topic(TOPIC, 4)
    assert "@" in producer.client_id
    stops = [threading.Thread(target=producer.stop) for _ in range(3)]
    for thread in stops:
        thread.start()
    for thread in stops:
        thread.join(10)
    producer.stop()
    with pytest.raises(NotRunning):
        producer.send(Message(TOPIC, b"x"))
    with pytest.raises(RuntimeError, match="starts only once"):
        producer.start()


def test_a_start_that_fails_leaves_no_thread(server):
    consumer = PushConsumer(server.config(), lambda *_: ConsumeStatus.CONSUME_SUCCESS)
    with pytest.raises(ValueError, match="subscribe"):
        consumer.start()
    assert not [one for one in threading.enumerate() if one.name == LOOP]


def test_a_stop_ends_calls_that_wait():
    config = ClientConfig(namesrv_addrs=("127.0.0.1:1",), group="g", send_timeout_ms=30_000)
    ended = []
    with Producer(config) as producer:

        def work():
            try:
                producer.send(Message(TOPIC, b"x"))
            except (SendFailed, NotRunning) as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.1)
    thread.join(5)
    assert len(ended) == 1


def test_polling_and_seeking_block(server):
    queue = MessageQueue(TOPIC, "group-0", 0)
    options = LitePullOptions(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200)
    consumer = LitePullConsumer(server.config(), options)
    consumer.subscribe(TOPIC)
    with Producer(server.config(group="pg")) as producer, consumer:
        for number in range(4):
            producer.send(Message(TOPIC, b"%d" % number), queue)
        found = []
        for message in consumer:
            found.append(message.body)
            if len(found) == 4:
                break
        assert found == [b"0", b"1", b"2", b"3"]
        consumer.commit()
        assert consumer.committed(queue) == 4
        assert consumer.position(queue) == 4
        consumer.seek(queue, 2)
        assert [one.body for one in consumer.poll(5, 1)] == [b"2"]
        consumer.seek_to_begin(queue)
        assert [one.body for one in consumer.poll(5, 1)] == [b"0"]
        consumer.seek_to_timestamp(queue, consumer.offset_for_timestamp(queue, 0))
        consumer.seek_to_end(queue)
        consumer.pause([queue])
        consumer.resume()
        assert consumer.poll(0.05) == []
        assert len(consumer.fetch_queues(TOPIC)) == 4
    chosen = LitePullConsumer(server.config(group="other"), options)
    chosen.assign([queue])
    with chosen:
        assert len(chosen.poll(5)) >= 1


def test_queues_are_read_from_anywhere(server):
    queue = MessageQueue(TOPIC, "group-0", 1)
    with Producer(server.config(group="pg")) as producer:
        for number in range(3):
            producer.send(Message(TOPIC, b"%d" % number, tags=["even", "odd"][number % 2]), queue)
    with PullConsumer(server.config()) as consumer:
        assert queue in consumer.fetch_subscribe_queues(TOPIC)
        assert [one.body for one in consumer.pull(queue, offset=1).messages] == [b"1", b"2"]
        assert [one.body for one in consumer.pull(queue, "even").messages] == [b"0", b"2"]
        assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 3)
        assert consumer.search_offset(queue, 0) == 0
        assert consumer.fetch_offset(queue) == -1
        consumer.commit_offset(queue, 2)
        assert consumer.fetch_offset(queue) == 2
        assert "@" in consumer.client_id


def test_a_cluster_is_looked_after(server):
    queue = MessageQueue(TOPIC, "group-0", 1)
    with Producer(server.config(group="pg")) as producer:
        producer.send(Message(TOPIC, b"x"), queue)
    with AdminClient(server.config(group="admin")) as admin:
        admin.create_topic(TOPIC, 4)
        assert queue in admin.topic_route(TOPIC).publish_queues
        found = admin.message_at(queue, 0)
        assert found is not None
        assert found.body == b"x"
        assert admin.message_at(queue, 1) is None
    with pytest.raises(NotRunning):
        admin.topics()


SENDING = {"attempt", "choose", "deliver", "maybe_place", "select", "told"}
MEMBER = {
    "background", "claim", "claims", "CONSUME_TYPE", "expression_in_pull", "first_offset",
    "heartbeat", "maybe_flow_control", "move", "new_queue", "on_full", "settled", "stored_offset",
    "subscription", "subscriptions",
}  # fmt: skip
INNER = {
    "Producer": SENDING, "TransactionProducer": SENDING, "PushConsumer": MEMBER | {"send_back"},
    "LitePullConsumer": MEMBER | {"take_back", "on_queues_changed"},
}  # fmt: skip
"""What the asyncio clients have for one another; and what the manual says is missing."""


@pytest.mark.parametrize("name", sync.__all__)
def test_the_blocking_clients_have_the_methods_of_the_others(name):
    blocking, other = getattr(sync, name), getattr(ledgermq, name)
    wanted = {one for one in dir(other) if not one.startswith("_")} - INNER.get(name, set())
    assert wanted <= set(dir(blocking))
    for method in wanted:
        ours, theirs = getattr(blocking, method), getattr(other, method)
        if isinstance(theirs, property):
            assert isinstance(ours, property), method
            continue
        pairs = zip(
            inspect.signature(ours).parameters.values(),
            inspect.signature(theirs).parameters.values(),
            strict=True,
        )
        assert all((a.name, a.kind, a.default) == (b.name, b.kind, b.default) for a, b in pairs)


def test_transactions_run_their_local_part_in_a_thread(server):
    class Orders:
        def __init__(self):
            self.threads = []

        def execute(self, message, arg):
            self.threads.append((threading.current_thread().name, arg))
            return TransactionState.COMMIT

        def check(self, message):
            return TransactionState.UNKNOWN

    orders = Orders()
    with TransactionProducer(server.config(group="pg"), orders) as producer:
        result = producer.send_in_transaction(Message(TOPIC, b"half"), 7)
    assert result.state is TransactionState.COMMIT
    assert orders.threads == [("listener", 7)]


def test_everything_is_imported_by_a_star_and_the_loop_ends_with_the_process():
    program = (
        "from ledgermq import *\n"
        "import ledgermq, sys\n"
        "assert Producer is ledgermq.Producer and LitePullConsumer and Sql92\n"
        "assert set(ledgermq.__all__) == set(ledgermq.client.__all__)\n"
        "p = ledgermq.sync.Producer(ClientConfig(namesrv_addrs=('127.0.0.1:1',), group='g'))\n"
        "p.start()\n"
        "print('started')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
