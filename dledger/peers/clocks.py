"""What time it is, as a majority of the group says: members tell each other their wall clocks.

Each tells each other one every ``tell_clock_ms``, in a message of its own, which versions that do
not know it pass over. A difference is good to as long as the message took; it is compared with
`APART_MS`, which is far longer. What was told is kept with the own monotonic clock, so that a leap
of the own wall clock is seen at once, and forgotten after `STALE_MS`.

A majority of the voters that agree against this one, all of them ahead or all behind, are right:
one wrong clock never makes another wrong. In a group of two nobody is overruled; the difference is
told all the same, by name.
"""

import logging
from collections.abc import Callable
from typing import Final

from dledger.core.messages import Message, TellClock
from dledger.core.model import NodeId
from dledger.core.quorum import majority
from dledger.core.raft import Raft
from ledgermq.runtime.clock import Clock

_log: Final = logging.getLogger(__name__)

STALE_MS: Final = 30_000
APART_MS: Final = 60_000
"""As far apart as clocks may be. Also the most by which `store.write.stamps` lets one leap."""


class Clocks:
    """The own clock and those of the other members."""

    def __init__(
        self, raft: Raft, clock: Clock, send: Callable[[Message], None], tell_ms: int = 1_000
    ) -> None:
        """Make them; members are told every ``tell_ms``, 0 for never."""
        self._state = raft.state
        self._tell_ms = tell_ms
        self._clock = clock
        self._send = send
        self._told_ms: int | None = None
        self._lines: dict[NodeId, tuple[int, int]] = {}
        """What each one's wall clock showed when the own monotonic clock showed what."""
        self._apart: set[NodeId] = set()

    def pass_time(self, now_ms: int) -> None:
        """Tell the others, every now and then; ``now_ms``: the monotonic clock."""
        is_early = self._told_ms is not None and now_ms - self._told_ms < self._tell_ms
        if is_early or not self._tell_ms:
            return
        self._told_ms = now_ms
        state, wall_ms = self._state, self._clock.wall_ms()
        for peer in state.others:
            self._send(TellClock(state.node_id, peer, state.term, wall_ms))
        self._look()

    def on_message(self, message: TellClock) -> None:
        """Take what another member's clock shows."""
        if message.sender in self._state.others and message.wall_ms >= 0:
            self._lines[message.sender] = message.wall_ms, self._clock.monotonic_ms()

    def ahead(self) -> dict[NodeId, int]:
        """Return by how much the clocks of others are ahead of the own one, in ms."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        others = self._state.others
        return {
            peer: shown_ms + now_ms - then_ms - wall_ms
            for peer, (shown_ms, then_ms) in self._lines.items()
            if peer in others and now_ms - then_ms < STALE_MS
        }

    def correction_ms(self) -> int | None:
        """Return what to add to the own wall clock: 0 if a majority has about the same time.

        Another number if a majority of the others agrees against it: what the most moderate of them
        says. None if there is no majority for anything.
        """
        voters = self._state.voters
        quorum = majority(len(voters))
        found = [ahead for peer, ahead in self.ahead().items() if peer in voters]
        near = sum(abs(ahead) <= APART_MS for ahead in found)
        if near and near + (self._state.node_id in voters) >= quorum:
            return 0
        for sign in (1, -1):
            apart = sorted(sign * ahead for ahead in found if sign * ahead > APART_MS)
            if len(apart) >= quorum:
                return sign * apart[-quorum]
        return None

    def _look(self) -> None:
        """Tell of every clock that is apart from the own one, once, and when it is back."""
        ahead = self.ahead()
        for peer, ahead_ms in ahead.items():
            if (abs(ahead_ms) > APART_MS) != (peer in self._apart):
                self._apart ^= {peer}
                word = "clocks_differ" if peer in self._apart else "clocks_agree"
                _log.warning("event=%s peer=%s ahead_ms=%d", word, peer, ahead_ms)
