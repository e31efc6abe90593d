"""Strangers at the port between members: bytes of all shapes, connections that say nothing."""

import asyncio
import contextlib
import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

from chaos.fuzz.frames import json_frame, spoil
from chaos.fuzz.storm import Tally

PAUSE_S: Final = 0.05
SILENT_P: Final = 0.2
_CODES: Final = tuple(range(31_001, 31_025))


class Strangers:
    """Dials the peer ports of the members in turn, until it is told to stop."""

    def __init__(self, ports: Sequence[tuple[str, int]], seed: str, tally: Tally) -> None:
        self._ports = ports
        self._rng = random.Random(seed)
        self._tally = tally
        self._silent: list[asyncio.StreamWriter] = []

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Dial, say something, leave or stay silent."""
        try:
            while not is_over():
                with contextlib.suppress(OSError):
                    await self._once()
                await asyncio.sleep(PAUSE_S)
        finally:
            for writer in self._silent:
                writer.close()

    async def _once(self) -> None:
        rng = self._rng
        _, writer = await asyncio.open_connection(*rng.choice(self._ports))
        self._tally.connections += 1
        if rng.random() < SILENT_P:
            self._silent.append(writer)
            if len(self._silent) > 100:
                self._silent.pop(0).close()
            return
        for _ in range(rng.choice((1, 3, 20))):
            if writer.is_closing():
                break
            data = self._frame()
            writer.write(data)
            self._tally.frames += 1
            self._tally.sent_bytes += len(data)
        await asyncio.sleep(PAUSE_S)
        writer.transport.abort()

    def _frame(self) -> bytes:
        """Return a frame with a number that members use, and what no member says."""
        rng = self._rng
        code = rng.choice(_CODES)
        content = rng.randbytes(rng.choice((0, 8, 48, 300, 20_000)))
        if rng.random() < 0.5:
            return spoil(rng, json_frame(code, 2, 1, {"term": "9" * 19}, content))
        header = struct.pack(">HBHii", code, 0, 1, 0, 2) + struct.pack(">ii", 0, 0)
        header += rng.randbytes(rng.choice((0, 16, 64)))
        return struct.pack(">iI", 4 + len(header) + len(content), 1 << 24 | len(header)) + (
            header + content
        )
