"""A directory of RocketMQ in which a topic was deleted and made again: it counts from 0 again."""

import pytest

from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from store.layout import UNIT
from store.queues.consume_queue import ConsumeQueue
from store.recovery.checkpoint import StoreTimes, encode_times
from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.world import QUEUE_FILE, ROOT, SEGMENT, Cluster

T0 = 1_600_000_000_000
HOST = pack_host("127.0.0.1", 10911)


class Log:
    """One segment, and the units of its messages."""

    def __init__(self):
        self.data = b""

    def add(self, topic, bodies):
        units = b""
        for offset, body in enumerate(bodies):
            position = len(self.data)
            record = encode_record(
                MessageExt(
                    topic=topic, queue_id=0, flag=0, sys_flag=0, queue_offset=offset,
                    physical_offset=position, born_timestamp=T0, store_timestamp=T0 + position,
                    reconsume_times=0, prepared_offset=0, body=body, properties=b"",
                    born_host=HOST, store_host=HOST,
                )
            )  # fmt: skip
            self.data += record
            units += UNIT.pack(position, len(record), 0)
        return units


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, 3, 5, 8])
def test_its_new_messages_are_served_and_not_the_old_ones(count, clean):
    log = Log()
    log.add("again", [b"old %d" % n for n in range(5)])
    log.add("deleted", [b"gone"])
    others = [b"other %d" % n for n in range(3)]
    new = [b"new %d" % n for n in range(count)]
    files = {
        f"{ROOT}/consumequeue/other/0/{0:020}": log.add("other", others).ljust(QUEUE_FILE, b"\0"),
        f"{ROOT}/consumequeue/again/0/{0:020}": log.add("again", new).ljust(QUEUE_FILE, b"\0"),
        f"{ROOT}/commitlog/{0:020}": log.data.ljust(SEGMENT, b"\0"),
        f"{ROOT}/checkpoint": encode_times(StoreTimes(*[T0 + len(log.data)] * 3)),
    }
    if not clean:
        files[f"{ROOT}/abort"] = b""
    cluster = Cluster({"n0": disk_of(files)}, raft=False)
    cluster.start()
    for _ in range(2):
        assert cluster.error() is None
        found = cluster.read()
        assert bodies(found, "again") == new
        assert bodies(found, "other") == others
        cluster.stop()
        files = image(cluster.disks["n0"])
        cluster.close()
        cluster = Cluster({"n0": disk_of(files)}, raft=False)
        cluster.start()
        new = [*new, b"more"]
        cluster.put("again", 0, b"more")
    cluster.close()


@pytest.mark.parametrize("count", [1, 3, 5, 20, 30])
def test_a_topic_of_ours_that_rocketmq_made_again(count):
    cluster = Cluster({"n0": disk_of({})}, raft=False, segment_bytes=4 * SEGMENT)
    cluster.start()
    others = [b"other %d" % n for n in range(3)]
    for topic, sent in (("again", [b"old %d" % n for n in range(20)]), ("other", others)):
        for body in sent:
            cluster.put(topic, 0, body)
    cluster.stop()
    files = image(cluster.disks["n0"])
    cluster.close()
    log, path = Log(), f"{ROOT}/commitlog/{0:020}"
    log.data = files[path].rstrip(b"\0") + bytes(2)  # how long the properties are: 0
    new = [b"new %d" % n for n in range(count)]
    units = log.add("again", new)
    files[path] = log.data.ljust(4 * SEGMENT, b"\0")
    for name in [name for name in files if "/again/" in name]:
        del files[name]
    for start in range(0, len(units), QUEUE_FILE):
        part = units[start : start + QUEUE_FILE].ljust(QUEUE_FILE, b"\0")
        files[f"{ROOT}/consumequeue/again/0/{start:020}"] = part
    cluster = Cluster({"n0": disk_of(files)}, raft=False, segment_bytes=4 * SEGMENT)
    try:
        assert cluster.start() is None
        found = cluster.read()
        assert bodies(found, "again") == new
        assert bodies(found, "other") == others
    finally:
        cluster.close()


def bodies(found, topic, queue_id=0):
    return [message.body for message in found[topic, queue_id].values()]


def test_behind_the_checkpoint_no_queue_is_asked_whether_it_was_made_again(monkeypatch):
    """A crash left it: with tens of thousands of queues that would be as many files to open."""
    disk = disk_of({})
    cluster = Cluster({"n0": disk}, raft=False)
    cluster.start()
    for part in range(2):
        for number in range(20):
            cluster.put("T", number, b"%d of %d" % (part, number))
        if part == 0:
            assert cluster.do(cluster.store().checkpoints.write_now)
    cluster.kill()
    read = []
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "read", lambda *arguments: read.append(arguments))
        assert cluster.start() is None
    assert read == []
    found = cluster.read()
    for number in range(20):
        assert bodies(found, "T", number) == [b"%d of %d" % (part, number) for part in range(2)]
    cluster.close()
