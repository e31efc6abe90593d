"""What the interop tests wait for: queues that RocketMQ fills after it has acknowledged."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.cluster import Cluster
from tests.integration import test_auto_batch
from tests.interop import plain_brokers


class Late(plain_brokers.Questions):
    """A broker whose queue grows with each question."""

    def __init__(self, ends: list[int]) -> None:
        self.ends = ends

    async def limits(self, topic: str, queue_id: int) -> tuple[int, int]:
        return 0, self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]


def test_limits_are_asked_until_the_queue_has_what_was_acknowledged() -> None:
    late = Late([1, 2, 5])
    assert asyncio.run(late.settled_limits("t", 0, 5)) == (0, 5)


def test_what_never_comes_is_still_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_brokers, "SETTLE_S", 0.1)
    assert asyncio.run(Late([4]).settled_limits("t", 0, 5)) == (0, 4)
    assert asyncio.run(Late([6]).settled_limits("t", 0, 5)) == (0, 6)


def test_messages_are_read_until_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [{1: "a"}, {1: "a", 2: "b"}]

    async def read(_config: Any) -> Any:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(test_auto_batch, "read_all", read)
    config: Any = None
    assert len(asyncio.run(test_auto_batch.read_all_of(config, 2))) == 2
    assert len(asyncio.run(test_auto_batch.read_all_of(config, 3, within_s=0.1))) == 2


class Young(Cluster):
    """Three brokers of which one is fresh until it was asked often enough, and one has died."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, replicas=3, sync_flush=False)
        ends: list[Any] = [SimpleNamespace(poll=lambda code=code: code) for code in (None, None, 9)]
        self.brokers = ends
        self.asked = 0

    def raft_status(self, node: int) -> dict[str, Any] | None:
        assert node != 2, "it has died"
        self.asked += 1
        return {"role": "leader" if node == 1 else "follower", "fresh": not node and self.asked < 5}


def test_a_leader_is_told_once_it_may_die(tmp_path: Path) -> None:
    young = Young(tmp_path)
    assert (young.leader(), young.asked) == (1, 6)
