"""The auditor reads several queues at a time, each of them once and to its end."""

import asyncio

import pytest

from chaos.workload.audit import TOGETHER, in_turns
from ledgermq.client import MessageQueue
from ledgermq.remoting.protocol.errors import RequestTimeout

QUEUES = [MessageQueue("t", "b", number) for number in range(11)]


def test_each_queue_is_read_once_and_some_at_a_time():
    read: list[MessageQueue] = []
    at_once = most = 0

    async def one(queue: MessageQueue) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        read.append(queue)

    asyncio.run(in_turns(QUEUES, one))
    assert sorted(read) == QUEUES
    assert most == TOGETHER


def test_a_queue_that_cannot_be_read_ends_the_audit():
    begun: list[MessageQueue] = []

    async def one(queue: MessageQueue) -> None:
        begun.append(queue)
        if queue.queue_id == 2:
            raise RequestTimeout("late")
        await asyncio.Event().wait()

    with pytest.raises(RequestTimeout):
        asyncio.run(in_turns(QUEUES, one))
    assert begun == QUEUES[:TOGETHER]
