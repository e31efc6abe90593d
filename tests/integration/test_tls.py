"""TLS of clients: real name server and broker processes, our client and commands, hostile ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bench.processes import wait_for_port
from chaos.backends.ports import take_ports
from ledgermq import AdminClient, ClientConfig, Message, NoRoute, Producer, PullConsumer
from ledgermq.remoting.transport.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


def ledgermq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", *arguments], capture_output=True, text=True,
        env={**os.environ, **environment}, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certs")
    for directory in (path / "ours", path / "others"):
        assert ledgermq("certs", "init", str(directory)).returncode == 0
    for name in ("n0", "n1"):
        done = ledgermq("certs", "node", str(path / "ours"), "--group", "G", "--id", name)
        assert done.returncode == 0, done.stderr
    return path


class Servers:
    """A name server and a broker with the same settings of TLS."""

    def __init__(self, home: Path, certs: Path, lines: list[str]) -> None:
        home.mkdir()
        self.certs = certs
        self.name_server, self.broker, _ = take_ports(3)
        files = [
            f"tls.server.certPath={certs / 'ours/node-G-n0.crt'}",
            f"tls.server.keyPath={certs / 'ours/node-G-n0.key'}",
            f"tls.server.trustCertPath={certs / 'ours/ca.crt'}",
            *lines,
        ]
        self._start(home, "namesrv", self.name_server, [*files, f"listenPort={self.name_server}"])
        self.log = home / "broker.log"
        self._start(home, "broker", self.broker, [
            *files, "tls.enable=true",
            f"tls.client.trustCertPath={certs / 'ours/ca.crt'}",
            f"tls.client.certPath={certs / 'ours/node-G-n1.crt'}",
            f"tls.client.keyPath={certs / 'ours/node-G-n1.key'}",
            f"listenPort={self.broker}", f"namesrvAddr=127.0.0.1:{self.name_server}",
            f"storePathRootDir={home / 'store'}", "mappedFileSizeCommitLog=16777216",
        ])  # fmt: skip

    def _start(self, home: Path, name: str, port: int, lines: list[str]) -> None:
        conf = home / f"{name}.conf"
        conf.write_text("\n".join(lines))
        with (home / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", name, "-c", str(conf)], stdout=log, stderr=log
            )
        self.processes = [*getattr(self, "processes", []), process]
        wait_for_port(port, process)

    def config(self, group: str, *, ca: str = "ours", cert: bool = False) -> ClientConfig:
        shown = [str(self.certs / f"ours/node-G-n1.{end}") for end in ("crt", "key")]
        return ClientConfig(
            namesrv_addrs=(f"127.0.0.1:{self.name_server}",), group=group,
            tls_ca_path=str(self.certs / ca / "ca.crt") if ca else "",
            tls_cert_path=shown[0] if cert else "", tls_key_path=shown[1] if cert else "",
        )  # fmt: skip

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            assert process.wait(20) == 0


def served(tmp_path_factory: pytest.TempPathFactory, certs: Path, *lines: str) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("tls") / "home", certs, list(lines))
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def permissive(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[Servers]:
    yield from served(tmp_path_factory, certs, "tls.server.mode=permissive")


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[Servers]:
    yield from served(
        tmp_path_factory, certs, "tls.server.mode=enforcing", "tls.server.need.client.auth=require"
    )


async def send(config: ClientConfig, topic: str, bodies: list[bytes]) -> None:
    async with AdminClient(config) as admin, asyncio.timeout(20):
        while True:
            try:
                await admin.create_topic(topic, queues=1)
                break
            except NoRoute:
                await asyncio.sleep(0.1)
    async with Producer(config) as producer:
        for body in bodies:
            await producer.send(Message(topic, body))


async def _read(config: ClientConfig, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with PullConsumer(config) as consumer, asyncio.timeout(20):
        queue = (await consumer.fetch_subscribe_queues(topic))[0]
        while len(found) < count:
            pulled = await consumer.pull(queue, "*", len(found))
            found += [bytes(one.body) for one in pulled.messages]
    return found


BODIES = [b"small", os.urandom(3_000_000), b"x" * 100_000]


def test_with_and_without_tls_side_by_side(permissive: Servers) -> None:
    async def main() -> None:
        await send(permissive.config("p1"), "WithTls", BODIES)
        await send(permissive.config("p2", ca=""), "WithoutTls", [b"plain"])
        assert await _read(permissive.config("c1", ca=""), "WithTls", 3) == BODIES
        assert await _read(permissive.config("c2"), "WithoutTls", 1) == [b"plain"]

    asyncio.run(main())


def test_who_has_a_certificate_of_the_ca_is_served_where_one_is_required(
    enforcing: Servers,
) -> None:
    async def main() -> None:
        await send(enforcing.config("p", cert=True), "Secured", BODIES)
        assert await _read(enforcing.config("c", cert=True), "Secured", 3) == BODIES

    asyncio.run(main())


def test_who_has_no_certificate_or_no_tls_is_not_served(enforcing: Servers) -> None:
    async def refused(config: ClientConfig) -> bool:
        async with Producer(config) as producer:
            try:
                await producer.send(Message("Secured", b"x"), timeout_ms=1_500)
            except Exception as error:  # noqa: BLE001 - whatever it is called
                return bool(str(error))
        return False

    assert asyncio.run(refused(enforcing.config("a", cert=False)))
    assert asyncio.run(refused(enforcing.config("b", ca="")))
    assert "event=tls_refused" in enforcing.log.with_name("namesrv.log").read_text()


def test_a_server_of_another_ca_is_not_believed(permissive: Servers) -> None:
    context = client_context(str(permissive.certs / "others/ca.crt"))
    with (
        socket.create_connection(("127.0.0.1", permissive.broker), 5) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        context.wrap_socket(plain)


def test_connections_that_say_nothing_or_half_a_handshake_end_and_hold_up_nobody(
    permissive: Servers, enforcing: Servers
) -> None:
    for servers in (permissive, enforcing):
        silent = [socket.create_connection(("127.0.0.1", servers.broker), 5) for _ in range(300)]
        half = socket.create_connection(("127.0.0.1", servers.broker), 5)
        half.sendall(b"\x16\x03\x01")
        began = time.monotonic()
        asyncio.run(send(servers.config("p", cert=True), "Beside", [b"x"]))
        assert time.monotonic() - began < 10
        half.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert half.recv(1) == b""
        half.close()
        for one in silent:
            one.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""
            one.close()


def test_commands_speak_tls_by_the_environment(permissive: Servers) -> None:
    asyncio.run(send(permissive.config("p"), "Listed", [b"x"]))
    address = f"127.0.0.1:{permissive.name_server}"
    ca = str(permissive.certs / "ours/ca.crt")
    done = ledgermq("produce", "-t", "Listed", "hello", "-n", address, LEDGERMQ_TLS_CA=ca)
    assert done.returncode == 0, done.stderr
    done = ledgermq("admin", "topicList", "-n", address, LEDGERMQ_TLS_CA=ca)
    assert done.returncode == 0, done.stderr
    assert "Listed" in done.stdout
    wrong = str(permissive.certs / "others/ca.crt")
    done = ledgermq("admin", "topicList", "-n", address, LEDGERMQ_TLS_CA=wrong)
    assert done.returncode == 1
    assert "certificate verify failed" in done.stderr


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["tls.server.mode=enforcing"], "set tls.server.certPath and tls.server.keyPath"),
        (["tls.server.mode=sometimes"], "tls.server.mode"),
        (["tls.server.mode=enforcing", "tls.server.certPath={c}/ours/node-G-n0.crt",
          "tls.server.keyPath={c}/ours/node-G-n1.key"], "TLS cannot use"),
        (["tls.server.mode=permissive", "tls.server.certPath={c}/ours/node-G-n0.crt",
          "tls.server.keyPath={c}/ours/node-G-n0.key",
          "tls.server.need.client.auth=require"], "set tls.server.trustCertPath"),
        (["tls.enable=true"], "the CA of the servers is needed"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_end_the_start_with_a_word(
    tmp_path: Path, certs: Path, lines: list[str], said: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("\n".join([*lines, f"storePathRootDir={tmp_path}/store"]).format(c=certs))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "broker", "-c", str(conf)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stdout + done.stderr
