"""What offset a group has committed in a queue, of brokers of any version.

Brokers of RocketMQ 5 and ours can say that there is none. One of 4.9 answers 0 instead while the
queue is young, as if the group had committed that; its table of all offsets (43) tells the two
apart. Source: ConsumerManageProcessor, ConsumerOffsetManager 4.9 and 5.3; spec/wire.md 3.7.
"""

import re
from typing import Final, NamedTuple

from ledgermq.client.commands import make_command, number_in
from ledgermq.client.message import MessageQueue
from ledgermq.client.name_servers import Caller
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.errors import RemotingError, for_code
from ledgermq.remoting.protocol.headers import HELD_BY_FIELD, STORED_FIELD, Claim

NO_OFFSET: Final = -1

_KEY: Final = re.compile(rb'[{,]\s*"?([0-9]{1,10})"?\s*:')


class StoredOffset(NamedTuple):
    """Where a group is in a queue."""

    offset: int
    """`NO_OFFSET` if it has committed nothing."""
    held_by: str = ""
    """The member that holds the queue still, where it was claimed; that one may commit more."""


class StoredOffsets:
    """Asks brokers for committed offsets."""

    def __init__(self, caller: Caller, timeout_ms: int) -> None:
        self._caller = caller
        self._timeout_ms = timeout_ms

    async def ask(
        self, addr: str, group: str, queue: MessageQueue, claim: Claim | None = None
    ) -> StoredOffset:
        """Return what a group has committed. Errors: `RemotingError`.

        A broker that neither can say that there is none nor shows its table is believed. RocketMQ's
        know no claims, and name nobody who holds a queue.
        """
        fields = {
            "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
            "setZeroIfNotFound": "false",
        }  # fmt: skip
        if claim is not None:
            fields["claim"] = claim.value
        command = make_command(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        response = await self._caller.request(addr, command, self._timeout_ms)
        held_by = (response.ext_fields or {}).get(HELD_BY_FIELD, "")
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return StoredOffset(NO_OFFSET, held_by)
        if response.code != ResponseCode.SUCCESS:
            raise for_code(response.code, response.remark)
        offset = number_in(response, "offset")
        if offset or STORED_FIELD in (response.ext_fields or {}) or claim is Claim.NONE:
            return StoredOffset(offset, held_by)
        command = make_command(RequestCode.GET_ALL_CONSUMER_OFFSET, {})
        try:
            table = await self._caller.request(addr, command, self._timeout_ms)
        except RemotingError:  # too large for a frame, or for the time
            return StoredOffset(offset)
        if table.code != ResponseCode.SUCCESS or has_offset(bytes(table.body), group, queue):
            return StoredOffset(offset)
        return StoredOffset(NO_OFFSET)


def has_offset(table: bytes, group: str, queue: MessageQueue) -> bool:
    """Return whether a broker's table of offsets has one of ``group`` in ``queue``.

    The table holds all groups of a broker, so it is searched rather than decoded. Names of topics
    and groups need no escapes in JSON.
    """
    _, found, rest = table.partition(b'"%s@%s"' % (queue.topic.encode(), group.encode()))
    if not found:
        return False
    queues, _, _ = rest.partition(b"}")
    return any(int(one) == queue.queue_id for one in _KEY.findall(queues))
