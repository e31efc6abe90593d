"""A broker that was a slave, and is the master now: over the log that it has copied."""

import asyncio
import dataclasses
import json

import pytest

from broker.config import Role
from broker.controller import BrokerController
from broker.modes.assignment import AsMaster
from broker.server import load_config
from chaos.backends.ports import take_port_block
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.switch.epochs import EPOCH_FILE, Epoch, encode_epochs
from store.ha.switch.in_sync import InSync
from tests.unit.store.plain.records import record

FILE_BYTES = 1 << 20


def make_directory(path):
    """Write a log as a slave has it: a record in no queue, between two sound ones."""
    data = record(0, body=b"first", topic="t")
    data += record(len(data), body=b"odd", topic="no/topic")
    data += record(len(data), body=b"last", topic="u")
    (path / "commitlog").mkdir(parents=True)
    (path / "commitlog" / f"{0:020}").write_bytes(data.ljust(FILE_BYTES, b"\0"))
    return len(data)


async def dispatched_by_a_master(path, told):
    """Start a master there; return how far it has dispatched, and how much it left aside."""
    port = take_port_block(4) + 2
    config = load_config(None, {
        "brokerClusterName": "C", "brokerName": "a", "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1", "namesrvAddr": "127.0.0.1:1", "controllerAddr": "127.0.0.1:1",
        "enableControllerMode": "true", "storePathRootDir": str(path),
        "listenPort": str(port), "haListenPort": str(port + 1),
        "mappedFileSizeCommitLog": str(FILE_BYTES),
    })  # fmt: skip
    in_sync = InSync(2, 15_000)
    in_sync.on_decided(frozenset({2}), 1)
    broker = BrokerController(
        dataclasses.replace(config, broker_role=Role.ASYNC_MASTER, broker_id=0),
        disk=RealDisk(), clock=SystemClock(), rng=SystemRng(1), tasks=Supervisor(),
        assignment=AsMaster(own_id=2, epoch=5, in_sync=in_sync),
    )  # fmt: skip
    try:
        await broker.start()
        async with asyncio.timeout(10):
            while not broker.store.writer.writable:
                await asyncio.sleep(0.01)
        told.append(broker.requests.commands[1007](None, RemotingCommand(1007)).body)
        return broker.store.applied, broker.store.status()["quarantined"]
    finally:
        await broker.stop()


def test_a_promoted_master_leaves_aside_what_it_left_aside_as_a_slave(tmp_path):
    end = make_directory(tmp_path / "a")
    assert asyncio.run(dispatched_by_a_master(tmp_path / "a", [])) == (end, 1)
    make_directory(tmp_path / "b")
    with (
        planted(BY_TESTS["switch-promoted-ends-at-what-it-left-aside"]),
        pytest.raises((FatalError, TimeoutError)),
    ):
        asyncio.run(dispatched_by_a_master(tmp_path / "b", []))


def test_a_master_tells_the_epochs_of_its_log_as_rocketmq_5_does(tmp_path):
    end = make_directory(tmp_path)
    (tmp_path / EPOCH_FILE).write_bytes(encode_epochs((Epoch(2, 0), Epoch(3, 97))))
    told = []
    asyncio.run(dispatched_by_a_master(tmp_path, told))
    assert json.loads(told[0]) == {
        "clusterName": "C", "brokerName": "a", "brokerId": 2, "maxOffset": end,
        "epochList": [
            {"epoch": 2, "startOffset": 0, "endOffset": 97},
            {"epoch": 3, "startOffset": 97, "endOffset": end},
            {"epoch": 5, "startOffset": end, "endOffset": 2**63 - 1},
        ],
    }  # fmt: skip
