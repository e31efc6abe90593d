"""What peers that mean no good, or know no better, cannot do to a broker and its group."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.transport.client import RemotingClient
from tests.integration.broker_cluster import free_ports, send_fields
from tests.integration.dledger_group import Group, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

TIMEOUT_S = 60
FILES_MAX = 256
STRANGERS = 80
"""More than a peer port accepts."""


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[int]:
    """Run a broker that may open few files; gives its port."""
    (port,) = free_ports(1)
    file = directory / "broker.conf"
    file.write_text(f"listenPort={port}\nstorePathRootDir={directory}/store\n")
    with (directory / "log").open("wb") as log:
        limited = ["sh", "-c", f'ulimit -n {FILES_MAX}; exec "$@"', "sh"]
        command = [*limited, sys.executable, "-m", "broker", "-c", str(file)]
        process = subprocess.Popen(command, stderr=log)
    try:
        yield port
        assert process.poll() is None, "the broker is gone"
    finally:
        process.kill()
        process.wait(timeout=TIMEOUT_S)


async def send(client: RemotingClient, port: int) -> int:
    """Send a message, once the broker is up; return the code of the answer."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            fields = {name: str(value) for name, value in send_fields("T").items()}
            request = RemotingCommand(310, ext_fields=fields, body=b"body")
            with contextlib.suppress(RemotingError):
                answer = await client.request(f"127.0.0.1:{port}", request, 1_000)
                if answer.code != 14:
                    return answer.code
            await asyncio.sleep(0.05)


def test_more_connections_than_files_leave_the_broker_at_work(tmp_path: Path) -> None:
    async def main(port: int) -> None:
        client = RemotingClient()
        try:
            assert await send(client, port) == 0
            with contextlib.ExitStack() as stack:
                for _ in range(FILES_MAX + 50):
                    stranger = stack.enter_context(socket.socket())
                    stranger.connect(("127.0.0.1", port))
                await asyncio.sleep(0.2)
                assert await send(client, port) == 0
        finally:
            await client.close()

    with broker(tmp_path) as port:
        asyncio.run(main(port))
    log = (tmp_path / "log").read_text()
    assert f"has {FILES_MAX // 2} connections, its limit" in log
    assert "Too many open files" not in log


def test_garbage_is_one_line_and_closes_that_connection(tmp_path: Path) -> None:
    garbage = [
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">iI", 1 << 24, 8),
        struct.pack(">iI", 4 + 100_000, 100_000) + b"[" * 100_000,
        struct.pack(">iI", 12, 8) + b"not json",
    ]
    with broker(tmp_path) as port:
        client = RemotingClient()

        async def main() -> None:
            assert await send(client, port) == 0
            await client.close()

        asyncio.run(main())
        before = (tmp_path / "log").read_text().splitlines()
        for data in garbage:
            with socket.create_connection(("127.0.0.1", port), 5) as bad:
                bad.sendall(data)
                with contextlib.suppress(ConnectionResetError):
                    assert bad.recv(1) == b""
    lines = (tmp_path / "log").read_text().splitlines()[len(before) :]
    assert len(lines) == len(garbage), lines
    assert all("event=connection_closed" in line for line in lines)


def test_strangers_who_hold_connections_do_not_keep_members_out(tmp_path: Path) -> None:
    # 1. Two members stop. 2. Strangers fill the peer port of the third. 3. The two start again, and
    # one of them leads: it must reach the third.
    async def main() -> None:
        group = Group(tmp_path)
        await group.start()
        await group.append(10)
        host, port = group.peers["n0"].split(":")
        await group.stop("n1", "n2")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(STRANGERS)]
        await group.start("n1", "n2")
        await group.append(10)
        await group.settle()
        for _, writer in held:
            writer.close()
        await group.stop()
        assert not group.fatal

    run(main())


def test_half_a_frame_on_the_peer_port_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dledger.peers.rpc.SWEEP_S", 0.1)

    async def main() -> None:
        group = Group(tmp_path)
        await group.start()
        leader = await group.append(10)
        host, port = leader.config.listen_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(struct.pack(">iI", 1_000, 1 << 24 | 100))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await group.append(10)
        await group.stop()

    run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("half_peer_frame" in line for line in lines) == 1
