"""The harness's end of the proxy's control socket. Errors: `ProxyFailed`, never silence."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from ledgermq.runtime.cancel import timeout

ANSWER_TIMEOUT_S = 5.0
LINE_BYTES_MAX = 1 << 22


class ProxyFailed(Exception):  # noqa: N818 - it says what happened
    """The proxy did not answer, or refused a command."""


class ProxyControl:
    """Sends commands one at a time and returns the answers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def command(
        self, cmd: str, links: Sequence[str] = (), **arguments: object
    ) -> dict[str, Any]:
        """Perform ``cmd`` on ``links``; return the snapshot of all links by name."""
        request = {"cmd": cmd, "links": list(links), **arguments}
        async with self._lock:
            try:
                async with timeout(ANSWER_TIMEOUT_S):
                    line = await self._exchange(json.dumps(request).encode() + b"\n")
            except (OSError, TimeoutError) as error:
                self.close()
                raise ProxyFailed(f"{cmd}: {type(error).__name__} {error}") from error
            except asyncio.CancelledError:
                self.close()  # else the next command would get the answer to this one
                raise
        answer: dict[str, Any] = (
            json.loads(line) if line else {"error": "the proxy closed the connection"}
        )
        if not answer.get("ok"):
            raise ProxyFailed(f"{cmd}: {answer.get('error')}")
        result: dict[str, Any] = answer["links"]
        return result

    async def _exchange(self, line: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path, limit=LINE_BYTES_MAX)
        reader, writer = self._streams
        writer.write(line)
        await writer.drain()
        return await reader.readline()

    def close(self) -> None:
        """Drop the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
