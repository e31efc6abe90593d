"""Gives the master back what groups committed to its slave while it was gone.

The tables that the master told are some moments old when its turn comes, so it is asked for each
offset right before it is given one: who has committed there meanwhile, or moved the group, has the
last word. RocketMQ's slaves give nothing back.
Source: RocketMQ ConsumerManageProcessor.queryConsumerOffset.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.state.own_offsets import OwnOffset

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
GIVEN_BACK_MAX: Final = 1_000
"""Offsets that the master is given in one round."""


class MasterClient(Protocol):
    """What is needed of the remoting client."""

    async def request(
        self, addr: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request and return its answer."""


async def give_back(
    client: MasterClient,
    addr: str,
    offsets: Sequence[OwnOffset],
    may_go_on: Callable[[], bool],
    on_given: Callable[[OwnOffset], None],
) -> None:
    """Commit offsets to the master; what fails, or is left, is due again.

    ``on_given`` is told of each that the master has taken.
    """
    for one in offsets[:GIVEN_BACK_MAX]:
        try:
            if not _is_as_told(one, await client.request(addr, _question(one), TIMEOUT_MS)):
                continue
            if not may_go_on():
                return
            answer = await client.request(addr, _commit(one), TIMEOUT_MS)
        except RemotingError as error:
            _log.info("event=offsets_not_given_back master=%s error=%s", addr, error)
            return
        _log.info(
            "event=offset_given_back master=%s group=%s topic=%s queue=%d offset=%d code=%d",
            addr, one.group, one.topic, one.queue_id, one.offset, answer.code,
        )  # fmt: skip
        if answer.code == ResponseCode.SUCCESS:
            on_given(one)
        if not may_go_on():
            return


def _is_as_told(one: OwnOffset, answer: RemotingCommand) -> bool:
    """Tell whether the master still says of an offset what its tables said.

    Of one that it does not have, RocketMQ says 0 where the queue is young; a negative one it calls
    not found.
    """
    told = one.told
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return told is None or told < 0
    if answer.code != ResponseCode.SUCCESS:
        return False
    return answer.ext_fields.get("offset") == str(max(told or 0, 0))


def _question(one: OwnOffset) -> RemotingCommand:
    fields = {
        "consumerGroup": one.group,
        "topic": one.topic,
        "queueId": str(one.queue_id),
        "setZeroIfNotFound": "false",
    }
    return RemotingCommand(code=RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)


def _commit(one: OwnOffset) -> RemotingCommand:
    fields = {
        "consumerGroup": one.group,
        "topic": one.topic,
        "queueId": str(one.queue_id),
        "commitOffset": str(one.offset),
    }
    return RemotingCommand(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
