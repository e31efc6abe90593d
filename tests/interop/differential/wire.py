"""Raw frames to one server: a request as drawn, its answer, and what the server asks meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.frame import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_S = 4.0
SILENCE_S = 0.3
"""How long a oneway request is given to be answered all the same."""
JAVA_VERSION = 407
ANSWERS_OF_A_CLIENT = {
    221: b'{"messageQueueTable":{}}',
    307: b'{"properties":{"PROP_CLIENT_VERSION":"V4_9_7"},"statusTable":{},"mqTable":{}}',
    309: b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}',
}
"""What a client of ours says when a broker asks it; to all else it says an empty success."""

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Wired:
    """A request with all its values, as it goes to one server."""

    code: int
    fields: Mapping[str, Value]
    body: bytes = b""
    binary: bool = False
    oneway: bool = False


@dataclass(slots=True)
class Link:
    """One connection. ``asked`` gathers the requests of the server, in order."""

    address: str
    asked: list[RemotingCommand] = field(default_factory=list)
    _waiting: dict[int, asyncio.Future[RemotingCommand]] = field(default_factory=dict)
    _opaques: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _writer: asyncio.StreamWriter | None = None
    _task: asyncio.Task[None] | None = None

    async def ask(self, request: Wired) -> RemotingCommand | None:
        """Send a request; None where nobody answered, or the connection was closed."""
        answer = await self.begin(request)
        return await self.end(answer, SILENCE_S if request.oneway else ANSWER_S)

    async def begin(self, request: Wired) -> asyncio.Future[RemotingCommand]:
        """Send a request and return what its answer will be."""
        writer = await self._open()
        opaque = next(self._opaques)
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        writer.write(_frame(request, opaque))
        await writer.drain()
        return answer

    @staticmethod
    async def end(
        answer: asyncio.Future[RemotingCommand], within_s: float = ANSWER_S
    ) -> RemotingCommand | None:
        """Wait for an answer that `begin` told of."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            return await asyncio.wait_for(answer, within_s)
        return None

    async def close(self) -> None:
        """End the connection."""
        if self._writer is not None:
            self._writer.close()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _open(self) -> asyncio.StreamWriter:
        if self._task is None or self._task.done():
            host, _, port = self.address.rpartition(":")
            reader, self._writer = await asyncio.open_connection(host, int(port))
            self._task = asyncio.create_task(self._read(reader, self._writer))
        assert self._writer is not None
        return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                for frame in decoder.feed(data):
                    self._take(decode_command(frame), writer)
        writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("closed by the server"))
                answer.exception()
        self._waiting.clear()

    def _take(self, command: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        if command.is_response:
            answer = self._waiting.pop(command.opaque, None)
            if answer is not None and not answer.done():
                answer.set_result(command)
            return
        self.asked.append(command)
        if not command.is_oneway:
            body = ANSWERS_OF_A_CLIENT.get(command.code, b"")
            said = RemotingCommand(0, 1, command.opaque, body=body)
            writer.writelines(encode_command(said))


def _frame(request: Wired, opaque: int) -> bytes:
    flag = 2 if request.oneway else 0
    if request.binary:
        texts = {name: text(value) for name, value in request.fields.items() if value is not None}
        command = RemotingCommand(
            request.code, flag, opaque, JAVA_VERSION, ext_fields=texts, body=request.body,
            serialize_type=1,
        )  # fmt: skip
        return b"".join(encode_command(command))
    header = json.dumps(
        {
            "code": request.code, "extFields": dict(request.fields), "flag": flag,
            "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON",
            "version": JAVA_VERSION,
        }
    ).encode()  # fmt: skip
    head = struct.pack(">II", 4 + len(header) + len(request.body), len(header))
    return head + header + request.body


def text(value: Value) -> str:
    """Return a value as it stands in a header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
