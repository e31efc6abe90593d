"""One direction of a link: rule, gate and rate; and what carries the bytes of a connection.

Source: spec/proof.md N4, N6 to N11.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.generator import Stream
from chaos.net.rules import Counters, Kept, Rule, Treatment
from chaos.net.wire import FrameSplitter
from ledgermq.runtime.cancel import timeout

HELD_BYTES_MAX = 4 * 1024 * 1024
READ_BYTES = 64 * 1024


class Lane:
    """One direction of a link: its rule, its counters, and a gate that opens when it may pass."""

    def __init__(self, stream: Stream) -> None:
        self.rule = Rule()
        self.counters = Counters()
        self.open = asyncio.Event()
        self.open.set()
        self._kept = Kept()
        self._stream = stream
        self._draw = 0
        self._free_s = 0.0
        self._replaced = asyncio.Event()

    def set_rule(self, rule: Rule) -> None:
        """Replace the rule from the next frame on; what waits for a delay or a rate leaves."""
        self.rule = rule
        self._free_s = 0.0
        self._replaced.set()
        self._replaced = asyncio.Event()
        if rule.withhold:
            self.open.clear()
        else:
            self.open.set()

    def treatment(self) -> Treatment:
        """Return what applies the rule on one connection."""
        return Treatment(self.counters, self._kept, self._stream)

    def take(self, treatment: Treatment, frame: bytes) -> list[tuple[float, bytes]]:
        """Return what leaves for a frame that arrived, with delays in seconds."""
        self._draw += 1
        if self.rule.withhold:
            self.counters.withheld_bytes += len(frame)
        return treatment.treat(self.rule, frame, self._draw)

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until the rule is replaced."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with timeout(seconds):
                    await self._replaced.wait()

    def reserve_s(self, size: int, now_s: float) -> float:
        """Return for how many seconds a frame of ``size`` bytes waits for the rate."""
        if not self.rule.rate_bytes_s:
            return 0.0
        begins_s = max(now_s, self._free_s)
        self._free_s = begins_s + size / self.rule.rate_bytes_s
        self.counters.slowed_bytes += size
        return self._free_s - now_s


@dataclass(frozen=True, slots=True)
class _Held:
    """A frame that has not left yet."""

    came_s: float
    delay_s: float
    frame: bytes


@dataclass(slots=True, eq=False)
class Pump:
    """Carries one direction of one connection; ``reset`` ends the connection by a TCP reset."""

    lane: Lane
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    reset: Callable[[], None]
    queue: deque[_Held] = field(default_factory=deque)
    held_bytes: int = 0
    passed_bytes: int = 0
    """Since a limit of bytes began to hold on this connection."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    treatment: Treatment = field(init=False)

    def __post_init__(self) -> None:
        self.treatment = self.lane.treatment()

    async def run(self) -> None:
        """Carry until the source ends; then end the other side once the lane is open."""
        self.room.set()
        sender = asyncio.create_task(self._send())
        try:
            await self._receive()
            self.release()
            if not self.lane.open.is_set():
                self.lane.counters.lost_bytes += self.held_bytes
                self.queue.clear()
            self.ended = True
            self.changed.set()
            await sender
        finally:
            sender.cancel()

    def release(self) -> None:
        """Let the frame go that waits to be overtaken."""
        for delay_s, frame in self.treatment.release():
            self._put(delay_s, frame)
        self.changed.set()

    async def _receive(self) -> None:
        splitter = FrameSplitter()
        try:
            while data := await self.reader.read(READ_BYTES):
                out = [
                    held
                    for frame in splitter.feed(data)
                    for held in self.lane.take(self.treatment, frame)
                ]
                if self._pass_at_once(out):
                    await self.writer.drain()
                    continue
                for delay_s, frame in out:
                    self._put(delay_s, frame)
                self.changed.set()
                await self.room.wait()
        except OSError:
            return

    def _pass_at_once(self, out: list[tuple[float, bytes]]) -> bool:
        """Write frames that nothing holds up, without a turn of `_send`; tell whether it did."""
        rule, counters = self.lane.rule, self.lane.counters
        held_up = self.queue or rule.rate_bytes_s or rule.reset_after_bytes
        if held_up or not self.lane.open.is_set() or any(delay_s for delay_s, _ in out):
            return False
        together = b"".join(frame for _, frame in out)
        self.passed_bytes = 0
        counters.frames += len(out)
        counters.bytes += len(together)
        self.writer.write(together)
        return True

    def _put(self, delay_s: float, frame: bytes) -> None:
        self.queue.append(_Held(asyncio.get_running_loop().time(), delay_s, frame))
        self._hold(len(frame))

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
            held = self.queue[0]
            await self.lane.wait(held.came_s + held.delay_s - loop.time())
            await self.lane.wait(self.lane.reserve_s(len(held.frame), loop.time()))
            await self.lane.open.wait()
            if not self.queue:
                continue
            self.queue.popleft()
            self._hold(-len(held.frame))
            try:
                if not await self._write(held, loop.time()):
                    return
            except OSError:
                return

    async def _write(self, held: _Held, now_s: float) -> bool:
        """Send a frame, or as much of it as the limit leaves; return whether that was all."""
        counters, limit = self.lane.counters, self.lane.rule.reset_after_bytes
        self.passed_bytes = self.passed_bytes + len(held.frame) if limit else 0
        over = self.passed_bytes - limit if limit else 0
        if over > 0:
            part = held.frame[: max(0, len(held.frame) - over)]
            self.writer.write(part)
            counters.bytes += len(part)
            counters.resets += 1
            await self.writer.drain()
            self.reset()
            return False
        counters.frames += 1
        counters.bytes += len(held.frame)
        if held.delay_s:
            counters.delayed += 1
            counters.late_us += int((now_s - held.came_s) * 1e6)
        self.writer.write(held.frame)
        await self.writer.drain()
        return True
