"""Shares the time of one turn of the loop among the connections of a server.

A frame is small and what it asks for may take milliseconds. So what one turn handles is bounded by
time as well: connections that come too late wait, and go on in later turns. These go round the
addresses, and for each address round its connections: a thousand connections of one address wait
for each other, not others for them. Between turns the loop serves what else it has: peers, timers,
disks.

A request that is served by a coroutine begins in a turn of the loop that follows, and what it does
before it first waits for something may take as long as a frame. So it asks for its turn as well
(`Turns.begin`): as long as there is time it goes on at once, else it waits in the same order.
Source: stochastic fair queueing (McKenney), with addresses for flows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.transport.flows import Flows
from ledgermq.remoting.transport.limits import TURN_FRAMES_MAX, TURN_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.runtime.clock import Clock


FEW_FRAMES: Final = 16
"""What each of many connections of an address goes on with."""
BEGUN_MAX: Final = 64
"""Coroutines that are let go on in one turn; those that find no time left in it wait again."""


class Waiting(Protocol):
    """A connection with frames that were put off."""

    @property
    def remote(self) -> tuple[str, int]:
        """Address of the peer."""
        ...

    def handle_later(self) -> None:
        """Go on with them, as far as the turn allows."""


class _Beginning:
    """A piece of work that was put off."""

    def __init__(self, remote: tuple[str, int]) -> None:
        self.remote = remote
        self.may_go_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def handle_later(self) -> None:
        """Let it look whether there is time now."""
        self.may_go_on.set_result(None)


class Turns:
    """The turns of one server; without a clock they have no end."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._end_ns = 0
        """When this turn ends; 0 until it has begun."""
        self._waiting = Flows[Waiting]()
        self._in_vain: list[_Beginning] = []
        """Who was let go on in this turn, and found no time."""
        self._is_next_due = False
        self._has_begun = False
        """Whether coroutines were let go on in the last turn, and take their time in this one."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the first turn: asking for it each time is a system call."""

    @property
    def waiting_count(self) -> int:
        """How many wait for a turn."""
        return len(self._waiting) + len(self._in_vain)

    def is_over(self) -> bool:
        """Tell whether this turn has no time left; the first question begins it."""
        if self._clock is None:
            return False
        now_ns = self._clock.monotonic_ns()
        if self._end_ns:
            return now_ns >= self._end_ns
        self._end_ns = now_ns + TURN_MS_MAX * 1_000_000
        self._call_next()
        return False

    def frames_max(self, remote: tuple[str, int]) -> int:
        """Return how many frames a connection that waited may go on with.

        The fewer, the more of its address wait: else each would have a turn of its own, and who has
        but one request among a thousand that have hundreds would wait for a thousand turns.
        """
        others = self._waiting.of_address(party_of(remote[0]))
        return max(FEW_FRAMES, TURN_FRAMES_MAX // (1 + others))

    def wait(self, connection: Waiting) -> None:
        """Have a connection go on in a later turn, behind those of its address that wait."""
        self._waiting.add(party_of(connection.remote[0]), connection)
        self._call_next()

    async def begin(self, remote: tuple[str, int]) -> None:
        """Return when work for an address may begin, and be done up to where it first waits."""
        wait: Callable[[_Beginning], None] = self.wait
        while self.is_over():
            beginning = _Beginning(remote)
            wait(beginning)
            await beginning.may_go_on
            wait = self._wait_on

    def _wait_on(self, beginning: _Beginning) -> None:
        """Have one go on waiting that found no time: before all that came later."""
        self._in_vain.append(beginning)
        self._call_next()

    def _call_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            loop = self._loop
            if loop is None:
                loop = self._loop = asyncio.get_running_loop()
            loop.call_soon(self._next)

    def _next(self) -> None:
        self._end_ns, self._is_next_due = 0, False
        if self._in_vain:
            self._waiting.put_back([(party_of(one.remote[0]), one) for one in self._in_vain])
            self._in_vain.clear()
        if self._has_begun:
            self._has_begun = False  # this turn is theirs, or connections could take all of each
            if self._waiting:
                self._call_next()
            return
        begun = 0
        for _ in range(len(self._waiting)):
            if self.is_over() or begun >= BEGUN_MAX:
                return
            one = self._waiting.pop()
            if isinstance(one, _Beginning):
                if one.may_go_on.done():
                    continue  # Its request was cancelled: it takes nobody's place.
                self._has_begun = True
                begun += 1
            one.handle_later()
