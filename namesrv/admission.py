"""How a registration is taken (103): checked, its rivals asked, its topics taken in slices.

A claim alone does not displace a broker that lives. Who claims an address or a name and id that
another connection holds waits until the name server has asked the holder, over the holder's own
connection: an answer means that it lives and stays, unless it says itself that it is something
else by now, as a leader does that was deposed; no answer within `ASK_TIMEOUT_MS` means that it is
gone. RocketMQ's brokers answer that they do not know the request, which shows as much. Nobody else
waits for that answer: while a holder is asked, other registrations are worked through.

What cannot be told so is whether a name that nobody holds belongs to who claims it; that is what
keys and certificates are for. Source: docs/security.md, Name servers.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Final, Protocol

from ledgermq.remoting.protocol.bodies import (
    TopicConfig,
    TopicConfigWrapper,
    body_crc32,
    register_parts,
)
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.headers import RegisterBrokerHeader, decode_header
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.protocol.limits import REGISTER_BYTES_MAX
from ledgermq.remoting.transport.dispatch import SHARE
from ledgermq.remoting.transport.requests import Permission, serves
from ledgermq.runtime.clock import Clock
from namesrv.claims import NO_TERM, check_header, is_sound_topic
from namesrv.limits import REGISTRATIONS_MAX, REGISTRATIONS_PER_CONNECTION_MAX
from namesrv.route_table import Holder, Registered, Registration, RouteTable
from namesrv.rows import TOPICS_PER_TURN

_log = logging.getLogger(__name__)

ASK_TIMEOUT_MS: Final = 500
"""A paused leader holds up its successor's registration for so long, once."""
_ROUNDS_MAX: Final = 4
"""So often holders are asked that have come in the place of those that were."""
SMALL_BODY_BYTES: Final = 16 * 1024
"""A registration of this size is worked through in one turn of the loop: a millisecond or two."""

BROKER_ID_FIELD: Final = "brokerId"


class Peer(Protocol):
    """What registrations need of a connection."""

    remote: tuple[str, int]

    @property
    def id(self) -> int:
        """Number of the connection."""

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Ask the broker at the other end."""


Finished = Callable[[Registered], RemotingCommand]


class Admission:
    """Takes registrations into the route table.

    Args:
        table: where they go.
        find: returns an open connection by its number.
        answer: makes the answer of a registration that was taken or refused.
    """

    def __init__(
        self,
        table: RouteTable,
        clock: Clock,
        find: Callable[[int], Peer | None],
        answer: Callable[[RemotingCommand, RegisterBrokerHeader, Registered], RemotingCommand],
    ) -> None:
        self._table = table
        self._clock = clock
        self._find = find
        self._answer = answer
        self._arrivals = count(1)
        self._under_way: Counter[int] = Counter()
        self._under_way_of: Counter[str] = Counter()
        """The same, by address."""
        self._locks: dict[int, asyncio.Lock] = {}
        self._asked: dict[int, asyncio.Future[int | None]] = {}
        self._working = asyncio.Lock()
        """Held while a registration is read and taken: slices of many would make long turns."""

    @property
    def used(self) -> dict[str, tuple[int, int]]:
        """How much of the limits is used, by name."""
        return {REGISTRATIONS_MAX.name: (self._under_way.total(), REGISTRATIONS_MAX)}

    @serves(
        RequestCode.REGISTER_BROKER,
        what="a broker registers, with its topics",
        header=RegisterBrokerHeader,
        limits=(REGISTER_BYTES_MAX,),
        permission=Permission.REGISTRATION,
    )
    def register(
        self, connection: Peer, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Take a registration: at once if it is small and displaces nobody."""
        header = decode_header(command, RegisterBrokerHeader)
        check_header(header)
        if header.body_crc32 and header.body_crc32 != body_crc32(command.body):
            _log.warning("event=register_refused addr=%s reason=crc", header.broker_addr)
            return make_response(command, ResponseCode.SYSTEM_ERROR, "crc32 not match")
        if len(command.body) > REGISTER_BYTES_MAX:
            remark = f"a registration has at most {REGISTER_BYTES_MAX} bytes; send it compressed"
            return make_response(command, ResponseCode.SYSTEM_ERROR, remark)
        arrival = next(self._arrivals)
        waits = self._under_way[connection.id]
        if not waits and len(command.body) <= SMALL_BODY_BYTES and not header.compressed:
            version, topics = register_parts(command.body, compressed=False)
            wrapper = TopicConfigWrapper(data_version=version, topic_config_table=_table_of(topics))
            registration = _registration(header, wrapper, connection.id, arrival)
            if not self._table.holders(registration):
                done = self._table.register(registration, self._clock.monotonic_ms())
                for _ in done.rest or ():
                    pass
                return self._answer(command, header, done)
        return self._register_later(connection, command, header, arrival)

    async def _register_later(
        self, connection: Peer, command: RemotingCommand, header: RegisterBrokerHeader, arrival: int
    ) -> RemotingCommand:
        """Take a registration in slices, after those of the same connection before it."""
        key, address = connection.id, party_of(connection.remote[0])
        # Asked here: hundreds may have come before the first of them has its turn.
        if not self._has_place(key, address):
            remark = "too many registrations are being worked through, try again"
            return make_response(command, ResponseCode.SYSTEM_BUSY, remark)
        self._under_way[key] += 1
        self._under_way_of[address] += 1
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                return await self._register_in_turn(connection, command, header, arrival)
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key], self._locks[key]
            self._under_way_of[address] -= 1
            if not self._under_way_of[address]:
                del self._under_way_of[address]

    def _has_place(self, key: int, address: str) -> bool:
        """Tell whether one more of a connection, and of its address, may be worked through."""
        free = REGISTRATIONS_MAX - self._under_way.total() - 1
        is_fair = self._under_way_of[address] < free // SHARE
        return is_fair and self._under_way[key] < REGISTRATIONS_PER_CONNECTION_MAX

    async def _register_in_turn(
        self, connection: Peer, command: RemotingCommand, header: RegisterBrokerHeader, arrival: int
    ) -> RemotingCommand:
        """Take a registration once all who hold its place have been asked.

        They are asked while others are worked through. Who came while this one was read is asked
        then, and it is read once more.
        """
        claim = _registration(header, TopicConfigWrapper(), connection.id, arrival)
        silent: set[Holder] = set()
        for _ in range(_ROUNDS_MAX):
            refusal = await self._ask_holders(claim, silent)
            if refusal:
                return self._answer(command, header, Registered(refusal=refusal))
            async with self._working:
                done = await self._take(claim, command, header, silent)
            if done is not None:
                return self._answer(command, header, done)
        return self._answer(command, header, Registered(refusal=_RIVALS))

    async def _take(
        self,
        claim: Registration,
        command: RemotingCommand,
        header: RegisterBrokerHeader,
        silent: set[Holder],
    ) -> Registered | None:
        """Read a registration and take it, in slices; None if somebody has to be asked first."""
        await asyncio.sleep(0)  # one a turn: those that come meanwhile wait for the lock
        for _ in self._table.rows.sweep_all():  # what those that are gone had takes room
            await asyncio.sleep(0)
        version, topics = register_parts(command.body, compressed=header.compressed)
        table: dict[str, TopicConfig] = {}
        for number, (name, config) in enumerate(topics, 1):
            _keep(table, name, config)
            if number % TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
        if self._unasked(claim, silent):
            return None
        if self._find(claim.connection) is None:  # it closed meanwhile; nobody would remove it
            return Registered(refusal="the connection is closed")
        wrapper = TopicConfigWrapper(data_version=version, topic_config_table=table)
        done = self._table.register(replace(claim, topics=wrapper), self._clock.monotonic_ms())
        for _ in done.rest or ():
            await asyncio.sleep(0)
        return done

    def _unasked(self, claim: Registration, silent: set[Holder]) -> list[Holder]:
        """Return who would be displaced, and was not asked."""
        return [one for one in self._table.holders(claim) if one not in silent]

    async def _ask_holders(self, registration: Registration, silent: set[Holder]) -> str:
        """Return why a registration displaces nobody; who does not answer goes into ``silent``.

        Others may have come while one was asked: none is displaced that was not.
        """
        for _ in range(_ROUNDS_MAX):
            holders = self._unasked(registration, silent)
            if not holders:
                return ""
            for holder in holders:
                if await self._is_alive(holder):
                    return _held(holder, registration)
                silent.add(holder)
        return _RIVALS

    async def _is_alive(self, holder: Holder) -> bool:
        """Ask a broker whether it is still what it registered as."""
        asked = self._asked.get(holder.connection)
        if asked is None:
            asked = asyncio.ensure_future(self._ask(holder.connection))
            self._asked[holder.connection] = asked
            asked.add_done_callback(lambda _: self._asked.pop(holder.connection, None))
        told = await asyncio.shield(asked)
        if told is None:
            _log.warning("event=holder_silent addr=%s id=%d", holder.addr, holder.broker_id)
        return told in {holder.broker_id, _SOME_ID}

    async def _ask(self, connection_id: int) -> int | None:
        """Return the broker id that a broker has by its own word, None if it does not answer."""
        peer = self._find(connection_id)
        if peer is None:
            return None
        try:
            command = RemotingCommand(RequestCode.CONFIRM_REGISTRATION)
            answer = await peer.request(command, ASK_TIMEOUT_MS)
        except RemotingError:
            return None
        digits = answer.ext_fields.get(BROKER_ID_FIELD, "")
        is_id = answer.code == ResponseCode.SUCCESS and digits.isdecimal() and len(digits) < 20
        return int(digits) if is_id else _SOME_ID


_RIVALS: Final = "others claim the same, one after the other; try again"
_SOME_ID: Final = -1
"""It answered, and did not say which id it has: a broker that is not ours."""


def _registration(
    header: RegisterBrokerHeader, topics: TopicConfigWrapper, connection: int, arrival: int
) -> Registration:
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        addr=header.broker_addr,
        ha_addr=header.ha_server_addr,
        raft_term=header.raft_term,
        topics=topics,
        connection=connection,
        arrival=arrival,
    )


def _table_of(topics: Iterator[tuple[str, TopicConfig]]) -> dict[str, TopicConfig]:
    table: dict[str, TopicConfig] = {}
    for name, config in topics:
        _keep(table, name, config)
    return table


def _keep(table: dict[str, TopicConfig], name: str, config: TopicConfig) -> None:
    """Take a topic, unless it cannot be shown in a route; the others are none the worse for it."""
    if is_sound_topic(name, config):
        table[name] = config
    else:
        _log.warning("event=topic_left_out topic=%.300r", name)


def _held(holder: Holder, claim: Registration) -> str:
    said = f"{holder.addr} is registered with id {holder.broker_id}, and it lives"
    if holder.addr == claim.addr or claim.raft_term != NO_TERM:  # a group gives its ids itself
        return said
    which = "brokerId" if claim.broker_id else "brokerName"
    return f"{said}; give one of the two another {which}"
