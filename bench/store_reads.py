"""Reads of a backlog: at the store, through a socket, and beside sends.

- *store*: pulls of 32 messages from each queue in turn, each record checked, nothing copied.
- *socket*: the same as answers to PULL_MESSAGE frames of another process on loopback, which takes
  the next offset from each answer and looks at nothing else; one pull a queue is under way. Process
  time is that of the serving process.
- *beside*: latency of sends, one after the other, alone, and with a reader of the backlog that
  takes a pull in every turn of the loop; in rounds, one of each kind in turn.

Nothing is asserted. Run: ``python -m bench.store_reads [--kind raft]``.
"""

import argparse
import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle

import uvloop

from bench.single_node import (
    Kind,
    NodeSettings,
    Stopwatch,
    make_message,
    opened,
    put_all,
    queue_names,
    spread,
    temporary,
)
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command
from ledgermq.remoting.protocol.frame import Frame
from ledgermq.remoting.protocol.headers import decode_pull_header, encode_pull_response_head
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.runtime.cancel import timeout
from store.message_store import MessageStore
from store.results import GetStatus, PutStatus

QUEUES = 4
PULL = 32
PULL_BYTES = 262_144
CLIENT_TIMEOUT_S = 120.0
_NEXT = re.compile(rb'"nextBeginOffset":"(\d+)"')


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return all figures."""
    settings = NodeSettings(kind=Kind(options.kind), has_index=False)
    with temporary() as directory:
        async with opened(directory, settings) as node:
            await put_all(node.store, spread(QUEUES, options.messages))
            figures = _at_the_store(node.store, options.messages, options.rounds)
            figures |= await _through_a_socket(node.store, options.messages)
            figures |= await _beside_sends(node.store, options)
    return figures


def pulls(store: MessageStore) -> Iterator[int]:
    """Read every queue from its beginning, a pull of each in turn; yield the messages of each."""
    places = dict.fromkeys(queue_names(QUEUES), 0)
    while places:
        for name, offset in list(places.items()):
            result = store.reader.get(*name, offset, PULL, PULL_BYTES, None)
            if result.status is not GetStatus.FOUND:
                del places[name]
                continue
            places[name] = result.next_offset
            yield result.count


def _at_the_store(store: MessageStore, messages: int, rounds: int) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        watch = Stopwatch()
        read = sum(pulls(store))
        cost = watch.cost()
        assert read == messages, (read, messages)
        best["store_messages_per_s"] = max(best.get("store_messages_per_s", 0), read / cost.wall_s)
        cpu_us = cost.cpu_s / read * 1e6
        best["store_cpu_us"] = min(best.get("store_cpu_us", cpu_us), cpu_us)
    return best


async def _through_a_socket(store: MessageStore, messages: int) -> dict[str, float]:
    def on_pull(connection: Connection, frame: Frame) -> None:
        opaque, _, _, header = decode_pull_header(frame)
        result = store.reader.get(
            header.topic, header.queue_id, header.queue_offset, PULL, PULL_BYTES, None
        )
        head = encode_pull_response_head(
            opaque,
            frame.serialize_type,
            0 if result.buffers else 19,
            result.status.name,
            result.next_offset,
            result.min_offset,
            result.max_offset,
            result.size_bytes,
        )
        connection.write(head, *result.buffers)

    server = RemotingServer(name="bench", handlers={}, hot={RequestCode.PULL_MESSAGE: on_pull})
    port = await server.start("127.0.0.1", 0)
    watch = Stopwatch()
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "bench.store_reads", "--drain", str(port),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with timeout(CLIENT_TIMEOUT_S):
            told, _ = await client.communicate()
    finally:
        if client.returncode is None:
            client.kill()
    cpu_s = watch.cost().cpu_s
    await server.stop()
    return {
        "socket_messages_per_s": messages / float(told),
        "socket_cpu_us": cpu_s / messages * 1e6,
    }


def drain(port: int) -> float:
    """Pull everything from a server, as a process of its own; return the seconds it took."""
    names = queue_names(QUEUES)
    waiting = bytearray()
    begin = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:

        def pull(queue: int, offset: int) -> None:
            topic, queue_id = names[queue]
            fields = {
                "consumerGroup": "g", "topic": topic, "queueId": str(queue_id),
                "queueOffset": str(offset), "maxMsgNums": str(PULL), "sysFlag": "0",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
            }  # fmt: skip
            command = RemotingCommand(
                code=RequestCode.PULL_MESSAGE, opaque=queue, ext_fields=fields
            )
            connection.sendall(b"".join(encode_command(command)))

        for queue in range(QUEUES):
            pull(queue, 0)
        left = QUEUES
        while left:
            waiting += connection.recv(1 << 20)
            while len(waiting) >= 8 and len(waiting) >= (size := _frame_bytes(waiting)):
                header = bytes(waiting[8 : 8 + int.from_bytes(waiting[5:8], "big")])
                has_body = size > 8 + len(header)
                del waiting[:size]
                found = _NEXT.search(header)
                opaque = re.search(rb'"opaque":(\d+)', header)
                if has_body and found and opaque:
                    pull(int(opaque[1]), int(found[1]))
                else:
                    left -= 1
    return time.perf_counter() - begin


def _frame_bytes(data: bytearray) -> int:
    return 4 + int.from_bytes(data[:4], "big")


async def _beside_sends(store: MessageStore, options: argparse.Namespace) -> dict[str, float]:
    alone: list[float] = []
    beside: list[float] = []
    read = 0
    for _ in range(options.rounds):
        alone += await _send(store, options.sends)
        stopped = asyncio.Event()
        reader = asyncio.create_task(_read_until(store, stopped))
        watch = Stopwatch()
        beside += await _send(store, options.sends)
        seconds = watch.cost().wall_s
        stopped.set()
        read += int(await reader / seconds)
    alone.sort()
    beside.sort()
    return {
        "send_p50_ms": alone[len(alone) // 2],
        "send_p99_ms": alone[len(alone) * 99 // 100],
        "send_beside_reader_p50_ms": beside[len(beside) // 2],
        "send_beside_reader_p99_ms": beside[len(beside) * 99 // 100],
        "beside_over_alone_p50": beside[len(beside) // 2] / alone[len(alone) // 2],
        "reader_messages_per_s": read / options.rounds,
    }


async def _send(store: MessageStore, count: int) -> list[float]:
    """Put messages one after the other; return how long each took, in milliseconds."""
    loop = asyncio.get_running_loop()
    message = make_message(b"Sends", 0)
    times = []
    for _ in range(count):
        answered: asyncio.Future[PutStatus] = loop.create_future()
        begin = time.perf_counter()
        store.writer.put(message, lambda status, *_, future=answered: future.set_result(status))
        assert await answered is PutStatus.OK
        times.append((time.perf_counter() - begin) * 1e3)
    return times


async def _read_until(store: MessageStore, stopped: asyncio.Event) -> int:
    """Read the backlog over and over, a pull in each turn of the loop; return the messages."""
    read = 0
    for _ in cycle((0,)):
        for count in pulls(store):
            read += count
            await asyncio.sleep(0)
            if stopped.is_set():
                return read
    return read


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.store_reads", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--sends", type=int, default=3_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", choices=[kind.value for kind in Kind], default="plain")
    parser.add_argument("--drain", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.drain is not None:
        print(drain(options.drain))
        return 0
    figures = uvloop.run(measure(options))
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
