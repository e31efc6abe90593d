"""The logs of master and slaves as the oracle reads them: what is whose beginning, what is lost."""

import struct
from zlib import crc32

import pytest

from sim.disk import SimDisk
from sim.inode import PowerLossMode
from sim.oracles.base import Violation
from sim.oracles.copies import DIRECTORY, Book, Copy, Files
from sim.rng import SplitRng
from sim.trace import Trace

SEGMENT = 1024
HOST = b"\x0a\0\0\1\0\0\0\1"
BLANK = struct.Struct(">II")


def record(position, body=b"body", queue_id=0, offset=0, topic=b"orders"):
    """A record of version 1, as RocketMQ lays it out."""
    size = 84 + 4 + len(body) + 1 + len(topic) + 2
    head = struct.pack(
        ">IIIiiqqi", size, 0xDAA320A7, crc32(body) & 0x7FFFFFFF, queue_id, 0, offset, position, 0
    )
    times = struct.pack(">q", 7) + HOST + struct.pack(">q", 8) + HOST + struct.pack(">iq", 0, 0)
    tail = struct.pack(">i", len(body)) + body + bytes([len(topic)]) + topic + b"\0\0"
    return head + times + tail


class Machine:
    """A disk with a log."""

    def __init__(self, name):
        self.disk = SimDisk(SplitRng(name), Trace(), host=name)
        self.disk.make_directories(DIRECTORY)
        self.copy = Copy(name, Files(self.disk, SEGMENT))
        self.files = {}

    def write(self, position, data):
        base = position - position % SEGMENT
        if base not in self.files:
            self.files[base] = self.disk.open(f"{DIRECTORY}/{base:020d}", size=SEGMENT)
        self.files[base].pwrite(position - base, [data])
        return position + len(data)


class Cluster:
    def __init__(self):
        self.master, self.slave = Machine("a0"), Machine("a1")
        self.book = Book({"a0": self.master.copy, "a1": self.slave.copy})

    def send(self, *bodies, to=("a0", "a1")):
        """Have the master take messages, and the slave follow it."""
        for body in bodies:
            position = self.book.line.end
            data = record(position, body, offset=len(self.book.line.rows))
            if "a0" in to:
                self.master.write(position, data)
                self.book.line.add(position, data, now_ns=5)
                self.master.copy.add(position, self.book.line.rows[position])
            if "a1" in to:
                self.book.follow(self.slave.copy, self.slave.write(position, data))


def test_a_slave_with_the_masters_records_is_of_its_line():
    cluster = Cluster()
    cluster.send(b"one", b"two")
    assert cluster.book.is_of_line(cluster.slave.copy)
    assert cluster.slave.copy.end == cluster.book.line.end
    assert cluster.slave.copy.queue_ends["orders", 0] == 2


def test_a_record_that_no_master_had_is_found():
    cluster = Cluster()
    cluster.send(b"one")
    position = cluster.book.line.end
    end = cluster.slave.write(position, record(position, b"own"))
    with pytest.raises(Violation, match="no master"):
        cluster.book.follow(cluster.slave.copy, end)


def test_what_is_no_record_is_found():
    cluster = Cluster()
    cluster.send(b"one")
    position = cluster.book.line.end
    spoiled = bytearray(record(position, b"two"))
    spoiled[90] ^= 1
    end = cluster.slave.write(position, bytes(spoiled))
    with pytest.raises(Violation, match="no record"):
        cluster.book.follow(cluster.slave.copy, end)


def test_a_slave_that_mixes_two_lines_is_found():
    """It has the lost message, and then what the master took in its place and after it."""
    cluster = Cluster()
    cluster.send(b"one")
    fork = cluster.book.line.end
    cluster.send(b"lost")
    cluster.book.fork(fork)
    assert not cluster.book.is_of_line(cluster.slave.copy)
    cluster.send(b"kept", b"more", to=("a0",))
    position = cluster.slave.copy.end
    assert position in cluster.book.line.rows
    end = cluster.slave.write(position, cluster.book.line.rows[position].data)
    with pytest.raises(Violation, match="no master"):
        cluster.book.follow(cluster.slave.copy, end)


def test_a_slave_that_is_shorter_than_what_was_lost_follows_either_line():
    cluster = Cluster()
    cluster.send(b"one")
    fork = cluster.book.line.end
    cluster.send(b"lost", to=("a0",))
    cluster.book.fork(fork)
    assert cluster.book.is_of_line(cluster.slave.copy)
    cluster.send(b"kept")
    assert cluster.slave.copy.lines == {cluster.book.line.number}


def test_a_slave_that_is_made_the_master_goes_on_from_its_end():
    cluster = Cluster()
    cluster.send(b"one")
    end = cluster.slave.copy.end
    cluster.send(b"lost", to=("a0",))
    left = cluster.book.take_up(cluster.slave.copy)
    assert left.end > end == cluster.book.line.end
    assert cluster.book.is_of_line(cluster.slave.copy)


def test_files_end_with_a_blank():
    machine = Machine("a0")
    end = machine.write(0, record(0, b"x" * 700))
    machine.write(end, BLANK.pack(SEGMENT - end, 0xCBD43194))
    machine.write(SEGMENT, record(SEGMENT))
    assert [position for position, _ in machine.copy.files.read(0)] == [0, SEGMENT]
    assert machine.copy.files.begin() == 0


def test_a_slave_has_what_it_promises_as_long_as_it_may_not_lose_it():
    cluster = Cluster()
    cluster.send(b"one")
    size = cluster.slave.copy.end
    synced, written = {"a0": False, "a1": True}, {"a0": False, "a1": False}
    assert cluster.book.is_copied(0, size, master="a0", is_synced=written)
    assert not cluster.book.is_copied(0, size, master="a0", is_synced=synced)
    cluster.slave.files[0].fdatasync()
    assert cluster.book.is_copied(0, size, master="a0", is_synced=synced)
    cluster.book.note_copied(cluster.slave.copy, size)
    cluster.slave.disk.power_loss(PowerLossMode.LOST)
    cluster.slave.copy.forget(0)
    assert cluster.book.is_copied(0, size, master="a0", is_synced=synced)


def test_the_master_alone_is_no_slave():
    cluster = Cluster()
    cluster.send(b"one", to=("a0",))
    size, written = cluster.book.line.end, {"a0": False, "a1": False}
    assert not cluster.book.is_copied(0, size, master="a0", is_synced=written)
