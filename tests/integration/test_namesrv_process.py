"""A name server as a process: start, service, wrong input, end."""

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from chaos.backends.ports import take_ports
from ledgermq.remoting.protocol.bodies import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    decode_topic_route,
    encode_register_body,
)
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.disk import RealDisk
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
REGISTER = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": "0"}


@contextlib.contextmanager
def process(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "namesrv", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def run_to_end(*arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "namesrv", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stderr.splitlines()


def registration(**changes: str) -> RemotingCommand:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigWrapper(
            topic_config_table={"T": TopicConfig(topic_name="T")}
        )
    )
    return RemotingCommand(103, ext_fields=REGISTER | changes, body=encode_register_body(body))


def test_it_serves_until_a_signal_comes(tmp_path):
    config = tmp_path / "namesrv.conf"
    config.write_text(f"listenPort=1\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\n")
    (port,) = take_ports(1)
    with process("-c", str(config), "-p", str(port)) as started:
        assert started.stderr is not None
        line = started.stderr.readline()
        assert f"event=namesrv_started addr=127.0.0.1:{port}" in line

        async def ask() -> None:
            client = RemotingClient()
            addr = f"127.0.0.1:{port}"
            assert (await client.request(addr, registration(), 3000)).code == 0
            answer = await client.request(
                addr, RemotingCommand(105, ext_fields={"topic": "T"}), 3000
            )
            route = decode_topic_route(answer.body)
            assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:1"}
            fields = {"namespace": "n", "key": "k", "value": "v"}
            assert (
                await client.request(addr, RemotingCommand(100, ext_fields=fields), 3000)
            ).code == 0
            await client.close()

        uvloop.run(asyncio.wait_for(ask(), TIMEOUT_S))
        started.send_signal(signal.SIGTERM)
        assert started.wait(TIMEOUT_S) == 0
    assert (tmp_path / "kv.json").read_text() == '{"configTable":{"n":{"k":"v"}}}'


def test_a_port_in_use_is_one_line_and_exit_code_2():
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, lines = run_to_end("-p", str(port))
    assert code == 2
    assert len(lines) == 1
    assert f"fatal exit_code=2 namesrv: cannot listen on 127.0.0.1:{port}: is in use" in lines[0]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("listenPrt=1", "unknown key listenPrt=1: did you mean listenPort"),
        ("listenPort=x", "listenPort=x: an integer from 0 to 65535 is expected"),
    ],
)
def test_a_wrong_file_is_one_line_and_exit_code_2(tmp_path, line, what):
    config = tmp_path / "namesrv.conf"
    config.write_text(f"\n{line}\n")
    code, lines = run_to_end("-c", str(config))
    assert code == 2
    assert len(lines) == 1
    assert f"fatal exit_code=2 {config}:2: {what}" in lines[0]


def test_a_kv_file_of_another_kind_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "kv.json").write_text("[]")
    config = tmp_path / "namesrv.conf"
    config.write_text(f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\n")
    code, lines = run_to_end("-c", str(config))
    assert code == 2
    assert len(lines) == 1
    assert re.search(r"fatal exit_code=2 kvConfigPath=.*kv\.json: no key-value file", lines[0])


class FakeClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms


def test_brokers_go_with_their_connection_or_after_120_seconds_of_silence():
    async def test() -> None:
        clock = FakeClock()
        config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", scan_interval_ms=20)
        server = NameServer(config, clock, RealDisk())
        addr = f"127.0.0.1:{await server.start()}"
        broker, other, client = RemotingClient(), RemotingClient(), RemotingClient()

        async def masters() -> list[str]:
            answer = await client.request(
                addr, RemotingCommand(105, ext_fields={"topic": "T"}), 3000
            )
            if answer.code:
                return []
            route = decode_topic_route(answer.body)
            return [data.broker_addrs[0] for data in route.broker_datas]

        await broker.request(addr, registration(), 3000)
        await other.request(addr, registration(brokerName="o", brokerAddr="127.0.0.1:2"), 3000)
        assert await masters() == ["127.0.0.1:1", "127.0.0.1:2"]
        await broker.close()
        while await masters() != ["127.0.0.1:2"]:
            await asyncio.sleep(0.01)
        connection = await other.connect(addr)
        while await masters():
            clock.now_ms += 1_000
            await asyncio.sleep(0.01)
        assert clock.now_ms > 120_000
        while not connection.closed:
            await asyncio.sleep(0.01)
        await other.close()
        await client.close()
        await server.stop()

    uvloop.run(asyncio.wait_for(test(), TIMEOUT_S))
