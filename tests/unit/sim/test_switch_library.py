"""PySyncObj belongs to simulated machines while a run lasts, and to the real one behind it."""

import random

import pysyncobj.serializer
import pysyncobj.syncobj
import pytest
from pysyncobj.node import Node

import namesrv.controller.raft
from namesrv.controller.machine import Machine
from sim.context import CURRENT
from sim.disk import SimDisk
from sim.loop import SimLoop
from sim.switch.library import in_virtual_time

CRC_OF_NS0, CRC_OF_NS1 = 0x9FC325A1, 0xE8C41537


def held():
    """What a run exchanges."""
    syncobj = pysyncobj.syncobj
    return (
        syncobj.monotonicTime, syncobj.random, syncobj.os, vars(pysyncobj.serializer).get("open"),
        pysyncobj.serializer.atomicReplace, Node.__hash__, namesrv.controller.raft.Machine,
    )  # fmt: skip


def test_everything_is_put_back_whatever_happens():
    before = held()
    within = []

    def run():
        with in_virtual_time(lambda *_: None, lambda *_: None):
            within.extend(held())
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert all(now is not then for now, then in zip(within, before, strict=True))
    assert held() == before
    assert pysyncobj.syncobj.random is random
    assert namesrv.controller.raft.Machine is Machine


def on_a_machine(see):
    """Return what a call sees that runs on a machine of the simulator, within a run."""
    loop = SimLoop(7)
    host = loop.add_host("ns0", "10.0.0.1")
    host.disk = SimDisk(host.rng.split("disk"))
    process = loop.boot(host)
    try:
        with in_virtual_time(lambda *_: None, lambda *_: None):
            return process.context.run(see)
    finally:
        loop.close()


def test_time_and_chance_are_those_of_the_machine():
    def see():
        syncobj = pysyncobj.syncobj
        return syncobj.monotonicTime(), [syncobj.random.random() for _ in range(5)]

    first, again = on_a_machine(see), on_a_machine(see)
    assert first == again
    assert first[0] < 1.0
    assert len(set(first[1])) == 5
    assert CURRENT.get() is None


def test_files_of_the_library_are_on_the_disk_of_the_machine(tmp_path):
    path = str(tmp_path / "dump")

    def see():
        serializer, syncobj = pysyncobj.serializer, pysyncobj.syncobj
        CURRENT.get().host.disk.make_directories(str(tmp_path))
        with serializer.open(path + ".tmp", "wb") as file:
            file.write(b"all of it")
        serializer.atomicReplace(path + ".tmp", path)
        with pytest.raises(FileNotFoundError):
            serializer.open(path + ".tmp", "rb")
        with serializer.open(path, "rb") as file:
            return syncobj.os.path.isfile(path), file.read()

    disk_before = list(tmp_path.iterdir())
    assert on_a_machine(see) == (True, b"all of it")
    assert list(tmp_path.iterdir()) == disk_before


def test_peers_are_gone_through_in_an_order_that_no_hash_seed_changes():
    with in_virtual_time(lambda *_: None, lambda *_: None):
        assert [hash(Node(name)) for name in ("ns0", "ns1")] == [CRC_OF_NS0, CRC_OF_NS1]
