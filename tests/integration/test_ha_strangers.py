"""The HA port and the HA stream in wrong hands: lying masters, lying slaves, and strangers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import struct
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from cli.certificates import Authority
from ledgermq.remoting.protocol.certificates import node_identity
from ledgermq.remoting.transport.limits import HANDSHAKE_MS, HANDSHAKES_MAX
from store.ha.master import SlaveLink
from store.limits import HA_SLAVES_MAX
from tests.integration.broker_cluster import free_ports, until
from tests.integration.master_slave import (
    bytes_of,
    caught_up,
    log_of,
    master_of,
    running,
    slave_at,
    slave_of,
)
from tests.unit.store.plain.records import record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

KEY = "a key that master and slaves share"
_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")


def transfer(position: int, data: bytes) -> bytes:
    return _HEADER.pack(position, len(data)) + data


LIES: dict[str, Callable[[int], bytes]] = {
    "comes next": lambda end: transfer(end + 1, b"x"),
    "no transfer has -1 bytes": lambda end: _HEADER.pack(end, -1),
    "no transfer has 2147483647 bytes": lambda end: _HEADER.pack(end, 2**31 - 1),
    "no transfer has 5 bytes at position -9": lambda _: _HEADER.pack(-9, 5),
    "left of the file": lambda end: transfer(end, struct.pack(">iI", 2**30, 0xDAA320A7)),
    "no magic of a message": lambda end: transfer(end, struct.pack(">iI", 120, 7) + bytes(112)),
    "the body does not have its CRC": lambda end: transfer(
        end, record(end, body=b"x" * 50).replace(b"xxxx", b"xyxx", 1)
    ),
    "states another physical offset": lambda end: transfer(end, record(end + 8)),
}


@contextlib.asynccontextmanager
async def lying_master(log: bytes, lie: bytes) -> AsyncIterator[int]:
    """Listen as a master with this log, who sends the lie behind it; yields the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (begin,) = _REPORT.unpack(await reader.readexactly(_REPORT.size))
        writer.write((transfer(begin, log[begin:]) if log else b"") + lie)
        with contextlib.suppress(ConnectionError):
            while await reader.read(100):
                pass
        writer.close()

    port = free_ports(1)[0]
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield port
    finally:
        server.close()


@pytest.mark.parametrize("reason", LIES)
def test_a_lying_master_changes_nothing(tmp_path: Path, reason: str) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        async with running(master, slave := slave_of(master, tmp_path / "s")):
            for _ in range(3):
                await master.send("T", 0, b"x" * 100)
            await caught_up(master, slave)
        before = bytes_of(tmp_path / "s")
        end = log_of(slave).end_position
        log = b"".join(before.values())[:end]
        async with (
            lying_master(log, LIES[reason](end)) as port,
            running(slave := slave_at(port, tmp_path / "s")),
        ):
            await slave.until_state(reason)
            assert log_of(slave).end_position == end
        assert bytes_of(tmp_path / "s") == before

    asyncio.run(main())


def test_a_record_with_an_offset_that_cannot_be_does_not_end_a_slave(tmp_path: Path) -> None:
    async def main() -> None:
        lie = record(0, body=b"x" * 50)
        lie = lie[:20] + (1_000).to_bytes(8, "big") + lie[28:]
        log = lie + record(len(lie), topic="T2")
        async with lying_master(log, b"") as port:
            for _life in range(2):
                async with running(slave := slave_at(port, tmp_path / "s")):
                    await until(
                        lambda slave=slave: slave.controller.applied_index == len(log) - 1,
                        "all is dispatched",
                    )
                    reader = slave.controller.store.reader
                    assert (reader.max_offset("t", 0), reader.max_offset("T2", 0)) == (0, 1)

    asyncio.run(main())


def test_a_silent_master_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with lying_master(b"", b"") as port:
            slave = slave_at(port, tmp_path / "s", ha_housekeeping_ms=300)
            async with running(slave):
                await slave.until_state("it says nothing")

    asyncio.run(main())


def test_a_master_whose_log_ends_before_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        async with running(master, slave := slave_of(master, tmp_path / "s")):
            await master.send("T", 0, b"x" * 100)
            await master.send("T", 0, b"x" * 100)
            await caught_up(master, slave)
        # As RocketMQ does: heartbeats from where it was asked for.
        asked = log_of(slave).written.last_start
        async with lying_master(b"", transfer(asked, b"")) as port:
            slave = slave_at(port, tmp_path / "s")
            async with running(slave):
                await slave.until_state("its log ends before")

    asyncio.run(main())


async def closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass
    return True


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ((1 << 40,), "this master has lost the end"),
        ((-1,), "cannot have the log up to -1"),
        ((1, 1 << 30), "and was sent"),
        ((200, 100), "reports position 100 after 200"),
    ],
)
def test_a_lying_slave_is_refused(
    tmp_path: Path, reports: tuple[int, ...], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m", broker_role="SYNC_MASTER", slave_timeout_ms=50)
        async with running(master):
            assert (await master.ask(29_001)).code == 0
            for _ in range(3):
                with contextlib.suppress(AssertionError):  # stored, and no slave has it
                    await master.send("T", 0, b"x" * 100)
            reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_port)
            for position in reports:
                writer.write(_REPORT.pack(position))
                await asyncio.sleep(0.05)
            assert await closed(reader)
            writer.close()
            await until(lambda: reason in caplog.text, reason)
            assert not master.controller._status()["slaves"]
            with pytest.raises(AssertionError, match="code=11"):  # it does not count as a slave
                await master.send("T", 0, b"x")

    asyncio.run(main())


def test_connections_that_say_nothing_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m")
        async with running(master, slave := slave_of(master, tmp_path / "s")):
            await slave.until_state("following")
            opened = [
                await asyncio.open_connection("127.0.0.1", master.config.ha_port)
                for _ in range(HA_SLAVES_MAX)
            ]
            assert await closed(opened[0][0])  # whoever confirms nothing gives way, oldest first
            await master.send("T", 0, b"x" * 100)
            await caught_up(master, slave)
            for _, writer in opened:
                writer.close()

    asyncio.run(main())


def test_handshakes_that_nobody_ends_are_bounded(tmp_path: Path, authority: Authority) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m", **with_certificate(authority, "b", 0))
        slave = slave_of(master, tmp_path / "s", **with_certificate(authority, "b", 1))
        port = master.config.ha_port
        async with running(master):
            opened = [
                await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                for _ in range(HANDSHAKES_MAX + 20)
            ]
            async with asyncio.timeout(HANDSHAKE_MS / 2_000):  # not by their time
                assert await closed(opened[0][0])
            async with running(slave):
                await slave.until_state("following")
            for _, writer in opened:
                writer.close()

    asyncio.run(main())


def test_who_hangs_up_before_a_handshake_is_no_slave(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m", **with_certificate(authority, "b", 0))
        async with running(master):
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_port)
                writer.write_eof()
                assert await closed(reader)
                writer.close()
        assert "Exception" not in caplog.text

    asyncio.run(main())


def links() -> list[SlaveLink]:
    """What there is of connections, without a collection."""
    return [one for one in gc.get_objects() if isinstance(one, SlaveLink)]


def test_a_slave_that_is_gone_leaves_nothing_behind(tmp_path: Path, authority: Authority) -> None:
    async def main() -> None:
        master = master_of(tmp_path / "m", **with_certificate(authority, "b", 0))
        slave = slave_of(master, tmp_path / "s", **with_certificate(authority, "b", 1))
        async with running(master):
            async with running(slave):
                await slave.until_state("following")
            await until(  # without a collection: those of old objects are hours apart
                lambda: not any(id(one) not in known for one in links()),
                "nothing is left of its connection",
            )

    gc.collect()
    before = links()  # what somebody else holds says nothing
    known = {id(one) for one in before}
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    finally:
        gc.enable()


def test_a_new_certificate_of_the_master_is_shown(tmp_path: Path, authority: Authority) -> None:
    async def shown(port: int, context: ssl.SSLContext) -> bytes:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return bytes(found)

    async def main() -> None:
        master = master_of(tmp_path / "m", **with_certificate(authority, "b", 0))
        own = with_certificate(authority, "b", 1)
        context = ssl.create_default_context(cafile=own["peer_tls_ca_path"])
        context.check_hostname = False
        context.load_cert_chain(own["peer_tls_cert_path"], own["peer_tls_key_path"])
        async with running(master):
            before = await shown(master.config.ha_port, context)
            authority.issue(node_identity("b", "0"), "b-0", renew=True)
            assert master.controller._mode.credentials.refresh()
            assert await shown(master.config.ha_port, context) != before

    asyncio.run(main())


def test_a_slave_that_does_not_read_holds_no_memory(tmp_path: Path) -> None:
    async def main() -> None:
        # However long the sends take, it is not taken for gone meanwhile.
        sizes = {"segment_bytes": 4 * 2**20, "ha_housekeeping_ms": 600_000}
        master = master_of(tmp_path / "m", **sizes)
        async with running(master):
            _reader, writer = await asyncio.open_connection(
                "127.0.0.1", master.config.ha_port, limit=1024
            )
            writer.write(_REPORT.pack(0))
            for _ in range(20):
                await master.send("T", 0, b"x" * 2**20)
            links = list(master.controller._mode._ha._links)
            assert len(links) == 1
            assert links[0]._paused
            assert links[0]._transport.get_write_buffer_size() < 2**20
            writer.close()

    asyncio.run(main())


def with_key(key: str = KEY) -> dict[str, Any]:
    return {"peer_shared_key": key}


def with_certificate(authority: Authority, group: str, number: int) -> dict[str, Any]:
    stem = f"{group}-{number}"
    if not (authority.directory / f"{stem}.crt").exists():
        authority.issue(node_identity(group, str(number)), stem)
    directory = authority.directory
    return {
        "peer_tls_cert_path": f"{directory}/{stem}.crt",
        "peer_tls_key_path": f"{directory}/{stem}.key",
        "peer_tls_ca_path": f"{directory}/ca.crt",
    }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", "CA", 10)


@pytest.mark.parametrize("how", ["key", "certificate"])
def test_who_proves_himself_follows(tmp_path: Path, how: str, authority: Authority) -> None:
    of = [with_key(), with_key()]
    if how == "certificate":
        of = [with_certificate(authority, "b", number) for number in (0, 1)]

    async def main() -> None:
        master = master_of(tmp_path / "m", **of[0])
        slave = slave_of(master, tmp_path / "s", **of[1])
        async with running(master, slave):
            for number in range(400):
                await master.send("T", 0, b"%d" % number * 300)
            await caught_up(master, slave)
        assert bytes_of(tmp_path / "s") == bytes_of(tmp_path / "m")

    asyncio.run(main())


@pytest.mark.parametrize("how", ["nothing", "another key", "another group's certificate"])
def test_who_does_not_prove_himself_gets_nothing(
    tmp_path: Path, how: str, authority: Authority
) -> None:
    ours, theirs = with_key(), {}
    if how == "another key":
        theirs = with_key("a key that nobody else has")
    if how == "another group's certificate":
        ours = with_certificate(authority, "b", 0)
        theirs = with_certificate(authority, "c", 1)

    async def main() -> None:
        master = master_of(tmp_path / "m", **ours)
        slave = slave_of(master, tmp_path / "s", **theirs)
        async with running(master, slave):
            await master.send("T", 0, b"secret" * 100)
            await slave.until_state("it" if theirs else "hung up")
            await asyncio.sleep(0.5)
            assert log_of(slave).end_position == 0
            assert not master.controller._status()["slaves"]

    asyncio.run(main())
