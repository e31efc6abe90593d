"""One directed link i -> j: a TCP listener that i dials instead of j, and what it does to frames.

``forward`` is the direction i to j, ``backward`` the answers on the same connections. A withheld
direction is silent, not closed: bytes are read and kept (up to a limit, then the sender's own
socket fills), connects succeed, ends are not passed on. What was kept leaves when the link heals;
if its sender is gone by then it is lost, as packets of a dead host are.

Knows no Raft. Source: spec/proof.md N1, N4, N11, 2.1 (proxy).
"""

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from chaos.generator import Stream
from chaos.net.rules import Counters, Rule, apply_rule
from chaos.net.wire import FrameSplitter

HELD_BYTES_MAX = 4 * 1024 * 1024
READ_BYTES = 64 * 1024
_LINGER_ZERO = struct.pack("ii", 1, 0)
DIRECTIONS = ("forward", "backward")


class Lane:
    """One direction of a link: its rule, its counters, and a gate that opens when it may pass."""

    def __init__(self, stream: Stream) -> None:
        self.rule = Rule()
        self.counters = Counters()
        self.open = asyncio.Event()
        self.open.set()
        self._stream = stream
        self._draw = 0

    def set_rule(self, rule: Rule) -> None:
        """Replace the rule from the next frame on."""
        self.rule = rule
        if rule.withhold:
            self.open.clear()
        else:
            self.open.set()

    def treat(self, frame: bytes) -> list[tuple[float, bytes]]:
        """Return what leaves for a frame that arrived, with delays in seconds."""
        self._draw += 1
        if self.rule.withhold:
            self.counters.withheld_bytes += len(frame)
        return apply_rule(self.rule, frame, self.counters, self._stream, self._draw)


@dataclass(slots=True)
class _Pump:
    """Carries one direction of one connection."""

    lane: Lane
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    held_bytes: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    async def run(self) -> None:
        """Carry until the source ends; then end the other side once the lane is open."""
        self.room.set()
        sender = asyncio.create_task(self._send())
        try:
            await self._receive()
            if not self.lane.open.is_set():
                self.lane.counters.lost_bytes += self.held_bytes
                self.queue.clear()
            self.ended = True
            self.changed.set()
            await sender
        finally:
            sender.cancel()

    async def _receive(self) -> None:
        splitter = FrameSplitter()
        loop = asyncio.get_running_loop()
        try:
            while data := await self.reader.read(READ_BYTES):
                for frame in splitter.feed(data):
                    for delay_s, out in self.lane.treat(frame):
                        self.queue.append((loop.time() + delay_s, out))
                        self._hold(len(out))
                self.changed.set()
                await self.room.wait()
        except OSError:
            return

    def _hold(self, change: int) -> None:
        self.held_bytes += change
        if self.held_bytes > HELD_BYTES_MAX:
            self.room.clear()
        else:
            self.room.set()

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self.queue:
                if self.ended:
                    await self.lane.open.wait()
                    return
                self.changed.clear()
                await self.changed.wait()
                continue
            due, frame = self.queue[0]
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self.lane.open.wait()
            if not self.queue:
                continue
            self.queue.popleft()
            self._hold(-len(frame))
            self.lane.counters.frames += 1
            self.lane.counters.bytes += len(frame)
            try:
                self.writer.write(frame)
                await self.writer.drain()
            except OSError:
                return


class Link:
    """A directed link: listens on loopback, dials ``target`` for each connection accepted."""

    def __init__(self, name: str, target: tuple[str, int], seed: int) -> None:
        self.name = name
        self.port = 0
        self.accepted = 0
        self.refusing = False
        stream = Stream(seed, f"link/{name}")
        self.lanes = {d: Lane(stream.split(d)) for d in DIRECTIONS}
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Begin to accept, on the port of before if there was one."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.refusing = False

    async def refuse(self) -> None:
        """Stop accepting: connects are refused until the link heals."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.refusing = True

    def change(
        self,
        direction: str,
        **fields: Any,  # noqa: ANN401 - the fields of Rule, of several types
    ) -> None:
        """Change fields of the rule of ``forward``, ``backward`` or ``both``."""
        for name in DIRECTIONS if direction == "both" else (direction,):
            lane = self.lanes[name]
            lane.set_rule(replace(lane.rule, **fields))

    async def heal(self) -> None:
        """Lift every rule; idempotent."""
        for lane in self.lanes.values():
            lane.set_rule(Rule())
        if self.refusing:
            await self.listen()

    def reset(self) -> int:
        """Break all connections with a TCP reset; return how many."""
        live = [writer for writer in self._writers if not writer.transport.is_closing()]
        for writer in live:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            writer.transport.abort()
        return len(live)

    async def close(self) -> None:
        """Stop listening and break everything."""
        await self.refuse()
        for task in list(self._tasks):
            task.cancel()
        self.reset()

    def snapshot(self) -> dict[str, Any]:
        """Return counters and state as plain data."""
        state: dict[str, Any] = {d: lane.counters.snapshot() for d, lane in self.lanes.items()}
        state["withholding"] = [d for d in DIRECTIONS if self.lanes[d].rule.withhold]
        return state | {"accepted": self.accepted, "refusing": self.refusing, "port": self.port}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # the link closes: this task is nobody's to await
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A withheld link is not dialled: a new connection meets silence.
        await self.lanes["forward"].open.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            return
        self._writers.add(far_writer)
        pumps = (
            _Pump(self.lanes["forward"], reader, far_writer),
            _Pump(self.lanes["backward"], far_reader, writer),
        )
        tasks = [asyncio.create_task(pump.run()) for pump in pumps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._writers.discard(far_writer)
            far_writer.transport.abort()
