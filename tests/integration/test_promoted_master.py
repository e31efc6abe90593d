"""A broker that was a slave, and is the master now: over the log that it has copied."""

import asyncio
import dataclasses
import json
import shutil

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


def config_of(path, **more):
    port = take_port_block(4) + 2
    return load_config(None, {
        "brokerClusterName": "C", "brokerName": "a", "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1", "namesrvAddr": "127.0.0.1:1", "storePathRootDir": str(path),
        "listenPort": str(port), "haListenPort": str(port + 1),
        "mappedFileSizeCommitLog": str(FILE_BYTES), **more,
    })  # fmt: skip


async def dispatched_by_a_master(path, told):
    """Start a master there; return how far it has dispatched, and how much it left aside."""
    config = config_of(path, controllerAddr="127.0.0.1:1", enableControllerMode="true")
    in_sync = InSync(2, 15_000)
    in_sync.on_decided(frozenset({2}), 1)
    role = AsMaster(own_id=2, epoch=5, in_sync=in_sync)
    config = dataclasses.replace(config, broker_role=Role.ASYNC_MASTER, broker_id=0)
    return await dispatched_by(config, role, told)


async def dispatched_by(config, role, told):
    broker = BrokerController(
        config, disk=RealDisk(), clock=SystemClock(), rng=SystemRng(1), tasks=Supervisor(),
        assignment=role,
    )  # fmt: skip
    try:
        await broker.start()
        async with asyncio.timeout(10):
            while not broker.store.writer.writable:
                await asyncio.sleep(0.01)
        if role is not None:
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


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER", ""])
def test_a_master_made_by_hand_leaves_aside_what_it_left_aside_as_a_slave(tmp_path, role):
    end = make_directory(tmp_path / "a")
    as_slave = config_of(tmp_path / "a", brokerRole="SLAVE", brokerId="1")
    asyncio.run(start_and_stop(as_slave))
    for name in ("consumequeue", "consumequeue.checkpoint", "consumequeue.clean", "checkpoint"):
        forget(tmp_path / "a" / name)  # all of the log is read again
    config = config_of(tmp_path / "a", **({"brokerRole": role} if role else {}))
    assert asyncio.run(dispatched_by(config, None, [])) == (end, 1)


def test_a_master_that_was_no_slave_ends_at_what_no_queue_can_take(tmp_path):
    """It wrote that record itself, so the file was damaged since."""
    make_directory(tmp_path)
    with pytest.raises((FatalError, TimeoutError)):
        asyncio.run(dispatched_by(config_of(tmp_path, brokerRole="ASYNC_MASTER"), None, []))


@pytest.mark.parametrize(
    "mutant",
    [BY_TESTS["by-hand-ends-at-what-it-left-aside"], BY_TESTS["slave-unmarked"]],
    ids=lambda one: one.name,
)
def test_planted_masters_that_end_at_what_they_left_aside_are_found(tmp_path, mutant):
    with planted(mutant), pytest.raises((FatalError, TimeoutError)):
        test_a_master_made_by_hand_leaves_aside_what_it_left_aside_as_a_slave(
            tmp_path, "ASYNC_MASTER"
        )


async def start_and_stop(config):
    broker = BrokerController(
        config, disk=RealDisk(), clock=SystemClock(), rng=SystemRng(1), tasks=Supervisor()
    )
    await broker.start()
    await broker.stop()


def forget(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def test_a_mark_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    read = RealDisk.read

    def refuse(disk, path):
        if path.endswith("/copied"):
            raise PermissionError(13, "Permission denied")
        return read(disk, path)

    monkeypatch.setattr(RealDisk, "read", refuse)
    with pytest.raises(FatalError, match="copied cannot be read"):
        asyncio.run(dispatched_by(config_of(tmp_path, brokerRole="ASYNC_MASTER"), None, []))
