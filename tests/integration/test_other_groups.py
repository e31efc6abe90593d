"""308 and 314: offsets compared with those of other groups, and copied to another."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from broker.processor.other_groups import NEVER
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.broker_cluster import Cluster, cluster, send_fields

if TYPE_CHECKING:
    from pathlib import Path


async def commit(group: Cluster, name: str, topic: str, offset: int, queue_id: int = 0) -> None:
    answer = await group.ask(
        0, 15, consumerGroup=name, topic=topic, queueId=queue_id, commitOffset=offset
    )
    assert answer.code == 0


async def offset_of(group: Cluster, name: str, topic: str) -> int | None:
    fields = {"consumerGroup": name, "topic": topic, "queueId": 0}
    answer = await group.ask(0, 14, setZeroIfNotFound="false", **fields)
    return int((answer.ext_fields or {})["offset"]) if answer.code == 0 else None


async def corrections(group: Cluster, compared: str, left_out: str = "") -> dict[str, int]:
    answer = await group.ask(0, 308, topic="T", compareGroup=compared, filterGroups=left_out)
    assert answer.code == 0
    found: dict[str, int] = json.loads(answer.body)["correctionOffsets"]
    return found


async def prepare(group: Cluster) -> None:
    await group.leader()
    for topic in ("T", "U"):
        for _ in range(4):
            assert (await group.ask(0, 310, b"x", **send_fields(topic))).code == 0
        await commit(group, "source", topic, 3)
    await commit(group, "ahead", "T", 4)


def test_offsets_of_all_groups_are_compared(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as group:
            await prepare(group)
            await commit(group, "late", "T", 1)
            assert await corrections(group, "ahead") == {"0": 1}
            assert await corrections(group, "ahead", "late,nobody") == {"0": 3}
            assert await corrections(group, "late", "late") == {"0": NEVER}
            assert await offset_of(group, "late", "T") == 1, "who is passed over keeps its offsets"
            assert (await group.ask(0, 308, topic="T")).code == 1

    asyncio.run(main())


async def copied(group: Cluster, target: str) -> tuple[int | None, int | None]:
    """Return what a group has in T and U, after a restart, once all was copied to it."""
    answer = await group.ask(0, 314, srcGroup="source", destGroup=target, offline="true")
    assert answer.code == 0
    before = await offset_of(group, target, "T"), await offset_of(group, target, "U")
    await group.stop(0)
    await group.start(0)
    await group.leader()
    assert before == (await offset_of(group, target, "T"), await offset_of(group, target, "U"))
    return before


def test_a_group_gets_the_offsets_of_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as group:
            await prepare(group)
            fields = {"srcGroup": "source", "topic": "T", "offline": "true"}
            assert (await group.ask(0, 314, destGroup="some", **fields)).code == 0
            assert await offset_of(group, "some", "T") == 3
            assert await offset_of(group, "some", "U") is None
            assert (await group.ask(0, 314, destGroup="a b", **fields)).code == 26
            assert await copied(group, "all") == (3, 3)
            with planted(BY_TESTS["copied-from-the-first-topic"]), pytest.raises(AssertionError):
                assert await copied(group, "planted") == (3, 3)

    asyncio.run(main())
