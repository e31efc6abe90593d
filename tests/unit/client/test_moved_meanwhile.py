"""A broker's order to go on elsewhere, and a later one that comes before it is followed."""

import asyncio
from types import SimpleNamespace

from ledgermq.client import MessageQueue
from ledgermq.client.message import PullResult, PullStatus
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.puller import Puller
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.loop import SimLoop

QUEUE = MessageQueue("orders", "b", 0)


async def moves(*, meanwhile):
    """Have a broker reset a queue to 3; return where it is moved."""
    moved = []
    one = ProcessQueue(QUEUE, 7)
    puller = Puller(SimpleNamespace(move=moved.append), one)
    told = PullResult(
        status=PullStatus.OFFSET_ILLEGAL, next_offset=3, min_offset=0, max_offset=9, messages=[]
    )
    going = asyncio.ensure_future(puller._on_illegal_offset(told))
    await asyncio.sleep(0.1)
    if meanwhile:
        one.move(5)
    await going
    return moved


def test_a_reset_of_the_broker_is_followed_unless_a_later_one_has_come():
    assert SimLoop().run_until_complete(moves(meanwhile=False)) == [{QUEUE: 3}]
    assert SimLoop().run_until_complete(moves(meanwhile=True)) == []
    with planted(BY_TESTS["older-reset-stands"]):
        assert SimLoop().run_until_complete(moves(meanwhile=True)) == [{QUEUE: 3}]
