"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

A grant is answered only when it is replicated, so that no leader can grant the queue to another
client within the lease. A release that cannot be replicated is refused and the lease simply runs
out. A queue that does not exist is not granted, and nothing about it gets into the log.
Source: spec/wire.md 3.7, 7.1; RocketMQ AdminBrokerProcessor.lockBatchMQ.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from broker.answers import put_failure
from broker.limits import LOCK_QUEUES_MAX
from broker.state.kinds import StateKind
from broker.state.queue_lock import LockChange, split_change
from broker.state.subscription import group_name_is_valid
from ledgermq.remoting.protocol.bodies import LockResult, QueueKey, decode_body, encode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import InvalidHeader
from ledgermq.remoting.protocol.limits import CLIENT_ID_LENGTH_MAX, GROUP_LENGTH_MAX
from ledgermq.remoting.transport.requests import ServedBy, serves
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.state.replicated_state import Proposer
    from broker.tables import Tables
    from ledgermq.runtime.clock import Clock


class _Queue(msgspec.Struct, rename="camel"):
    """A queue of a request; what is missing has Java's defaults."""

    broker_name: str = ""
    queue_id: int = 0
    topic: str = ""


class _LockBody(msgspec.Struct, rename="camel"):
    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[_Queue] = []


SLICE: Final = 1_000
"""Queues that are looked at in one turn of the loop; few requests have more."""
_LIMITS: Final = (LOCK_QUEUES_MAX, GROUP_LENGTH_MAX, CLIENT_ID_LENGTH_MAX)


class LockProcessor:
    """Answers lock requests of one broker."""

    def __init__(self, tables: Tables, proposer: Proposer, clock: Clock) -> None:
        self._topics = tables.topics.entries
        self._locks = tables.locks
        self._proposer = proposer
        self._clock = clock

    @serves(
        RequestCode.LOCK_BATCH_MQ,
        what="lock queues for 60 s",
        limits=_LIMITS,
        served_by=ServedBy.LEADER_BY_ITSELF,
    )
    async def handle_lock(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take LOCK_BATCH_MQ."""
        body = _decoded(request)
        if not self._proposer.writable:
            return put_failure(request, PutStatus.NOT_LEADER)
        granted: list[QueueKey] = []
        async for some in self._in_slices(body):
            status = await self._grant(some, granted)
            if status is not PutStatus.OK:
                return put_failure(request, status)
        answer = encode_body(LockResult(lock_ok_mq_set=granted))
        return make_response(request, ResponseCode.SUCCESS, body=answer)

    @serves(
        RequestCode.UNLOCK_BATCH_MQ,
        what="unlock queues",
        limits=_LIMITS,
        served_by=ServedBy.LEADER_BY_ITSELF,
    )
    async def handle_unlock(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take UNLOCK_BATCH_MQ."""
        body = _decoded(request)
        if not self._proposer.writable:
            return put_failure(request, PutStatus.NOT_LEADER)
        async for some in self._in_slices(body):
            held = self._locks.releasable(some)
            if held:
                change = LockChange(some.group, some.client_id, held)
                status = await self._replicate(StateKind.UNLOCK, change)
                if status is not PutStatus.OK:
                    return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS)

    async def _grant(self, wanted: LockChange, granted: list[QueueKey]) -> PutStatus:
        """Lock what may be locked, and add it to what is granted."""
        found = self._locks.grantable(wanted, self._clock.monotonic_ms())
        if not found:
            return PutStatus.OK
        change = LockChange(wanted.group, wanted.client_id, found)
        self._locks.propose(change)
        try:
            status = await self._replicate(StateKind.LOCK, change)
        finally:
            self._locks.settle(change)
        granted += found
        return status

    async def _replicate(self, kind: StateKind, change: LockChange) -> PutStatus:
        """Propose a change, in several entries if it is long; return what failed, or OK."""
        found = await asyncio.gather(
            *[self._proposer.propose(kind, payload) for payload in split_change(change)]
        )
        return next((status for status in found if status is not PutStatus.OK), PutStatus.OK)

    async def _in_slices(self, body: _LockBody) -> AsyncIterator[LockChange]:
        """Return what a request asks for, each queue that exists once.

        A long request comes in parts, with turns of the loop between.
        """
        seen: set[tuple[str, int]] = set()
        for first in range(0, len(body.mq_set), SLICE):
            if first or len(body.mq_set) > SLICE:
                await asyncio.sleep(0)
            queues = []
            for queue in body.mq_set[first : first + SLICE]:
                place = (queue.topic, queue.queue_id)
                if self._exists(queue) and place not in seen:
                    seen.add(place)
                    queues.append(QueueKey(queue.broker_name, queue.queue_id, queue.topic))
            yield LockChange(body.consumer_group, body.client_id, queues)

    def _exists(self, queue: _Queue) -> bool:
        entry = self._topics.get(queue.topic)
        return entry is not None and 0 <= queue.queue_id < entry.queues


def _decoded(request: RemotingCommand) -> _LockBody:
    """Return what a lock request asks for.

    Errors: `InvalidHeader`, `RemoteProtocolError`.
    """
    body = decode_body(request.body, _LockBody)
    if not group_name_is_valid(body.consumer_group):
        raise InvalidHeader("the name of the consumer group is illegal")
    if not 0 < len(body.client_id) <= CLIENT_ID_LENGTH_MAX:
        raise InvalidHeader(f"a client id has 1 to {CLIENT_ID_LENGTH_MAX} characters")
    if len(body.mq_set) > LOCK_QUEUES_MAX:
        raise InvalidHeader(f"{len(body.mq_set)} queues in one lock request")
    return body
