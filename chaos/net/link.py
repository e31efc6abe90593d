"""One directed link i -> j: a TCP listener that i dials instead of j; `Pump` carries its bytes.

``forward`` is the direction i to j, ``backward`` the answers on the same connections. A withheld
direction is silent, not closed: bytes are read and kept (up to a limit, then the sender's own
socket fills), connects succeed, ends are not passed on. What was kept leaves when the link heals;
if its sender is gone by then it is lost, as packets of a dead host are.

Knows no Raft. Source: spec/proof.md N1, N4, N11, 2.1 (proxy).
"""

import asyncio
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chaos.generator import Stream
from chaos.net.lane import Lane, Pump
from chaos.net.rules import Rule

FLAP_MS_MIN = 10.0
_LINGER_ZERO = struct.pack("ii", 1, 0)
DIRECTIONS = ("forward", "backward")


class Link:
    """A directed link: listens on loopback, dials ``target`` for each connection accepted.

    ``port``: where it listens; 0: where the kernel likes.
    """

    def __init__(self, name: str, target: tuple[str, int], seed: int, port: int = 0) -> None:
        self.name = name
        self.port = port
        self.accepted = 0
        self.refusing = False
        self.flaps = 0
        """How often it was withheld by its schedule."""
        self.resets = 0
        """Connections that were reset by a command."""
        stream = Stream(seed, f"link/{name}")
        self.lanes = {d: Lane(stream.split(d)) for d in DIRECTIONS}
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[Pump] = set()
        self._schedule: asyncio.Task[None] | None = None

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
        for lane in self._of(direction):
            lane.set_rule(replace(lane.rule, **fields))

    def shape(self, direction: str, rule: Rule) -> None:
        """Replace the rule of ``forward``, ``backward`` or ``both``."""
        for lane in self._of(direction):
            lane.set_rule(rule)

    def flap(self, cut_ms: float, open_ms: float) -> None:
        """Withhold both directions and let them pass in turn, until the link heals.

        Errors: ValueError for times that no timer keeps.
        """
        if min(cut_ms, open_ms) < FLAP_MS_MIN:
            raise ValueError(f"a link flaps no faster than each {FLAP_MS_MIN:.0f} ms")
        self._end_schedule()
        self._schedule = asyncio.create_task(self._flap(cut_ms / 1000, open_ms / 1000))

    async def heal(self) -> None:
        """Lift every rule; idempotent."""
        self._end_schedule()
        for lane in self.lanes.values():
            lane.set_rule(Rule())
        for pump in self._pumps:
            pump.release()
        if self.refusing:
            await self.listen()

    def reset(self) -> int:
        """Break all connections with a TCP reset; return how many."""
        live = [writer for writer in self._writers if not writer.transport.is_closing()]
        for writer in live:
            _reset(writer)
        self.resets += len(live)
        return len(live)

    async def close(self) -> None:
        """Stop listening and break everything."""
        self._end_schedule()
        await self.refuse()
        for task in list(self._tasks):
            task.cancel()
        self.reset()

    def snapshot(self) -> dict[str, Any]:
        """Return counters and state as plain data."""
        state: dict[str, Any] = {d: lane.counters.snapshot() for d, lane in self.lanes.items()}
        state["withholding"] = [d for d in DIRECTIONS if self.lanes[d].rule.withhold]
        has_rule = any(lane.rule != Rule() for lane in self.lanes.values())
        state["ruled"] = has_rule or self.refusing or self._schedule is not None
        state |= {"accepted": self.accepted, "refusing": self.refusing, "port": self.port}
        return state | {"flaps": self.flaps, "resets": self.resets}

    def _of(self, direction: str) -> Iterator[Lane]:
        if direction not in {*DIRECTIONS, "both"}:
            raise ValueError(f"direction {direction!r} is not one of {DIRECTIONS}")
        return (self.lanes[d] for d in DIRECTIONS if direction in {d, "both"})

    def _end_schedule(self) -> None:
        if self._schedule is not None:
            self._schedule.cancel()
            self._schedule = None

    async def _flap(self, cut_s: float, open_s: float) -> None:
        while True:
            self.flaps += 1
            self.change("both", withhold=True)
            await asyncio.sleep(cut_s)
            self.change("both", withhold=False)
            await asyncio.sleep(open_s)

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

        def reset() -> None:
            for one in (writer, far_writer):
                _reset(one)

        pumps = (
            Pump(self.lanes["forward"], reader, far_writer, reset),
            Pump(self.lanes["backward"], far_reader, writer, reset),
        )
        self._pumps.update(pumps)
        tasks = [asyncio.create_task(pump.run()) for pump in pumps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._pumps.difference_update(pumps)
            self._writers.discard(far_writer)
            far_writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by a TCP reset."""
    sock = writer.get_extra_info("socket")
    if not writer.transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        writer.transport.abort()
