"""What slaves of RocketMQ 5 ask besides tables: timers (60, 61), how groups get messages (402).

This broker has no timers (it refuses messages with `TIMER_` properties) and no groups that pop, so
it answers as a broker of RocketMQ 5 does that has neither. A slave that is refused these requests
logs an error with a stack trace every three seconds.
Source: RocketMQ 5 SlaveSynchronize, TimerCheckpoint.encode, AdminBrokerProcessor.
"""

import struct
from typing import Final

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.transport.requests import ServedBy, serves
from ledgermq.runtime.clock import Clock

_CHECKPOINT: Final = struct.Struct(">7q")
"""Read up to this time in milliseconds; flushed, queue offset, the master's queue offset; version:
state, timestamp, counter."""
_NO_METRICS: Final = b'{"dataVersion":{"counter":0,"timestamp":0},"timingCount":{}}'
_NO_MODES: Final = b'{"messageRequestModeMap":{}}'


class TimersProcessor:
    """Answers for what this broker does not have."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @serves(
        RequestCode.GET_TIMER_CHECK_POINT,
        what="up to when timers are read, for slaves of RocketMQ 5: now, there are none",
        served_by=ServedBy.LEADER,
    )
    def handle_checkpoint(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_TIMER_CHECK_POINT (60).

        A slave that becomes master looks for no timer before this time.
        """
        body = _CHECKPOINT.pack(self._clock.wall_ms(), 0, 0, 0, 0, 0, 0)
        return make_response(request, ResponseCode.SUCCESS, body=body)

    @serves(
        RequestCode.GET_TIMER_METRICS,
        what="how many timers wait by topic, likewise: none",
        served_by=ServedBy.LEADER,
    )
    def handle_metrics(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_TIMER_METRICS (61)."""
        return make_response(request, ResponseCode.SUCCESS, body=_NO_METRICS)

    @serves(
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        what="groups that pop in place of pulling, likewise: none",
        served_by=ServedBy.LEADER,
    )
    def handle_modes(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_ALL_MESSAGE_REQUEST_MODE (402)."""
        return make_response(request, ResponseCode.SUCCESS, body=_NO_MODES)
