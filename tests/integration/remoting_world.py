"""A started server whose handlers show each way of answering, and a client, on uvloop."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ledgermq.remoting.protocol.command import (
    RemotingCommand,
    make_response,
)
from ledgermq.remoting.protocol.errors import (
    InvalidHeader,
    for_code,
)
from ledgermq.remoting.protocol.frame import Frame
from ledgermq.remoting.protocol.headers import decode_send_header, encode_send_response
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.server import RemotingServer

ECHO, LATER, NEVER, BROKEN, REFUSED, BAD, SILENT, HUGE = (
    1000,
    1001,
    1002,
    1003,
    1004,
    1005,
    1006,
    1007,
)
SEND_FIELDS = {"a": "g", "b": "t", "c": "d", "d": "4", "e": "2", "f": "0", "g": "1", "h": "0"}


class Service:
    """Handlers that show each way of answering."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.release = asyncio.Event()
        self.held: list[RemotingCommand] = []
        self.connections: list[Connection] = []

    def handlers(self) -> dict[int, Any]:
        return {
            ECHO: self.echo,
            LATER: self.later,
            NEVER: self.later,
            BROKEN: self.broken,
            REFUSED: self.refused,
            BAD: self.bad,
            SILENT: self.silent,
            HUGE: lambda _, command: make_response(command, 0, body=bytes(17 << 20)),
        }

    def hot(self) -> dict[int, Any]:
        return {310: self.send}

    def echo(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.seen.append(command.code)
        self.connections.append(connection)
        return make_response(command, 0, None, command.ext_fields, command.body)

    async def later(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        await self.release.wait()
        if command.body == b"raise":
            raise ValueError("late")
        return make_response(command, 0)

    def broken(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        raise ValueError(command.code)

    def refused(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        raise for_code(17, f"no {command.code}")

    def bad(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        raise InvalidHeader(f"field of {command.code}")

    def silent(self, _: Connection, command: RemotingCommand) -> None:
        self.held.append(command)

    def send(self, connection: Connection, frame: Frame) -> None:
        opaque, _, _, header = decode_send_header(frame)
        if header.topic == "bug":
            raise ValueError("bug")
        connection.write(
            encode_send_response(
                opaque, frame.serialize_type, "7F", header.queue_id, len(frame.body)
            )
        )


class World:
    """A started server with its service, and a client."""

    def __init__(self, server: RemotingServer, service: Service, port: int) -> None:
        self.server = server
        self.service = service
        self.port = port
        self.addr = f"127.0.0.1:{port}"
        self.client = RemotingClient()
        self.writers: list[asyncio.StreamWriter] = []

    async def ask(self, code: int, timeout_ms: int = 3000, **changes: Any) -> RemotingCommand:
        return await self.client.request(self.addr, RemotingCommand(code, **changes), timeout_ms)

    async def raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        return reader, writer


@contextlib.asynccontextmanager
async def world(**limits: int) -> AsyncIterator[World]:
    service = Service()
    server = RemotingServer(
        name="test",
        handlers=service.handlers(),
        hot=service.hot(),
        config=TransportConfig(**limits),
    )
    built = World(server, service, await server.start("127.0.0.1", 0))
    try:
        yield built
    finally:
        service.release.set()
        for writer in built.writers:
            writer.transport.abort()
        await built.client.close()
        await server.stop()
        assert server.connections == {}


def run(test: Callable[[World], Awaitable[None]], **limits: int) -> None:
    async def body() -> None:
        async with world(**limits) as built:
            await test(built)

    run_bounded(body())


def run_bounded(coro: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(coro, 60))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
