"""Real nodes on loopback with real disks: elect, replicate, lose a leader, catch up."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from dledger.codec.peer import PeerCodec
from dledger.config import FlushDiskType
from dledger.core.messages import Heartbeat
from dledger.core.model import Role
from dledger.errors import NotLeader, PendingFull
from dledger.node import DLedgerNode
from ledgermq.runtime.errors import FatalError
from tests.integration.dledger_group import LIMIT_S, SEGMENT, Group, free_ports, run


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_group_survives_its_leader(tmp_path, flush):
    async def main():
        group = Group(tmp_path, flush_disk_type=flush)
        await group.start()
        first = await group.append(500, tag=b"one ")
        await group.stop(first.self_id)
        second = await group.append(700, tag=b"two ")
        assert second.term > first.term
        assert first.self_id not in group.nodes
        await group.start(first.self_id)
        await group.append(300, tag=b"three ")
        await group.settle()
        logs = [
            [
                (node.reader.entry(i), bytes(node.reader.body_view(i)))
                for i in range(node.end_index + 1)
            ]
            for node in group.nodes.values()
        ]
        assert logs[0] == logs[1] == logs[2]
        tags = [body.split(b" ")[0] for _, body in logs[0] if not body.startswith(b"noop")]
        assert tags == [b"one"] * 500 + [b"two"] * 700 + [b"three"] * 300
        for kind in ("data", "index"):
            files = [group.files(node_id, kind) for node_id in group.ids]
            assert files[0] == files[1] == files[2]
        assert len(files[0]) > 2
        await group.stop()
        assert not group.fatal

    run(main())


def test_one_commit_call_a_turn(tmp_path):
    async def main():
        group = Group(tmp_path)
        await group.start()
        node = await group.leader()
        listener = group.listeners[node.self_id]
        before = listener.calls
        for _ in range(400):
            node.reserve(50)
            node.append((b"x" * 50,), 50)
        await group.until(lambda: listener.commit_index >= 400)
        assert listener.calls - before <= 4, "one batch, cut only where a segment ends"
        await group.stop()

    run(main())


def test_bodies_lie_where_it_was_promised(tmp_path):
    async def main():
        group = Group(tmp_path, 1)
        await group.start()
        node = await group.leader()
        promised = {}
        for size in (10, 5000, 30000, 30000, 1, 40000, 0):
            offset = node.reserve(size)
            index = node.append((b"%d" % (size % 7) * size,), size)
            promised[index] = offset
        first = node.reserve(7 + 20000 + 9 + 2 * 48)
        offsets = [first, first + 7 + 48, first + 7 + 48 + 20000 + 48]
        indexes = node.append_batch([b"b" * size for size in (7, 20000, 9)])
        promised.update(zip(indexes, offsets, strict=True))
        assert list(indexes) == [8, 9, 10], "behind the leader's own and the seven"
        assert offsets[0] // SEGMENT == offsets[-1] // SEGMENT
        await group.settle()
        for index, offset in promised.items():
            assert node.reader.entry(index)[0] + 48 == offset
            assert bytes(
                node.reader.view(offset, node.reader.entry(index)[1] - 48)
            ) == node.reader.body_view(index)
        assert node.committed_position == node.end_position
        await group.stop()

    run(main())


def test_follower_refuses_and_names_the_leader(tmp_path):
    async def main():
        group = Group(tmp_path)
        await group.start()
        leader = await group.leader()
        await group.settle()
        follower = next(n for n in group.nodes.values() if n is not leader)
        with pytest.raises(NotLeader) as caught:
            follower.reserve(10)
        assert caught.value.leader_id == leader.self_id
        assert follower.status()["leader"] == leader.self_id
        assert leader.status()["match"].keys() == set(group.ids) - {leader.self_id}
        await group.stop()
        with pytest.raises(NotLeader):
            leader.reserve(10)

    run(main())


def test_leader_without_followers_takes_only_so_much_and_steps_down(tmp_path):
    async def main():
        group = Group(tmp_path, pending_bytes_max=50_000)
        await group.start()
        leader = await group.leader()
        await group.settle()
        await group.stop(*(i for i in group.ids if i != leader.self_id))
        for _ in range(45):
            leader.reserve(1000)
            leader.append((b"x" * 1000,), 1000)
        with pytest.raises(PendingFull):
            leader.reserve(5000)
        listener = group.listeners[leader.self_id]
        await group.until(lambda: not leader.is_leader)
        await group.until(lambda: listener.roles[-1][0] is not Role.LEADER)
        assert listener.commit_index < leader.end_index
        await group.stop()

    run(main())


def test_everything_is_found_again_after_all_nodes_restart(tmp_path):
    async def main():
        group = Group(tmp_path)
        await group.start()
        await group.append(200)
        await group.settle()
        terms = [node.term for node in group.nodes.values()]
        await group.stop()
        node = DLedgerNode(group.config("n0"))
        node.open()
        assert node.commit_index == node.end_index == 200
        assert node.reader.body_view(200)[:4] == b"199 "
        await node.stop()
        await group.start()
        leader = await group.append(10)
        assert leader.term > max(terms)
        await group.stop()

    run(main())


def test_addresses_may_change(tmp_path):
    async def main():
        group = Group(tmp_path)
        await group.start()
        await group.append(10)
        await group.settle()
        await group.stop()
        moved = Group(tmp_path)
        await moved.start()
        before = min(node.end_index for node in moved.nodes.values())
        await moved.append(10)
        assert before >= 9
        assert (await moved.leader()).commit_index >= before + 10
        await moved.stop()

    run(main())


def test_directory_of_another_node_or_in_use_is_refused(tmp_path):
    async def main():
        group = Group(tmp_path, 1)
        await group.start()
        await group.leader()
        await group.stop()
        thief = Group(tmp_path, 2)
        with pytest.raises(FatalError, match="belongs to node n0"):
            await thief.start("n1", directory=f"{tmp_path}/n0")
        await group.start()
        script = (
            "import sys; from dledger.__main__ import main;"
            f"sys.exit(main(['--id','n0','--peers','n0-','--dir',{str(tmp_path / 'n0')!r},"
            " '--group','group']))"
        ).replace("'n0-'", "'n0-127.0.0.1:1'")
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", script], capture_output=True, timeout=20,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 2
        assert b"in use by another process" in done.stderr
        await group.stop()

    run(main())


def test_port_in_use_is_refused(tmp_path):
    async def main():
        group = Group(tmp_path)
        host, port = group.peers["n0"].split(":")
        with socket.create_server((host, int(port))), pytest.raises(FatalError, match=port):
            await group.start("n0")

    run(main())


def test_garbage_closes_that_connection_only(tmp_path, caplog):
    async def main():
        group = Group(tmp_path)
        await group.start()
        leader = await group.leader()
        host, port = leader.config.listen_address.split(":")
        stranger = PeerCodec("other group", "n1", ("n0", "n2", leader.self_id))
        frame = b"".join(stranger.encode(Heartbeat("n1", leader.self_id, 99, 0, 0)))
        bad = bytearray(frame)
        bad[-1] ^= 1
        for data in (b"GET / HTTP/1.1\r\n\r\n", struct.pack(">iI", 1 << 30, 1 << 24), bytes(bad)):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frame * 3)
        await writer.drain()
        await group.append(20)
        writer.close()
        assert leader.is_leader
        await group.stop()

    run(main())
    lines = [
        r.getMessage()
        for r in caplog.records
        if r.name in {"dledger.peers.inbound", "dledger.peers.door"}
    ]
    assert sum("bad_peer_frame" in line for line in lines) == 3
    assert sum("misaddressed" in line for line in lines) == 1


def test_killed_leader_is_replaced_soon(tmp_path):
    """Three processes; the leader gets SIGKILL."""
    ports = free_ports(3)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    command = [sys.executable, "-m", "dledger", "--peers", peers]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, "--id", f"n{number}", "--dir", f"{tmp_path}/n{number}"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
            for number in range(3)
        ]
        for process in processes:
            stack.callback(process.kill)
            os.set_blocking(process.stdout.fileno(), False)
        output = dict.fromkeys(processes, b"")

        def leader_of(term_min, among):
            deadline = time.monotonic() + LIMIT_S
            while time.monotonic() < deadline:
                for process in among:
                    output[process] += process.stdout.read() or b""
                    for line in output[process].splitlines():
                        words = line.split()
                        if words[:2] == [b"role", b"LEADER"] and int(words[3]) >= term_min:
                            return process, int(words[3])
                time.sleep(0.002)
            raise AssertionError("no leader")

        leader, term = leader_of(1, processes)
        time.sleep(0.3)
        leader.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        rest = [process for process in processes if process is not leader]
        leader_of(term + 1, rest)
        took = time.monotonic() - killed
        assert took < 5
