"""Tools ask a real broker process for our consumer: reset, status, running info, one message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bench.cluster import GROUP as BROKER
from bench.cluster import Cluster
from ledgermq import (
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
)
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.tolerant_json import loads
from ledgermq.remoting.transport.client import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

TOPIC, GROUP = "told", "told-group"
COUNT = 20


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


async def ask(client: RemotingClient, address: str, code: int, **fields: object) -> Any:
    texts = {name: str(value) for name, value in fields.items()}
    answer = await client.request(address, RemotingCommand(code, ext_fields=texts), 15_000)
    assert answer.code == 0, answer
    return loads(answer.body)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_reset_a_status_and_a_message_on_demand(tmp_path: Path, orderly: bool) -> None:
    seen: list[int] = []

    async def listen(messages: list[Any], _context: object) -> ConsumeStatus:
        seen.extend(int(message.body) for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    async def main(cluster: Cluster) -> None:
        address = f"127.0.0.1:{cluster.ports[0]}"
        config = ClientConfig(namesrv_addrs=(cluster.namesrv_addr,), group=GROUP)
        client = RemotingClient()
        async with Producer(config) as producer:
            results = [await producer.send(Message(TOPIC, b"%d" % n)) for n in range(COUNT)]
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, orderly=orderly)
        consumer = PushConsumer(config, listen, options)
        consumer.subscribe(TOPIC)
        async with consumer:
            await until(lambda: len(seen) == COUNT)
            group = {"topic": TOPIC, "group": GROUP}
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            status = await ask(client, address, code, **group)
            offsets = status["consumerTable"][consumer.client_id]
            assert sum(offsets.values()) == COUNT
            await consumer.assignment.commit_all()
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            await ask(client, address, code, **group, timestamp=0, isForce="true")
            await until(lambda: len(seen) == 2 * COUNT)
            assert sorted(seen) == sorted([*range(COUNT)] * 2)
            member = {"consumerGroup": GROUP, "clientId": consumer.client_id}
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            info = await ask(client, address, code, **member, jstackEnable="true")
            assert "GroupMember._rebalance_loop" in info["jstack"]
            assert info["properties"]["PROP_CONSUMEORDERLY"] == str(orderly).lower()
            one = results[3]
            code = RequestCode.CONSUME_MESSAGE_DIRECTLY
            told = await ask(client, address, code, **member, msgId=one.offset_msg_id)
            assert (told["consumeResult"], told["order"]) == ("CR_SUCCESS", orderly)
            assert seen[2 * COUNT :] == [3]
        stored = await ask_offsets(client, address)
        assert stored == COUNT
        await client.close()

    with Cluster(tmp_path, replicas=1, sync_flush=False) as cluster:
        asyncio.run(main(cluster))


async def ask_offsets(client: RemotingClient, address: str) -> int:
    """Return the sum of what the group has committed."""
    total = 0
    for number in range(4):
        queue = MessageQueue(TOPIC, BROKER, number)
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue.queue_id)}
        request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        answer = await client.request(address, request, 5_000)
        total += int(answer.ext_fields["offset"]) if answer.code == 0 else 0
    return total
