"""Masters and slaves take requests at ``listenPort`` - 2 as well, where RocketMQ's slaves ask."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from chaos.backends.ports import take_port_block
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from tests.integration.plain_broker import ASK_MS, Plain, plain

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def topics_at(broker: Plain, port: int) -> bytes:
    request = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
    answer = await broker.client.request(f"127.0.0.1:{port}", request, ASK_MS)
    assert answer.code == 0, answer
    return bytes(answer.body)


def test_both_ports_serve_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        port = take_port_block(4) + 2
        async with plain(tmp_path, broker_role="ASYNC_MASTER", listen_port=port) as broker:
            assert await topics_at(broker, port) == await topics_at(broker, port - 2)
        with socket.socket() as free:
            free.bind(("127.0.0.1", port - 2))

    asyncio.run(main())


def test_a_second_port_that_is_taken_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        port = take_port_block(4) + 2
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port - 2))
            taken.listen(1)
            async with plain(tmp_path, broker_role="ASYNC_MASTER", listen_port=port) as broker:
                assert await topics_at(broker, port)

    asyncio.run(main())
    assert any("event=no_second_port" in line for line in caplog.messages)
