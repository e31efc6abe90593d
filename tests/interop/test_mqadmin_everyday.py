"""RocketMQ's own mqadmin, 4.9.7 and 5.3.3, looks at our broker and prepares it: everyday commands.

Real processes: our name server and broker, a JVM that consumes, and one JVM for each command. What
is printed is compared with what each prints of its own broker: head lines word for word.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import GROUP as BROKER
from bench.cluster import Cluster
from tests.interop.java_program import JavaProgram
from tests.interop.test_mqadmin_clean import mqadmin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CLUSTER = "BenchCluster"
TOPIC, GROUP = "adm_topic", "adm_group"
SENT = 2
SETTLE_S = 20
LOGGED = re.compile(r"\d\d:\d\d:\d\d,\d+ \|-")  # 5.3.3 prints how it logs
QUEUE_HEAD = "#Broker Name #QID #Min Offset #Max Offset #Last Updated"
PROGRESS_HEADS = (  # of 4.9.7 and 5.3.3
    "#Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #LastTime",
    "#Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #Inflight #LastTime",
)
ALL_PROGRESS_HEAD = "#Group #Count #Version #Type #Model #TPS #Diff Total"
CLUSTER_HEADS = (
    "#Cluster Name #Broker Name #BID #Addr #Version #InTPS(LOAD) #OutTPS(LOAD) #PCWait(ms) #Hour"
    " #SPACE",
    "#Cluster Name #Broker Name #BID #Addr #Version #InTPS(LOAD) #OutTPS(LOAD) #Timer(Progress)"
    " #PCWait(ms) #Hour #SPACE #ACTIVATED",
)
TOTALS_HEAD = "#Cluster Name #Broker Name #InTotalYest #OutTotalYest #InTotalToday #OutTotalToday"
STATS_HEAD = "#Topic #Consumer Group #Accumulation #InTPS #OutTPS #InMsg24Hour #OutMsg24Hour"
CLIENTS_HEAD = "#ClientId #ClientAddr #Language #Version"
BY_TOOL_HEADS = (
    "#brokerName #queueId #brokerOffset #consumerOffset #timestampOffset #rollbackOffset",
    "#brokerName #queueId #brokerOffset #consumerOffset #timestampOffset #resetOffset",
)
RESET_HEAD = "#brokerName #queueId #offset"


class Scene:
    """A running broker with a consumer, and mqadmin."""

    def __init__(
        self, cluster: Cluster, mqadmin: Callable[..., str], consumer: JavaProgram
    ) -> None:
        self.address = f"127.0.0.1:{cluster.ports[0]}"
        self.consumer = consumer
        self._namesrv = cluster.namesrv_addr
        self._mqadmin = mqadmin

    def run(self, *words: str) -> str:
        """Return what a command prints, each line with single spaces."""
        printed = self._mqadmin(*words, "-n", self._namesrv)
        lines = [" ".join(line.split()) for line in printed.splitlines()]
        return "\n".join(line for line in lines if line and not LOGGED.match(line))

    def until(self, words: tuple[str, ...], right: Callable[[str], bool]) -> str:
        """Run a command until it prints what is right."""
        deadline = time.monotonic() + SETTLE_S
        while not right(printed := self.run(*words)):
            assert time.monotonic() < deadline, (words, printed)
        return printed

    def client_id(self) -> str:
        printed = self.run("consumerConnection", "-g", GROUP)
        assert CLIENTS_HEAD in printed
        return printed.splitlines()[1].split()[0]


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    try:
        tools = java.prepare(request.param)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin {request.param} skipped: {error}")
    home = tmp_path_factory.mktemp("mqadmin")
    mqadmin = mqadmin_of(tools, home / "tools")
    with Cluster(home / "cluster", replicas=1, sync_flush=False) as cluster:
        words = ("-b", f"127.0.0.1:{cluster.ports[0]}", "-n", cluster.namesrv_addr)
        printed = mqadmin("updateTopic", "-t", TOPIC, "-r", "2", "-w", "2", *words)
        assert "success" in printed, printed
        arguments = [cluster.namesrv_addr, GROUP, TOPIC]
        consumer = JavaProgram(tools, "ledgermq.Consume", arguments, home / "consume.log")
        try:
            consumer.wait_for(lambda: "STARTED" in consumer.lines, 60, "the consumer")
            one = Scene(cluster, mqadmin, consumer)
            fill(one)
            yield one
        finally:
            consumer.finish()


def fill(scene: Scene) -> None:
    """Send, and wait until all is consumed and committed."""
    for number in range(SENT):
        place = ("-b", BROKER, "-i", str(number))
        sent = ("sendMessage", "-t", TOPIC, "-p", f"body{number}", "-k", f"key{number}", *place)
        assert "SEND_OK" in scene.run(*sent)
    scene.consumer.wait_for(
        lambda: times(scene.consumer.lines, "GOT ") >= SENT,
        60,
        "all messages",
    )
    scene.until(("consumerProgress", "-g", GROUP), lambda text: "Diff Total: 0" in text)


def times(lines: list[str], start: str) -> int:
    return sum(line.startswith(start) for line in lines)


def numbers(printed: str, start: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.startswith(start)]


def test_topics_are_seen(scene: Scene) -> None:
    status = scene.run("topicStatus", "-t", TOPIC)
    assert status.splitlines()[0] == QUEUE_HEAD
    rows = numbers(status, BROKER)
    assert [row[1] for row in rows] == ["0", "1"]
    assert sum(int(row[3]) for row in rows) == SENT
    assert f'"brokerName":"{BROKER}"' in scene.run("topicRoute", "-t", TOPIC)
    assert TOPIC in scene.run("topicList")
    assert re.search(rf"{CLUSTER} {TOPIC} {GROUP}\b", scene.run("topicList", "-c"))
    assert "Queue data:" in scene.run("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "5")


def test_the_broker_is_seen(scene: Scene) -> None:
    listed = scene.run("clusterList")
    assert any(head in listed for head in CLUSTER_HEADS), listed
    assert f"{CLUSTER} {BROKER} 0 {scene.address} V4_9_7" in listed
    totals = scene.run("clusterList", "-m")
    assert TOTALS_HEAD in totals
    assert re.search(rf"{CLUSTER} {BROKER} 0 0 {SENT} ", totals), totals
    status = scene.run("brokerStatus", "-b", scene.address)
    for words in ("brokerVersionDesc : V4_9_7", f"msgPutTotalTodayNow : {SENT}", "putTps : "):
        assert words in status, status
    assert f"brokerName = {BROKER}" in scene.run("getBrokerConfig", "-b", scene.address)
    refused = scene.run("updateBrokerConfig", "-b", scene.address, "-k", "deleteWhen", "-v", "05")
    assert "success" not in refused


def test_groups_and_their_members_are_seen(scene: Scene) -> None:
    connected = scene.run("consumerConnection", "-g", GROUP)
    assert CLIENTS_HEAD in connected
    for words in ("ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING", f"{TOPIC} *"):
        assert words in connected, connected
    progress = scene.run("consumerProgress", "-g", GROUP)
    assert any(head in progress for head in PROGRESS_HEADS), progress
    assert sum(int(row[4]) for row in numbers(progress, TOPIC)) == SENT
    everyone = scene.run("consumerProgress")
    assert ALL_PROGRESS_HEAD in everyone
    assert re.search(rf"{GROUP} 1 V[45]_\d_\d PUSH CLUSTERING \d+ 0", everyone), everyone
    assert re.search(
        rf"{TOPIC} {GROUP} {BROKER} 0 ", scene.run("brokerConsumeStats", "-b", scene.address)
    )
    config = scene.run("getConsumerConfig", "-g", GROUP)
    assert f"groupName = {GROUP}" in config
    producers = scene.run("producerConnection", "-g", "CLIENT_INNER_PRODUCER", "-t", TOPIC)
    assert scene.client_id() in producers
    assert "producer group (CLIENT_INNER_PRODUCER)" in scene.run("producer", "-b", scene.address)
    status = scene.run("consumerStatus", "-g", GROUP)
    assert scene.client_id() in status
    assert "Rebalance OK" in status


def test_traffic_is_seen(scene: Scene) -> None:
    stats = scene.run("statsAll", "-t", TOPIC)
    assert STATS_HEAD in stats
    (row,) = numbers(stats, f"{TOPIC} {GROUP}")
    assert row[2] == "0"
    assert row[5:] == [str(SENT), str(SENT)], stats


def test_a_message_is_consumed_on_demand(scene: Scene) -> None:
    first = next(line for line in scene.consumer.lines if line.startswith("GOT "))
    found = scene.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", first.split()[4])
    body = " ".join(first.split()[:2]) + " "
    before = times(scene.consumer.lines, body)
    shown = scene.run(
        "queryMsgByUniqueKey", "-t", TOPIC, "-i", first.split()[4],
        "-g", GROUP, "-d", scene.client_id(),
    )  # fmt: skip
    assert "Keys: [key" in found
    assert "CR_SUCCESS" in shown, shown
    scene.consumer.wait_for(
        lambda: times(scene.consumer.lines, body) > before, 10, "the message again"
    )


def test_offsets_go_back_while_the_group_is_connected(scene: Scene) -> None:
    before = times(scene.consumer.lines, "GOT ")
    reset = ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-f", "true")
    # The tool commits the offsets itself where a consumer has no connection for a moment.
    printed = scene.until(reset, lambda text: RESET_HEAD in text)
    assert [row[2] for row in numbers(printed, BROKER)] == ["0", "0"]
    scene.consumer.wait_for(
        lambda: times(scene.consumer.lines, "GOT ") >= before + SENT,
        60,
        "all messages again",
    )
    scene.until(("consumerProgress", "-g", GROUP), lambda text: "Diff Total: 0" in text)


def test_groups_are_made_and_removed(scene: Scene) -> None:
    made = scene.run("updateSubGroup", "-c", CLUSTER, "-g", "made_group", "-s", "true", "-r", "3")
    assert "success" in made
    assert "retryMaxTimes=3" in made
    assert "retryMaxTimes = 3" in scene.run("getConsumerConfig", "-g", "made_group")
    gone = scene.run("deleteSubGroup", "-c", CLUSTER, "-g", "made_group")
    assert gone.count("success") in {1, 5}, gone  # 5.3.3 leaves the retry topics
    assert "retryMaxTimes" not in scene.run("getConsumerConfig", "-g", "made_group")


def test_offsets_go_back_when_nobody_is_connected_and_the_topic_goes(scene: Scene) -> None:
    scene.consumer.finish()
    scene.until(("consumerConnection", "-g", GROUP), lambda text: CLIENTS_HEAD not in text)
    printed = scene.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-f", "true")
    assert any(head in printed for head in BY_TOOL_HEADS), printed
    assert [row[-1] for row in numbers(printed, BROKER)] == ["0", "0"]
    progress = scene.run("consumerProgress", "-g", GROUP)
    assert f"Diff Total: {SENT}" in progress, progress
    cloned = scene.run("cloneGroupOffset", "-s", GROUP, "-d", "cloned_group", "-t", TOPIC)
    assert "clone group offset success" in cloned
    gone = scene.run("deleteTopic", "-c", CLUSTER, "-t", TOPIC)
    assert gone.count("success") == 2, gone
    assert TOPIC not in scene.run("topicList").split()
