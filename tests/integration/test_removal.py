"""A topic and a consumer group are removed on every replica; the leader alone takes it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import uvloop

from tests.integration.broker_cluster import cluster, send_fields

if TYPE_CHECKING:
    from pathlib import Path

GONE = [(17, 26)] * 3
WAIT_S = 60


def test_what_the_leader_removes_is_gone_everywhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            follower = (leader + 1) % 3
            made = await group.ask(leader, 200, json.dumps({"groupName": "made"}).encode())
            sent = await group.ask(leader, 310, b"x", **send_fields("T", 0, ""))
            assert (made.code, sent.code) == (0, 0)
            for code, fields in ((215, {"topic": "T"}), (207, {"groupName": "made"})):
                refused = await group.ask(follower, code, **fields)
                assert refused.code == 1
                assert "slave" in (refused.remark or "")
                assert (await group.ask(leader, code, **fields)).code == 0

            async def shown() -> list[tuple[int, int]]:
                return [
                    (
                        (await group.ask(number, 351, topic="T")).code,
                        (await group.ask(number, 352, group="made")).code,
                    )
                    for number in range(3)
                ]

            async with asyncio.timeout(WAIT_S):
                while await shown() != GONE:
                    await asyncio.sleep(0.02)

    uvloop.run(scenario())
