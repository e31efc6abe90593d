"""Faults of the docker backend take effect and are lifted: cut, one-way cut, kill, stop, pause."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from chaos.backends.base import ClusterSpec, both_ways
from chaos.backends.docker import DockerCluster
from chaos.backends.netfilter import unavailable
from chaos.net.wire import RAFT_STATUS, StatusConnection

pytestmark = pytest.mark.docker

NODES = ("n0", "n1", "n2")


async def status(cluster: DockerCluster, node: str) -> dict[str, object] | None:
    connection = StatusConnection(*cluster.status_addr(node))
    try:
        return await connection.ask(RAFT_STATUS, 1.0)
    except (OSError, TimeoutError, EOFError, ValueError):
        return None
    finally:
        connection.close()


async def until(condition, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.1)


async def passed(cluster: DockerCluster, link: str) -> int:
    state = (await cluster.links.counters())[link]
    return sum(int(state[direction]["bytes"]) for direction in ("forward", "backward"))


async def carries(cluster: DockerCluster, link: str) -> None:
    """Wait until bytes pass on a link."""
    base = await passed(cluster, link)

    async def more() -> bool:
        return await passed(cluster, link) > base

    await until(more)


async def find_leader(cluster: DockerCluster) -> str:
    leader = ""

    async def known() -> bool:
        nonlocal leader
        found = await status(cluster, "n0")
        leader = "" if found is None else str(found.get("leader") or "")
        return leader in NODES

    await until(known)
    return leader


async def check_cut(cluster: DockerCluster) -> None:
    leader = await find_leader(cluster)
    follower, other = (node for node in NODES if node != leader)
    links = both_ways(leader, follower)
    for link in links:
        await carries(cluster, link)
    before = await cluster.links.cut(links)
    await asyncio.sleep(2.0)
    during = await cluster.links.counters()
    for link in links:
        for direction in ("forward", "backward"):
            assert during[link][direction]["bytes"] == before[link][direction]["bytes"]
    assert max(during[link]["forward"]["withheld_bytes"] for link in links) > 0
    await carries(cluster, f"{leader}>{other}")
    await cluster.links.heal(links)
    for link in links:
        await carries(cluster, link)


async def check_gone(cluster: DockerCluster, end: Callable[[str], Awaitable[None]]) -> None:
    leader = await find_leader(cluster)
    node = next(node for node in NODES if node != leader)
    before = await status(cluster, node)
    assert before is not None
    await end(node)
    assert cluster.state(node) == "gone"
    assert await status(cluster, node) is None
    await cluster.restart(node)

    async def answers() -> bool:
        now = await status(cluster, node)
        return now is not None and now["boot_id"] != before["boot_id"]

    await until(answers)
    await carries(cluster, f"{leader}>{node}")


async def check_pause(cluster: DockerCluster) -> None:
    await cluster.pause("n1")
    assert cluster.state("n1") == "stopped"
    assert await status(cluster, "n1") is None
    await cluster.resume("n1")

    async def answers() -> bool:
        return await status(cluster, "n1") is not None

    await until(answers)


def test_faults_take_effect_and_are_lifted(tmp_path: Path) -> None:
    assert unavailable() is None, unavailable()

    async def scenario() -> None:
        cluster = DockerCluster(ClusterSpec(run=tmp_path))
        try:
            await cluster.start()
            await check_cut(cluster)
            await check_gone(cluster, cluster.kill)
            await check_gone(cluster, cluster.terminate)
            await check_pause(cluster)
            assert cluster.unexpected_exits() == []
            await cluster.stop()
            for node in NODES:
                await cluster.collect(node, tmp_path / "replicas" / node / "data")
                assert list((tmp_path / "replicas" / node / "data").iterdir())
                assert (tmp_path / "logs" / f"{node}.log").stat().st_size > 0
        finally:
            await cluster.stop()
            await cluster.remove()

    asyncio.run(scenario())
