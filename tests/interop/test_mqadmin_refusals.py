"""What RocketMQ's mqadmin, 4.9.7 and 5.3.3, prints of wrong names: as of RocketMQ's own broker.

The words are those that the tool printed of a broker of RocketMQ 4.9.7.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.cluster import GROUP as BROKER
from bench.cluster import Cluster
from tests.interop.mqadmin import MqAdmin
from tests.interop.test_mqadmin_clean import ATTEMPTS, UNREACHED

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CLUSTER, TOPIC, GROUP = "BenchCluster", "wrong_topic", "wrong_group"
BAD_NAME = (
    "CODE: 1 DESC: The specified topic contains illegal characters, allowing only"
    " ^[%|a-zA-Z0-9_-]+$"
)
NO_ROUTE = "CODE: 17 DESC: No topic route info in name server for the topic: {}"
NO_GROUP = "CODE: 1 DESC: THe consumer group <nogroup> not exist"
REFUSALS = (
    (f"updateTopic -c {CLUSTER} -t bad!", BAD_NAME),
    (
        f"updateTopic -c {CLUSTER} -t {'x' * 128}",
        "CODE: 1 DESC: The specified topic is longer than topic max length.",
    ),
    (
        f"updateTopic -c {CLUSTER} -t TBW102",
        "CODE: 1 DESC: The topic[TBW102] is conflict with system topic.",
    ),
    (f"deleteTopic -c {CLUSTER} -t bad!", BAD_NAME),
    (
        f"deleteTopic -c {CLUSTER} -t {BROKER}",
        f"CODE: 1 DESC: The topic[{BROKER}] is conflict with system topic.",
    ),
    ("topicRoute -t nosuch", NO_ROUTE.format("nosuch")),
    ("topicStatus -t nosuch", NO_ROUTE.format("nosuch")),
    ("allocateMQ -t nosuch -i 192.0.2.1", NO_ROUTE.format("nosuch")),
    ("consumerProgress -g nogroup", NO_ROUTE.format("%RETRY%nogroup")),
    (f"resetOffsetByTime -g nogroup -t {TOPIC} -s 0 -f true", NO_GROUP),
    (f"skipAccumulatedMessage -g nogroup -t {TOPIC} -f true", NO_GROUP),
    (
        f"consumerConnection -g {GROUP}",
        f"CODE: 206 DESC: the consumer group[{GROUP}] not online BROKER: 127.0.0.1:",
    ),
    (
        f"producerConnection -g nobody -t {TOPIC}",
        "CODE: 1 DESC: the producer group[nobody] not exist BROKER: 127.0.0.1:",
    ),
    (
        f"sendMessage -t {TOPIC} -p x -b {BROKER} -i 99",
        f"CODE: 1 DESC: request queueId[99] is illegal, TopicConfig [topicName={TOPIC},"
        " readQueueNums=4, writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0,"
        " order=false] Producer: 127.0.0.1:",
    ),
    (
        f"queryMsgByOffset -t {TOPIC} -b {BROKER} -i 9 -o 0",
        f"CODE: 1 DESC: queueId[9] is illegal, topic:[{TOPIC}] topicConfig.readQueueNums:[4]"
        " consumer:[/127.0.0.1:",
    ),
    (
        f"updateOrderConf -t {TOPIC} -m get",
        f"CODE: 22 DESC: No config item, Namespace: ORDER_TOPIC_CONFIG Key: {TOPIC}",
    ),
)


def answered(tool: MqAdmin, *words: str) -> str:
    """Run a command until servers have answered it in time: a busy machine has them late."""
    for _ in range(ATTEMPTS):
        printed = tool.run(*words)
        if not any(name in printed for name in UNREACHED):
            break
    return printed


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_wrong_name_is_refused_in_the_words_of_rocketmq(version: str, tmp_path: Path) -> None:
    try:
        tools = java.prepare(version)
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin {version} skipped: {error}")
    wrong = []
    with (
        Cluster(tmp_path / "brokers", replicas=3, sync_flush=False) as cluster,
        MqAdmin(tools, cluster.namesrv_addr, tmp_path / "tool") as tool,
    ):
        address = f"127.0.0.1:{cluster.ports[cluster.leader()]}"
        assert "success" in answered(tool, "updateTopic", "-b", address, "-t", TOPIC, "-r4", "-w4")
        assert "success" in answered(tool, "updateSubGroup", "-c", CLUSTER, "-g", GROUP)
        made = answered(tool, "updateTopic", "-b", address, "-t", f"%RETRY%{GROUP}", "-r1", "-w1")
        assert "success" in made
        for words, told in REFUSALS:
            printed = answered(tool, *words.split())
            if told not in re.sub(r"  +", " ", printed):
                wrong.append((words, printed))
    assert not wrong, "\n".join(map(str, wrong))
