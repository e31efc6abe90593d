"""What a member was refused it asks for again, and it keeps nothing that it does not hold."""

import asyncio
from types import SimpleNamespace

import pytest

from sim.oracles.base import Findings
from sim.oracles.insisting import FORGOTTEN, KEPT, LOCKED, Insisting


class Queue:
    """The messages of a queue, of which everything before ``offset`` is done with."""

    def __init__(self, offset=7):
        self.queue, self.offset, self.dropped, self.lost = "orders/0", offset, False, False

    def maybe_commit_offset(self):
        return self.offset


class Held:
    """One queue that is held."""

    def __init__(self):
        self.process_queue = Queue()


class Assignment:
    """Holds one queue, and commits it; brokers answer as ``answers`` says."""

    def __init__(self, *answers, asks_again):
        self.held = Held()
        self._held = {"orders/0": self.held}
        self._answers, self._asks_again = list(answers), asks_again

    async def _commit_now(self, _held, _claim):
        return self._answers.pop(0) if self._answers else None

    async def commit_due(self):
        if self._asks_again:
            await self._commit_now(self.held, None)


def member(assignment, *, locked=None, lines=None):
    """A consumer, and what is found of it."""
    findings = Findings()
    push = SimpleNamespace(
        assignment=assignment, client_id="c", local=None, _wanted=asyncio.Event(),
        locks=None if locked is None else SimpleNamespace(_until_ms=dict.fromkeys(locked, 1)),
        service=SimpleNamespace(_lines=lines or {}),
    )  # fmt: skip
    Insisting(findings).follow(push)
    push._wanted.set()
    return push, findings


def name_of(findings):
    """The oracle that has found something first."""
    return None if findings.first is None else findings.first.oracle


@pytest.mark.parametrize(
    ("answers", "asks_again", "oracle"),
    [
        (["failed"], True, None),
        (["failed", "failed"], True, None),
        ([None], False, None),
        ([None, "failed"], False, None),  # it was taken before: that counts still
        (["failed"], False, FORGOTTEN),
    ],
)
def test_a_commit_that_failed_is_asked_for_again(answers, asks_again, oracle):
    async def run():
        assignment = Assignment(*answers, asks_again=asks_again)
        _, findings = member(assignment)
        for _ in answers:
            await assignment._commit_now(assignment.held, None)
        await assignment.commit_due()
        return findings

    assert name_of(asyncio.run(run())) == oracle


def test_what_has_moved_on_is_not_waited_for():
    async def run():
        assignment = Assignment("failed", asks_again=False)
        _, findings = member(assignment)
        await assignment._commit_now(assignment.held, None)
        assignment.held.process_queue.offset = 9
        await assignment.commit_due()
        return findings

    assert name_of(asyncio.run(run())) is None


@pytest.mark.parametrize(
    ("locked", "oracle"), [(["orders/0"], None), (["orders/0", "orders/1"], LOCKED)]
)
def test_who_waits_keeps_no_lock_of_what_it_does_not_hold(locked, oracle):
    push, findings = member(Assignment(asks_again=True), locked=locked)
    asyncio.run(push._wanted.wait())
    assert name_of(findings) == oracle


@pytest.mark.parametrize(("is_held", "task", "oracle"), [
    (True, None, None), (False, "at work", None), (False, None, KEPT),
])  # fmt: skip
def test_what_was_given_away_is_not_kept(is_held, task, oracle):
    assignment = Assignment(asks_again=True)
    one = assignment.held.process_queue if is_held else Queue()
    push, findings = member(assignment, lines={one: SimpleNamespace(task=task)})
    asyncio.run(push._wanted.wait())
    assert name_of(findings) == oracle
