"""Who must have what before it counts: at a synchronous master, and where controllers keep a set.

Source: docs/replication.md; docs/adr/0020; RocketMQ GroupTransferService, AutoSwitchHAService.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store.ha.gate import Lack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from store.ha.gate import Gate
    from store.ha.switch.in_sync import InSync

GONE_MS: Final = 1_000
REFUSED_MS: Final = 2_000
CLOSE_MS: Final = 200
CLOSE_FOR_MS: Final = 2_000
HOLD_MS: Final = 500


class GateModel:
    """A synchronous master and its slaves."""

    METHODS = ("on_slaves", "keeps_up", "pass_time", "limit")

    def __init__(self, gate: Gate) -> None:
        self._wait_ms = gate.wait_ms
        self._behind_max = gate.behind_max
        self._best, self._confirmed = gate.best, gate.confirmed
        self._released = gate.released
        self._ends: list[tuple[int, int]] = []

    def on_slaves(self, positions: Sequence[int]) -> None:
        """The best of those that are there counts; what one had once, some disk has."""
        self._best = None
        for position in positions:
            self._best = position if self._best is None else max(self._best, position)
            self._confirmed = max(self._confirmed, position)

    def keeps_up(self, end: int) -> bool:
        """A slave that lacks as much as that does not."""
        return self._best is not None and self._best > end - self._behind_max

    def pass_time(self, now_ms: int, end: int) -> bool:
        """What was there ``wait_ms`` ago and no slave has does not wait any more."""
        if end > self._confirmed and end > self._released:
            self._ends.append((now_ms, end))
        over = [last for at_ms, last in self._ends if now_ms - at_ms >= self._wait_ms]
        self._ends = self._ends[len(over) :]
        self._released = max([self._released, *over[-1:]])
        return bool(over) and over[-1] > self._confirmed

    def limit(self, own: int, end: int) -> tuple[int, Lack | None]:
        """What a slave has counts; without one that keeps up, or too late, what the master has."""
        if self._confirmed >= own:
            return own, None
        if not self.keeps_up(end):
            self._released = max(self._released, own)
            return own, Lack.NO_SLAVE
        if self._released > self._confirmed:
            return min(own, self._released), Lack.TIMEOUT
        return self._confirmed, None

    def differs(self, one: Gate) -> str | None:
        """Say how."""
        now, want = (one.best, one.confirmed, one.released), (
            self._best, self._confirmed, self._released,
        )  # fmt: skip
        return None if now == want else f"best, confirmed and released are {now}, and not {want}"


@dataclass
class _Slave:
    """What is known of one."""

    has: int = 0
    is_there: bool = False
    whole_ms: int = 0
    """When it had all that there was."""
    gone_ms: int = 0
    mark: int = 0
    """With this it has all that there was at ``mark_ms``."""
    mark_ms: int = 0
    refused_ms: int = -REFUSED_MS
    close_ms: int | None = None


class InSyncModel:
    """A master, its set, and who follows."""

    METHODS = (
        "on_connected", "on_confirmed", "on_gone", "follows", "limit", "on_decided", "wanted",
        "ask", "on_refused", "on_unanswered",
    )  # fmt: skip

    def __init__(self, one: InSync) -> None:
        self._one = one
        self._slaves: dict[int, _Slave] = {}
        self._members, self._number = one.members, one.set_epoch
        self._asked: frozenset[int] | None = None
        self._may_be_granted: frozenset[int] = frozenset()
        self._is_unclear = False
        self._held: tuple[int, int] | None = None

    def on_connected(self, one: int, now_ms: int) -> None:
        """It has to say anew what it has."""
        slave = self._slaves.get(one)
        if slave is None:
            slave = self._slaves[one] = _Slave(whole_ms=now_ms)
        slave.is_there, slave.has, slave.mark, slave.mark_ms = True, 0, 0, 0

    def on_confirmed(self, one: int, position: int, now_ms: int, end: int) -> None:
        """With all that there is it has caught up now; else up to when it was marked."""
        slave = self._slaves.setdefault(one, _Slave())
        slave.has = max(slave.has, position)
        if slave.has >= end:
            slave.whole_ms = now_ms
        elif slave.has < slave.mark:
            return
        else:
            slave.whole_ms = max(slave.whole_ms, slave.mark_ms)
        slave.mark, slave.mark_ms = end, now_ms

    def on_gone(self, one: int, now_ms: int) -> None:
        """Who is in no set is forgotten with its connection."""
        slave = self._slaves.get(one)
        if slave is None:
            return
        slave.is_there, slave.gone_ms = False, now_ms
        if self._held is not None and self._held[0] == one:
            self._let_go()
        if one not in self._members and one not in self._may_be_granted:
            self._slaves.pop(one)

    def follows(self, one: int) -> bool:
        """Who has a connection does."""
        return one in self._slaves and self._slaves[one].is_there

    def limit(self, own: int) -> int:
        """Each of the set has it, and each of what may be granted still."""
        one = self._one
        if not one.is_open or len(self._members) < one.count_min:
            return 0
        if one.own_id not in self._members:
            return 0
        for other in (self._members | self._may_be_granted) - {one.own_id}:
            own = min(own, self._slaves[other].has if other in self._slaves else 0)
        return own

    def on_decided(self, members: Iterable[int], set_epoch: int) -> None:
        """A newer set ends what was asked for."""
        if set_epoch <= self._number:
            return
        self._members, self._number = frozenset(members), set_epoch
        self._asked, self._may_be_granted, self._is_unclear = None, frozenset(), False
        self._held = None

    def wanted(self, counted: int, now_ms: int) -> frozenset[int] | None:
        """First those go that do not keep up; then one comes that has all that counts."""
        own_id = self._one.own_id
        if not self._one.is_open or self._asked is not None or own_id not in self._members:
            return None
        left = {one for one in self._members if one != own_id and not self._is_up(one, now_ms)}
        if left:
            return self._members - left
        fit = sorted(
            (slave.refused_ms, one)
            for one, slave in self._slaves.items()
            if one not in self._members
            and slave.is_there
            and slave.has >= counted
            and now_ms >= slave.refused_ms + REFUSED_MS
            and self._is_up(one, now_ms)
        )
        if fit:
            return self._members | {fit[0][1]}
        self._wait_for_one(now_ms)
        return None

    def ask(self, members: frozenset[int]) -> None:
        """Who is asked for counts from now on."""
        self._let_go()
        self._asked = members
        self._may_be_granted |= members

    def on_refused(self, now_ms: int) -> None:
        """Who was to come waits; nothing may be granted, unless something is not known."""
        for one in self._asked or ():
            if one not in self._members and one in self._slaves:
                self._slaves[one].refused_ms = now_ms
        self._asked = None
        if not self._is_unclear:
            self._may_be_granted = frozenset()

    def on_unanswered(self) -> None:
        """What was asked for may be granted still."""
        if self._asked is not None:
            self._asked, self._is_unclear = None, True

    def differs(self, one: InSync) -> str | None:
        """Say how."""
        now = (one.members, one.set_epoch, one.asked, one._pending, one.is_unclear, one._held)
        want = (
            self._members, self._number, self._asked, self._may_be_granted, self._is_unclear,
            self._held,
        )  # fmt: skip
        if now != want:
            return f"the set is {now}, and not {want}"
        slaves = {
            number: _Slave(
                found.confirmed, found.is_connected, found.caught_up_ms, found.gone_ms,
                found.target, found.target_ms, found.refused_ms, found.close_ms,
            )
            for number, found in one._followers.items()
        }  # fmt: skip
        return None if slaves == self._slaves else f"slaves are {slaves}, and not {self._slaves}"

    def _is_up(self, one: int, now_ms: int) -> bool:
        slave, most_ms = self._slaves.get(one), self._one.behind_max_ms
        if slave is None or now_ms >= slave.whole_ms + most_ms:
            return False
        return slave.is_there or now_ms < slave.gone_ms + min(GONE_MS, most_ms)

    def _wait_for_one(self, now_ms: int) -> None:
        """Who is close for long is waited for, for a moment, and then not for a while."""
        if self._held is not None:
            one, since_ms = self._held
            if now_ms >= since_ms + HOLD_MS:
                self._slaves[one].refused_ms = now_ms
                self._let_go()
            return
        for one, slave in self._slaves.items():
            is_near = slave.is_there and now_ms < slave.whole_ms + CLOSE_MS
            if one in self._members or not is_near or now_ms < slave.refused_ms + REFUSED_MS:
                slave.close_ms = None
            elif slave.close_ms is None:
                slave.close_ms = now_ms
            elif now_ms >= slave.close_ms + CLOSE_FOR_MS and not self._may_be_granted:
                self._held, self._may_be_granted = (one, now_ms), frozenset({one})

    def _let_go(self) -> None:
        if self._held is not None:
            self._held, self._may_be_granted = None, frozenset()
