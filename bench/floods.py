"""How long a small send waits while another client floods the group with large messages.

``python -m bench.floods [--seconds 10] [--size 3145728] [--back]``, three replicas. The flood is a
process of its own at 127.0.0.2 and keeps as many requests under way as it is told; one client at
127.0.0.1 sends a message of 1 KiB, waits for its end and sends the next one. ``--back``: after some
large messages the flood only gives these back (36), so that the broker copies them. What the flood
is acknowledged a second is what large messages get, with or without the client beside it
(``--alone``).
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import uvloop

from bench.cluster import Cluster
from bench.topics import create_topic
from ledgermq.client import ClientConfig, Message, Producer
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.frame import FrameDecoder

TOPIC: Final = "floods"
QUEUES: Final = 4
FLOOD_ADDRESS: Final = "127.0.0.2"
PAUSE_S: Final = 0.005
BACKED: Final = 8
"""Messages that the flood has to give back."""
SEND_BACK: Final = 36
SEND: Final = 310
SUCCESS: Final = 0


class Flood:
    """Connections of one address, each with some requests under way all the time."""

    def __init__(self, port: int, size: int, window: int) -> None:
        self._port = port
        self._body = bytes(size)
        self._window = window
        self._places: list[int] = []
        self.codes: dict[int, int] = {}

    async def run(self, connections: int, *, back: bool) -> None:
        """Flood until cancelled."""
        if back:
            await self._connect(BACKED, self._send, stop_after=BACKED)
        request = self._give_back if back else self._send
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(self._connect(self._window, request))

    def _send(self, opaque: int) -> RemotingCommand:
        fields = {
            "a": "flood", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(opaque % QUEUES),
            "f": "0", "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0",
        }  # fmt: skip
        return RemotingCommand(SEND, opaque=opaque, ext_fields=fields, body=self._body)

    def _give_back(self, opaque: int) -> RemotingCommand:
        place = self._places[opaque % len(self._places)]
        fields = {"offset": str(place), "group": "flood", "delayLevel": "1"}
        return RemotingCommand(SEND_BACK, opaque=opaque, ext_fields=fields)

    async def _connect(
        self, window: int, request: Callable[[int], RemotingCommand], stop_after: int = 0
    ) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(FLOOD_ADDRESS, 0)
        )
        decoder = FrameDecoder(1 << 24)
        opaque = answered = 0
        try:
            while not stop_after or answered < stop_after:
                while opaque - answered < window:
                    opaque += 1
                    writer.writelines(encode_command(request(opaque)))
                data = await reader.read(1 << 16)
                if not data:
                    return
                answered += self._take(decoder, data)
        finally:
            writer.close()

    def _take(self, decoder: FrameDecoder, data: bytes) -> int:
        count = 0
        while data:
            room = decoder.writable()
            part, data = data[: len(room)], data[len(room) :]
            room[: len(part)] = part
            for frame in decoder.received(len(part)):
                answer = decode_command(frame)
                self.codes[answer.code] = self.codes.get(answer.code, 0) + 1
                if answer.code == SUCCESS and answer.ext_fields.get("msgId"):
                    self._places.append(int(answer.ext_fields["msgId"][-16:], 16))
                count += 1
        return count


async def _flood(options: argparse.Namespace) -> None:
    flood = Flood(options.port, options.size, options.window)
    begun = time.perf_counter()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(options.seconds):
            await flood.run(options.connections, back=options.back)
    took = time.perf_counter() - begun
    print(json.dumps({"codes": flood.codes, "seconds": took}))


async def _send_small(namesrv: str, seconds: float) -> tuple[list[float], int]:
    """Send one small message after the other; return how long each took (ms), and the errors."""
    delays_ms, errors = [], 0
    async with Producer(ClientConfig(namesrv_addrs=(namesrv,), group="small")) as producer:
        message = Message(TOPIC, bytes(1024))
        await producer.send(message)
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            try:
                await producer.send(message)
            except RemotingError:
                errors += 1
            delays_ms.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(PAUSE_S)
    return sorted(delays_ms), errors


async def run(options: argparse.Namespace) -> dict[str, object]:
    """Return what was seen."""
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-floods-") as home,
        Cluster(Path(home), replicas=3, sync_flush=False) as cluster,
    ):
        leader = await asyncio.to_thread(cluster.leader)
        await create_topic(cluster.namesrv_addr, TOPIC, QUEUES)
        arguments = [
            "--port", str(cluster.ports[leader]), "--size", str(options.size),
            "--window", str(options.window), "--connections", str(options.connections),
            "--seconds", str(options.seconds), *(["--back"] if options.back else []),
        ]  # fmt: skip
        flood = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.floods", *arguments, stdout=asyncio.subprocess.PIPE
        )
        await asyncio.sleep(1)
        delays_ms, errors = [0.0], 0
        if not options.alone:
            delays_ms, errors = await _send_small(cluster.namesrv_addr, options.seconds - 2)
        out, _ = await flood.communicate()
        told = json.loads(out)
        acknowledged = told["codes"].get("0", 0)
        return {
            "small_sends": len(delays_ms),
            "small_errors": errors,
            "p50_ms": round(delays_ms[len(delays_ms) // 2], 1),
            "p99_ms": round(delays_ms[int(len(delays_ms) * 0.99)], 1),
            "max_ms": round(delays_ms[-1], 1),
            "flood_codes": told["codes"],
            "flood_mib_s": round(acknowledged * options.size / told["seconds"] / 2**20, 1),
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Flood, and print how small sends fared."""
    parser = argparse.ArgumentParser(prog="python -m bench.floods", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--size", type=int, default=3 * 2**20, help="bytes of a large message")
    parser.add_argument("--window", type=int, default=32, help="requests of a connection")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--back", action="store_true", help="give messages back, no sends")
    parser.add_argument("--alone", action="store_true", help="no small sends")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.port:
        uvloop.run(_flood(options))
    else:
        print(json.dumps(uvloop.run(run(options)), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
