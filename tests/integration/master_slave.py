"""Masters and slaves of ours in the test's loop, and looks into their logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from tests.integration.broker_cluster import free_ports, until
from tests.integration.plain_broker import Plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FAST: dict[str, Any] = {"ha_heartbeat_ms": 50, "ha_housekeeping_ms": 2_000}


class Follower(Plain):
    """A slave, which takes nothing."""

    async def start(self) -> None:
        await self.controller.start()

    async def state(self) -> str:
        """Return how it follows, in words."""
        status = json.loads((await self.ask(29_001)).body)
        return str(status["following"]["state"])

    async def until_state(self, words: str) -> str:
        """Wait until the state has these words in it; return it."""
        async with asyncio.timeout(20):
            while words not in (state := await self.state()):
                await asyncio.sleep(0.02)
        return state


def master_of(store: Path, **settings: Any) -> Plain:
    values = {"broker_role": "ASYNC_MASTER", "ha_listen_port": free_ports(1)[0], **FAST}
    return Plain(store, **values | settings)


def slave_at(port: int, store: Path, **settings: Any) -> Follower:
    values = {
        "broker_role": "SLAVE", "broker_id": 1, "ha_master_address": f"127.0.0.1:{port}", **FAST,
    }  # fmt: skip
    return Follower(store, **values | settings)


def slave_of(master: Plain, store: Path, **settings: Any) -> Follower:
    return slave_at(master.config.ha_port, store, **settings)


@contextlib.asynccontextmanager
async def running(*brokers: Plain) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for broker in brokers:
            stack.push_async_callback(broker.stop)
            await broker.start()
        yield


def log_of(broker: Plain) -> Any:
    return broker.controller._mode.log


async def caught_up(master: Plain, slave: Plain) -> None:
    await until(
        lambda: log_of(slave).end_position == log_of(master).end_position, "the slave has it all"
    )


async def dispatched(master: Plain, slave: Plain) -> None:
    await until(
        lambda: slave.controller.applied_index == master.controller.applied_index, "dispatched"
    )


def bytes_of(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
