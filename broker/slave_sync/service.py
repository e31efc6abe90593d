"""Follows the tables of the master: asks for them every ten seconds, and at the start.

1. The slave notes where its own log ends. 2. It asks for topics, groups, offsets and delays. 3. It
asks where the master's log ends. If that is before its own end, the master has lost its log, and
nothing that it says counts. 4. Topics and groups are taken over at once. 5. Offsets and delays wait
until the slave has dispatched up to the master's end: ahead of the log, they would pass over
messages that are still to come, should this slave lead one day. 6. Then the master is given what
groups committed here while it was gone, and what it knows better is forgotten.

Only a master is believed whose log the slave follows and has found to be the same as its own; once
it is not followed any more, nothing further of what it said is taken, and it is given nothing.
A master that cannot be asked, or whose answers are none, changes nothing; that is told once.
Source: RocketMQ SlaveSynchronize.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.limits import OFFSETS_BYTES_MAX
from broker.slave_sync.changes import Changes
from broker.slave_sync.giving_back import give_back
from broker.slave_sync.told import read_steps
from broker.state.steps import in_turns
from broker.stats.pages import NEXT_ROW
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import ProtocolError, RemoteProtocolError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.slave_sync.changes import Change, SlaveTables, Step
    from broker.slave_sync.giving_back import MasterClient
    from broker.slave_sync.told import Told
    from broker.state.own_offsets import OwnOffsets
    from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

PERIOD_MS: Final = 10_000
FIRST_MS: Final = 1_000
"""Until it has worked once it is tried so often."""
GATE_MS: Final = 50
TIMEOUT_MS: Final = 3_000
NOBODY: Final = "there is no master whose log is followed"
QUIET_TRIES: Final = 5
"""So often nobody hears that there is no master yet: a name server has to answer first."""
ROWS_PER_TURN: Final = 32
_ASKED: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_BROKER_RUNTIME_INFO,
)
"""In this order: where the log ends is asked last."""
_PAGED: Final = frozenset(
    {RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET}
)
"""These may be longer than an answer (`broker.stats.pages`)."""
TABLE_BYTES_MAX: Final = 128 * 1024**2
"""Of the text of one table: more than any that a broker may hold."""
PAGES_MAX: Final = 64
"""Of one table: any two pages in a row have more than 8 MiB, or the first would not have ended."""
_DIGITS: Final = 9


class SlaveLog(Protocol):
    """What is needed of the store."""

    @property
    def end(self) -> int:
        """Where this broker's log ends."""

    @property
    def applied(self) -> int:
        """Up to where it is dispatched."""


class _Waiting(NamedTuple):
    """Offsets and delays of which the log has still to come."""

    addr: str
    told: Told


class SlaveSync:
    """Keeps the tables of one slave.

    Args:
        master: returns the master's address, empty while its log is not followed.
        why_none: returns why it is empty.
        apply: changes a table by a record of state.
    """

    def __init__(  # noqa: PLR0913 - each is one collaborator
        self,
        client: MasterClient,
        clock: Clock,
        log: SlaveLog,
        tables: SlaveTables,
        own: OwnOffsets,
        *,
        master: Callable[[], str],
        apply: Callable[[Change], object],
        why_none: Callable[[], str] = lambda: NOBODY,
    ) -> None:
        self._why_none = why_none
        self._client = client
        self._clock = clock
        self._log = log
        self._changes = Changes(tables)
        self._own = own
        self._master = master
        self._apply = apply
        self._waiting: _Waiting | None = None
        self._problem: str | None = "nothing was asked"
        self._tries = 0
        """How often there was no master before there had been one."""
        self.rounds = 0
        """How often all tables were read."""

    async def run(self) -> None:
        """Follow, until it is cancelled."""
        while True:
            await self.follow()
            left_ms = PERIOD_MS if self.rounds else FIRST_MS
            while left_ms > 0:
                step_ms = left_ms if self._waiting is None else min(GATE_MS, left_ms)
                await asyncio.sleep(step_ms / 1000)
                left_ms -= step_ms
                await self._take_progress()

    async def follow(self) -> None:
        """Read the tables once, and take over what can be."""
        addr = self._master()
        if not addr:
            self._waiting = None
            self._tries += 1
            why = self._why_none()
            if why != NOBODY or self.rounds or self._tries > QUIET_TRIES:
                self._failed(why)
            return
        own_end = self._log.end
        try:
            pages = {str(int(code)): await self._pages(addr, code) for code in _ASKED}
            told = await in_turns(read_steps(pages))
        except (RemotingError, ProtocolError) as error:
            self._failed(str(error))
            return
        used = await in_turns(self._changes.offsets_room_steps(told))
        if refusal := self._refusal(addr, told, own_end, used):
            self._failed(refusal)
            return
        if self._problem is not None:
            _log.info("event=tables_follow master=%s left_out=%d", addr, told.left_out)
            self._problem = None
        await self._take(addr, self._changes.of_names(told, self._clock.wall_ms()))
        self._wait_with(addr, told)
        await self._take_progress()
        self.rounds += 1

    def _is_followed(self, addr: str) -> bool:
        """Tell whether the log of the master at ``addr`` is still followed."""
        return self._master() == addr

    def _refusal(self, addr: str, told: Told, own_end: int, used: int) -> str:
        """Return why what a master says does not count, empty if it does."""
        if not self._is_followed(addr):
            return "its log is not followed any more"
        if told.log_end < own_end:
            return "its log ends before ours does: it has lost messages that we have"
        if used > OFFSETS_BYTES_MAX:
            return f"consumer offsets, with ours: {used}, more than {OFFSETS_BYTES_MAX}"
        return ""

    def _wait_with(self, addr: str, told: Told) -> None:
        """Let offsets and delays wait for the log.

        What waits is not replaced by what is newer: a log that is always behind would never do. But
        a log that ends before what waits is another one, or that was a lie.
        """
        waiting = self._waiting
        if waiting is None or waiting.addr != addr or told.log_end < waiting.told.log_end:
            self._waiting = _Waiting(addr, told)

    async def _take_progress(self) -> None:
        """Take over offsets and delays once the log has come so far."""
        if self._waiting is None:
            return
        addr, told = self._waiting
        if not self._is_followed(addr):
            self._waiting = None  # a master that comes back may have lost what this speaks of
        elif min(self._log.end, self._log.applied) >= told.log_end:
            self._waiting = None
            await self._take(addr, self._changes.of_progress(told))
            await self._settle(addr, told)

    async def _settle(self, addr: str, told: Told) -> None:
        """Give the master what groups committed here, now that what it said has been taken over.

        Not before: what it knows better is forgotten here, and would be known nowhere if it went
        away while its offsets still wait for the log.
        """
        if self._is_followed(addr):
            due = await in_turns(self._own.compare_steps(told.offsets))
            may_go_on = partial(self._is_followed, addr)
            await give_back(self._client, addr, due, may_go_on, self._own.note_given)

    async def _take(self, addr: str, steps: Iterable[Step]) -> None:
        for number, change in enumerate(steps, 1):
            if change is not None:
                self._apply(change)
            if change is None or number % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
                if not self._is_followed(addr):
                    return

    async def _pages(self, addr: str, code: RequestCode) -> list[bytes]:
        """Return the bodies of all pages of a table. Errors: `RemotingError`, `ProtocolError`."""
        pages: list[bytes] = []
        row, left_bytes = 0, TABLE_BYTES_MAX
        while len(pages) < PAGES_MAX:
            answer = await self._ask(addr, code, {"fromRow": str(row)} if code in _PAGED else {})
            pages.append(answer.body)
            left_bytes -= len(answer.body)
            following = answer.ext_fields.get(NEXT_ROW) if code in _PAGED else None
            if following is None:
                return pages
            is_number = following.isascii() and following.isdigit() and len(following) <= _DIGITS
            if not is_number or int(following) <= row or left_bytes < 0:
                raise RemoteProtocolError(f"request {int(code)}: {NEXT_ROW}={following[:20]!r}")
            row = int(following)
        raise RemoteProtocolError(f"request {int(code)}: more than {PAGES_MAX} pages")

    async def _ask(self, addr: str, code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
        """Return an answer. Errors: `RemotingError`."""
        command = RemotingCommand(code=code, ext_fields=fields)
        answer = await self._client.request(addr, command, TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"request {int(code)}: code={answer.code} remark={answer.remark}")
        return answer

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            _log.warning(
                "event=tables_do_not_follow master=%s reason=%s", self._master() or "-", problem
            )
        self._problem = problem
