"""Starts both servers, plays drawn requests against them, and ends them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgermq.runtime.cancel import timeout
from tests.interop.differential.draw import Draw
from tests.interop.differential.moves import Moves
from tests.interop.differential.play import Play
from tests.interop.differential.sides import Side, start_ours, start_theirs
from tests.interop.differential.wire import Wired

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START_S = 60.0
BEHIND_THE_NAME_SERVER = 4
"""Where RocketMQ's first broker listens, see `bench.java`."""


async def compare(
    home: Path,
    seed: int,
    requests: int,
    replicas: int,
    say: Callable[[str], object],
    *,
    move_every: int = 0,
) -> Play:
    """Return what a run found. Errors: `JavaUnavailableError`."""
    with (
        start_theirs(home / "theirs") as real,
        start_ours(home / "ours", replicas) as cluster,
    ):
        leader = cluster.leader() if replicas > 1 else 0
        host, _, port = real.namesrv_addr.rpartition(":")
        broker = f"{host}:{int(port) + BEHIND_THE_NAME_SERVER}"
        theirs = Side("theirs", real.namesrv_addr, broker)
        ours = Side("ours", cluster.namesrv_addr, f"127.0.0.1:{cluster.ports[leader]}")
        moves = Moves(cluster, move_every) if move_every else None
        play = Play(theirs, ours, say, moves=moves)
        try:
            for side in (theirs, ours):
                await registered(side)
            await play.run(Draw(seed), requests)
        finally:
            await theirs.close()
            await ours.close()
        return play


async def registered(side: Side) -> None:
    """Wait until the name server knows the broker, and it takes changes."""
    made = {"topic": "begin", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    made |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
    async with timeout(START_S):
        while True:
            answer = await side.link("broker").ask(Wired(17, made))
            route = await side.link("namesrv").ask(Wired(105, {"topic": "begin"}))
            if answer is not None and answer.code == 0 and route is not None and route.code == 0:
                return
            await asyncio.sleep(0.1)
