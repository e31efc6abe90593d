"""Which member of a consumer group has taken which queue, as members that claim queues say.

1. A member joins. 2. It asks where the group is in the queues that are its share now. 3. Their
former owners learn of it, commit and let go. Whoever begins at the answer to 2 consumes again what
was finished before 3; so the answer says that the queue is held, and the member asks again.

A claim lives in memory and ends with the membership of its holder. It forbids nothing: who has
waited long enough takes the queue anyway, and who claims nothing (every other client) is not asked.
Pure.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.fair_share import FairShare
from broker.serving_limits import CLAIMS_MAX


class ClaimedQueue(NamedTuple):
    """A queue, as one group consumes it."""

    group: str
    topic: str
    queue_id: int


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


class Member(Protocol):
    """What claims need of a member."""

    @property
    def client_id(self) -> str:
        """The id under which its group knows it."""

    @property
    def connection(self) -> _Numbered:
        """The connection that its membership is of."""

    @property
    def holder(self) -> str:
        """The address whose share it takes."""


class Claims:
    """The claims of all groups."""

    def __init__(self) -> None:
        self._holders: dict[ClaimedQueue, Member] = {}
        self._of: dict[tuple[str, int], set[ClaimedQueue]] = {}
        """By group and connection."""
        self._room = FairShare(CLAIMS_MAX)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._holders)

    def take(self, queue: ClaimedQueue, client: Member, *, anyway: bool) -> Member | None:
        """Have a member claim a queue; returns who else holds it, where that stands in the way.

        A claim that finds no room is not kept: the queue then changes hands as without claims.
        """
        holder = self._holders.get(queue)
        if holder is client:
            return None
        if holder is not None:
            if not anyway and holder.client_id != client.client_id:
                return holder
            self.end(queue, holder)
        if self._room.fits(client.holder):
            self._room.take(client.holder, 1)
            self._holders[queue] = client
            self._of.setdefault((queue.group, client.connection.id), set()).add(queue)
        return None

    def end(self, queue: ClaimedQueue, client: Member) -> None:
        """End the claim of a member, if it has one."""
        if self._holders.get(queue) is not client:
            return
        del self._holders[queue]
        self._room.take(client.holder, -1)
        of = (queue.group, client.connection.id)
        self._of[of].discard(queue)
        if not self._of[of]:
            del self._of[of]

    def end_all(self, group: str, client: Member) -> None:
        """End all claims of a member that leaves."""
        for queue in list(self._of.get((group, client.connection.id), ())):
            self.end(queue, client)
