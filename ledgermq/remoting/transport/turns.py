"""Shares the time of one turn of the loop among the connections of a server.

A frame is small and what it asks for may take milliseconds. So what one turn handles is bounded by
time as well: connections that come too late wait, and go on in later turns. These go round the
addresses, and for each address round its connections: a thousand connections of one address wait
for each other, not others for them. Between turns the loop serves what else it has: peers, timers,
disks.
Source: stochastic fair queueing (McKenney), with addresses for flows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ledgermq.remoting.transport.limits import TURN_MS_MAX

if TYPE_CHECKING:
    from ledgermq.runtime.clock import Clock


class Waiting(Protocol):
    """A connection with frames that were put off."""

    @property
    def remote(self) -> tuple[str, int]:
        """Address of the peer."""
        ...

    def handle_later(self) -> None:
        """Go on with them, as far as the turn allows."""


class Turns:
    """The turns of one server; without a clock they have no end."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._end_ns = 0
        """When this turn ends; 0 until it has begun."""
        self._waiting: dict[str, deque[Waiting]] = {}
        """By address, in the order of their turns; no address without a connection."""
        self.waiting_count = 0
        self._is_next_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the first turn: asking for it each time is a system call."""

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

    def wait(self, connection: Waiting) -> None:
        """Have a connection go on in a later turn, behind those of its address that wait."""
        self._waiting.setdefault(connection.remote[0], deque()).append(connection)
        self.waiting_count += 1
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
        for _ in range(self.waiting_count):
            if self.is_over():
                return
            self._pop().handle_later()

    def _pop(self) -> Waiting:
        """Take the first connection of the address whose turn it is; the address goes last."""
        address = next(iter(self._waiting))
        theirs = self._waiting.pop(address)
        connection = theirs.popleft()
        if theirs:
            self._waiting[address] = theirs
        self.waiting_count -= 1
        return connection
