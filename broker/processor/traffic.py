"""VIEW_BROKER_STATS_DATA (315): how many messages were stored, handed out or given back.

The names of what is counted are RocketMQ's. Counted by this replica since it started; of a name
that nothing was counted under it is said that there is none, as RocketMQ says it.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.viewBrokerStatsData 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.answers import shown
from ledgermq.remoting.protocol.administration import StatsData, StatsDataHeader, WindowStats
from ledgermq.remoting.protocol.bodies import encode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.transport.requests import serves

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.stats.counts import Series, TrafficCounts
    from ledgermq.runtime.clock import Clock

TOPIC_PUTS: Final = "TOPIC_PUT_NUMS"
GROUP_GETS: Final = "GROUP_GET_NUMS"
GROUP_BACKS: Final = "SNDBCK_PUT_NUMS"
BROKER_PUTS: Final = "BROKER_PUT_NUMS"
BROKER_GETS: Final = "BROKER_GET_NUMS"


class TrafficProcessor:
    """Answers what was counted; ``cluster`` is the key of what concerns the whole broker."""

    def __init__(self, counts: TrafficCounts, cluster: str, clock: Clock) -> None:
        self._clock = clock
        self._find: dict[str, Callable[[str], Series | None]] = {
            TOPIC_PUTS: counts.of_topic,
            GROUP_GETS: lambda key: counts.of_group(*_topic_and_group(key)),
            GROUP_BACKS: lambda key: counts.of_back(*_topic_and_group(key)),
            BROKER_PUTS: lambda key: counts.broker_puts if key == cluster else None,
            BROKER_GETS: lambda key: counts.broker_gets if key == cluster else None,
        }

    @serves(
        RequestCode.VIEW_BROKER_STATS_DATA,
        what="messages stored in a topic, given to a group or back: a minute, an hour, a day",
        header=StatsDataHeader,
    )
    def handle_view(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take VIEW_BROKER_STATS_DATA (315)."""
        header = decode_header(request, StatsDataHeader)
        find = self._find.get(header.stats_name)
        series = None if find is None else find(header.stats_key)
        if series is None:
            remark = f"The stats <{shown(header.stats_name)}> <{shown(header.stats_key)}> not exist"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = (
            WindowStats(sum=rate.sum, tps=rate.per_second)
            for rate in series.rates(self._clock.monotonic_ms())
        )
        body = StatsData(stats_day=day, stats_hour=hour, stats_minute=minute)
        return make_response(request, ResponseCode.SUCCESS, body=encode_body(body))


def _topic_and_group(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group
