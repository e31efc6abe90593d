"""A leader asks for the halves that are open, again and again: none of them waits for ever.

A half whose producer has died ends by questions alone. Judged is what the log says of them while
one replica leads, takes puts and commits, and no clock is moved: that a half is asked for, or put
aside, some intervals after it was due. Source: docs/transactions.md; RocketMQ
TransactionalMessageCheckService, TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from dledger.core.model import LEADER
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.transactions import Transactions
    from sim.oracles.truth import Truth

NAME: Final = "A23 not asked in time"
SETTLED_MS: Final = 3_000
"""What was under way has come to an end by then."""
INTERVALS: Final = 3
"""One is waited for, one may be under way, and those who do not read are waited for."""


class Leadership(msgspec.Struct):
    """One replica's leadership, as long as nothing hinders it."""

    term: int
    incarnation: int
    tick: int
    waits: dict[int, tuple[int, int]] = {}
    """By offset of a half: how often was asked for it, and since which tick that is so."""
    marks: dict[int, int] = {}
    """By offset of a half that is late: the last entry when that was seen."""


class Asking:
    """Judges whether leaders ask; looks at them now and then."""

    def __init__(self, truth: Truth, transactions: Transactions, check_ms: int) -> None:
        self._truth = truth
        self._transactions = transactions
        self._check_ms = check_ms
        self._leaderships: dict[str, Leadership] = {}

    def on_tick(self, replica: Replica) -> None:
        """Look at a leader. Errors: `Violation`."""
        state = replica.state
        leadership = self._leaderships.get(replica.name)
        place = (state.term, replica.incarnation)
        if not _is_free(replica):
            self._leaderships.pop(replica.name, None)
            return
        if leadership is None or (leadership.term, leadership.incarnation) != place:
            leadership = self._leaderships[replica.name] = Leadership(*place, state.tick)
        due = self._transactions.unasked()
        for gone in leadership.waits.keys() - due.keys():
            del leadership.waits[gone]
            leadership.marks.pop(gone, None)
        for offset, (asked, least_ms) in due.items():
            known, since = leadership.waits.get(offset, (-1, state.tick))
            if known != asked:
                leadership.waits[offset] = (asked, state.tick)
                leadership.marks.pop(offset, None)
            elif (state.tick - since) * replica.tick_ms > self._limit_ms(least_ms):
                self._check(replica, leadership, offset)

    def _limit_ms(self, least_ms: int) -> int:
        return max(least_ms, self._check_ms) + INTERVALS * self._check_ms + SETTLED_MS

    def _check(self, replica: Replica, leadership: Leadership, offset: int) -> None:
        """Judge a half that is late, once what its leader had put by then is committed."""
        mark = leadership.marks.setdefault(offset, replica.last_index)
        if self._truth.commit_index >= mark and replica.applied_index >= mark:
            asked, since = leadership.waits[offset]
            waited_ms = (replica.state.tick - since) * replica.tick_ms
            text = f"half {offset} is open, was asked for {asked} times, and not for {waited_ms} ms"
            text = f"{replica.name} leads term {leadership.term}: {text}"
            raise Violation(NAME, text, node=replica.name)


def _is_free(replica: Replica) -> bool:
    """Tell whether nothing keeps a leader from asking."""
    state = replica.state
    is_sound = not (replica.is_corrupt or replica.disk.is_watched or replica.hangs())
    is_led = state.role is LEADER and state.transfer is None and state.blocked is None
    return is_sound and is_led and replica.controller.store.writer.writable
