"""Waiting until a process that was started is ready, and saying why it is not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from chaos.backends.base import ClusterFailed
from chaos.backends.ports import HOST
from chaos.backends.process import Child
from ledgermq.runtime.cancel import timeout

READY_TIMEOUT_S = 60.0


async def accepts(port: int) -> bool:
    """Return whether something listens on a port of loopback."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


@contextlib.asynccontextmanager
async def deadline(name: str, log: Path) -> AsyncIterator[None]:
    """Limit the time to get ready; the error says who was late and where its log is."""
    try:
        async with timeout(READY_TIMEOUT_S):
            yield
    except TimeoutError as error:
        late = f"{name} was not ready in {READY_TIMEOUT_S:.0f} s; its log: {log}"
        raise ClusterFailed(late) from error


def check_alive(child: Child, log: Path) -> None:
    """Go on if a child runs. Errors: ClusterFailed with the end of its log if it does not."""
    if child.state() == "gone":
        tail = log.read_text(errors="replace").strip().splitlines()[-3:]
        said = " | ".join(tail) or "nothing"
        raise ClusterFailed(f"{child.name} ended at start; its log {log} says: {said}")
