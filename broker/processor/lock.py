"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

A grant is answered only when it is replicated, so that no leader can grant the queue to another
client within the lease. A release that cannot be replicated is refused and the lease simply runs
out.
Source: protocol.md 3.7, 7.1; RocketMQ AdminBrokerProcessor.lockBatchMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker.answers import PUT_ANSWERS, put_failure
from broker.queue_lock import LockChange, QueueLockTable
from broker.replicated_state import StateKind
from remoting.protocol.bodies import LockBody, LockResult, decode_body, encode_body
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand, make_response
from remoting.protocol.errors import InvalidHeader
from store.results import PutStatus

if TYPE_CHECKING:
    from broker.replicated_state import Proposer
    from runtime.clock import Clock

QUEUES_PER_REQUEST_MAX = 10_000


class LockProcessor:
    """Answers lock requests of one broker."""

    def __init__(self, locks: QueueLockTable, proposer: Proposer, clock: Clock) -> None:
        self._locks = locks
        self._proposer = proposer
        self._clock = clock

    async def handle_lock(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take LOCK_BATCH_MQ."""
        wanted = _change(request)
        if not self._proposer.writable:
            return put_failure(request, PutStatus.NOT_LEADER)
        granted = self._locks.grantable(wanted, self._clock.monotonic_ms())
        if granted:
            change = LockChange(wanted.group, wanted.client_id, granted)
            self._locks.propose(change)
            try:
                status = await self._proposer.propose(StateKind.LOCK, msgspec.json.encode(change))
            finally:
                self._locks.settle(change)
            if status is not PutStatus.OK:
                return put_failure(request, status)
        body = encode_body(LockResult(lock_ok_mq_set=granted))
        return make_response(request, ResponseCode.SUCCESS, body=body)

    async def handle_unlock(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take UNLOCK_BATCH_MQ."""
        change = _change(request)
        if not self._proposer.writable:
            code, remark = PUT_ANSWERS[PutStatus.NOT_LEADER]
            return make_response(request, code, remark)
        status = await self._proposer.propose(StateKind.UNLOCK, msgspec.json.encode(change))
        if status is not PutStatus.OK:
            return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS)


def _change(request: RemotingCommand) -> LockChange:
    """Return what a lock request asks for."""
    body = decode_body(request.body, LockBody)
    if len(body.mq_set) > QUEUES_PER_REQUEST_MAX:
        raise InvalidHeader(f"{len(body.mq_set)} queues in one lock request")
    return LockChange(body.consumer_group, body.client_id, body.mq_set)
