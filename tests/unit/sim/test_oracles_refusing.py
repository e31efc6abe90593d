"""What a listener has refused is committed past when somebody has it."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.client import ConsumeContext, ConsumeStatus, MessageQueue
from ledgermq.client.consume import ConsumeService
from sim.oracles.base import Findings
from sim.oracles.refusing import AGAIN, NAME, Refusing

QUEUE = MessageQueue("orders", "b", 0)
LATER, SUCCESS = ConsumeStatus.RECONSUME_LATER, ConsumeStatus.CONSUME_SUCCESS


class Service(ConsumeService):
    """What calls the listener, without what it does with the result."""

    def __init__(self, listener, send_back):
        self._listener, self._send_back = listener, send_back


class Queue:
    """A queue of which ``up_to`` may be committed, and what of it is in hand."""

    queue = QUEUE

    def __init__(self, *offsets):
        self.era, self.up_to = 0, None
        self._cached = {
            one: (SimpleNamespace(queue_offset=one, topic="orders", queue_id=0), 0)
            for one in offsets
        }

    def __getitem__(self, offset):
        return self._cached[offset][0]

    def maybe_commit_offset(self):
        return self.up_to


class Push:
    """A consumer that holds one queue."""

    client_id = "c"

    def __init__(self):
        self.one = Queue(1, 5)
        self.assignment = SimpleNamespace(_held={QUEUE: SimpleNamespace(process_queue=self.one)})
        self.service = Service(self.listen, self.give_back)
        self.status = SUCCESS
        self.findings = Findings()
        Refusing(self.findings).follow(self)

    async def give_back(self, process_queue, message, delay_level):
        pass

    def listen(self, messages, context):
        if self.status is None:
            raise ValueError("cannot")
        return self.status

    async def hand_out(self, message, status=SUCCESS):
        self.status = status
        try:
            await self.service._listener([message], ConsumeContext(QUEUE))
        except ValueError:
            assert status is None
        return None if self.findings.first is None else self.findings.first.oracle

    def take_anew(self):
        self.one = Queue(1, 5)
        self.assignment._held[QUEUE] = SimpleNamespace(process_queue=self.one)


@pytest.mark.parametrize("refusal", [LATER, None])
@pytest.mark.parametrize(
    ("after", "up_to", "oracle"),
    [
        ("nothing", 1, None),
        ("nothing", 2, NAME),
        ("taken back", 2, None),
        ("taken after all", 2, None),
        ("begun anew", 2, None),
        ("taken anew", 2, None),
    ],
)
def test_what_was_refused_is_committed_past_when_somebody_has_it(refusal, after, up_to, oracle):
    async def run():
        push = Push()
        await push.hand_out(push.one[1], refusal)
        if after == "taken back":
            await push.service._send_back(push.one, push.one[1], 0)
        elif after == "taken after all":
            await push.hand_out(push.one[1])
        elif after == "begun anew":
            push.one.era = 1
        elif after == "taken anew":
            push.take_anew()
        push.one.up_to = up_to
        return await push.hand_out(push.one[5])

    assert asyncio.run(run()) == oracle


def test_what_a_call_from_before_says_is_not_of_the_queue_as_it_is_now():
    async def run():
        push, may_end = Push(), asyncio.Event()
        former = push.one[1]

        async def slow(_messages, _context):
            await may_end.wait()
            return LATER

        listener = push.service._listener.__self__
        inner, listener._listener = listener._listener, slow
        call = asyncio.create_task(push.service._listener([former], ConsumeContext(QUEUE)))
        await asyncio.sleep(0)
        push.take_anew()
        listener._listener = inner
        await push.hand_out(push.one[1])
        may_end.set()
        await call
        push.one.up_to = 5
        return await push.hand_out(push.one[5])

    assert asyncio.run(run()) is None


def test_what_was_given_back_is_handed_out_no_more():
    async def run():
        push = Push()
        await push.service._send_back(push.one, former := push.one[1], 0)
        push.take_anew()  # another message at the same place is another one
        assert await push.hand_out(push.one[1]) is None
        return await push.hand_out(former, LATER)

    assert asyncio.run(run()) == AGAIN
