"""Just enough of the remoting protocol for a tester: cut a stream into frames, ask one question.

The harness's own, so that a framing bug of the system does not hide itself. Layout, big endian:

======  ====  ====================================================
offset  size  field
======  ====  ====================================================
0       4     total, not counting itself: 4 + header + body
4       1     serialize type: 0 JSON, 1 binary
5       3     header length
8       n     header; a binary one begins with the code, int16
8+n     rest  body
======  ====  ====================================================

Source: spec/wire.md 1.1-1.3.
"""

import asyncio
import json
import re
import struct
from typing import Any, Final

from ledgermq.runtime.cancel import timeout

PREFIX: Final = struct.Struct(">iI")
CODE: Final = struct.Struct(">h")
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
RAFT_STATUS: Final = 29001
_JSON_CODE = re.compile(rb'"code"\s*:\s*(-?\d+)')


class FrameSplitter:
    """Cuts a byte stream into whole frames (prefix included); never loses or changes a byte.

    Bytes that cannot be a frame switch it to passing everything through as it comes.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.transparent = False

    @property
    def partial_bytes(self) -> int:
        """Bytes held of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes."""
        self._buffer += data
        frames: list[bytes] = []
        while not self.transparent and len(self._buffer) >= PREFIX.size:
            total, word = PREFIX.unpack_from(self._buffer)
            if not 4 + (word & 0xFFFFFF) <= total <= FRAME_BYTES_MAX:
                self.transparent = True
                break
            if len(self._buffer) < total + 4:
                break
            frames.append(bytes(self._buffer[: total + 4]))
            del self._buffer[: total + 4]
        if self.transparent and self._buffer:
            frames.append(bytes(self._buffer))
            self._buffer.clear()
        return frames


_BARE_KEY = re.compile(rb"([{,])(\d+):")
"""fastjson writes the numbers of brokers as keys without quotes."""


def frame_code(frame: bytes) -> int | None:
    """Return the request or response code in a frame's header; None if it has none."""
    if len(frame) < PREFIX.size:
        return None
    _, word = PREFIX.unpack_from(frame)
    header = frame[8 : 8 + (word & 0xFFFFFF)]
    if word >> 24 == 1:
        return int(CODE.unpack_from(header)[0]) & 0xFFFF if len(header) >= CODE.size else None
    found = _JSON_CODE.search(header)
    return int(found[1]) if found else None


def flip_last_byte(frame: bytes) -> bytes:
    """Return the frame with one bit of its last byte inverted."""
    return frame[:-1] + bytes([frame[-1] ^ 1])


def encode_request(code: int, opaque: int, fields: dict[str, str] | None = None) -> bytes:
    """Return a JSON request frame without body."""
    head: dict[str, Any] = {"code": code, "flag": 0, "language": "JAVA", "opaque": opaque}
    head |= {"serializeTypeCurrentRPC": "JSON", "version": 407, "extFields": fields or {}}
    header = json.dumps(head).encode()
    return PREFIX.pack(4 + len(header), len(header)) + header


def decode_answer(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and body of a JSON answer. Errors: ValueError if it is none."""
    _, word = PREFIX.unpack_from(frame)
    end = 8 + (word & 0xFFFFFF)
    head = json.loads(frame[8:end])
    if word >> 24 != 0 or not isinstance(head, dict):
        raise ValueError("not a JSON answer")
    return head, frame[end:]


class StatusConnection:
    """A connection to one broker for status questions, opened when needed.

    Errors of `ask`: OSError, TimeoutError, ValueError; each closes the connection.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._opaque = 0

    async def ask(
        self, code: int, timeout_s: float, fields: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the JSON body of the answer to a request without a body."""
        _, body = await self.ask_all(code, timeout_s, fields)
        return body

    async def ask_all(
        self, code: int, timeout_s: float, fields: dict[str, str] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the fields of the answer's header, and its JSON body, {} if it has none."""
        try:
            async with timeout(timeout_s):
                return await self._ask(code, fields)
        except BaseException:
            self.close()
            raise

    async def _ask(
        self, code: int, fields: dict[str, str] | None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        self._opaque += 1
        writer.write(encode_request(code, self._opaque, fields))
        prefix = await reader.readexactly(4)
        total = int.from_bytes(prefix, "big")
        if not 4 <= total <= FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {total} bytes")
        head, body = decode_answer(prefix + await reader.readexactly(total))
        if head.get("code") != 0:
            raise ValueError(f"code {head.get('code')}: {head.get('remark')}")
        answer = json.loads(_BARE_KEY.sub(rb'\1"\2":', body) or b"{}")
        told = head.get("extFields") or {}
        if not isinstance(answer, dict) or not isinstance(told, dict):
            raise ValueError("the body is not a JSON object")  # noqa: TRY004 - wrong bytes, not type
        return told, answer

    def close(self) -> None:
        """Drop the connection; the next question opens a new one."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
