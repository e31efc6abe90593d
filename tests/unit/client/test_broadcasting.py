"""Broadcasting: every member gets everything, and keeps its offsets in a file as RocketMQ does."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageModel,
    MessageQueue,
    OffsetsUnusable,
    Producer,
    PushConsumer,
)
from ledgermq.client.local_offsets import LocalOffsets
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.runtime.disk import RealDisk
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

QUEUES = [MessageQueue(TOPIC, "group-0", number) for number in range(4)]


class Listener:
    """Notes the bodies it is given."""

    def __init__(self, fail=lambda _message: False):
        self.seen = []
        self._fail = fail

    def __call__(self, messages, _context):
        self.seen += [message.body for message in messages]
        if any(self._fail(message) for message in messages):
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    async def until(self, count):
        async with asyncio.timeout(5):
            while len(self.seen) < count:
                await asyncio.sleep(0.01)


def options(directory, **more):
    return ConsumeOptions(
        **{
            "model": MessageModel.BROADCASTING,
            "local_offsets_dir": str(directory),
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "suspend_ms": 200,
            "pull_timeout_ms": 1_000,
            **more,
        }
    )


def consumer_of(cluster, listener, directory, name="a", **more):
    config = cluster.config(instance_name=name, persist_offset_ms=50, leader_check_ms=50)
    consumer = PushConsumer(config, listener, options(directory, **more))
    consumer.subscribe(TOPIC)
    return consumer


async def produce(cluster, count, start=0):
    async with Producer(cluster.config(group="pg")) as producer:
        for number in range(start, start + count):
            await producer.send(Message(TOPIC, b"%d" % number), QUEUES[number % 4])


def expected(count, start=0):
    return sorted(b"%d" % number for number in range(start, start + count))


async def two_members_get_everything(cluster, directory):
    await produce(cluster, 20)
    one, other = Listener(), Listener()
    async with (
        consumer_of(cluster, one, directory) as first,
        consumer_of(cluster, other, directory, "b") as second,
    ):
        await one.until(20)
        await other.until(20)
        assert first.assigned_queues == second.assigned_queues == QUEUES
    assert sorted(one.seen) == sorted(other.seen) == expected(20)
    broker = cluster.replicas[0]
    assert not cluster.group.offsets
    assert not broker.count(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert not broker.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    said = [one for beat in broker.heartbeats for one in beat.get("consumerDataSet", [])]
    assert {one["messageModel"] for one in said} == {"BROADCASTING"}
    assert {sub["topic"] for one in said for sub in one["subscriptionDataSet"]} == {TOPIC}


def test_every_member_gets_every_message_and_no_broker_an_offset(tmp_path):
    run(lambda cluster: two_members_get_everything(cluster, tmp_path))


def test_a_planted_share_of_a_broadcast_is_noticed(tmp_path):
    with (
        planted(ALL["client-broadcast-is-shared"]),
        pytest.raises((AssertionError, TimeoutError)),
    ):
        run(lambda cluster: two_members_get_everything(cluster, tmp_path))


async def goes_on_where_it_stopped(cluster, directory):
    await produce(cluster, 8)
    one = Listener()
    async with consumer_of(cluster, one, directory):
        await one.until(8)
    again = Listener()
    await produce(cluster, 4, start=8)
    async with consumer_of(cluster, again, directory):
        await again.until(4)
        await asyncio.sleep(0.1)
    assert sorted(again.seen) == expected(4, start=8)


def test_a_member_goes_on_where_it_stopped(tmp_path):
    run(lambda cluster: goes_on_where_it_stopped(cluster, tmp_path))
    path = tmp_path / "127.0.0.1@a" / "test-group" / "offsets.json"
    text = path.read_text()
    assert text.startswith(
        '{"offsetTable":{{"brokerName":"group-0","queueId":0,"topic":"orders"}:3'
    )
    assert path.with_name("offsets.json.bak").exists()


def test_planted_offsets_that_are_never_written_are_noticed(tmp_path):
    with planted(ALL["local-offsets-not-written"]), pytest.raises(AssertionError):
        run(lambda cluster: goes_on_where_it_stopped(cluster, tmp_path))


def test_a_new_member_that_begins_at_the_end_skips_nothing_after_it_has_begun(tmp_path):
    async def body(cluster):
        await produce(cluster, 8)
        one = Listener()
        last = {"consume_from": ConsumeFrom.LAST_OFFSET}
        async with consumer_of(cluster, one, tmp_path, **last) as consumer:
            await consumer.wait_joined(5)
            await asyncio.sleep(0.05)
        await produce(cluster, 4, start=8)
        async with consumer_of(cluster, one, tmp_path, **last):
            await one.until(4)
        assert sorted(one.seen) == expected(4, start=8)

    run(body)


def test_a_message_that_fails_is_dropped_with_a_warning(tmp_path, caplog):
    async def body(cluster):
        await produce(cluster, 4)
        one = Listener(fail=lambda message: message.body == b"2")
        async with consumer_of(cluster, one, tmp_path):
            await one.until(4)
        assert sorted(one.seen) == expected(4)
        assert not cluster.group.sent_back

    with caplog.at_level(logging.WARNING):
        run(body)
    assert "event=broadcast_message_dropped" in caplog.text


def test_an_orderly_broadcast_needs_no_lock(tmp_path):
    async def body(cluster):
        await produce(cluster, 8)
        one = Listener()
        async with consumer_of(cluster, one, tmp_path, orderly=True):
            await one.until(8)
        assert not cluster.replicas[0].count(RequestCode.LOCK_BATCH_MQ)

    run(body)


def test_two_members_of_one_name_are_refused(tmp_path):
    async def body(cluster):
        async with consumer_of(cluster, Listener(), tmp_path):
            twin = consumer_of(cluster, Listener(), tmp_path)
            with pytest.raises(OffsetsUnusable, match="instance_name"):
                await twin.start()
            await twin.stop()
        async with consumer_of(cluster, Listener(), tmp_path):
            pass

    run(body)


def test_a_second_start_takes_no_folder(tmp_path):
    async def body(cluster):
        consumer = consumer_of(cluster, Listener(), tmp_path)
        async with consumer:
            with pytest.raises(RuntimeError, match="only once"):
                await consumer.start()
        with pytest.raises(RuntimeError, match="only once"):
            await consumer.start()
        async with consumer_of(cluster, Listener(), tmp_path):
            pass

    run(body)


def test_a_member_without_a_name_keeps_one_that_lasts(tmp_path):
    async def body(cluster):
        consumer = consumer_of(cluster, Listener(), tmp_path, name="")
        assert consumer.client_id == "127.0.0.1@DEFAULT"
        path = Path(consumer.local.path)
        assert path == tmp_path / "127.0.0.1@DEFAULT" / "test-group" / "offsets.json"
        with pytest.raises(ValueError, match="folder"):
            consumer_of(cluster, Listener(), tmp_path, name="a/../b")

    run(body)


async def written(local, offsets):
    local.open()
    for queue, offset in offsets.items():
        local.put(queue, offset)
    await local.flush()
    local.close()


def test_files_of_java_are_read_and_ours_are_whole(tmp_path):
    folder = tmp_path / "c@1" / "g"
    folder.mkdir(parents=True)
    java = (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n'
        '\t\t}:42,{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:7\n\t}\n}'
    )
    (folder / "offsets.json").write_text(java)
    local = LocalOffsets(str(tmp_path), "c@1", "g")
    asyncio.run(written(local, {MessageQueue("T", "b", 0): 8}))
    assert (folder / "offsets.json.bak").read_text() == java
    text = (folder / "offsets.json").read_text()
    assert text == (
        '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:8,'
        '{"brokerName":"b","queueId":1,"topic":"T"}:42}}'
    )


ENDLESS = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:1e999}}'


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"offsetTable":{"a":1}}', '{"x":{}}', "\x00", ENDLESS]
)
def test_a_file_that_is_no_table_is_passed_over_for_the_one_before(tmp_path, content, caplog):
    queue = MessageQueue("T", "b", 0)
    local = LocalOffsets(str(tmp_path), "c@1", "g")
    asyncio.run(written(local, {queue: 1}))
    path = Path(local.path)
    path.rename(path.with_name("offsets.json.bak"))
    path.write_text(content)
    local = LocalOffsets(str(tmp_path), "c@1", "g")
    local.open()
    assert local.get(queue) == 1
    local.close()
    if content:
        path.with_name("offsets.json.bak").unlink()
        with pytest.raises(OffsetsUnusable, match="begin anew"):
            LocalOffsets(str(tmp_path), "c@1", "g").open()


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OffsetsUnusable, match="file"):
        LocalOffsets(str(tmp_path / "file"), "c@1", "g").open()


class FullDisk(RealDisk):
    """The machine's disk, full as long as the test says."""

    is_full = True

    def replace(self, path, data):
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().replace(path, data)


def test_a_disk_that_is_full_is_a_warning_and_tried_again(tmp_path, caplog):
    queue = MessageQueue("T", "b", 0)

    async def body():
        disk = FullDisk()
        local = LocalOffsets(str(tmp_path), "c@1", "g", disk)
        local.open()
        local.put(queue, 5)
        await local.flush()
        assert "event=offsets_not_written" in caplog.text
        disk.is_full = False
        await local.flush()
        local.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())
    again = LocalOffsets(str(tmp_path), "c@1", "g")
    again.open()
    assert again.get(queue) == 5
    again.close()


class SlowDisk(RealDisk):
    """A disk on which each file is written at a moment that the test chooses."""

    def __init__(self):
        super().__init__()
        self.may_write = threading.Event()

    def replace(self, path, data):
        assert self.may_write.wait(5)
        super().replace(path, data)


def written_offset(directory, queue):
    """Return the offset that the next member finds in a folder."""
    local = LocalOffsets(str(directory), "c@1", "g")
    local.open()
    local.close()
    return local.get(queue)


def offset_put_during_a_write(directory):
    """Return the offset that a start finds of one that moved while the file was written."""
    queue = MessageQueue("T", "b", 0)

    async def body():
        disk = SlowDisk()
        local = LocalOffsets(str(directory), "c@1", "g", disk)
        local.open()
        local.put(queue, 5)
        writing = asyncio.create_task(local.flush())
        await asyncio.sleep(0)
        local.put(queue, 6)
        disk.may_write.set()
        await writing
        await local.flush()
        local.close()

    asyncio.run(body())
    return written_offset(directory, queue)


def test_an_offset_that_moves_while_the_file_is_written_is_written_next(tmp_path):
    assert offset_put_during_a_write(tmp_path) == 6


def test_a_planted_offset_that_is_lost_during_a_write_is_noticed(tmp_path):
    with planted(ALL["offset-put-during-a-write-lost"]):
        assert offset_put_during_a_write(tmp_path) == 5


async def opened(local):
    """Open it as soon as it is free."""
    async with asyncio.timeout(5):
        while True:
            try:
                return local.open()
            except OffsetsUnusable:
                await asyncio.sleep(0.01)


async def cut_flush(local, offset):
    """Begin to write an offset on a slow disk, and be cancelled meanwhile."""
    local.put(MessageQueue("T", "b", 0), offset)
    flush = asyncio.create_task(local.flush())
    await asyncio.sleep(0.05)
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush


def offset_of_the_next_member(directory):
    """Return the offset that stands once one member has left during a write, and another came."""
    queue = MessageQueue("T", "b", 0)

    async def body():
        disk = SlowDisk()
        local = LocalOffsets(str(directory), "c@1", "g", disk)
        local.open()
        await cut_flush(local, 5)
        local.close()
        local.close()
        asyncio.get_running_loop().call_later(0.2, disk.may_write.set)
        following = LocalOffsets(str(directory), "c@1", "g")
        await opened(following)
        following.put(queue, 9)
        await following.flush()
        following.close()
        disk.may_write.set()

    asyncio.run(body())  # At its end it waits for its threads.
    return written_offset(directory, queue)


def test_a_write_that_outlasts_its_member_keeps_the_folder(tmp_path):
    assert offset_of_the_next_member(tmp_path) == 9


def test_a_folder_that_is_free_before_the_last_write_is_noticed(tmp_path):
    with planted(BY_TESTS["folder-free-before-the-last-write"]):
        assert offset_of_the_next_member(tmp_path) == 5


def offset_of_who_leaves_during_a_write(directory):
    """Return what is written of a member whose offset moves during its last write."""
    queue = MessageQueue("T", "b", 0)

    async def body():
        disk = SlowDisk()
        local = LocalOffsets(str(directory), "c@1", "g", disk)
        local.open()
        await cut_flush(local, 5)
        await cut_flush(local, 6)
        local.close()
        local.close()
        disk.may_write.set()

    asyncio.run(body())
    return written_offset(directory, queue)


def test_what_moves_during_the_last_write_of_a_member_is_written_behind_it(tmp_path):
    assert offset_of_who_leaves_during_a_write(tmp_path) == 6
    with planted(BY_TESTS["left-without-its-last-offsets"]):
        assert offset_of_who_leaves_during_a_write(tmp_path) == 5


def test_a_write_that_has_no_thread_yet_as_its_member_leaves_is_made(tmp_path):
    async def body():
        may_end = threading.Event()
        threads = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(may_end.wait, 5)
        local = LocalOffsets(str(tmp_path), "c@1", "g")
        local.open()
        await cut_flush(local, 5)
        local.close()
        with pytest.raises(OffsetsUnusable):
            LocalOffsets(str(tmp_path), "c@1", "g").open()
        may_end.set()

    asyncio.run(body())
    assert written_offset(tmp_path, MessageQueue("T", "b", 0)) == 5


class FailingDisk(SlowDisk):
    """A slow disk of which the first write fails."""

    failures = 1

    def replace(self, path, data):
        assert self.may_write.wait(5)
        if self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        super().replace(path, data)


def offset_behind_a_cut_flush(directory):
    """Return what is written once a flush was cancelled whose write then failed."""
    queue = MessageQueue("T", "b", 0)

    async def body():
        disk = FailingDisk()
        local = LocalOffsets(str(directory), "c@1", "g", disk)
        local.open()
        await cut_flush(local, 5)
        disk.may_write.set()
        await local.flush()
        local.close()

    asyncio.run(body())
    return written_offset(directory, queue)


def test_what_a_cancelled_flush_did_not_write_is_written_next(tmp_path, caplog):
    assert offset_behind_a_cut_flush(tmp_path) == 5
    assert "event=offsets_not_written" in caplog.text


def test_a_cancelled_flush_that_is_forgotten_is_noticed(tmp_path):
    with planted(BY_TESTS["cut-write-forgotten"]):
        assert offset_behind_a_cut_flush(tmp_path) == -1


def test_a_last_write_that_fails_is_a_warning_and_frees_the_folder(tmp_path, caplog):
    async def body():
        disk = FailingDisk()
        local = LocalOffsets(str(tmp_path), "c@1", "g", disk)
        local.open()
        await cut_flush(local, 5)
        local.close()
        disk.may_write.set()
        following = LocalOffsets(str(tmp_path), "c@1", "g")
        await opened(following)
        following.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())
    assert "event=offsets_not_written" in caplog.text


def offset_behind_a_flush_without_a_thread(directory, monkeypatch):
    """Flush where no thread can be had, and again where one can; return what is in the file."""
    queue = MessageQueue("T", "b", 0)

    async def body():
        local = LocalOffsets(str(directory), "c@1", "g")
        local.open()
        local.put(queue, 5)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            await local.flush()
        local.put(queue, 5)
        await local.flush()
        local.close()

    def no_thread(_thread):
        raise RuntimeError("can't start new thread")

    asyncio.run(body())
    return written_offset(directory, queue)


def test_offsets_for_which_there_is_no_thread_are_written_next(tmp_path, monkeypatch, caplog):
    assert offset_behind_a_flush_without_a_thread(tmp_path, monkeypatch) == 5
    assert "event=offsets_not_written error=can't start new thread" in caplog.text
