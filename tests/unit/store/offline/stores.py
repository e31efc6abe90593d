"""Stores to look at: the recorded ones, and a small plain one that is put together here."""

import struct
import zlib

from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import MAGIC_BLANK, MessageExt, encode_record
from ledgermq.remoting.protocol.properties import java_string_hash
from store.layout import UNIT, tags_code
from store.offline.folder import open_folder
from store.offline.verify import verify

SEGMENT = 4096
QUEUE_FILE = 400
SLOTS = 25
CAPACITY = 100
HOST = pack_host("10.0.0.1", 10911)
BEGIN_MS = 1_700_000_000_000
MESSAGES = 114


def body_of(number):
    return b"body %d " % number * (1 + number % 9)


class PlainStore:
    """What RocketMQ would have written, as files by path; also each message's record."""

    def __init__(self, messages=MESSAGES, *, first_position=0, queue_base=0):
        self.log = bytearray()
        self.base = first_position
        self.records = []
        self.queues = {}
        self.index = []
        self.queue_base = queue_base
        for number in range(messages):
            self.add(number)

    def add(self, number):
        topic, queue_id = f"t{number % 3}", number % 2
        queue = self.queues.setdefault((topic, queue_id), [])
        stored = BEGIN_MS + number * 250
        properties = b"UNIQ_KEY\x01U%d\x02KEYS\x01a%d b\x02TAGS\x01g%d" % (
            number, number % 7, number % 4,
        )  # fmt: skip
        message = MessageExt(
            topic, queue_id, 0, 0, self.queue_base + len(queue), 0, stored - 5, HOST, stored, HOST,
            0, 0, body_of(number), properties,
        )  # fmt: skip
        size = len(encode_record(message))
        room = SEGMENT - len(self.log) % SEGMENT
        if size + 8 > room:
            self.log += struct.pack(">iI", room, MAGIC_BLANK).ljust(room, b"\0")
        message.physical_offset = self.base + len(self.log)
        record = encode_record(message)
        self.log += record
        queue.append(UNIT.pack(message.physical_offset, size, tags_code(properties)))
        self.records.append(message)
        for key in (f"U{number}", f"a{number % 7}", "b"):
            self.index.append((f"{topic}#{key}", message.physical_offset, stored))

    def files(self):
        """Return all files as RocketMQ leaves them when it is stopped cleanly."""
        found = {}
        for at in range(0, len(self.log), SEGMENT):
            chunk = bytes(self.log[at : at + SEGMENT]).ljust(SEGMENT, b"\0")
            found[f"commitlog/{self.base + at:020}"] = chunk
        for (topic, queue_id), units in self.queues.items():
            data = UNIT.pack(0, 0x7FFFFFFF, 0) * self.queue_base + b"".join(units)
            for at in range(0, len(data), QUEUE_FILE):
                if self.queue_base * 20 >= at + QUEUE_FILE:
                    continue  # such files are gone
                chunk = data[at : at + QUEUE_FILE].ljust(QUEUE_FILE, b"\0")
                found[f"consumequeue/{topic}/{queue_id}/{at:020}"] = chunk
        for number, at in enumerate(range(0, len(self.index), CAPACITY - 1)):
            entries = self.index[at : at + CAPACITY - 1]
            found[f"index/20231114221320{number:03}"] = index_file(entries)
        last = self.records[-1].store_timestamp
        found["checkpoint"] = struct.pack(">qqq", last, last, last).ljust(4096, b"\0")
        found["config/topics.json"] = (
            b'{"topicConfigTable":{"t0":{"readQueueNums":3,"writeQueueNums":2},"t1":{},"t2":{}}}'
        )
        found["config/consumerOffset.json"] = b'{"offsetTable":{"t0@g":{0:5}}}'
        found["lock"] = b"lock"
        return found


def index_file(entries):
    """Return an index file by RocketMQ's rules."""
    slots = [0] * SLOTS
    packed = [bytes(20)]
    begin, first = entries[0][2], entries[0][1]
    for number, (key, physical, stored) in enumerate(entries, 1):
        key_hash = abs(java_string_hash(key))
        slot = key_hash % SLOTS
        seconds = (stored - begin) // 1000
        packed.append(struct.pack(">iqii", key_hash, physical, seconds, slots[slot]))
        slots[slot] = number
    used = sum(1 for slot in slots if slot)
    head = struct.pack(
        ">qqqqii", begin, entries[-1][2], first, entries[-1][1], used, len(entries) + 1
    )
    table = struct.pack(f">{SLOTS}i", *slots)
    return head + table + b"".join(packed).ljust(CAPACITY * 20, b"\0")


def write(root, files):
    """Write files below a directory."""
    for path, data in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return str(root)


def check(root):
    return verify(open_folder(str(root)))


def health(root):
    return str(check(root).findings.health)


def kinds(report, severity=None):
    return {
        (str(found.part), found.kind)
        for found in report.findings.listed
        if severity in (None, str(found.severity))
    }


def state(root):
    """Return what must not change: names, sizes, times, content."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            zlib.crc32(path.read_bytes()) if path.is_file() else 0,
        )
        for path in root.rglob("*")
    }
