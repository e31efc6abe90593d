"""A broker as a whole: how it runs (28), its settings (26), and that nobody changes them (25).

Of what RocketMQ says of thread pools there is none here: their queues are empty. What is not
measured is -1, as RocketMQ says it, and "null" where it says that; monitors end without the names.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.prepareRuntimeInfo 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from broker.delays.service import SCHEDULE_TOPIC
from ledgermq.remoting.protocol.bodies import DataVersion, KvTable, encode_body
from ledgermq.remoting.protocol.codes import VERSION, VERSION_NAME, RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.limits import SETTINGS_BYTES_MAX
from ledgermq.remoting.transport.requests import ServedBy, serves
from ledgermq.runtime.settings import refused_change, shown_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.config import BrokerConfig
    from broker.delays.progress import DelayProgress
    from broker.stats.counts import Series, TrafficCounts
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Space
    from store.read.reader import Reader

_FIXED: Final = {"filterServerNums": "0", "useTLS": "false"}
"""RocketMQ's settings that are no choice here; its `exportConfigs` ends if one of them lacks."""
_NO_QUEUES: Final = {
    f"{pool}ThreadPoolQueue{what}": "0"
    for pool in ("send", "pull", "query")
    for what in ("Size", "HeadWaitTimeMills", "Capacity")
} | {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "0"}
_NOT_MEASURED: Final = {
    "getMessageEntireTimeMax": "-1",
    "putMessageAverageSize": "-1",
    "putMessageDistributeTime": "null",
    "putMessageEntireTimeMax": "-1",
    "putMessageSizeTotal": "-1",
    "remainHowManyDataToFlush": "-1 B",
}
_NO_CHOICE: Final = {
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "2147483647",  # RocketMQ's word for: there is no such pool
    "startAcceptSendRequestTimeStamp": "0",
}
_KIB: Final = 1_024
_PREFIXES: Final = "KMGTPE"
_UNITS: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


class RuntimeStore(Protocol):
    """What is said of the store."""

    @property
    def applied(self) -> int:
        """How far in the log all is dispatched."""

    @property
    def reader(self) -> Reader:
        """Says where the log begins and ends."""


class RuntimeProcessor:
    """Answers questions about one broker itself.

    Args:
        space: the room on its fullest disk, None if that is not known.
        delays: how far delayed messages are delivered.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: RuntimeStore,
        counts: TrafficCounts,
        clock: Clock,
        space: Callable[[], Space | None],
        delays: Callable[[], DelayProgress],
    ) -> None:
        self._config = config
        self._store = store
        self._counts = counts
        self._clock = clock
        self._space = space
        self._delays = delays
        self._started_ms = clock.wall_ms()
        self._since_ms = clock.monotonic_ms()

    @serves(RequestCode.GET_BROKER_RUNTIME_INFO, what="version, traffic, log, disk")
    def handle_info(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_BROKER_RUNTIME_INFO (28)."""
        table = {**_NO_QUEUES, **_NOT_MEASURED, **_NO_CHOICE}
        table |= {**self._process(), **self._traffic(), **self._log(), **self._delayed()}
        return make_response(request, ResponseCode.SUCCESS, body=encode_body(KvTable(table=table)))

    @serves(RequestCode.GET_BROKER_CONFIG, what="settings, but for keys and certificates")
    def handle_config(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_BROKER_CONFIG (26)."""
        version = DataVersion(counter=0, timestamp=self._started_ms)
        fields = {"version": msgspec.json.encode(version).decode()}
        body = shown_settings(self._config, _FIXED)
        return make_response(request, ResponseCode.SUCCESS, None, fields, body)

    @serves(
        RequestCode.UPDATE_BROKER_CONFIG,
        what="change of settings",
        limits=(SETTINGS_BYTES_MAX,),
        served_by=ServedBy.NOBODY,
    )
    def handle_update(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Refuse UPDATE_BROKER_CONFIG (25)."""
        if len(request.body) > SETTINGS_BYTES_MAX:
            return make_response(request, ResponseCode.SYSTEM_ERROR, "too large a body")
        is_known, remark = refused_change(self._config, bytes(request.body))
        code = ResponseCode.NO_PERMISSION if is_known else ResponseCode.SYSTEM_ERROR
        return make_response(request, code, remark)

    def _process(self) -> dict[str, str]:
        seconds = (self._clock.monotonic_ms() - self._since_ms) // 1_000
        parts = []
        for unit, size in _UNITS:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
        return {
            "bootTimestamp": str(self._started_ms),
            "brokerActive": "true",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "runtime": f"[ {', '.join(parts)} ]",
        }

    def _traffic(self) -> dict[str, str]:
        counts = self._counts
        counts.fold()
        puts, gets = counts.broker_puts, counts.broker_gets
        delivered = self._rates(gets)
        found, missed = counts.pulls_found, counts.pulls_missed
        return {
            "getFoundTps": self._rates(found),
            "getMissTps": self._rates(missed),
            "getTotalTps": self._rates(found, missed),
            "getTransferedTps": delivered,
            "getTransferredTps": delivered,
            "msgGetTotalTodayMorning": str(counts.get_days.today_morning),
            "msgGetTotalTodayNow": str(gets.total),
            "msgGetTotalYesterdayMorning": str(counts.get_days.yesterday_morning),
            "msgPutTotalTodayMorning": str(counts.put_days.today_morning),
            "msgPutTotalTodayNow": str(puts.total),
            "msgPutTotalYesterdayMorning": str(counts.put_days.yesterday_morning),
            "putMessageTimesTotal": str(puts.total),
            "putTps": self._rates(puts),
        }

    def _log(self) -> dict[str, str]:
        begin, end = self._store.reader.log_range()
        space = self._space()
        ratio = "-1" if space is None else f"{1.0 - space.free_ratio:.2f}"
        free, usable = (0, 0) if space is None else space
        return {
            "commitLogDirCapacity": f"Total : {_readable(usable)}, Free : {_readable(free)}.",
            "commitLogDiskRatio": ratio,
            "commitLogMaxOffset": str(end),
            "commitLogMinOffset": str(begin),
            "consumeQueueDiskRatio": ratio,
            "dispatchBehindBytes": str(max(0, end - self._store.applied)),
            "earliestMessageTimeStamp": str(self._store.reader.begin_time()),
        }

    def _delayed(self) -> dict[str, str]:
        """Return of each level how far it is delivered, and where it ends."""
        reader = self._store.reader
        return {
            f"scheduleMessageOffset_{queue_id + 1}": (
                f"{offset},{max(offset, reader.max_offset(SCHEDULE_TOPIC, queue_id))}"
            )
            for queue_id, offset in self._delays().offsets()
        }

    def _rates(self, *series: Series) -> str:
        """Return the sum of what came a second in 10 s, a minute, ten minutes."""
        now_ms = self._clock.monotonic_ms()
        columns = zip(*(one.recent(now_ms) for one in series), strict=True)
        return "".join(f"{sum(rates)} " for rates in columns)


def _readable(size: int) -> str:
    """Return bytes as RocketMQ writes them: in powers of 1,024, with one digit behind the point."""
    if size < _KIB:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_PREFIXES))
    return f"{size / _KIB**power:.1f} {_PREFIXES[power - 1]}iB"
