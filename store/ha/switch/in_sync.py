"""How far the log of a master counts as committed where a controller keeps an in-sync set. Pure.

An entry counts when every member has it: every member of the set that the controller has confirmed,
and of each set that it was asked for and may still grant. So whoever is elected, from whatever set
the controller has by then, has all that was acknowledged. A slave that falls behind holds up
everything until the controller has taken it out; that is asked for after ``behind_max_ms``, and
nothing is done before it is granted. A slave is asked to be let in once it has all that counts.

The log is told of by positions, time by milliseconds.
Source: docs/adr/0020; RocketMQ 5 AutoSwitchHAService.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

GONE_MS = 1_000
"""A member without a connection is behind after so long, if ``behind_max_ms`` is not shorter."""
REFUSED_MS = 2_000
"""So long nobody asks again for a slave that the controller has not let in."""
CLOSE_MS = 200
"""A slave that had all that there was within so long lacks nothing but what is under way."""
CLOSE_FOR_MS = 2_000
"""So long that may be so before entries wait: as a rule it has been seen with all by then."""
HOLD_MS = 500
"""So long they wait for it at most."""


@dataclass(slots=True)
class Follower:
    """What is known of a slave that has followed in this epoch."""

    confirmed: int = 0
    """Position up to which it has the log."""
    is_connected: bool = False
    caught_up_ms: int = 0
    """When it had all that there was at that time."""
    gone_ms: int = 0
    target: int = 0
    """Where the log ended at ``target_ms``: with this it has caught up to that time."""
    target_ms: int = 0
    refused_ms: int = -REFUSED_MS
    """When the controller did not let it in."""
    close_ms: int | None = None
    """Since when it is close behind, see `CLOSE_MS`; None while it is not."""


@dataclass(slots=True)
class InSync:
    """Owns what the slaves of one epoch have confirmed, and who must have confirmed it."""

    own_id: int
    behind_max_ms: int
    """``haMaxTimeSlaveNotCatchup``."""
    count_min: int = 1
    """``minInSyncReplicas``: with fewer members nothing counts."""
    members: frozenset[int] = frozenset()
    """As the controller has confirmed; empty before it has."""
    set_epoch: int = 0
    """How often the set has changed, by the controller's count."""
    asked: frozenset[int] | None = None
    """The set that the last request asked for, None once it is decided."""
    is_open: bool = True
    """Whether anything more may count; False once this master is none any more."""
    is_unclear: bool = False
    """Whether a request ended without an answer: it may be granted still."""
    _pending: frozenset[int] = frozenset()
    """Who is in a set that may be granted still."""
    _followers: dict[int, Follower] = field(default_factory=dict)
    _held: tuple[int, int] | None = None
    """The slave that entries wait for before it is asked for, and since when."""

    # Slaves

    def on_connected(self, one: int, now_ms: int) -> None:
        """Take that a slave follows in this epoch; it has confirmed nothing by that.

        What it confirmed over another connection it may have lost since: its disk is asked again.
        """
        found = self._followers.setdefault(one, Follower(caught_up_ms=now_ms))
        found.is_connected = True
        found.confirmed = found.target = found.target_ms = 0

    def on_confirmed(self, one: int, position: int, now_ms: int, end: int) -> None:
        """Take that a slave has the log up to ``position``; the log ends at ``end``."""
        found = self._followers.setdefault(one, Follower())
        found.confirmed = max(found.confirmed, position)
        if found.confirmed >= end:
            found.caught_up_ms, found.target, found.target_ms = now_ms, end, now_ms
        elif found.confirmed >= found.target:
            found.caught_up_ms = max(found.caught_up_ms, found.target_ms)
            found.target, found.target_ms = end, now_ms

    def on_gone(self, one: int, now_ms: int) -> None:
        """Take that a slave has no connection any more."""
        found = self._followers.get(one)
        if found is None:
            return
        found.is_connected, found.gone_ms = False, now_ms
        if self._held is not None and self._held[0] == one:
            self._let_go()
        if one not in self.members | self._pending:
            del self._followers[one]

    def follows(self, one: int) -> bool:
        """Tell whether a slave has a connection."""
        found = self._followers.get(one)
        return found is not None and found.is_connected

    # What counts

    def limit(self, own: int) -> int:
        """Return up to where entries count, of those that the own disk has up to ``own``."""
        is_enough = len(self.members) >= self.count_min
        if not (self.is_open and is_enough and self.own_id in self.members):
            return 0
        waits_for = (self.members | self._pending) - {self.own_id}
        return min([own, *(self._confirmed(one) for one in waits_for)])

    def _confirmed(self, one: int) -> int:
        found = self._followers.get(one)
        return 0 if found is None else found.confirmed

    # The set

    def on_decided(self, members: Iterable[int], set_epoch: int) -> None:
        """Take the set that the controller has; an older one than is known changes nothing.

        Its number rises with each change, and a request names the one that it wants to follow: what
        was asked for before cannot be granted any more.
        """
        if set_epoch > self.set_epoch:
            self.members, self.set_epoch = frozenset(members), set_epoch
            self.asked, self._pending, self.is_unclear = None, frozenset(), False
            self._held = None

    def wanted(self, counted: int, now_ms: int) -> frozenset[int] | None:
        """Return the set to ask for now, None for the present one; ``counted``: what counts."""
        if not self.is_open or self.asked is not None or self.own_id not in self.members:
            return None
        stay = {one for one in self.members if one == self.own_id or self._keeps_up(one, now_ms)}
        if stay == self.members:
            stay |= self._next_one(counted, now_ms)
            if stay == self.members:
                self._hold_for_one(now_ms)
        return frozenset(stay) if stay != self.members else None

    def _next_one(self, counted: int, now_ms: int) -> set[int]:
        """Return who is to be let in: one alone, or one that is refused shuts out the others."""
        fit = [
            (found.refused_ms, one)
            for one, found in self._followers.items()
            if one not in self.members
            and found.is_connected
            and found.confirmed >= counted
            and now_ms - found.refused_ms >= REFUSED_MS
            and self._keeps_up(one, now_ms)
        ]
        return {min(fit)[1]} if fit else set()

    def _hold_for_one(self, now_ms: int) -> None:
        """Have entries wait for a slave that is close behind, before it is asked for.

        Where they follow each other without a pause, each counts before the slave has it: there is
        no moment in which it has all. Now there is, unless it hangs.
        """
        if self._held is not None:
            one, since_ms = self._held
            if now_ms - since_ms >= HOLD_MS:
                self._let_go()
                self._followers[one].refused_ms = now_ms
            return
        for one, found in self._followers.items():
            is_close = found.is_connected and now_ms - found.caught_up_ms < CLOSE_MS
            if one in self.members or not is_close or now_ms - found.refused_ms < REFUSED_MS:
                found.close_ms = None
            elif found.close_ms is None:
                found.close_ms = now_ms
            elif now_ms - found.close_ms >= CLOSE_FOR_MS and not self._pending:
                self._held, self._pending = (one, now_ms), frozenset({one})

    def _let_go(self) -> None:
        """Have entries wait no more for a slave that was not asked for."""
        if self._held is not None:
            self._held, self._pending = None, frozenset()

    @property
    def is_holding(self) -> bool:
        """Whether entries wait for a slave that was not asked for yet."""
        return self._held is not None

    def _keeps_up(self, one: int, now_ms: int) -> bool:
        found = self._followers.get(one)
        if found is None:
            return False
        limit_ms = self.behind_max_ms
        if not found.is_connected and now_ms - found.gone_ms >= min(GONE_MS, limit_ms):
            return False
        return now_ms - found.caught_up_ms < limit_ms

    def ask(self, members: frozenset[int]) -> None:
        """Take that a set is asked for; from now on its members count as well."""
        self._let_go()
        self.asked = members
        self._pending |= members

    def on_refused(self, now_ms: int) -> None:
        """Take that the controller has refused what was asked for, and so will not grant it."""
        for one in (self.asked or frozenset()) - self.members:
            if one in self._followers:
                self._followers[one].refused_ms = now_ms
        self.asked = None
        if not self.is_unclear:
            self._pending = frozenset()

    def on_unanswered(self) -> None:
        """Take that nobody knows what became of the request: it may be granted at any time.

        Where another set was decided since it was asked, it cannot be granted any more.
        """
        if self.asked is None:
            return
        self.asked, self.is_unclear = None, True

    # Looking

    def status(self, own: int) -> list[dict[str, object]]:
        """Return who follows, and how far each is."""
        return [
            {
                "id": one, "position": found.confirmed, "behind": own - found.confirmed,
                "connected": found.is_connected, "in_sync": one in self.members,
            }
            for one, found in sorted(self._followers.items())
        ]  # fmt: skip
