"""RocketMQ's own mqadmin asks our consumer, through our broker: 220, 307 and 309."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bench import java
from bench.cluster import Cluster
from ledgermq import (
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    Producer,
    PushConsumer,
)
from tests.integration.test_tools_process import until
from tests.interop.test_mqadmin_clean import mqadmin_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC, GROUP, COUNT = "adm_python", "adm_python_group", 8


@pytest.mark.parametrize("orderly", [False, True])
def test_mqadmin_resets_asks_and_hands_a_message_to_our_consumer(
    tmp_path: Path, orderly: bool
) -> None:
    try:
        mqadmin = mqadmin_of(java.prepare(), tmp_path / "tools")
    except java.JavaUnavailableError as error:
        pytest.skip(f"interop with mqadmin skipped: {error}")
    seen: list[int] = []

    def listen(messages: list[Any], _context: object) -> ConsumeStatus:
        seen.extend(int(message.body) for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    async def main(cluster: Cluster) -> None:
        config = ClientConfig(namesrv_addrs=(cluster.namesrv_addr,), group=GROUP)

        async def run(*words: str) -> str:
            printed = await asyncio.to_thread(mqadmin, *words, "-n", cluster.namesrv_addr)
            return "\n".join(" ".join(line.split()) for line in printed.splitlines())

        async with Producer(config) as producer:
            sent = [await producer.send(Message(TOPIC, b"%d" % n)) for n in range(COUNT)]
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, orderly=orderly)
        consumer = PushConsumer(config, listen, options)
        consumer.subscribe(TOPIC)
        async with consumer:
            await until(lambda: len(seen) == COUNT)
            listed = await run("consumerStatus", "-g", GROUP)
            assert "Rebalance OK" in listed, listed
            shown = await run("consumerStatus", "-g", GROUP, "-i", consumer.client_id, "-s")
            for words in (
                "#Consumer Properties#", "#Consumer Offset#", "#Consumer RT&TPS#", "jstack",
                f"PROP_CONSUMEORDERLY : {str(orderly).lower()}", f"Topic: {TOPIC}",
                "GroupMember._rebalance_loop",
            ):  # fmt: skip
                assert words in shown, (words, shown)
            reset = ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-f", "true")
            assert "#brokerName #queueId #offset" in await run(*reset)
            await until(lambda: len(seen) == 2 * COUNT)
            place = ("-i", sent[5].offset_msg_id, "-g", GROUP, "-d", consumer.client_id)
            told = await run("queryMsgById", *place)
            assert "CR_SUCCESS" in told, told
            assert seen[2 * COUNT :] == [5]

    with Cluster(tmp_path / "cluster", replicas=1, sync_flush=False) as cluster:
        asyncio.run(main(cluster))
