"""Room in the log for large messages: who waits before it, and who is let in next.

What is appended is committed in the order of the log, so a small message waits for all that lies
before it. While a few large messages are on their way no further one is appended: they wait before
the log, where one address has its turn after the other, and of an address its connections. So a
small send waits for a few large messages, however many are under way, and a large one for a few
of each other address. Two or three on their way are enough to keep members and disks busy.

A send that waited for nearly as long as its client does is refused. The client gives it up and
sends it again: a broker under too much load would store what nobody waits for, and store it twice.
Where many addresses fill what may wait, one of which nothing waits takes the place of what came
last of the one that has most: however many flood, whoever comes later is heard.

Small messages do not wait here: what a turn of the loop takes of them is bounded by their number
and time (`ledgermq.remoting.transport.turns`). Where nothing is committed for a while, room is what
the log itself takes: what has no majority is told so by its own limits and times.
Source: fair queueing before a short queue, as byte queue limits of network devices; who is pushed
out by the rule of the longest queue (Suter et al., McKenney).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from broker.fair_share import FairShare
from broker.limits import LOG_ROOM_BYTES, LOG_WAITING_BYTES_MAX, LOG_WAITING_MS_MAX
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.transport.flows import Flows
from ledgermq.remoting.transport.room import Entering, NoRoom

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.runtime.clock import Clock

SMALL_BYTES: Final = 6 * 1024
"""A request, or a message with its properties, up to this needs no room."""
TURN_BYTES: Final = 256 * 1024
"""After so much, what else may be let in waits for the next turn of the loop."""
TURN_MAX: Final = 64
"""After so many as well."""
STARVED_MS: Final = 500
"""After so long without room one is let in all the same: small ones alone may fill the log."""
STALLED_MS: Final = 1_000
"""After so long without a commit, the log's own limits are what counts."""
LOOK_S: Final = 0.1
"""How often it is looked whether that is so."""


class _Sized(Protocol):
    """What is needed of a message."""

    @property
    def body(self) -> bytes | memoryview: ...

    @property
    def properties(self) -> bytes | memoryview: ...


def message_bytes(message: _Sized) -> int:
    """Return how much a message takes of the log, but for what all have."""
    return len(message.body) + len(message.properties)


class _Later:
    """A coroutine that waits, for as long as it takes."""

    waiting_since_ms: int | None = None

    def __init__(self, address: str) -> None:
        self.remote = (address, 0)
        self.may_go_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def enter(self) -> bool:
        """Let it go on; what it takes is not known before."""
        if self.may_go_on.done():
            return True  # It was cancelled, and takes nobody's place.
        self.may_go_on.set_result(None)
        return False

    def refuse(self, full: NoRoom) -> None:
        """Have the coroutine raise it."""
        self.may_go_on.set_exception(full)


class LogRoom:
    """The room of one broker.

    Args:
        used: bytes that were appended and are not committed.
    """

    def __init__(self, used: Callable[[], int], clock: Clock) -> None:
        self._used = used
        self._clock = clock
        self._flows = Flows[tuple[Entering, int]]()
        self._share = FairShare(LOG_WAITING_BYTES_MAX)
        self._is_letting_in = False
        self._is_next_due = False
        self._is_looking = False
        self._progress_ms = self._let_in_ms = 0
        self._is_stalled = False
        """Whether nothing was committed for long; until something is."""
        self.watching: list[Callable[[], None]] = []
        """Who is to be told that something was committed: nobody, unless somebody waits here."""

    @property
    def used(self) -> int:
        """Bytes that were appended and are not committed."""
        return self._used()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the frames that wait."""
        return self._share.used

    def is_free(self) -> bool:
        """Tell whether a large message may be appended now."""
        return self._is_letting_in or (not self._flows and self._used() < LOG_ROOM_BYTES)

    def wait(self, one: Entering, size_bytes: int) -> bool:
        """See `ledgermq.remoting.transport.room.Room`."""
        address = party_of(one.remote[0])
        if self._is_too_late(one) or not self._has_place(address, size_bytes):
            return False
        if one.waiting_since_ms is None:
            one.waiting_since_ms = self._clock.monotonic_ms()
        self._share.take(address, size_bytes)
        self._add(one, size_bytes)
        return True

    async def enter(self, address: str) -> None:
        """Return when something large may be appended for an address, at once."""
        if not self.is_free():
            later = _Later(address)
            self._add(later, 0)
            await later.may_go_on

    def on_progress(self) -> None:
        """Take that something was committed, or given up."""
        self._is_stalled = False
        if self._flows:
            self._progress_ms = self._clock.monotonic_ms()
            self._call_next()
        else:
            self.watching.clear()

    def _add(self, one: Entering, size_bytes: int) -> None:
        if not self._flows:
            self._progress_ms = self._let_in_ms = self._clock.monotonic_ms()
            self._call_next()
            self.watching[:] = (self.on_progress,)
        self._flows.add(party_of(one.remote[0]), (one, size_bytes))
        self._look_later()

    def _is_too_late(self, one: Entering) -> bool:
        since_ms = one.waiting_since_ms
        return since_ms is not None and self._clock.monotonic_ms() - since_ms >= LOG_WAITING_MS_MAX

    def _has_place(self, address: str, size_bytes: int) -> bool:
        """Tell whether so much more of an address may wait; others may be refused for a newcomer.

        Who is pushed out keeps as much as the newcomer gets, so that no two push out each other.
        """
        share = self._share
        if share.fits(address, size_bytes):
            return True
        if share.of(address):
            return False
        pushed: list[tuple[str, Entering, int]] = []
        while (
            share.free < size_bytes
            and len(pushed) < TURN_MAX
            and self._push_out(size_bytes, pushed)
        ):
            pass
        if share.free < size_bytes:  # Many small ones may not do: nobody is refused in vain.
            for most, one, freed_bytes in reversed(pushed):
                self._flows.add(most, (one, freed_bytes))
                share.take(most, freed_bytes)
            return False
        for _, one, _ in pushed:
            asyncio.get_running_loop().call_soon(one.refuse, NoRoom(self))
        return True

    def _push_out(self, size_bytes: int, pushed: list[tuple[str, Entering, int]]) -> bool:
        """Take what came last of the address that has most; False if it has too little."""
        most = str(self._share.largest())
        if self._share.of(most) < 2 * size_bytes:
            return False
        last = self._flows.take_last(most, lambda waiting: waiting[1] > 0)
        if last is None:
            return False
        self._share.take(most, -last[1])
        pushed.append((most, *last))
        return True

    def _refuse_late(self) -> bool:
        """Refuse those that waited for too long, a turn's worth; return whether that was all."""
        late = self._flows.remove(lambda waiting: self._is_too_late(waiting[0]), TURN_MAX)
        for one, size_bytes in late:
            self._share.take(party_of(one.remote[0]), -size_bytes)
            one.refuse(NoRoom(self))
        return len(late) < TURN_MAX

    def _has_room(self) -> bool:
        if self._used() < LOG_ROOM_BYTES:
            return True
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._progress_ms >= STALLED_MS:
            self._is_stalled = True
        return self._is_stalled or now_ms - self._let_in_ms >= STARVED_MS

    def _call_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Let some of those in who wait, as far as there is room."""
        self._is_next_due = False
        limit = self._used() + TURN_BYTES
        for _ in range(TURN_MAX):
            if not self._flows or not self._has_room():
                return
            if not self._let_in() or self._used() >= limit:
                break
        self._call_next()

    def _let_in(self) -> bool:
        """Let the next one in; return whether all that it takes is taken already."""
        one, size_bytes = self._flows.pop()
        self._share.take(party_of(one.remote[0]), -size_bytes)
        self._let_in_ms = self._clock.monotonic_ms()
        self._is_letting_in = True
        try:
            return one.enter()
        finally:
            self._is_letting_in = False

    def _look_later(self, seconds: float = LOOK_S) -> None:
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Refuse the late ones; go on with who waits though nothing is committed any more."""
        self._is_looking = False
        is_all = self._refuse_late()
        if self._flows:
            self._call_next()
            self._look_later(LOOK_S if is_all else 0)
