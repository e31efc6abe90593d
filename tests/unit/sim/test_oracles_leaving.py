"""A consumer that leaves has asked for a commit of all that its listener had finished."""

import asyncio
from types import SimpleNamespace

import pytest

from ledgermq.client import ConsumeContext, ConsumeStatus, MessageQueue
from ledgermq.remoting.protocol.headers import Claim
from sim.oracles.base import Findings
from sim.oracles.leaving import AT_WORK, DUE, NAME, UNLOCKED, UNWRITTEN, Leaving

QUEUE = MessageQueue("orders", "b", 0)
STOP_MS = 5_000


class Push:
    """A consumer that holds one queue, and commits what it is told to."""

    client_id = "c"

    def __init__(self, commits_at_stop=True, stop_ms=10, is_lost=False, stored=0, has_lock=None):
        self.now_ms = 0
        self.clock = SimpleNamespace(
            monotonic_ms=lambda: self.now_ms, monotonic_ns=lambda: self.now_ms * 1_000_000
        )
        self.config = SimpleNamespace(stop_timeout_ms=STOP_MS)
        self._instance = SimpleNamespace(running=True)
        self._stop_ms = stop_ms
        self._commits_at_stop = commits_at_stop
        self._stored = stored
        lease = {QUEUE: 1_000} if has_lock else {}
        locks = None if has_lock is None else SimpleNamespace(_until_ms=lease)
        self.offset = None
        self.status = ConsumeStatus.CONSUME_SUCCESS
        self.jumps = True
        held = self.held = SimpleNamespace(
            process_queue=SimpleNamespace(
                queue=QUEUE,
                lost=is_lost,
                pulled=True,
                era=0,
                maybe_commit_offset=lambda: self.offset,
            ),
            puller=SimpleNamespace(_on_illegal_offset=self.jump),
        )
        self.assignment = SimpleNamespace(
            _held={QUEUE: held}, held=[held], _take=self.take, _release=self.release,
            _commit=self.commit, commit_all=self.commit_all, commit_due=self.commit_due,
            _beginning=self.beginning, _hold=self.hold, _host=SimpleNamespace(locks=locks),
        )  # fmt: skip
        self.service = SimpleNamespace(_listener=self.listen)
        self.findings = Findings()
        Leaving(self.findings).follow(self)
        self.do(self.assignment._take(QUEUE))

    async def take(self, queue):
        await self.assignment._beginning(queue)
        self.assignment._hold(queue, 7)
        return True

    def hold(self, queue, offset):
        return self.held

    async def beginning(self, queue):
        return self._stored, 7

    async def release(self, queue):
        if self._commits_at_stop:
            await self.assignment._commit(self.assignment._held[queue])
        return True

    async def commit(self, held, claim):
        pass

    async def commit_all(self):
        pass

    async def commit_due(self):
        if self._commits_at_stop:
            await self.assignment._commit(self.assignment._held[QUEUE])

    async def jump(self, result):
        self.now_ms += 500
        self.held.process_queue.era += self.jumps

    async def stop(self):
        self.now_ms += self._stop_ms
        if self._commits_at_stop:
            await self.assignment.commit_all()
        self._instance.running = False

    def listen(self, messages, context):
        return self.status

    def hand_out(self, *offsets):
        self.do(self.begin(*offsets))

    def begin(self, *offsets, pulled_ms=None):
        pulled_ns = (self.now_ms if pulled_ms is None else pulled_ms) * 1_000_000
        messages = [SimpleNamespace(queue_offset=offset) for offset in offsets]
        return self.service._listener(messages, ConsumeContext(QUEUE, 0, pulled_ns))

    async def answer_illegal(self):
        await self.held.puller._on_illegal_offset(None)

    def do(self, what):
        asyncio.run(what)

    @property
    def found(self):
        return None if self.findings.first is None else self.findings.first.oracle


def test_who_commits_what_is_finished_may_leave():
    for leave in ("stop", "release"):
        push = Push()
        push.hand_out(4, 5)
        push.offset = 6
        push.do(push.stop() if leave == "stop" else push.assignment._release(QUEUE))
        assert push.found is None, leave


def test_what_is_finished_and_not_committed_is_a_violation():
    for leave in ("stop", "release"):
        push = Push()
        push.hand_out(4, 5)
        push.offset = 5
        push.do(push.stop() if leave == "stop" else push.assignment._release(QUEUE))
        assert push.found == NAME, leave


def test_a_commit_from_before_the_last_listener_ended_is_too_old():
    push = Push(commits_at_stop=False)
    push.hand_out(4)
    push.offset = 5
    push.do(push.assignment.commit_all())
    push.hand_out(5)
    push.do(push.stop())
    assert push.found == NAME


def test_what_a_listener_has_not_finished_need_not_be_committed():
    push = Push(commits_at_stop=False)
    push.hand_out(4)
    push.offset = 5
    push.do(push.assignment.commit_all())
    push.status = ConsumeStatus.RECONSUME_LATER
    push.hand_out(5)
    push.status = ConsumeStatus.CONSUME_SUCCESS
    push.hand_out(6)
    push.do(push.stop())
    assert push.found is None


def test_a_stop_that_ran_out_of_time_and_a_jump_are_excused():
    late = Push(commits_at_stop=False, stop_ms=STOP_MS)
    late.hand_out(4)
    late.do(late.stop())
    assert late.found is None
    jumped = Push(commits_at_stop=False)
    jumped.hand_out(4)
    jumped.do(jumped.answer_illegal())
    jumped.do(jumped.stop())
    assert jumped.found is None


def test_a_jump_while_offsets_are_committed_is_excused():
    """What was finished before it is not asked for any more, and nothing behind it is finished."""
    push = Push(commits_at_stop=False)
    push.hand_out(4)
    commits = push.assignment.commit_due
    leaver = commits.__self__
    assert leaver._commit_due == push.commit_due
    leaver._commit_due = push.answer_illegal
    push.do(commits())
    assert push.found is None


@pytest.mark.parametrize("is_finished", [True, False])
def test_an_answer_that_moves_nothing_makes_nothing_forgotten(is_finished):
    """The first one that calls an offset illegal: what was begun before it is not finished yet."""
    push = Push()
    push.jumps = False
    push.offset = 4
    if is_finished:
        push.hand_out(4)
    else:
        push.status = ConsumeStatus.RECONSUME_LATER
        push.hand_out(4)
        push.status = ConsumeStatus.CONSUME_SUCCESS
    push.do(push.answer_illegal())
    if not is_finished:
        push.hand_out(5)
    push.do(push.assignment.commit_due())
    assert push.found == (DUE if is_finished else None)


def test_what_was_pulled_before_a_jump_backwards_is_nothing_to_commit():
    push = Push()
    push.do(push.answer_illegal())
    push.offset = 2
    push.do(push.begin(7, pulled_ms=0))
    push.do(push.assignment.commit_due())
    assert push.found is None
    push.hand_out(2)
    push.do(push.assignment.commit_due())
    assert push.found == DUE


def test_a_second_stop_says_nothing():
    push = Push()
    push.hand_out(4)
    push.offset = 5
    push.do(push.stop())
    push.hand_out(5)
    push.do(push.stop())
    assert push.found is None


def test_who_has_lost_the_lock_of_a_queue_commits_nothing_of_it():
    for leave in ("stop", "release"):
        push = Push(commits_at_stop=False, is_lost=True)
        push.hand_out(4, 5)
        push.do(push.stop() if leave == "stop" else push.assignment._release(QUEUE))
        assert push.found is None, leave


@pytest.mark.parametrize(("commits", "is_sound"), [(True, True), (False, False)])
def test_what_is_finished_is_committed_when_that_is_due(commits, is_sound):
    push = Push(commits_at_stop=commits)
    push.hand_out(0, 1)
    push.offset = 2
    push.do(push.assignment.commit_due())
    found = push.findings.first
    assert found is None if is_sound else found.oracle == DUE


def test_a_queue_in_order_is_taken_with_its_lock():
    assert Push(has_lock=True).found is None
    assert Push(has_lock=False).found == UNLOCKED


def test_where_a_new_group_begins_is_written_down():
    assert Push(stored=3).found is None
    assert Push(stored=-1).found == UNWRITTEN


def test_the_last_commit_of_a_queue_in_order_comes_behind_its_listener():
    for has_lock, claim, oracle in (
        (True, Claim.NONE, AT_WORK), (True, Claim.IF_FREE, None), (None, Claim.NONE, None)
    ):  # fmt: skip
        push = Push(has_lock=has_lock)
        working = asyncio.Event()

        async def listen(_messages, _context, working=working):
            await working.wait()
            return ConsumeStatus.CONSUME_SUCCESS

        async def commit(push=push, claim=claim, working=working):
            call = asyncio.ensure_future(push.begin(4))
            await asyncio.sleep(0)
            await push.assignment._commit(push.held, claim)
            working.set()
            await call

        leaver = push.assignment._release.__self__
        leaver._listener = listen
        push.do(commit())
        assert push.found == oracle
