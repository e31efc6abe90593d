"""Asks producers how halves end that wait too long, and parks those whose end nobody knows.

A pass over the open halves begins every ``transactionCheckInterval``, and goes on in bounded turns.
How often a half was asked for goes into the log before anybody is asked, many halves in a record;
so it is right whoever leads next, and a half is parked when it was asked for
``transactionCheckMax`` times. The first pass of a term asks nobody: it puts op messages that an
earlier leader could not put, and closes halves that RocketMQ, or the log, has done with.

A store that RocketMQ wrote has halves that no record told of here: they are read from the half
topic and compared with the op topic first (`broker.transactions.takeover`).
Source: spec/wire.md 7.8; RocketMQ TransactionalMessageServiceImpl; docs/transactions.md.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

import msgspec

from broker.answers import BUSY, shown
from broker.leader.service import LeaderService
from broker.limits import IMMUNITY_MS_MAX, TRANSACTIONS_ASKED_MAX
from broker.sends.half import half_of
from broker.sends.rules import Refused
from broker.state.kinds import StateKind
from broker.state.subscription import group_name_is_valid
from broker.transactions.endings import Endings, Timer
from broker.transactions.halves import COPIED
from broker.transactions.recent import RecentHalves
from broker.transactions.records import parked_of, question_of, said_by
from broker.transactions.table import HalfTable
from broker.transactions.takeover import HALF_TOPIC, rocketmq_done_before, take_over
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.headers import CheckTransactionHeader, header_fields
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.remoting.protocol.properties import find_property
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import report_serving_failure
from store.origins import NO_IMMUNITY, group_number, source_number
from store.results import PutStatus
from store.write.uncommitted import LATE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from typing import Any

    from broker.groups.client_registry import ClientConnection, ProducerRegistry
    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.table import ReplicatedTable
    from broker.transactions.halves import Half
    from broker.transactions.records import Said
    from ledgermq.remoting.protocol.message import MessageExt
    from store.read.reader import Reader
    from store.read.schedule import Schedule
    from store.results import PutMessage
    from store.write.writer import Writer

_log = logging.getLogger(__name__)

ROWS_MAX: Final = 1_000
"""Rows looked at in a turn: about a millisecond."""
TURN_MAX: Final = 64
"""Halves read in a turn, to be asked for or to be parked."""
READ_BYTES_MAX: Final = 256 * 1024
"""Bytes of one turn, beyond which nothing more is read in it."""
PARKING_BYTES_MAX: Final = 2 * 1024 * 1024
"""Of halves that are put aside, on their way at a time, and one half more."""
RETRY_MS: Final = 100
RETRIED_MAX: Final = 16
"""Halves of a group that are asked for at a time when its clients read again."""
LOG_EVERY_MS: Final = 1_000


class Settings(NamedTuple):
    """What is configured; times in milliseconds."""

    broker_name: str
    host: bytes
    timeout_ms: int
    interval_ms: int
    check_max: int
    rejected: bool
    takes_over: bool
    """Whether RocketMQ may have written to the store, so that no record told of its halves."""


class TransactionStore(Protocol):
    """What is needed of the store."""

    schedule: Schedule
    reader: Reader
    writer: Writer


class _Pass:
    """One walk over the open halves."""

    def __init__(self, until: int, *, asks: bool) -> None:
        self.until = until
        """Where the log ended when it began."""
        self.asks = asks
        self.behind = -1
        """Rows up to this place in the log were looked at."""


class Transactions(LeaderService):
    """The open transactions of one broker.

    Args:
        alarm: returns a timer that calls a function.
    """

    name: ClassVar = "transactions"

    def __init__(
        self,
        settings: Settings,
        store: TransactionStore,
        producers: ProducerRegistry,
        offsets: ConsumerOffsetTable,
        alarm: Callable[[str, Callable[[], object]], Timer],
    ) -> None:
        self.table = HalfTable()
        self.recent = RecentHalves()
        now_ms = store.schedule.now_ms
        self.endings = Endings(self.table, store.writer, settings.host, now_ms, alarm)
        self._settings = settings
        self._store = store
        self._producers = producers
        self._offsets = offsets
        self._alarm = alarm("transactions", self.run)
        self._pass: _Pass | None = None
        self._next_ms = 0
        """When the next pass begins."""
        self._seen_ms = self._since_ms = 0
        """The last look at the time, and when this term began or the clock was put right since."""
        self.save: Callable[[], Awaitable[None]] = _nothing
        """Writes the tables to disk."""
        self.may_hear: Callable[[ClientConnection, str], bool] = lambda _connection, _topic: True
        """Whether a producer may have a half of a topic: anybody can say that it is of a group."""
        self.taken_over_before = 0
        """While a take-over runs, until its rows are on disk: where the log ended when it began.
        Halves before that are not finished meanwhile: a crash between the copy and the op message
        would leave a half without a row, which the next take-over opened again."""
        self._is_idle = True
        """Whether no timer is set: no half is open."""
        self._leads = False
        self._epoch = 0
        """Grows with each term in which this replica leads."""
        self._counted = 0
        """Halves whose number of questions is on its way into the log."""
        self._to_ask: deque[int] = deque()
        """Where halves lie whose producers are to be asked now."""
        self._slow: dict[str, deque[int]] = {}
        """The same, by group, of groups whose clients do not read what they are asked."""
        self._slow_ms = 0
        """When those clients were looked at last."""
        self._parking_bytes = 0
        """Of halves that are being put aside."""
        self._asked_first = 0
        self._told: dict[str, tuple[int, int]] = {}
        """By event, when it was logged, and how often it was not since then."""

    def tables(self) -> Iterable[ReplicatedTable]:
        """See `LeaderService`."""
        return (self.table,)

    @property
    def asked(self) -> int:
        """How many halves are being asked for."""
        return self._counted + len(self._to_ask) + sum(map(len, self._slow.values()))

    def let_in(self, message: PutMessage) -> PutMessage:
        """Return the half of a message that a producer sends. Errors: `Refused`."""
        if self._settings.rejected:
            remark = f"the broker[{self._settings.broker_name}] sending transaction message is"
            raise Refused(f"{remark} forbidden", ResponseCode.NO_PERMISSION)
        group = find_property(message.properties, b"PGROUP")
        if not group:
            raise Refused("the message is illegal: half a transaction without the property PGROUP")
        if not group_name_is_valid(group.decode("utf-8", "replace")):
            raise Refused("the message is illegal: PGROUP is not the name of a producer group")
        if not self.table.fits(group_number(group), source_number(message.born_host)):
            raise Refused(BUSY, ResponseCode.SYSTEM_BUSY)
        return half_of(message)

    def start(self, term: int) -> Coroutine[Any, Any, None] | None:
        """Begin: finish what earlier leaders began, ask after an interval."""
        del term
        self._leads = True
        self._epoch += 1
        self.endings.begin()
        self._counted = 0
        self._is_idle = True
        self._to_ask.clear()
        self._slow.clear()
        now_ms = self._seen_ms = self._since_ms = self._store.schedule.now_ms()
        self._next_ms = now_ms + self._settings.interval_ms
        if self.table.rows:
            self._begin(asks=False)
        is_behind = self.table.end < self._store.reader.max_offset(HALF_TOPIC, 0)
        if self._settings.takes_over and is_behind:
            self.taken_over_before = self._store.reader.log_range()[1]
            return self._take_over()
        return None

    async def _take_over(self) -> None:
        try:
            await take_over(self.table, self._store.reader, self._offsets)
            await self.save()
        finally:
            self.taken_over_before = 0
        self._begin(asks=False)

    def on_half(self) -> None:
        """Take that there are more halves: without any, no timer is set."""
        if self._leads and self._is_idle:
            self._is_idle = False
            self._alarm.set(self._settings.interval_ms)

    def _begin(self, *, asks: bool) -> None:
        """Begin a pass."""
        self._is_idle = False
        self._pass = _Pass(self._store.reader.log_range()[1], asks=asks)
        self._alarm.set(0)

    def stop(self) -> None:
        """Ask nobody any more; what is under way the next leader finds in the log, or never.

        Op messages that wait for others are put now, or refused where this replica leads no more.
        """
        self.endings.put_ops()
        self._leads = False
        self.taken_over_before = 0
        self._pass = None
        self._alarm.cancel()

    def run(self) -> None:
        """Do a turn of what is due, and set the timer for the next.

        A half that raises, by its bytes or by those of its producers, is told of and passed over.
        """
        if not self._leads:
            return
        if self.taken_over_before:
            return  # what is told of halves before they are on disk would come again; see start
        try:
            self._run()
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            report_serving_failure("transactions", error)
            if self._leads:
                self._alarm.set(RETRY_MS)

    def _run(self) -> None:
        now_ms = self._store.schedule.now_ms()
        if now_ms < self._seen_ms:  # the clock was put right
            self._since_ms = now_ms
            self._next_ms = min(self._next_ms, now_ms + self._settings.interval_ms)
        self._seen_ms = now_ms
        if self._slow:
            self._retry(now_ms)
        room = self._ask(TURN_MAX, READ_BYTES_MAX)
        if self._pass is None and now_ms >= self._next_ms and not self.asked:
            self._next_ms = now_ms + self._settings.interval_ms
            self.endings.tidy()
            self._begin(asks=True)
        if self._pass is not None and room > 0:
            self._look(self._pass, now_ms, room)
        is_full = self._is_parking_full() or self.asked >= TRANSACTIONS_ASKED_MAX
        if self._to_ask or (self._pass is not None and not is_full):
            self._alarm.set(0)
        elif self._slow:
            self._alarm.set(RETRY_MS)
        elif self._counted:
            return  # a record that ends sets the timer
        elif self.table.rows:
            self._alarm.set(max(0, self._next_ms - now_ms))
        else:
            self._is_idle = True

    def _look(self, current: _Pass, now_ms: int, room: int) -> None:
        """Look at the next rows; what is due is counted, parked, or closed."""
        due: list[Half] = []
        try:
            self._look_at_rows(current, now_ms, room, due)
        finally:
            if due:
                self._count(due)

    def _look_at_rows(self, current: _Pass, now_ms: int, room: int, due: list[Half]) -> None:
        """Park and close what is to be; add to ``due`` whose producers are to be asked."""
        rows = self.table.rows.behind(current.behind, ROWS_MAX)
        first = self._store.reader.log_range()[0]
        done_before = rocketmq_done_before(self._offsets)
        size_bytes = done = 0
        for half in rows:
            if half.physical >= current.until:
                self._pass = None
                break
            if done >= room or size_bytes >= READ_BYTES_MAX:
                break
            before, current.behind = current.behind, half.physical
            if half.asked == COPIED or half.physical < first or half.offset < done_before:
                done += self._close(half, first)
            elif current.asks and self._is_due(half, now_ms):
                done += 1
                if half.asked >= self._settings.check_max:
                    if self._is_parking_full():
                        current.behind = before
                        break
                    size_bytes += self._park(half)
                elif self.asked + len(due) < TRANSACTIONS_ASKED_MAX:
                    due.append(half)
                else:
                    current.behind = before
                    break
        else:
            if len(rows) < ROWS_MAX:
                self._pass = None

    def _is_due(self, half: Half, now_ms: int) -> bool:
        wait_ms = self._settings.timeout_ms
        if half.immunity_s != NO_IMMUNITY:
            wait_ms = min(half.immunity_s * 1_000, max(wait_ms, IMMUNITY_MS_MAX))
        # One that is stored later than now was stamped by a clock that was wrong.
        since_ms = half.stored_ms if half.stored_ms <= now_ms else self._since_ms
        return now_ms - since_ms >= wait_ms and not self.endings.is_under_way(half)

    def _close(self, half: Half, first: int) -> bool:
        """Put the op message of a half that has its end, or can get none any more."""
        if self.endings.is_under_way(half):
            return False
        if half.asked != COPIED:
            reason = "it is in the log no more" if half.physical < first else "RocketMQ did"
            self._tell("event=transaction_closed", half, reason)
        self.endings.finish(half, None, lambda _status: None)
        return True

    def _count(self, due: list[Half]) -> None:
        """Write down how often halves were asked for, and then ask."""
        self._counted += len(due)
        self._store.writer.propose_state(
            StateKind.ASKED.value,
            msgspec.json.encode([(half.offset, half.asked + 1) for half in due]),
            partial(self._on_counted, self._epoch, [half.physical for half in due]),
        )

    def _on_counted(self, epoch: int, places: list[int], status: PutStatus) -> None:
        if epoch != self._epoch or not self._leads:
            return
        self._counted -= len(places)
        is_counted = status is PutStatus.OK or status in LATE
        """A late record waits on and commits after all, as a rule, and nobody is told of that."""
        if is_counted:
            self._to_ask.extend(places)
        self._alarm.set(0 if is_counted else RETRY_MS)

    def _ask(self, room: int, bytes_max: int) -> int:
        """Ask for the next halves; return how many more may be read in this turn."""
        size_bytes = 0
        while self._to_ask and room > 0 and size_bytes < bytes_max:
            half = self.table.rows.find(self._to_ask.popleft())
            if half is None or half.asked == COPIED or self.endings.is_under_way(half):
                continue
            room -= 1
            message = self._read(half)
            said = None if message is None else said_by(message.properties)
            if message is not None and said is not None:
                size_bytes += len(message.body)
                self._send(half, said, message)
        return 0 if size_bytes >= bytes_max else room

    def _retry(self, now_ms: int) -> None:
        """Have those asked who read again; who does not for an interval was asked in vain."""
        if now_ms >= self._next_ms:
            self._slow.clear()
        elif not 0 <= now_ms - self._slow_ms < RETRY_MS:
            self._slow_ms = now_ms
            for group, places in list(self._slow.items()):
                clients = self._producers.clients(group)
                if not clients or not all(client.connection.slow for client in clients):
                    for _ in range(min(RETRIED_MAX, len(places))):
                        self._to_ask.append(places.popleft())
                if not places:
                    del self._slow[group]

    def _send(self, half: Half, said: Said, message: MessageExt) -> None:
        """Ask a live producer of the group that reads, another one each time."""
        topic = said.topic.decode("utf-8", "replace")
        members = self._producers.clients(said.group)
        members = [client for client in members if self.may_hear(client.connection, topic)]
        clients = [client for client in members if not client.connection.slow]
        if members and not clients:
            self._slow.setdefault(said.group, deque()).append(half.physical)
            return
        if not clients:
            reason = f"no client of {shown(said.group)}"
            self._tell("event=transaction_without_producer", half, reason)
            return
        self._asked_first += 1
        client = clients[self._asked_first % len(clients)]
        unique = said.unique_key or None
        header = CheckTransactionHeader(
            half.physical, unique, half.offset, message.offset_message_id(), unique
        )
        client.connection.send(
            RemotingCommand(
                RequestCode.CHECK_TRANSACTION_STATE,
                FLAG_ONEWAY,
                ext_fields=header_fields(header),
                body=question_of(half, said, message),
            )
        )

    def _park(self, half: Half) -> int:
        """Put a half aside whose end nobody knows; return the bytes that were read."""
        message = self._read(half)
        if message is None:
            return 0
        self._tell("event=transaction_parked", half, "nobody knows its end")
        size_bytes = message.size
        self._parking_bytes += size_bytes
        self.endings.finish(half, parked_of(half, message), partial(self._on_parked, size_bytes))
        return size_bytes

    def _is_parking_full(self) -> bool:
        return self._parking_bytes >= PARKING_BYTES_MAX

    def _on_parked(self, size_bytes: int, _status: PutStatus) -> None:
        """Hear that one is put aside, or is not; if it waited for this, the pass goes on."""
        if self._leads and self._pass is not None and self._is_parking_full():
            self._alarm.set(0)
        self._parking_bytes -= size_bytes

    def _tell(self, event: str, half: Half, reason: str) -> None:
        """Log what becomes of a half, unless the same was logged of another one just now."""
        now_ms = self._store.schedule.now_ms()
        told_ms, untold = self._told.get(event, (now_ms - LOG_EVERY_MS, 0))
        if 0 <= now_ms - told_ms < LOG_EVERY_MS:
            self._told[event] = told_ms, untold + 1
            return
        self._told[event] = now_ms, 0
        _log.warning(
            "%s offset=%d physical=%d asked=%d others=%d reason=%r",
            event, half.offset, half.physical, half.asked, untold, reason,
        )  # fmt: skip

    def _read(self, half: Half) -> MessageExt | None:
        record = self._record(half)
        try:
            return None if record is None else decode_record(record)
        except RemoteProtocolError as error:
            _log.error("event=half_unreadable offset=%d error=%s", half.offset, error)
            return None

    def _record(self, half: Half) -> memoryview | None:
        """Return the record of a half; None if it is damaged here, and it is tried again later."""
        try:
            return self._store.reader.message_at(half.physical)
        except DamagedEntry as error:
            _log.warning("event=half_damaged offset=%d error=%s", half.offset, error)
            return None


async def _nothing() -> None:
    """Save nothing: no take-over needs it where a group has the log."""
