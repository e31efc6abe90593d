"""RocketMQ's sample settings for two masters start our brokers; wrong pairs say what to do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from chaos.backends.ports import take_port_block
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.transport.client import RemotingClient
from tests.integration.broker_cluster import free_ports, send_fields
from tests.integration.test_broker_process import TIMEOUT_S, refused, wait_for
from tests.integration.test_plain_broker import alone

if TYPE_CHECKING:
    from pathlib import Path

COMMON = "brokerClusterName=DefaultCluster\ndeleteWhen=04\nfileReservedTime=48\n"
#: The keys of the files in conf/ of RocketMQ 4.9, by file: brokerName, brokerId, role, flush.
SAMPLES = {
    "2m-2s-async": {
        "broker-a": ("broker-a", 0, "ASYNC_MASTER", "ASYNC_FLUSH"),
        "broker-a-s": ("broker-a", 1, "SLAVE", "ASYNC_FLUSH"),
        "broker-b": ("broker-b", 0, "ASYNC_MASTER", "ASYNC_FLUSH"),
        "broker-b-s": ("broker-b", 1, "SLAVE", "ASYNC_FLUSH"),
    },
    "2m-2s-sync": {
        "broker-a": ("broker-a", 0, "SYNC_MASTER", "ASYNC_FLUSH"),
        "broker-a-s": ("broker-a", 1, "SLAVE", "ASYNC_FLUSH"),
        "broker-b": ("broker-b", 0, "SYNC_MASTER", "ASYNC_FLUSH"),
        "broker-b-s": ("broker-b", 1, "SLAVE", "ASYNC_FLUSH"),
    },
    "2m-noslave": {
        "broker-a": ("broker-a", 0, "ASYNC_MASTER", "ASYNC_FLUSH"),
        "broker-b": ("broker-b", 0, "ASYNC_MASTER", "ASYNC_FLUSH"),
    },
}


class Cluster:
    """A name server and the brokers of one sample, as processes."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.namesrv = f"127.0.0.1:{free_ports(1)[0]}"
        port = self.namesrv.rpartition(":")[2]
        server = self._run("namesrv", "-p", port)
        wait_for(server, "event=namesrv_started")

    def _run(self, module: str, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *args], stderr=subprocess.PIPE, text=True
        )
        self._stack.callback(process.communicate, timeout=TIMEOUT_S)
        self._stack.callback(process.kill)
        return process

    def start(self, file: str, sample: tuple[str, int, str, str]) -> tuple[str, object]:
        """Start a broker on ports and in a directory of its own; return address and process."""
        name, number, role, flush = sample
        conf = self._directory / f"{file}.properties"
        conf.write_text(
            f"{COMMON}brokerName={name}\nbrokerId={number}\nbrokerRole={role}\n"
            f"flushDiskType={flush}\n"
        )
        port = take_port_block(4) + 2
        own = {
            "listenPort": port, "storePathRootDir": self._directory / file,
            "mappedFileSizeCommitLog": 1 << 20, "haSendHeartbeatInterval": 200,
        }  # fmt: skip
        overrides = [word for key, value in own.items() for word in ("-p", f"{key}={value}")]
        process = self._run("broker", "-c", str(conf), "-n", self.namesrv, *overrides)
        return f"127.0.0.1:{port}", process


async def ask(address: str, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
    client = RemotingClient()
    try:
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, ext_fields=texts, body=body)
        return await client.request(address, request, 5_000)
    finally:
        await client.close()


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_of_rocketmq_starts_and_replicates(tmp_path: Path, sample: str) -> None:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        addresses = {}
        for file, settings in SAMPLES[sample].items():
            addresses[file], process = cluster.start(file, settings)
            word = "state='following'" if settings[1] else "event=registered"
            wait_for(process, word)  # type: ignore[arg-type]

        async def main() -> None:
            route = json.loads((await ask(cluster.namesrv, 106)).body)
            found = {
                (name, int(number)): address
                for name, broker in route["brokerAddrTable"].items()
                for number, address in broker["brokerAddrs"].items()
            }
            assert found == {
                settings[:2]: addresses[file] for file, settings in SAMPLES[sample].items()
            }
            for file, (_, number, _, _) in SAMPLES[sample].items():
                answer = await ask(addresses[file], 310, b"x" * 100, **send_fields("TBW102", 0, ""))
                assert answer.code == (14 if number else 0), (file, answer)

        asyncio.run(main())


def test_a_second_master_of_one_name_is_kept_out_of_the_routes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        master = ("broker-a", 0, "ASYNC_MASTER", "ASYNC_FLUSH")
        first, process = cluster.start("first", master)
        wait_for(process, "event=registered")  # type: ignore[arg-type]
        _, process = cluster.start("second", master)
        wait_for(process, "event=registration_failed")  # type: ignore[arg-type]
        route = json.loads(asyncio.run(ask(cluster.namesrv, 106)).body)
        assert route["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": first}


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_the_directory_of_a_group_is_not_that_of_a_master_or_slave(
    tmp_path: Path, role: str
) -> None:
    (tmp_path / "store/dledger-n0/data").mkdir(parents=True)
    more = {"brokerRole": role, "brokerId": int(role == "SLAVE"), "haMasterAddress": "h:1"}
    complaint = refused(tmp_path, alone(tmp_path, **more))
    assert "holds the log of a Raft group (dledger-n0)" in complaint
    assert not (tmp_path / "store/abort").exists()
