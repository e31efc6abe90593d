"""Whose turn it is with a queue that is consumed in order: one member's, and nobody's who lost it.

Two members never have messages of one queue at once, none is handed out before one that lies before
it was finished, and a member that has given up a queue, or lost its lock, begins nothing more of it
and commits nothing. A queue that is taken goes on where the group is, or where somebody has just
sent it. Heard of where members hand out, take, lose, unlock and commit. Pure but for `follow`.
Source: docs/consumption.md (in order); spec/proof.md 3.3 (A17, A21, A24).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ledgermq.client import MessageQueue, PushConsumer
    from ledgermq.remoting.protocol.headers import Claim

BOTH: Final = "A17 two members at one queue"
BEFORE: Final = "A17 handed out before what is not finished"
GIVEN_UP: Final = "A17 handed out of a queue that was given up"
UNLOCKED: Final = "A21 unlocked while it is worked on"
COMMITS: Final = "A24 committed by who has lost its lock"
ELSEWHERE: Final = "A24 a queue taken elsewhere than its group is"


class Turns:
    """Judges one group.

    Args:
        topic: that it consumes.
        report: hears of violations: the oracle, and what is wrong.
    """

    def __init__(self, topic: str, report: Callable[[str, str], None]) -> None:
        self._topic = topic
        self._report = report
        self._active: dict[int, str] = {}
        """By queue: whose listener is at work."""
        self._done: dict[int, set[int]] = defaultdict(set)
        self.disturbed: set[int] = set()
        """Queues whose lock somebody takes away: their owner does not know yet."""

    def on_begun(self, member: str, queue: int, offset: int, first: int, *, is_held: bool) -> None:
        """A listener is handed a message.

        ``first``: below which messages of the queue are gone. ``is_held``: whether the member has
        not given the queue up.
        """
        other = self._active.get(queue)
        if other is not None and queue not in self.disturbed:
            text = f"{queue}@{offset} is handed to {member}, {other} is at work there"
            self._report(BOTH, text)
        self._active[queue] = member
        if not is_held:
            self._report(GIVEN_UP, f"{member} is handed {queue}@{offset}")
        done = self._done[queue]
        left = [at for at in range(first, offset) if at not in done]
        if left:
            self._report(BEFORE, f"{member} is handed {queue}@{offset} before {left[:5]}")

    def on_ended(self, member: str, queue: int, offset: int, *, is_done: bool) -> None:
        """It has ended."""
        if self._active.get(queue) == member:
            del self._active[queue]
        if is_done:
            self._done[queue].add(offset)

    def is_at_work(self, queue: int) -> bool:
        """Tell whether a listener has something of a queue."""
        return queue in self._active

    def on_unlocked(self, member: str, queue: int) -> None:
        """A member gives a lock back."""
        if self._active.get(queue) == member:
            self._report(UNLOCKED, f"{member} unlocks {queue}, and has something of it in hand")

    def follow(self, member: str, push: PushConsumer) -> None:
        """Listen to a member that is about to start."""
        _Takes(member, push, self._report).follow()
        unlock = push.api.unlock

        async def unlocked(addr: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
            released = list(queues)
            for queue in (one for one in released if one.topic == self._topic):
                self.on_unlocked(member, queue.queue_id)
            await unlock(addr, client_id, released)

        push.api.unlock = unlocked  # type: ignore[method-assign]  # to listen to it


class _Takes:
    """What one member takes, loses and commits."""

    def __init__(self, member: str, push: PushConsumer, report: Callable[[str, str], None]) -> None:
        self._member = member
        self._push = push
        self._report = report
        self._at: dict[MessageQueue, int] = {}
        """Where its group is, of a queue that is being taken."""
        self._moved: set[MessageQueue] = set()
        self._lost: dict[MessageQueue, object] = {}
        """What was held of a queue when its lock was lost."""

    def follow(self) -> None:
        """Listen where it does so."""
        push, assignment = self._push, self._push.assignment
        begin, hold, move = assignment._beginning, assignment._hold, assignment.move
        lose, commit = assignment.lose, push.api.commit_offset

        async def begun(queue: MessageQueue) -> tuple[int, int]:
            stored, offset = await begin(queue)
            self._at[queue] = offset
            return stored, offset

        def held(queue: MessageQueue, offset: int) -> Any:  # noqa: ANN401  # as it is there
            self.on_held(queue, offset)
            return hold(queue, offset)

        def moved(offsets: Mapping[MessageQueue, int]) -> None:
            self._moved.update(offsets)
            move(offsets)

        def lost(queue: MessageQueue) -> None:
            lose(queue)
            self._lost[queue] = assignment._held.get(queue)

        async def committed(
            addr: str, queue: MessageQueue, offset: int, claim: Claim | None = None
        ) -> None:
            self.on_commit(queue, offset, assignment._held.get(queue))
            await commit(addr, queue, offset, claim)

        assignment._beginning = begun  # type: ignore[method-assign]  # to listen to it
        assignment._hold = held  # type: ignore[method-assign]  # likewise
        assignment.move = moved  # type: ignore[method-assign]  # likewise
        assignment.lose = lost  # type: ignore[method-assign]  # likewise
        push.api.commit_offset = committed  # type: ignore[method-assign]  # likewise

    def on_held(self, queue: MessageQueue, offset: int) -> None:
        """A queue is taken."""
        at = self._at.pop(queue, offset)
        if at != offset and queue not in self._moved:
            text = f"{self._member} goes on at {offset} of {queue}, its group is at {at}"
            self._report(ELSEWHERE, text)
        self._moved.discard(queue)

    def on_commit(self, queue: MessageQueue, offset: int, held: object) -> None:
        """An offset is committed of what is held."""
        if held is not None and self._lost.get(queue) is held:
            text = f"{self._member} commits {offset} of {queue}, whose lock it has lost"
            self._report(COMMITS, text)
