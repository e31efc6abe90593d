"""The published Java clients 4.9.7 and 5.3.3 against three of our brokers, and a leader kill.

Real processes only: our name server and brokers, and JVMs that run tests/interop/java. What the
client saw acknowledged must arrive at the push consumer, before and after the leader's death.
"""

from collections import Counter

import pytest

from bench import java
from bench.cluster import Cluster
from tests.interop.java_program import JavaProgram

pytestmark = pytest.mark.interop

PER_STYLE = 50
FAILOVER_SENDS_MIN = 50
DRAIN_TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def tools(request):
    try:
        return java.prepare(request.param)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with the Java client {request.param} skipped: {error}")


def bodies(program: JavaProgram, kind: str) -> list[str]:
    column = {"ACK": 1, "GOT": 0}[kind]
    return [words[column] for words in program.words(kind)]


@pytest.mark.slow
def test_java_client_loses_nothing_over_a_leader_kill(tools, tmp_path):
    with Cluster(tmp_path / "cluster", replicas=3, sync_flush=False) as cluster:
        first = cluster.leader()
        topic = "interop_topic"
        address = cluster.namesrv_addr
        produce = [address, topic, str(PER_STYLE)]
        consume = [address, "interop_group", topic]
        with (
            JavaProgram(tools, "ledgermq.Produce", produce, tmp_path / "produce.log") as producer,
            JavaProgram(tools, "ledgermq.Consume", consume, tmp_path / "consume.log") as consumer,
        ):
            producer.wait_for(
                lambda: "READY-FOR-KILL" in producer.lines, 90, "end of the four styles"
            )
            assert producer.words("ERR") == []
            before = len(bodies(producer, "ACK"))
            cluster.kill(first)
            producer.wait_for(
                lambda: len(bodies(producer, "ACK")) >= before + FAILOVER_SENDS_MIN,
                60,
                "acknowledged sends after the leader's death",
            )
            assert cluster.leader() != first
            producer.finish()
            acknowledged = bodies(producer, "ACK")
            expected = set(acknowledged) | {f"oneway-{i}" for i in range(PER_STYLE)}
            consumer.wait_for(
                lambda: expected <= set(bodies(consumer, "GOT")), DRAIN_TIMEOUT_S, "every message"
            )
    styles = Counter(body.split("-")[0] for body in acknowledged)
    assert styles["sync"] == styles["async"] == styles["batch"] == PER_STYLE
    assert styles["failover"] >= FAILOVER_SENDS_MIN
    sent = {f"failover-{i}" for i in range(10**6)} | expected
    assert set(bodies(consumer, "GOT")) <= sent
