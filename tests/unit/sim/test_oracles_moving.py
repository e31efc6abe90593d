"""A queue that is sent elsewhere goes on there, and nothing from before is committed."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.client import MessageQueue
from sim.oracles.base import Findings
from sim.oracles.moving import NAME, Moving

QUEUE = MessageQueue("orders", "b", 0)


class Consumer:
    """A consumer that does as it is told."""

    client_id = "c"

    def __init__(self, *, is_held=True):
        held = SimpleNamespace(process_queue=SimpleNamespace(dropped=False))
        self.assignment = SimpleNamespace(
            _held={QUEUE: held} if is_held else {}, _taking=set(), move=lambda _offsets: None,
            restart=self.does, change=self.does,
        )  # fmt: skip
        self.api = SimpleNamespace(pull=self.does, commit_offset=self.does)
        self.findings = Findings()
        Moving(self, self.findings)

    async def does(self, *_args):
        return True

    def pull(self, offset):
        asyncio.run(self.api.pull("a", SimpleNamespace(queue=QUEUE, offset=offset), 1))
        return self

    def commit(self, offset):
        asyncio.run(self.api.commit_offset("a", QUEUE, offset))
        return self

    def move(self, offset):
        self.assignment.move({QUEUE: offset})
        return self

    def seek(self, offset):
        asyncio.run(self.assignment.restart(QUEUE, offset))
        return self

    @property
    def found(self):
        return self.findings.first and self.findings.first.oracle


def test_it_goes_on_where_it_was_sent():
    assert Consumer().pull(3).commit(3).move(7).commit(7).pull(7).commit(9).pull(9).found is None
    assert Consumer().seek(2).commit(2).pull(2).pull(5).found is None
    assert Consumer(is_held=False).move(7).pull(3).found is None, "it has not got that queue"


@pytest.mark.parametrize("how", ["pull", "commit"])
@pytest.mark.parametrize("why", ["move", "seek"])
def test_what_is_from_before_is_a_violation(how, why):
    consumer = getattr(Consumer(), why)(7)
    assert getattr(consumer, how)(3).found == NAME


def test_a_queue_that_another_had_meanwhile_goes_on_anywhere():
    consumer = Consumer().move(7)
    asyncio.run(consumer.assignment.change("orders", ()))
    assert consumer.pull(12).found is None


def test_what_is_given_away_is_still_to_come():
    consumer = Consumer().move(7)
    consumer.assignment._held[QUEUE].process_queue.dropped = True
    assert consumer.pull(3).found is None
    consumer.assignment._held[QUEUE].process_queue.dropped = False
    assert consumer.pull(3).found == NAME
