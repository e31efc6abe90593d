"""An orderly Java consumer that ends while it takes the former leader for the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import Cluster
from tests.interop.java_program import HALF_S, JavaProgram

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TAKEN_OVER_S = 30
"""Less than what is left of a lease that was renewed in time: 40 s."""
LAST = 40


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def tools(request: pytest.FixtureRequest) -> java.JavaTools:
    try:
        return java.prepare(request.param)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {request.param} skipped: {error}")


def queues_of(member: str, lines: list[list[str]]) -> set[str]:
    """Return the queues from which a member got something."""
    return {queue for who, _, queue, *_ in lines if who == member}


def test_its_queues_go_to_another_member_at_once(tools: java.JavaTools, tmp_path: Path) -> None:
    settings = ["defaultTopicQueueNums=4"]
    home = tmp_path / "cluster"
    with Cluster(home, replicas=3, sync_flush=False, settings=settings) as cluster:
        first = cluster.leader()
        arguments = [cluster.namesrv_addr, "leave_topic"]
        with JavaProgram(tools, "ledgermq.Leave", arguments, tmp_path / "java.log") as running:

            def queues_now(member: str) -> set[str]:
                return queues_of(member, running.words("GOT")[-LAST:])

            running.wait_for(
                lambda: (
                    len(queues_now("stays")) == len(queues_now("leaves")) == 2
                    and not queues_now("stays") & queues_now("leaves")
                ),
                HALF_S,
                "queues of both members",
            )
            free = queues_now("leaves")
            cluster.kill(first)
            assert cluster.leader() != first
            running.go_on()
            running.wait_for(lambda: "LEFT" in running.lines, HALF_S, "end of the one member")
            begin = len(running.words("GOT"))
            running.wait_for(
                lambda: free <= queues_of("stays", running.words("GOT")[begin:]),
                TAKEN_OVER_S,
                f"message of {sorted(free)} for the other",
            )
            assert running.words("ERR") == []
