"""A master and its slaves: what is acknowledged, what is delivered, what a slave has and says.

Looks at each broker after each of its events, if its log has moved, and at what it answers. The log
itself is `sim.oracles.copies`. Source: docs/replication.md, docs/adr/0019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.modes.master import MasterMode
from broker.modes.slave import SlaveMode
from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.brokers import SUCCESS
from sim.oracles.copies import Book, Copy, Files
from sim.oracles.holders import Holders
from sim.oracles.stream_ends import StreamEnds
from store.plain import PlainLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.controller import BrokerController
    from sim.disk import SimDisk
    from sim.oracles.copies import Line

FLUSH_TIMEOUT, NO_SLAVE, SLAVE_TIMEOUT = 10, 11, 12
STORED: Final = (SUCCESS, FLUSH_TIMEOUT, NO_SLAVE, SLAVE_TIMEOUT)
"""What a send may be told that stored something."""
OFFSET_DIGITS: Final = 16
"""The last ones of an id, in hexadecimal digits."""
FLUSHED_NS: Final = 2_000_000_000
"""After so long what was written with ASYNC_FLUSH is on the disk, if that is as usual."""
STUCK_NS: Final = 200_000_000
"""So long a log may wait for slaves that do not keep up."""
NS_PER_MS: Final = 1_000_000


class Terms(NamedTuple):
    """What master and slaves promise."""

    is_sync: bool
    """Whether the master waits for a slave."""
    slave_timeout_ms: int
    behind_max: int
    segment_bytes: int
    switches: bool
    """Whether who has the most is made the master; if not, what others have is given up."""
    is_synced: dict[str, bool]
    """By broker, whether it promises only what it has synced."""


class Broker:
    """One broker as it is now."""

    def __init__(self, name: str, copy: Copy) -> None:
        self.name = name
        self.copy = copy
        """Its log."""
        self.controller: BrokerController | None = None
        self.is_master = False
        self.is_up = False
        """Whether its log is open, and has been read."""
        self.key: tuple[int, int, int] = (-1, -1, -1)
        self.committed = 0
        self.keeps_up = False
        """Of a master: whether a slave that confirms keeps up, as of its last event."""
        self.stuck_ns = 0
        """Since when it waits for slaves that do not."""
        self.lost_power_ns = 0
        self.is_wiped = False
        self.own_from = 0
        """From where on it has written its log itself, as the master; its tables may have more."""

    @property
    def running(self) -> BrokerController:
        """The production object of its process, or of the last one."""
        assert self.controller is not None
        return self.controller

    @property
    def log(self) -> PlainLog:
        """Likewise its log."""
        log = self.running._mode.log
        assert isinstance(log, PlainLog)
        return log

    @property
    def links(self) -> list[dict[str, Any]]:
        """Of a master, the connections of slaves."""
        mode = self.running._mode
        return mode._ha.status() if isinstance(mode, MasterMode) else []

    @property
    def is_following(self) -> bool:
        """Of a slave, whether it follows a master whose log it has found to be its own."""
        mode = self.running._mode
        return isinstance(mode, SlaveMode) and mode._ha.is_following


class Pair(Holders[Broker]):
    """All oracles about master and slaves.

    Args:
        disks: of the brokers, by name.
        now_ns: the virtual time.
    """

    lost_name = "A1 acknowledged but lost"
    early_name = "A38 acknowledged before a slave had it"
    unsynced_name = "A38 acknowledged before it was synced"
    delivered_name = "A38 counted before a slave had it"
    served_name = "A40 answer of a slave"

    def __init__(
        self,
        disks: dict[str, SimDisk],
        terms: Terms,
        findings: Findings,
        now_ns: Callable[[], int],
        count: Callable[[str], None],
    ) -> None:
        self.terms = terms
        copies = {
            name: Copy(name, Files(disk, terms.segment_bytes)) for name, disk in disks.items()
        }
        self.book = Book(copies)
        self._ends = StreamEnds(self.book)
        brokers = {name: Broker(name, copy) for name, copy in copies.items()}
        super().__init__(brokers, findings, now_ns, count)
        self.replaced: set[tuple[str, int, int]] = set()
        """Places in queues that had messages which were lost, as they may be."""
        self.may_flush_late = False
        """Whether a disk was slow or full: then it is not known what is flushed when."""

    # Lives

    def begin(
        self, name: str, controller: BrokerController, *, is_master: bool
    ) -> Callable[[], None]:
        """Follow a process that starts; return what is to be called after each of its events."""
        broker = self.brokers[name]
        broker.controller, broker.is_master, broker.is_up = controller, is_master, False

        def after_event() -> None:
            if not broker.log._opened:
                return
            if broker.is_up:
                self._look(broker)
            else:
                self._boot(broker)
            self._look_at_ends(broker)

        return after_event

    @guarded
    def _look_at_ends(self, broker: Broker) -> None:
        name = broker.name
        is_synced = self.terms.is_synced[name]
        self._ends.look(name, broker.running, broker.copy, is_synced=is_synced)

    @guarded
    def end(self, name: str) -> None:
        """Read what a process has written last that is killed now."""
        broker = self.brokers[name]
        if broker.is_up and not broker.is_wiped:
            broker.is_up = False
            if broker.is_master:
                for position, data in broker.copy.files.read(broker.copy.end):
                    self._written(broker, position, data)
            self._note_promised(broker)

    def on_power_loss(self, name: str) -> None:
        """A broker that has been killed loses what it has not synced."""
        self.brokers[name].lost_power_ns = self._now_ns()
        if not self.terms.is_synced[name]:
            self.lose_unsynced(name)

    def _boot(self, broker: Broker) -> None:
        log = broker.log
        copy, end = broker.copy, log.end_position
        base = log.first_position
        if broker.is_master:
            self._boot_master(broker, base, end)
        else:
            self.book.reread(copy, base, end)
        broker.is_up = True
        broker.is_wiped = False
        broker.lost_power_ns = 0
        broker.committed = log.committed_position
        broker.key = (-1, -1, -1)
        broker.stuck_ns = 0
        self._look(broker)

    def _boot_master(self, broker: Broker, base: int, end: int) -> None:
        """Read the log of a master that has just started: it is what it was, but for its end."""
        copy, line = broker.copy, self.book.line
        held = dict(copy.files.read(base, end))
        copy.forget(base)
        for position, data in held.items():
            row = line.rows.get(position)
            if row is None:
                line.add(position, data, self._now_ns())  # written by a call that was its last
            elif row.data != data:
                raise Violation(
                    "A34 master's log",
                    f"{broker.name} has another record at {position} than it had",
                )
            copy.add(position, line.rows[position])
        if copy.end < line.end:
            self._lose(broker, copy.end)
        copy.lines = {self.book.line.number}
        copy.is_damaged = False

    def _lose(self, broker: Broker, end: int) -> None:
        """A master has lost the end of its log. Errors: `Violation`: it may not."""
        left = self.book.fork(end)
        broker.own_from = max(broker.own_from, end)
        if broker.is_wiped:
            self._judge_lost(left, end, self._kept_ns(broker))
            return
        if not broker.lost_power_ns:
            raise Violation(
                self.lost_name, f"{broker.name} was not without power, and its log ends at {end}, "
                f"not at {left.end}", node=broker.name,
            )  # fmt: skip
        if self.terms.is_synced[broker.name]:
            for other in self.brokers.values():
                if other is not broker and left.number in other.copy.lines and other.copy.end > end:
                    raise Violation(
                        "A38 sent before it was synced",
                        f"{other.name} has the log of {broker.name} up to {other.copy.end}, and "
                        f"that has lost what it had from {end} on",
                    )
        self._count("ends_lost")
        self._judge_lost(left, end, self._kept_ns(broker))

    def promote(self, name: str) -> None:
        """An operator makes a slave the master, whose log is whole and the longest."""
        copy = self.brokers[name].copy
        left = self.book.take_up(copy)
        self.brokers[name].own_from = copy.end
        self._count("switches")
        self._judge_lost(left, copy.end, self._now_ns() if self.terms.is_sync else -1)
        copy.is_damaged = False

    @guarded
    def _judge_lost(self, left: Line, end: int, kept_ns: int) -> None:
        """Judge what was acknowledged behind the end of what is left.

        ``kept_ns``: what was acknowledged until then is not to be lost.
        """
        lost = {at: ns for at, ns in left.acknowledged.items() if at >= end}
        self.replaced |= {(*row.queue, row.offset) for at, row in left.rows.items() if at >= end}
        for at, told_ns in sorted(lost.items()):
            if told_ns <= kept_ns:
                raise Violation(
                    self.lost_name,
                    f"what lies at {at} was told SEND_OK {(self._now_ns() - told_ns) // NS_PER_MS} "
                    f"ms before the master had lost all from {end} on",
                )
        if lost:
            self._count("acknowledged_and_lost")

    def _kept_ns(self, broker: Broker) -> int:
        """Return until when what was acknowledged is kept by a master that has lost something.

        A synchronous one's is on the slave that is made the master then, if the operator does that.
        """
        if self.terms.is_sync and self.terms.switches:
            return self._now_ns()
        if broker.is_wiped:
            return -1
        if self.terms.is_synced[broker.name]:
            return self._now_ns()
        return -1 if self.may_flush_late else broker.lost_power_ns - FLUSHED_NS

    # Looks

    def running(self) -> Iterator[tuple[str, BrokerController]]:
        """Yield the brokers that serve."""
        for broker in self.brokers.values():
            if broker.is_up and broker.running._started:
                yield broker.name, broker.running

    @guarded
    def _look(self, broker: Broker) -> None:
        log = broker.log
        key = (log.end_position, log.own_position, log.committed_position)
        if key == broker.key and not broker.is_master:
            return
        copy = broker.copy
        if key[0] > copy.end:
            if broker.is_master:
                for position, data in copy.files.read(copy.end, key[0]):
                    self._written(broker, position, data)
            else:
                # A slave that begins with the last file of its master may not have made it yet.
                first = log.first_position if copy.files.is_there() else key[0]
                if copy.end == 0 and first:
                    copy.forget(first)
                begin = copy.end
                self.book.follow(copy, key[0])
                self._check_synced(broker, begin)
                self._check_repaired(broker)
        broker.key = key
        if broker.is_master:
            self._check_counted(broker, key[1], key[2])

    def _written(self, broker: Broker, position: int, data: bytes) -> None:
        line = self.book.line
        line.add(position, data, self._now_ns())
        broker.copy.add(position, line.rows[position])

    def _check_synced(self, broker: Broker, begin: int) -> None:
        """What a slave has got of a master with SYNC_FLUSH, that one cannot lose with its power."""
        master = next((one for one in self.brokers.values() if one.is_master and one.is_up), None)
        if master is None or master.copy.is_damaged or not self.terms.is_synced[master.name]:
            return
        if not self.book.is_of_line(broker.copy):
            return
        line = self.book.line
        for position in line.between(begin, broker.copy.end):
            if not master.copy.files.is_durable(position, len(line.rows[position].data)):
                raise Violation(
                    "A38 sent before it was synced",
                    f"{broker.name} has what lies at {position}, and {master.name} may lose it now",
                )

    def _check_repaired(self, broker: Broker) -> None:
        """A slave that has all that the master has, and began where it does, is whole again."""
        book, copy = self.book, broker.copy
        is_level = copy.end >= book.line.end and book.is_of_line(copy)
        if copy.is_damaged and is_level and copy.base == 0:
            copy.is_damaged = False

    def _note_promised(self, broker: Broker) -> None:
        """Note what a slave has that may lose it now."""
        copy = broker.copy
        if broker.is_master:
            return
        end = copy.end
        if self.terms.is_synced[broker.name]:
            end = copy.base
            for position, data in copy.files.read(copy.base, copy.end):
                if not copy.files.is_durable(position, len(data)):
                    break
                end = position + len(data)
        if copy.base == 0:
            self.book.note_copied(copy, end)

    def _check_counted(self, broker: Broker, own: int, committed: int) -> None:
        """Judge what a synchronous master counts as committed: a slave has it, or none is there."""
        if not self.terms.is_sync:
            broker.committed = committed
            return
        before, broker.keeps_up = broker.keeps_up, self._keeps_up(broker)
        if committed > broker.committed:
            line = self.book.line
            for position in line.between(broker.committed, committed):
                data = line.rows[position].data
                keeps_up = before and broker.keeps_up
                if not self._is_explained(broker, position, data, keeps_up=keeps_up):
                    raise Violation(
                        self.delivered_name,
                        f"{broker.name} counts what lies at {position}: no slave has it, one that "
                        f"keeps up is there, and {self._waited_ms(position)} ms have passed",
                    )
            broker.committed = committed
        is_stuck = own > committed and not broker.keeps_up and not before
        now_ns = self._now_ns()
        if not is_stuck:
            broker.stuck_ns = 0
        elif not broker.stuck_ns:
            broker.stuck_ns = now_ns
        elif now_ns - broker.stuck_ns > STUCK_NS:
            raise Violation(
                "A41 waits for no slave",
                f"{broker.name} has counted nothing behind {committed} for "
                f"{(now_ns - broker.stuck_ns) // NS_PER_MS} ms, and no slave keeps up",
            )

    def _is_explained(self, broker: Broker, position: int, data: bytes, *, keeps_up: bool) -> bool:
        if not keeps_up or self._waited_ms(position) >= self.terms.slave_timeout_ms:
            return True
        return self._is_copied(broker, position, len(data))

    def _waited_ms(self, position: int) -> int:
        return (self._now_ns() - self.book.line.written_ns.get(position, 0)) // NS_PER_MS

    def _is_copied(self, broker: Broker, position: int, size: int) -> bool:
        is_synced = self.terms.is_synced
        return self.book.is_copied(position, size, master=broker.name, is_synced=is_synced)

    def _keeps_up(self, broker: Broker) -> bool:
        """Tell whether a slave confirms to a master, and lacks less than what is allowed."""
        end = broker.log.end_position
        return any(
            link["confirms"] and end - link["position"] < self.terms.behind_max
            for link in broker.links
        )

    # What is answered

    def on_stored(self, name: str, code: int, position: int) -> None:
        """A master answers a send: what it says of where it lies is so. Errors: `Violation`."""
        broker, line = self.brokers[name], self.book.line
        row = line.rows.get(position)
        if row is None or not broker.is_master:
            raise Violation(
                self.lost_name, f"{name} answers {code} for what is not in its log at {position}"
            )
        size = len(row.data)
        if code != SUCCESS:
            self._count({FLUSH_TIMEOUT: "told_10", NO_SLAVE: "told_11"}.get(code, "told_12"))
            return
        if self.terms.is_synced[name] and not broker.copy.files.is_durable(position, size):
            raise Violation(
                self.unsynced_name, f"{name} answers SEND_OK for {position}, {size} bytes"
            )
        if self.terms.is_sync and not self._is_copied(broker, position, size):
            ends = {one.name: one.copy.end for one in self.brokers.values() if one is not broker}
            raise Violation(
                self.early_name,
                f"{name} answers SEND_OK for {position}, {size} bytes; slaves have {ends}",
            )
        line.acknowledged[position] = self._now_ns()

    def on_served(self, name: str, records: bytes) -> None:
        """A broker hands out records: they are those of its log, and count. Errors: `Violation`."""
        log = self.brokers[name].log
        end = log.committed_position
        for position, size in self.handed_out(name, records, self.book.is_on_line):
            if position + size > min(end, log.own_position):
                raise Violation(
                    self.served_name,
                    f"{name} hands out what lies at {position}, {size} bytes; what it has as it "
                    f"promises ends at {log.own_position}, what counts at {end}",
                )
