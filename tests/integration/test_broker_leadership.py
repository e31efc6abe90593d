"""Handing leadership over and linearizable status, through brokers and the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import uvloop

from cli.main import run
from tests.integration.broker_cluster import cluster, send_fields, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.integration.broker_cluster import Cluster

TRANSFER, READ_INDEX = 29_003, 29_005


async def send(group: Cluster, number: int) -> int:
    return (await group.ask(number, 310, b"x", **send_fields("T"))).code


async def command(*words: str) -> int:
    """Run a command line beside this loop."""
    return await asyncio.to_thread(run, list(words))


def test_leadership_is_handed_over_while_clients_send_and_nothing_is_unknown(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            target = (leader + 1) % 3
            await send(group, leader)
            codes: list[int] = []
            stop = asyncio.Event()

            async def producer() -> None:
                while not stop.is_set():
                    codes.append(await send(group, leader))

            producers = [asyncio.create_task(producer()) for _ in range(8)]
            answer = await group.ask(leader, TRANSFER, target=f"n{target}")
            assert answer.code == 0, answer.remark
            assert json.loads(answer.body)["leader"] == f"n{target}"
            stop.set()
            await asyncio.gather(*producers)
            assert set(codes) <= {0, 14}, "stored, or refused and retriable; nothing else"
            await until(lambda: group.leaders() == [target], "the target takes writes")
            assert await send(group, target) == 0

    uvloop.run(scenario())


def test_an_offset_committed_just_before_a_transfer_is_handed_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            target = (leader + 1) % 3
            for _ in range(3):
                await send(group, leader)
            place = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
            committed = await group.ask(leader, 15, **place, commitOffset="2")
            assert committed.code == 0, committed.remark
            answer = await group.ask(leader, TRANSFER, target=f"n{target}")
            assert answer.code == 0, answer.remark
            await until(lambda: group.leaders() == [target], "the target takes writes")
            found = await group.ask(target, 14, **place)
            assert (found.code, found.ext_fields.get("offset")) == (0, "2")

    uvloop.run(scenario())


def test_offsets_are_handed_over_to_the_preferred_leader_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preferred = 2

    def prepare(group: Cluster) -> None:
        group.settings = {"preferred_leader_id": f"n{preferred}"}

    async def scenario() -> None:
        async with cluster(tmp_path, 3, prepare=prepare) as group:
            await until(lambda: group.leaders() == [preferred], "the preferred one leads")
            await group.stop(preferred)
            leader = await group.leader()
            await send(group, leader)
            controller = group.brokers[leader]
            assert controller is not None
            place = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
            committed = known = 0

            def hand_over() -> None:
                nonlocal known
                known = committed
                flush()

            services = controller._services.leader
            flush = services.before_hand_over
            monkeypatch.setattr(services, "before_hand_over", hand_over)
            starts = asyncio.create_task(group.start(preferred))
            while group.leaders() != [preferred]:
                answer = await group.ask(leader, 15, **place, commitOffset=committed + 1)
                committed += answer.code == 0
                await asyncio.sleep(0.002)
            await starts
            found = await group.ask(preferred, 14, **place)
            assert 0 < known <= int(found.ext_fields["offset"])

    uvloop.run(scenario())


def test_a_transfer_that_fails_says_why_and_the_leader_serves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            dead = (leader + 1) % 3
            await group.stop(dead)
            answer = await group.ask(leader, TRANSFER, target=f"n{dead}")
            assert answer.code == 1
            assert f"n{dead}" in (answer.remark or "")
            assert (await group.ask(leader, TRANSFER)).code == 1
            other = 3 - leader - dead
            refused = await group.ask(other, TRANSFER, target=f"n{leader}")
            assert f"n{other} does not lead" in (refused.remark or "")
            assert await send(group, leader) == 0
            assert group.leaders() == [leader]

    uvloop.run(scenario())


def test_a_read_index_is_applied_when_it_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            for _ in range(5):
                assert await send(group, leader) == 0
            answer = await group.ask(leader, READ_INDEX)
            body = json.loads(answer.body)
            assert body["applied"] >= body["index"] >= 5
            follower = await group.ask((leader + 1) % 3, READ_INDEX)
            assert (follower.code, f"n{leader}" in (follower.remark or "")) == (14, True)

    uvloop.run(scenario())


def test_the_command_line_shows_the_dead_hands_over_and_proves_who_leads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 3) as group:
            leader = await group.leader()
            target, dead = (leader + 1) % 3, (leader + 2) % 3
            brokers = ";".join(group.address(number) for number in range(3))
            assert await command("admin", "raftStatus", "-b", brokers, "--linearizable") == 0
            shown = capsys.readouterr().out
            assert "read_index" in shown
            assert shown.count("replicate") == 2
            assert await command("admin", "transferLeader", f"n{target}", "-b", brokers) == 0
            assert f"n{target} leads g0 in term" in capsys.readouterr().out
            await until(lambda: group.leaders() == [target], "the target takes writes")

            await group.stop(dead)
            alive = ";".join(group.address(number) for number in (leader, target))
            controller = group.brokers[target]
            assert controller is not None
            with contextlib.suppress(KeyError):
                await until(
                    lambda: not controller.node.status()["followers"][f"n{dead}"]["alive"],  # type: ignore[index]
                    "the dead one is noticed",
                )
            assert await command("admin", "raftStatus", "-b", alive) == 1
            lines = capsys.readouterr().out.splitlines()
            assert any(line.split()[:2] == [f"n{dead}", "DEAD"] for line in lines), lines
            assert await command("admin", "transferLeader", f"n{dead}", "-b", alive) == 1
            assert f"n{dead} has not answered" in capsys.readouterr().err
            store = str(tmp_path / f"n{target}")
            assert await command("admin", "raftEvents", store, "--kind", "leader") == 0
            assert "event=become_leader" in capsys.readouterr().out

    uvloop.run(scenario())
