"""What a member was refused it asks for again, and what it has not got, or gave away, is not kept.

A commit that a broker has refused, or not answered, is asked for again in the next period: until
then the group is where it was, and nothing else tells. And a member in order keeps the lock of no
queue that it does not hold: whoever is to have it would be refused for as long as it is renewed.
Nor does it keep what waited of a queue that it has given away, which nobody will ever ask for.
Looked at in the member itself, when a period is over and when it waits for its next rebalance.
Source: RocketMQ RemoteBrokerOffsetStore.persistAll, RebalanceImpl.lock; docs/client.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from ledgermq.client import MessageQueue, PushConsumer
    from ledgermq.client.assignment import Held
    from ledgermq.remoting.protocol.errors import RemotingError
    from ledgermq.remoting.protocol.headers import Claim

FORGOTTEN: Final = "A24 commit that failed is not asked for again"
LOCKED: Final = "A21 locked and not held"
KEPT: Final = "A41 kept of a queue that was given away"


class Insisting:
    """Listens to the members of a run."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def follow(self, push: PushConsumer) -> None:
        """Judge a member from now on; before it starts."""
        if push.local is None:
            Insister(push, self._findings)


class Insister:
    """One life of one member."""

    def __init__(self, push: PushConsumer, findings: Findings) -> None:
        self._push, self._findings = push, findings
        self._taken: dict[Held, int] = {}
        """The offset that a broker has taken last, of what is held."""
        self._failed: dict[Held, int] = {}
        """The one that none has, where that was the last word."""
        self._asked: set[Held] = set()
        """Of what it was asked to be committed in this period."""
        assignment, wanted = push.assignment, push._wanted
        self._commit, self._commit_due = assignment._commit_now, assignment.commit_due
        self._wait = wanted.wait
        assignment._commit_now = self._noted_commit  # type: ignore[method-assign]  # to listen to it
        assignment.commit_due = self._checked_period  # type: ignore[method-assign]  # likewise
        wanted.wait = self._waits  # type: ignore[method-assign, assignment]  # likewise

    async def _noted_commit(self, held: Held, claim: Claim) -> RemotingError | None:
        offset = held.process_queue.maybe_commit_offset()
        self._asked.add(held)
        self._failed.pop(held, None)
        error = await self._commit(held, claim)
        if offset is not None and error is None:
            self._taken[held] = offset
        elif offset is not None and offset != self._taken.get(held):
            self._failed[held] = offset
        return error

    async def _checked_period(self) -> None:
        held_by = self._push.assignment._held
        for known in (self._taken, self._failed):
            for gone in [one for one in known if not _is_held(one, held_by)]:
                del known[gone]
        failed = dict(self._failed)
        self._asked.clear()
        await self._commit_due()
        for one, offset in failed.items():
            queue = one.process_queue
            is_owed = _is_held(one, held_by) and queue.maybe_commit_offset() == offset
            if is_owed and one not in self._asked:
                text = f"{self._push.client_id}: {offset} of {queue.queue} was not taken,"
                self._report(FORGOTTEN, f"{text} and a period has passed")

    async def _waits(self) -> bool:
        locks, held_by = self._push.locks, self._push.assignment._held
        for queue in [] if locks is None else sorted(locks._until_ms.keys() - held_by.keys()):
            self._report(LOCKED, f"{self._push.client_id} waits, and keeps the lock of {queue}")
        lines = getattr(self._push.service, "_lines", {})  # of a listener in order
        for one in [one for one, line in lines.items() if line.task is None]:
            held = held_by.get(one.queue)
            if held is None or held.process_queue is not one:
                text = f"{self._push.client_id} waits, and keeps what it had of {one.queue}"
                self._report(KEPT, text)
        return await self._wait()

    def _report(self, oracle: str, text: str) -> None:
        self._findings.report(Violation(oracle, text))


def _is_held(one: Held, held_by: dict[MessageQueue, Held]) -> bool:
    """Tell whether something is held still, and goes on."""
    queue = one.process_queue
    return held_by.get(queue.queue) is one and not (queue.dropped or queue.lost)
