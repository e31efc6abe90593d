"""Finding messages with the client library and the command line, in a group and after its start."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from cli.main import run
from ledgermq.client import ClientConfig, Message, MessageFinder, Producer
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import LocalProtocolError
from tests.integration.broker_cluster import Cluster, cluster, until

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "orders"


def small(group: Cluster) -> None:
    group.settings = {"max_hash_slot_num": 64, "max_index_num": 16}


def config(group: Cluster) -> ClientConfig:
    return ClientConfig(namesrv_addrs=(f"127.0.0.1:{group._namesrv_port}",), group="g")


async def produce(group: Cluster, count: int) -> list[Any]:
    async with Producer(config(group)) as producer:
        return [
            await producer.send(Message(TOPIC, b"%d" % number, "t", f"k{number % 3} all"))
            for number in range(count)
        ]


def test_messages_are_found_by_key_and_ids_before_and_after_a_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path, 3, prepare=small) as group:
            await group.leader()
            sent = await produce(group, 20)
            async with MessageFinder(config(group)) as finder:
                await check(finder, sent)
            for number in range(3):
                await group.stop(number)
            for number in range(3):
                await group.start(number)
            await group.leader()
            async with MessageFinder(config(group)) as finder:
                await check(finder, sent)

    asyncio.run(main())


async def check(finder: MessageFinder, sent: list[Any]) -> None:
    found = await finder.by_key(TOPIC, "k1")
    assert sorted(int(one.body) for one in found) == [n for n in range(20) if n % 3 == 1]
    assert len(await finder.by_key(TOPIC, "all", 5)) == 5
    assert len(await finder.by_key(TOPIC, "all")) == 20
    times = sorted(one.store_timestamp for one in await finder.by_key(TOPIC, "all"))
    assert len(await finder.by_key(TOPIC, "all", 64, 0, times[0] - 1000)) == 0
    assert await finder.by_key(TOPIC, "missing") == []
    for number, result in enumerate(sent):
        (message,) = await finder.by_unique_key(TOPIC, result.msg_id)
        assert (int(message.body), message.queue_offset) == (number, result.queue_offset)
        by_id = await finder.by_id(result.offset_msg_id)
        assert by_id is not None
        assert int(by_id.body) == number
    assert await finder.by_id(sent[0].offset_msg_id[:-4] + "0001") is None
    with pytest.raises(LocalProtocolError):
        await finder.by_id("nothing")


def test_followers_index_too_but_do_not_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path, 3, prepare=small) as group:
            leader = await group.leader()
            sent = await produce(group, 5)
            fields = {"topic": TOPIC, "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 60}
            for number in set(range(3)) - {leader}:
                follower = group.brokers[number]
                assert follower is not None
                end = group.brokers[leader].applied_index
                await until(lambda f=follower, e=end: f.applied_index >= e, "a follower")
                answer = await group.ask(number, 12, key="all", **fields)
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                found = follower.store.reader.messages_of_key(TOPIC, "all", 9, (0, 1 << 60))
                assert len(found.records) == len(sent)

    asyncio.run(main())


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        code = run(["admin", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    async def main() -> None:
        async with cluster(tmp_path, prepare=small) as group:
            await group.leader()
            sent = await produce(group, 3)
            names = ("-n", f"127.0.0.1:{group._namesrv_port}")

            async def ask(*words: str) -> tuple[int, str, str]:
                return await asyncio.to_thread(command, *words, *names)

            code, out, _ = await ask("queryMsgByKey", "-t", TOPIC, "-k", "all")
            assert code == 0
            assert [line.split()[0] for line in out.splitlines()[1:]] == [r.msg_id for r in sent]
            code, out, err = await ask("queryMsgByKey", "-t", TOPIC, "-k", "none")
            assert (code, out) == (1, "")
            assert "no message found" in err
            code, out, _ = await ask("queryMsgByKey", "-t", TOPIC, "-k", "k1", "--json")
            row = json.loads(out)
            assert (row["msgId"], row["offsetMsgId"]) == (sent[1].msg_id, sent[1].offset_msg_id)
            assert (row["properties"]["KEYS"], row["bodyBase64"]) == ("k1 all", "MQ==")
            code, out, _ = await ask("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent[2].msg_id)
            assert code == 0
            assert sent[2].offset_msg_id in out
            code, out, _ = await ask("queryMsgById", "-i", sent[0].offset_msg_id, "--json")
            assert json.loads(out)["msgId"] == sent[0].msg_id
            code, _, err = await ask("queryMsgById", "-i", "nothing")
            assert code == 2
            assert "nothing" in err
            queue = sent[1].queue
            code, out, _ = await ask(
                "queryMsgByOffset", "-t", TOPIC, "-b", queue.broker_name, "-i",
                str(queue.queue_id), "-o", str(sent[1].queue_offset), "--json",
            )  # fmt: skip
            assert json.loads(out)["msgId"] == sent[1].msg_id
            code, _, err = await ask(
                "queryMsgByOffset", "-t", TOPIC, "-b", queue.broker_name, "-i", "0", "-o", "999"
            )
            assert code == 1
            code, _, err = await ask("queryMsgByKey", "-t", "no_such_topic", "-k", "x")
            assert code == 1
            assert err.count("\n") == 1

    asyncio.run(main())
