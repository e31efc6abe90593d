"""The port for clients with TLS: who gets it, who is refused, what is bounded, files read anew."""

from __future__ import annotations

import asyncio
import errno
import gc
import importlib.util
import itertools
import os
import pathlib
import random
import selectors
import shutil
import socket
import threading
import weakref
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from cli.certificates import Authority
from ledgermq.remoting.protocol.certificates import node_identity
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command, make_response
from ledgermq.remoting.protocol.errors import ConnectFailed, RemotingError
from ledgermq.remoting.transport import secure, tls
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.limits import ACCEPTED_MAX, HANDSHAKES_MAX, WRITE_PAUSE_BYTES
from ledgermq.remoting.transport.listening import SocketListener
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.remoting.transport.tls import ClientAuth, ServerTls, ServerTlsSettings, TlsMode
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.remoting_world import run_bounded, until

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledgermq.remoting.transport.connection import Connection
    from ledgermq.remoting.transport.dispatch import Handler

CODE = 29_999
HEALTH = pathlib.Path(__file__).parents[2] / "docker" / "healthcheck.py"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certs")
    for name in ("ours", "others"):
        authority = Authority.create(path / name, name, 100)
        authority.issue(node_identity("G", "n0"), "node")
    return path


def settings(certs: Path, mode: TlsMode = TlsMode.PERMISSIVE) -> ServerTlsSettings:
    return ServerTlsSettings(
        tls_mode=mode,
        tls_cert_path=str(certs / "ours/node.crt"),
        tls_key_path=str(certs / "ours/node.key"),
        tls_trust_path=str(certs / "ours/ca.crt"),
    )


def trusting(certs: Path, ca: str = "ours") -> ssl.SSLContext:
    return tls.client_context(str(certs / ca / "ca.crt"))


async def _answer(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return make_response(request, 0, body=request.body)


@asynccontextmanager
async def served(
    found: ServerTlsSettings, handler: Handler = _answer
) -> AsyncIterator[tuple[RemotingServer, int]]:
    server = RemotingServer(name="test", handlers={CODE: handler})
    server.use_tls(found.server_tls())
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.stop()
        assert server.connections == {}


async def ask(port: int, context: ssl.SSLContext | None, body: bytes = b"x") -> bytes:
    client = RemotingClient(tls=context)
    try:
        answer = await client.request(f"127.0.0.1:{port}", RemotingCommand(CODE, body=body), 3_000)
        return bytes(answer.body)
    finally:
        await client.close()


async def is_refused(port: int, context: ssl.SSLContext | None) -> bool:
    try:
        await ask(port, context)
    except RemotingError:
        return True
    return False


def test_permissive_serves_both_and_large_frames_pass(certs: Path) -> None:
    async def test() -> None:
        async with served(settings(certs)) as (_, port):
            large = bytes(range(256)) * 20_000
            assert await ask(port, trusting(certs), large) == large
            assert await ask(port, None, large) == large

    run_bounded(test())


async def _seen_to_wait(certs: Path, read: int = 0) -> tuple[int, bool]:
    """Return what waits for a peer that reads so much of 15 MB, and whether it is not read from."""
    context = trusting(certs)
    request = b"".join(encode_command(RemotingCommand(CODE, body=bytes(15_000_000))))

    def ask_and_not_read(port: int) -> socket.socket:
        peer = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
        peer.sendall(request)
        return peer

    async with served(settings(certs)) as (server, port):
        with await asyncio.to_thread(ask_and_not_read, port) as peer:
            await until(lambda: any(one.has_spoken for one in server.connections.values()))
            (one,) = server.connections.values()
            await until(lambda: not one.tasks)
            await asyncio.sleep(0.1)
            for _ in range(0, read, 1000):
                await asyncio.to_thread(peer.recv, 1000)
            await asyncio.sleep(0.1)
            return one.buffered_bytes, one.slow


@pytest.mark.parametrize("read", [0, 2_000_000])
def test_what_waits_for_a_peer_with_tls_is_seen(certs: Path, read: int) -> None:
    async def test() -> None:
        waiting, is_slow = await _seen_to_wait(certs, read)
        assert waiting > WRITE_PAUSE_BYTES
        assert is_slow

    run_bounded(test())


def test_without_pieces_it_is_not(certs: Path) -> None:
    async def test() -> None:
        with planted(BY_TESTS["tls-written-whole"]):
            assert await _seen_to_wait(certs) == (0, False)

    run_bounded(test())


def test_without_one_after_the_other_it_is_not_once_a_part_was_read(certs: Path) -> None:
    async def test() -> None:
        with planted(BY_TESTS["tls-pieces-let-down-together"]):
            assert await _seen_to_wait(certs, read=2_000_000) == (0, False)

    run_bounded(test())


async def _read_of_a_closed_one(certs: Path, sent: bytes) -> bytes:
    """Return what a peer with TLS reads that begins to once all was written, and closed."""

    async def serve(connection: Connection, _request: RemotingCommand) -> None:
        rest = memoryview(sent)
        for size in itertools.cycle([1, 300, 70_000, 5_000, 1_000_000]):
            connection.write(rest[:size])
            rest = rest[size:]
            if not rest:
                break
        connection.close("all is written")

    def ask(port: int) -> bytes:
        with trusting(certs).wrap_socket(socket.create_connection(("127.0.0.1", port))) as peer:
            peer.sendall(b"".join(encode_command(RemotingCommand(CODE))))
            is_closed.wait()
            return b"".join(iter(lambda: peer.recv(1 << 16), b""))

    is_closed = threading.Event()
    async with served(settings(certs), serve) as (server, port):
        asked = asyncio.ensure_future(asyncio.to_thread(ask, port))
        await until(lambda: any(one.has_spoken for one in server.connections.values()))
        (one,) = server.connections.values()
        await until(lambda: one.closed)
        is_closed.set()
        return await asked


SENT = random.Random(1).randbytes(12_000_000)


def test_what_waits_above_tls_comes_in_order_and_before_the_end(certs: Path) -> None:
    async def test() -> None:
        assert await _read_of_a_closed_one(certs, SENT) == SENT

    run_bounded(test())


def test_without_that_a_close_cuts_it_off(certs: Path) -> None:
    async def test() -> None:
        with planted(BY_TESTS["tls-closed-before-the-rest"]):
            assert len(await _read_of_a_closed_one(certs, SENT)) < len(SENT)

    run_bounded(test())


def test_a_connection_with_tls_that_is_gone_takes_no_memory(certs: Path) -> None:
    known: list[weakref.ref[asyncio.Event]] = []

    async def serve(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        connection.state["attached"] = attached = asyncio.Event()
        known.append(weakref.ref(attached))
        return make_response(request, 0, body=request.body)

    async def test() -> None:
        async with served(settings(certs), serve) as (server, port):
            assert await ask(port, trusting(certs))
            await until(lambda: not server.connections)
        await asyncio.sleep(0)
        assert known[0]() is None

    gc.disable()
    try:
        run_bounded(test())
    finally:
        gc.enable()


def test_enforcing_serves_nobody_without_tls(certs: Path) -> None:
    async def test() -> bool:
        async with served(settings(certs, TlsMode.ENFORCING)) as (_, port):
            assert await ask(port, trusting(certs)) == b"x"
            return await is_refused(port, None)

    async def check() -> None:
        assert await test()
        with planted(BY_TESTS["enforced-tls-for-some"]):
            assert not await test()

    run_bounded(check())


def test_a_server_of_another_ca_is_not_believed(certs: Path) -> None:
    async def test() -> None:
        async with served(settings(certs)) as (_, port):
            with pytest.raises(ConnectFailed, match="certificate verify failed"):
                await ask(port, trusting(certs, "others"))
            with planted(BY_TESTS["any-server-believed"]):
                assert await ask(port, trusting(certs, "others")) == b"x"

    run_bounded(test())


def test_a_client_without_a_certificate_is_refused_where_one_is_required(certs: Path) -> None:
    async def test() -> None:
        strict = replace(settings(certs), tls_client_auth=ClientAuth.REQUIRE)
        async with served(strict) as (_, port):
            assert await is_refused(port, trusting(certs))
            for ca, refused in (("ours", False), ("others", True)):
                shown = [str(certs / ca / f"node.{end}") for end in ("crt", "key")]
                context = tls.client_context(str(certs / "ours/ca.crt"), *shown)
                assert await is_refused(port, context) is refused

    run_bounded(test())


def test_several_connections_are_taken_in_a_turn() -> None:
    async def test() -> None:
        taken: list[socket.socket] = []
        listener = SocketListener(lambda accepted, _host: taken.append(accepted), 128)
        port = await listener.start("127.0.0.1", 0)
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(ACCEPTED_MAX + 1)]
        while not taken:
            await asyncio.sleep(0)
        assert len(taken) == ACCEPTED_MAX
        while len(taken) < len(waiting):
            await asyncio.sleep(0)
        listener.close()
        for one in (*waiting, *taken):
            one.close()

    run_bounded(test())


def test_who_cannot_listen_on_all_addresses_of_a_name_listens_on_none() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.2", 0)) as taken:
            port = taken.getsockname()[1]
            loop, tcp = asyncio.get_running_loop(), (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            found = [(*tcp, (host, port)) for host in ("127.0.0.1", "127.0.0.2")]
            listener = SocketListener(lambda _accepted, _host: None, 128)
            with (
                mock.patch.object(type(loop), "getaddrinfo", mock.AsyncMock(return_value=found)),
                pytest.raises(OSError, match="in use"),
            ):
                await listener.start("both", port)
        socket.create_server(("127.0.0.1", port)).close()

    run_bounded(test())


def _without_ipv6(families: set[int]) -> list[str]:
    """Listen everywhere where the kernel lacks address families; return where it does."""
    create = socket.create_server
    found: list[str] = []

    def create_server(address: tuple[str, int], *, family: int, backlog: int) -> socket.socket:
        if family in families:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return create(address, family=family, backlog=backlog)

    async def test() -> None:
        listener = SocketListener(lambda _accepted, _host: None, 128)
        with mock.patch(
            "ledgermq.remoting.transport.listening.socket.create_server", create_server
        ):
            await listener.start("", 0)
        found.extend(one.getsockname()[0] for one in listener._sockets)
        listener.close()

    run_bounded(test())
    return found


def test_a_kernel_without_ipv6_is_listened_on_all_the_same() -> None:
    assert _without_ipv6({socket.AF_INET6}) == ["0.0.0.0"]
    with planted(BY_TESTS["every-family-or-none"]), pytest.raises(OSError, match="not supported"):
        _without_ipv6({socket.AF_INET6})
    with pytest.raises(OSError, match="not supported"):
        _without_ipv6({socket.AF_INET, socket.AF_INET6})


async def _silent_served(certs: Path) -> tuple[int, bytes]:
    """How many of too many silent connections stay, and what somebody else is answered."""
    async with served(settings(certs)) as (server, port):
        silent = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            for _ in range(HANDSHAKES_MAX + 20)
        ]
        answer = await ask(port, trusting(certs))
        await asyncio.sleep(0.1)
        kept = sum(len(listener._pending) for listener in server._secure)
        for _, writer in silent:
            writer.transport.abort()
        return kept, answer


def test_silent_connections_are_bounded_and_shut_nobody_out(certs: Path) -> None:
    async def test() -> None:
        kept, answer = await _silent_served(certs)
        assert kept <= HANDSHAKES_MAX
        assert answer == b"x"
        with planted(BY_TESTS["handshakes-without-end"]):
            kept, _ = await _silent_served(certs)
            assert kept > HANDSHAKES_MAX

    run_bounded(test())


class Skipping(asyncio.SelectorEventLoop):
    """A loop in which time passes only while it waits, and then at once."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        """Return its own time."""
        return self.now_s


class _NoWaiting(selectors.DefaultSelector):
    def __init__(self, loop: Skipping) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now_s += max(0.0, timeout or 0.0)
        return super().select(0)


async def _handshakes_of_a_flood() -> tuple[float, list[str]]:
    """How long 60 handshakes wait at 100 a second, and in which order addresses have turns."""
    turns = secure.HandshakeTurns(per_s=100)
    order: list[str] = []

    async def take(address: str) -> None:
        await turns.wait(address)
        order.append(address)

    loop = asyncio.get_running_loop()
    began_s = loop.time()
    flood = [asyncio.create_task(take("127.0.0.2")) for _ in range(60)]
    await asyncio.sleep(0.02)
    given_up = flood.pop()
    given_up.cancel()
    await asyncio.gather(*flood, take("127.0.0.1"))
    return loop.time() - began_s, order


def test_handshakes_wait_for_their_turn_and_addresses_take_turns() -> None:
    async def test() -> None:
        took_s, order = await _handshakes_of_a_flood()
        assert took_s >= 0.45  # the first ten of them had saved up
        assert len(order) == 60
        assert order.index("127.0.0.1") <= 30
        with planted(BY_TESTS["handshakes-without-turns"]):
            took_s, _ = await _handshakes_of_a_flood()
            assert took_s < 0.45

    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(test())


async def _left_of_a_flood() -> int:
    """How many wait for turns once all of them were given up, while another address has its own."""
    turns = secure.HandshakeTurns(per_s=1)
    others = [asyncio.create_task(turns.wait("127.0.0.1")) for _ in range(3)]
    flood = [asyncio.create_task(turns.wait("127.0.0.2")) for _ in range(300)]
    await asyncio.sleep(0.01)
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    left = len(turns._waiting)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return left


def test_who_is_given_up_waits_for_no_turn() -> None:
    async def test() -> None:
        assert await _left_of_a_flood() == 2
        with planted(BY_TESTS["handshakes-given-up-still-wait"]):
            assert await _left_of_a_flood() > 300

    run_bounded(test())


def test_a_handshake_that_does_not_go_on_ends(
    certs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(secure, "HANDSHAKE_MS", 300)

    async def test() -> None:
        async with served(settings(certs)) as (_, port):
            for begin in (b"", b"\x16\x03\x01"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(begin)
                async with asyncio.timeout(5):
                    assert await reader.read() == b""
                writer.close()

    run_bounded(test())
    assert sum("event=tls_refused" in line for line in caplog.messages) == 1


def test_a_server_that_stops_lets_go_of_those_that_never_spoke(certs: Path) -> None:
    async def test() -> None:
        async with served(settings(certs)) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.05)
        assert await reader.read() == b""
        writer.close()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))

    run_bounded(test())


def of_own_files(certs: Path, tmp_path: Path) -> tuple[Path, ServerTls, ssl.SSLContext]:
    """Return a copy of the certificates, a server that has read it, and what it serves with."""
    mine = tmp_path / "certs"
    shutil.copytree(certs, mine)
    server = ServerTls(settings(mine))
    server.load()
    return mine, server, server.context(100)


def test_files_are_read_anew_and_what_cannot_be_read_changes_nothing(
    certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine, server, first = of_own_files(certs, tmp_path)
    (mine / "ours/node.crt").write_text("half of a file")
    assert server.context(100 + tls.LOOK_S) is first
    assert "event=tls_not_read" in caplog.text
    (mine / "ours/node.crt").write_bytes((certs / "ours/node.crt").read_bytes())
    assert server.context(101 + tls.LOOK_S) is first, "looked at too often"
    assert server.context(101 + 2 * tls.LOOK_S) is not first


@pytest.mark.parametrize(
    ("mode", "auth", "ca"),
    [
        *((mode, auth, "ours") for mode in list(TlsMode)[1:] for auth in ClientAuth),
        (TlsMode.ENFORCING, ClientAuth.OPTIONAL, "others"),  # clients have a CA of their own
    ],
)
def test_a_container_s_health_is_asked_for_with_tls_where_nothing_else_is_served(
    certs: Path, monkeypatch: pytest.MonkeyPatch, mode: TlsMode, auth: ClientAuth, ca: str
) -> None:
    trusted = str(certs / ca / "ca.crt")
    found = replace(settings(certs, mode), tls_client_auth=auth, tls_trust_path=trusted)
    for name, value in {
        "mode": mode, "need.client.auth": auth,
        "certPath": found.tls_cert_path, "keyPath": found.tls_key_path,
    }.items():  # fmt: skip
        monkeypatch.setenv(f"LEDGERMQ_tls.server.{name}", value)
    spec = importlib.util.spec_from_file_location("healthcheck", HEALTH)
    assert spec is not None
    assert spec.loader is not None
    health = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(health)

    async def test() -> None:
        async with served(found) as (_, port):
            head, _ = await asyncio.to_thread(health.ask, "127.0.0.1", port, CODE)
        assert head["code"] == 0

    run_bounded(test())


def test_files_that_may_be_read_at_last_are_read(
    certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine, server, first = of_own_files(certs, tmp_path)
    key = mine / "ours/node.key"
    key.write_bytes((certs / "ours/node.key").read_bytes())

    def may_not(*_paths: str) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(tls, "_check", may_not)
        for look in (1, 2):
            assert server.context(100 + look * tls.LOOK_S) is first
    assert caplog.text.count("event=tls_not_read") == 1
    found = server.context(100 + 3 * tls.LOOK_S)
    assert found is not first
    assert server.context(100 + 4 * tls.LOOK_S) is found, "nothing has changed"


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(certs: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((certs / "ours/node.key").read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(FatalError, match="has a password"):
        replace(settings(certs), tls_key_path=str(locked)).server_tls()


def test_what_is_no_file_is_refused_before_anybody_waits_for_it(
    certs: Path, tmp_path: Path
) -> None:
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    huge.write_bytes(b"x" * (tls.FILE_BYTES_MAX + 1))
    for path in (pipe, huge, tmp_path):
        with pytest.raises(FatalError, match="is not a file of at most"):
            replace(settings(certs), tls_trust_path=str(path)).server_tls()
        with pytest.raises(ValueError, match="is not a file of at most"):
            tls.client_context(str(path))
