"""A connection that speaks whatever bytes it is given, and reads answers if it reads at all."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, cast

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command, encode_command
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.hosts import parse_address
from ledgermq.runtime.cancel import timeout

if TYPE_CHECKING:
    from ledgermq.remoting.protocol.frame import Frame

CONNECT_S: Final = 1.0
ANSWER_S: Final = 4.0
MS_PER_S: Final = 1000


def frame_of(code: int, opaque: int, fields: dict[str, str], **more: object) -> bytes:
    """Return a request as bytes; ``more`` are further members of the command.

    Errors: `RemotingError` for what no frame carries.
    """
    command = RemotingCommand(code, opaque=opaque, ext_fields=fields, **more)  # type: ignore[arg-type]  # the caller knows the members
    return b"".join(encode_command(command))


def first_heartbeat(group: str, client_id: str, topic: str) -> bytes:
    """Return the request of a client that comes as a member of a group, with the opaque 1."""
    body = {
        "clientID": client_id,
        "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
        }],
    }  # fmt: skip
    return frame_of(RequestCode.HEART_BEAT, 1, {}, body=json.dumps(body).encode())


class RawConnection(asyncio.Protocol):
    """One connection; answers are matched by their opaque."""

    def __init__(self, address: str = "") -> None:
        self.address = address
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[RemotingCommand | None]] = {}
        self.answers = 0
        self.is_lost = False

    @classmethod
    async def dial(cls, address: str, source: str) -> RawConnection | None:
        """Connect from ``source`` to ``host:port``; None where nobody answers."""
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with timeout(CONNECT_S):
                _, made = await loop.create_connection(
                    lambda: cls(address), host, port, local_addr=(source, 0)
                )
        except (OSError, TimeoutError):
            return None
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        try:
            frames = self._decoder.feed(data)
        except RemotingError:
            self.close()
            return
        for frame in frames:
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        del exc
        self.is_lost = True
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_result(None)

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is gone."""
        if self._transport is not None and not self.is_lost:
            self._transport.write(data)

    def go_deaf(self) -> None:
        """Read nothing any more."""
        if self._transport is not None and not self.is_lost:
            self._transport.pause_reading()

    def hear_again(self) -> None:
        """Read on."""
        if self._transport is not None and not self.is_lost:
            self._transport.resume_reading()

    async def ask(self, data: bytes, opaque: int) -> RemotingCommand | None:
        """Send a request; return its answer, None if none came."""
        if self.is_lost:
            return None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[RemotingCommand | None] = loop.create_future()
        self._waiting[opaque] = answer
        self.write(data)
        try:
            async with timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(opaque, None)

    def ask_all(
        self, frames: dict[int, bytes]
    ) -> dict[int, asyncio.Future[RemotingCommand | None]]:
        """Write requests at once; return the answers that come, by their opaque."""
        loop = asyncio.get_running_loop()
        asked: dict[int, asyncio.Future[RemotingCommand | None]] = {
            opaque: loop.create_future() for opaque in frames
        }
        if not self.is_lost:
            self._waiting |= asked
            self.write(b"".join(frames.values()))
        return asked

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self, frame: Frame) -> None:
        try:
            command = decode_command(frame)
        except RemotingError:
            return
        if not command.is_response:
            self._take_request(command)
            return
        self.answers += 1
        answer = self._waiting.get(command.opaque)
        if answer is not None and not answer.done():
            answer.set_result(command)

    def _take_request(self, command: RemotingCommand) -> None:
        """Take what the other side asks: nobody answers."""
