"""A member begins in a queue where the one before it has stopped, and not before that."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.client import ConsumeOptions, ConsumeStatus, MessageQueue
from ledgermq.client.assignment import HAND_OVER_MS, HELD_AGAIN_MS, HELD_AGAIN_MS_MAX, Assignment
from ledgermq.client.consume import ConsumeService
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.stored_offset import StoredOffset
from ledgermq.remoting.protocol.errors import ConnectionLost
from ledgermq.remoting.protocol.headers import Claim
from mutants.patches import ALL, BY_TESTS, MUTANTS
from mutants.planting import planted
from sim.loop import SimLoop
from tests.unit.client.test_process_queue import message

TOPIC = "orders"
QUEUES = [MessageQueue(TOPIC, "b", number) for number in range(3)]


def run(coro):
    """Run in virtual time, which passes only while everybody waits."""
    return SimLoop().run_until_complete(coro)


class Broker:
    """Keeps offsets and claims; the members that share it ask it directly."""

    def __init__(self):
        self.offsets, self.holders, self.asked, self.waits = {}, {}, [], 0

    def claim(self, member, queue, claim):
        self.asked.append((member.name, queue.queue_id, claim.value))
        offset = self.offsets.get(queue, -1)
        holder = self.holders.get(queue, member)
        if claim is Claim.NONE:
            if holder is member:
                self.holders.pop(queue, None)
            return StoredOffset(offset)
        if holder is not member and claim is Claim.IF_FREE:
            self.waits += 1
            return StoredOffset(offset, holder.name)
        self.holders[queue] = member
        return StoredOffset(offset)


class Member:
    """What an assignment sees of a consumer; it pulls nothing by itself."""

    def __init__(self, broker, name, *, claims=True):
        self.broker, self.name, self.claims = broker, name, claims
        self.local = self.locks = None
        self.options = self.pauses = self.service = None
        self.clock = SimpleNamespace(
            monotonic_ns=lambda: int(asyncio.get_running_loop().time() * 1e9),
            monotonic_ms=lambda: int(asyncio.get_running_loop().time() * 1e3),
        )
        self.leaders = SimpleNamespace(call=self.call)
        self.api = SimpleNamespace(commit_offset=self.commit_offset)
        self.background = SimpleNamespace(spawn=self.spawn)
        self.lost = False
        self.assignment = Assignment(self, None)

    def spawn(self, _run, _name):
        return asyncio.ensure_future(asyncio.sleep(3_600))

    async def call(self, _queue, ask, *, slaves):
        assert slaves
        await asyncio.sleep(0)
        if self.lost:
            raise ConnectionLost("the broker is gone")
        await ask("addr")

    async def commit_offset(self, _addr, queue, offset, claim):
        self.broker.offsets[queue] = offset
        if claim is not None:
            self.broker.claim(self, queue, claim)

    async def claim(self, queue, claim):
        await asyncio.sleep(0.001)  # where no time passes, who asks without a pause never ends
        return self.broker.claim(self, queue, claim)

    async def stored_offset(self, queue):
        await asyncio.sleep(0)
        return self.broker.offsets.get(queue, -1)

    async def first_offset(self, _queue):
        return 0

    async def settled(self, _process_queue):
        return True

    def new_queue(self, queue, offset):
        return ProcessQueue(queue, offset)

    def consume(self, queue, offset):
        """Finish all before an offset, without a commit."""
        self.assignment._held[queue].process_queue.put([], offset)

    async def hold(self, *queues):
        return await self.assignment.change(TOPIC, queues)

    def begins(self, queue):
        return self.assignment._held[queue].process_queue.next_offset


async def handed_over(broker, *, delay_s=0.05, claims=True):
    """Have a queue change hands while its old owner learns of it late; return where it begins."""
    old, new = Member(broker, "old", claims=claims), Member(broker, "new", claims=claims)
    await old.hold(*QUEUES)
    old.consume(QUEUES[0], 9)
    taking = asyncio.ensure_future(new.hold(QUEUES[0]))
    await asyncio.sleep(delay_s)
    await old.hold(*QUEUES[1:])
    assert await taking
    begins = new.begins(QUEUES[0])
    await old.assignment.stop_pulling()
    await new.assignment.stop_pulling()
    return begins


def test_a_queue_begins_behind_the_last_commit_of_who_had_it():
    broker = Broker()
    assert run(handed_over(broker)) == 9
    assert broker.waits
    assert broker.holders[QUEUES[0]].name == "new"


def test_nobody_waits_for_one_that_does_not_let_go_for_longer_than_its_time():
    async def body():
        broker = Broker()
        old, new = Member(broker, "old"), Member(broker, "new")
        await old.hold(*QUEUES)
        assert await new.hold(*QUEUES)
        asked = [claim for name, _, claim in broker.asked if name == "new"]
        assert asked[-3:] == ["anyway"] * 3
        assert asked.count("anyway") == 3
        assert HAND_OVER_MS // HELD_AGAIN_MS_MAX < len(asked) / 3 < HAND_OVER_MS / HELD_AGAIN_MS
        assert {holder.name for holder in broker.holders.values()} == {"new"}
        await old.assignment.stop_pulling()
        await new.assignment.stop_pulling()

    run(body())


async def taken_from_one_that_is_stuck(topics=4):
    """Take queues of several topics from one that keeps them, then one of one that lets go.

    Returns how long the former took, and where the last begins.
    """
    broker = Broker()
    stuck, old, new = (Member(broker, name) for name in ("stuck", "old", "new"))
    queues = [MessageQueue(f"t{number}", "b", 0) for number in range(topics)]
    for queue in queues:
        await stuck.assignment.change(queue.topic, [queue])
    await old.hold(QUEUES[0])
    old.consume(QUEUES[0], 9)
    start = asyncio.get_running_loop().time()
    for queue in queues:
        assert await new.assignment.change(queue.topic, [queue])
    took_s = asyncio.get_running_loop().time() - start
    taking = asyncio.ensure_future(new.hold(QUEUES[0]))
    await asyncio.sleep(0.05)
    await old.hold()
    assert await taking
    for member in (stuck, old, new):
        await member.assignment.stop_pulling()
    return took_s, new.begins(QUEUES[0])


def test_one_that_does_not_let_go_is_waited_for_once_not_for_each_topic():
    took_s, begins = run(taken_from_one_that_is_stuck())
    assert HAND_OVER_MS <= took_s * 1000 < 2 * HAND_OVER_MS
    assert begins == 9, "who lets go is waited for still"
    with planted(BY_TESTS["stuck-member-waited-for-again"]):
        took_s, _ = run(taken_from_one_that_is_stuck(2))
    assert took_s * 1000 >= 2 * HAND_OVER_MS


@pytest.mark.parametrize("pulled", [True, False])
def test_who_lets_go_says_so_whether_or_not_there_is_something_to_commit(pulled):
    async def body():
        broker = Broker()
        broker.offsets[QUEUES[0]] = 4
        member = Member(broker, "old")
        await member.hold(QUEUES[0])
        if pulled:
            member.consume(QUEUES[0], 6)
        await member.hold()
        assert broker.holders == {}
        assert broker.offsets[QUEUES[0]] == (6 if pulled else 4)

    run(body())


def test_a_commit_keeps_the_claim():
    async def body():
        broker = Broker()
        member = Member(broker, "old")
        await member.hold(QUEUES[0])
        member.consume(QUEUES[0], 6)
        broker.holders.clear()  # Another broker leads.
        await member.assignment.commit_all()
        assert broker.holders == {QUEUES[0]: member}
        await member.assignment.stop_pulling()

    run(body())


def test_a_claim_that_cannot_be_ended_keeps_nobody_from_letting_go():
    async def body():
        broker = Broker()
        member = Member(broker, "old")
        await member.hold(QUEUES[0])
        member.lost = True

        async def claim(_queue, _claim):
            raise ConnectionLost("the broker is gone")

        member.claim = claim
        await member.hold()
        assert member.assignment.queues == []

    run(body())


def test_without_claims_nobody_is_waited_for():
    broker = Broker()
    assert run(handed_over(broker, claims=False)) == 0
    assert broker.asked == []


def test_a_member_that_begins_though_the_queue_is_held_is_found_out():
    with planted(BY_TESTS["held-queue-begun-at-once"]):
        assert run(handed_over(Broker())) == 0


async def handed_out_of_what_waits():
    """Give a queue away while its listener has one message and others wait for their turn."""
    member, go_on, seen = Member(Broker(), "old"), asyncio.Event(), []

    async def listen(messages, _context):
        seen.extend(one.queue_offset for one in messages)
        await go_on.wait()
        return ConsumeStatus.CONSUME_SUCCESS

    options = ConsumeOptions(concurrency=1)
    service = ConsumeService(listen, options, None, member.assignment.on_finished)
    await member.hold(QUEUES[0])
    process_queue = member.assignment._held[QUEUES[0]].process_queue
    messages = [message(number) for number in range(3)]
    process_queue.put(messages, 3)
    service.submit(process_queue, messages, (0, 0))
    await asyncio.sleep(0.01)
    await member.hold()
    go_on.set()
    await asyncio.sleep(0.01)
    await service.stop(1_000)
    return seen


def test_what_waits_of_a_queue_that_is_given_away_is_not_handed_out():
    assert run(handed_out_of_what_waits()) == [0]
    with planted(ALL["given-away-and-handed-out"]):
        assert run(handed_out_of_what_waits()) == [0, 1, 2]


async def taken_at_the_second_try():
    """Take a queue whose offset cannot be had at first; return how each try ends."""
    member = Member(Broker(), "new", claims=False)
    stored_offset = member.stored_offset

    async def gone(_queue):
        raise ConnectionLost("the broker is gone")

    ends = []
    for member.stored_offset in (gone, stored_offset):
        ends.append((await member.hold(QUEUES[0]), member.assignment.queues))
    await member.assignment.stop_pulling()
    return ends


def test_a_queue_that_cannot_be_taken_is_left_for_the_next_try():
    assert run(taken_at_the_second_try()) == [(False, []), (True, QUEUES[:1])]
    with planted(MUTANTS["untaken-queue-without-locks"]), pytest.raises(AttributeError):
        run(taken_at_the_second_try())


async def begins_after_a_reset_and_a_lost_lock():
    """Reset a queue to 3, consume it to 9, lose it and take it again; return where it begins."""
    member = Member(Broker(), "one")
    await member.hold(QUEUES[0])
    member.assignment.move({QUEUES[0]: 3})
    await member.hold(QUEUES[0])
    assert member.begins(QUEUES[0]) == 3
    member.consume(QUEUES[0], 9)
    await member.assignment.commit_all()
    member.assignment.lose(QUEUES[0])
    await member.hold(QUEUES[0])
    begins = member.begins(QUEUES[0]), member.broker.offsets[QUEUES[0]]
    await member.assignment.stop_pulling()
    return begins


def test_a_reset_is_followed_once():
    assert run(begins_after_a_reset_and_a_lost_lock()) == (9, 9)
    with planted(MUTANTS["fence-outlives-its-take"]):
        assert run(begins_after_a_reset_and_a_lost_lock()) == (3, 3)
