"""The ceiling: frames of a SEND answered from a template, both ends in Python, no broker between.

``python -m bench.echo PORT`` is the server; ``measure`` starts it and drives it with a closed loop
of the same frames that the client library sends. Neither end decodes a header, so this is what the
loop and the kernel allow, not what a broker can reach.
"""

import asyncio
import json
import struct
import subprocess
import sys
import time
from collections import deque
from typing import cast

import uvloop

from bench.result import Measurement, summarize
from chaos.backends.ports import take_port_block

RECEIVE_BYTES = 1 << 20
RESPONSE = (
    b'{"code":0,"extFields":{"queueId":"0","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100002A9F0000000000000000","queueOffset":"12345678"},"flag":1,'
    b'"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":407}'
)
REQUEST = (
    b'{"code":310,"extFields":{"a":"bench_producer","b":"bench","c":"TBW102","d":"4","e":"0",'
    b'"f":"0","g":"1795222053945","h":"0","i":"UNIQ_KEY\\u0001FD00000000000000000000000000000'
    b'241975FFD2B27672ABC380000\\u0002WAIT\\u0001true","j":"0","k":"false","m":"false"},"flag":0,'
    b'"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":407}'
)


class _Frames(asyncio.BufferedProtocol):
    """Cuts length-prefixed frames out of one receive buffer and counts them to ``on_frames``."""

    def __init__(self) -> None:
        self.buffer = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.buffer)
        self.filled = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self.view[self.filled :]

    def buffer_updated(self, count: int) -> None:
        self.filled += count
        start, frames = 0, 0
        while self.filled - start >= 4:
            (length,) = struct.unpack_from(">i", self.buffer, start)
            if self.filled - start < 4 + length:
                break
            start += 4 + length
            frames += 1
        if start:
            self.buffer[: self.filled - start] = self.buffer[start : self.filled]
            self.filled -= start
            self.on_frames(frames)

    def on_frames(self, count: int) -> None:
        """React to ``count`` complete frames."""


class _Server(_Frames):
    def on_frames(self, count: int) -> None:
        header = RESPONSE % 1
        frame = struct.pack(">ii", 4 + len(header), len(header)) + header
        self.transport.write(frame * count)


class _Client(_Frames):
    def __init__(self, window: int, size: int, done: asyncio.Future[None]) -> None:
        super().__init__()
        header = REQUEST % 1
        self.frame = struct.pack(">ii", 4 + len(header) + size, len(header)) + header + b"x" * size
        self.window = window
        self.sent: deque[float] = deque()
        self.latencies: list[float] = []
        self.recording = False
        self.done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._send(self.window)

    def on_frames(self, count: int) -> None:
        now = time.perf_counter()
        for _ in range(count):
            begin = self.sent.popleft()
            if self.recording:
                self.latencies.append(now - begin)
        self._send(count)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _send(self, count: int) -> None:
        now = time.perf_counter()
        self.sent.extend([now] * count)
        self.transport.write(self.frame * count)


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Server, "127.0.0.1", port)
    print(json.dumps("ready"), flush=True)
    async with server:
        await server.serve_forever()


async def _drive(port: int, window: int, size: int, times_s: tuple[float, float]) -> Measurement:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    transport, client = await loop.create_connection(
        lambda: _Client(window, size, done), "127.0.0.1", port
    )
    warmup_s, seconds = times_s
    await asyncio.sleep(warmup_s)
    client.recording = True
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    client.recording = False
    elapsed = time.perf_counter() - begin
    transport.abort()
    await done
    return summarize(window, client.latencies, elapsed, 0)


def measure(windows: list[int], size: int, seconds: float) -> dict[int, Measurement]:
    """Start the server, run every window against it, end it."""
    port = take_port_block(1)
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.echo", str(port)], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        server.stdout.readline()
        return {w: uvloop.run(_drive(port, w, size, (0.5, seconds))) for w in windows}
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
