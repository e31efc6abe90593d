"""Brokers that controllers switch: what is acknowledged, read, kept and cut, after each event.

What counts must be on the disk of every replica of the in-sync set that the controllers have
decided, and stays in the log of every later master. Logs are read from the bytes on the disks, sets
and epochs from the decisions; what brokers believe of them is not asked.
Source: docs/replication.md, automatic switch; docs/adr/0020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.modes.assignment import AsMaster
from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.brokers import SUCCESS
from sim.oracles.holders import Holders
from sim.oracles.stream_ends import StreamEnds
from sim.switch.lines import EpochLine, Lines
from sim.switch.replica import NONE, Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.controller import BrokerController
    from broker.switch.broker import SwitchingBroker
    from namesrv.controller.state import Group
    from sim.context import Process
    from sim.disk import SimDisk
    from sim.oracles.copies import Row
    from sim.switch.decisions import Decisions
    from sim.switch.lease import Lease

NS_PER_MS: Final = 1_000_000


class Kept:
    """A record that somebody was told is stored, or was handed."""

    __slots__ = ("how", "row", "told_ns")

    def __init__(self, row: Row, how: str, told_ns: int) -> None:
        self.row, self.how, self.told_ns = row, how, told_ns


class Tables(Protocol):
    """What judges the tables of brokers; see `sim.switch.tables.SwitchTables`."""

    def forget(self, name: str) -> None:
        """Take that a broker ends, or its role does."""
        ...

    def on_event(self, name: str) -> None:
        """Look at a broker."""
        ...

    def on_counted(self, position: int, row: Row) -> None:
        """Take that a record counts."""
        ...


class Replicas(Holders[Replica]):
    """All oracles about the logs of brokers that controllers switch.

    Args:
        disks: of the brokers, by name.
        is_synced: by broker, whether it promises only what it has synced.
        broker_at: returns the host of a ``host:port``.
        now_ns: the virtual time.
    """

    lost_name = "A1 acknowledged or read, but lost"
    early_name: Final = "A38 counted before the in-sync set had it"
    unsynced_name: Final = "A38 counted before it was synced"
    served_name = "A40 answer of a replica"
    fence_name: Final = "A30 two masters of one epoch"
    epochs_name: Final = "A34 epochs of a log"
    short_name: Final = "A36 elected without the end of its log"
    doubt_name: Final = "A36 in doubt without a loss of power"
    confirmed_name: Final = "A38 confirmed over another connection"
    grown_name: Final = "A36 in sync without what was acknowledged"

    def __init__(  # noqa: PLR0913 - what a world knows
        self,
        disks: dict[str, SimDisk],
        is_synced: dict[str, bool],
        segment_bytes: int,
        findings: Findings,
        *,
        broker_at: Callable[[str], str],
        now_ns: Callable[[], int],
        count: Callable[[str], None],
    ) -> None:
        brokers = {
            name: Replica(name, disk, segment_bytes, is_synced=is_synced[name])
            for name, disk in disks.items()
        }
        super().__init__(brokers, findings, now_ns, count)
        self._broker_at = broker_at
        self.book = Lines({name: one.copy for name, one in self.brokers.items()})
        self._ends = StreamEnds(self.book)
        self.decisions: Decisions
        """Set by who makes this."""
        self.lease: Lease
        """Likewise."""
        self.tables: Tables
        """Likewise."""
        self.kept: dict[int, Kept] = {}
        """By position, what may never be lost."""
        self.replaced: set[tuple[str, int, int]] = set()
        """Places in queues whose messages were lost, as they may be."""
        self.in_force: frozenset[int] = frozenset()
        """Ids of who was in sync when the last master that took office was followed by another."""
        self.was_in_doubt = False
        """Whether all of those may have lacked the end of their log before the last election."""
        self.excused = 0
        """How many times a master began that had lost something, as it may."""

    # Lives

    def begin(self, name: str, switching: SwitchingBroker, process: Process) -> Callable[[], None]:
        """Follow a process that starts; return what is to be called after each of its events."""
        broker = self.brokers[name]
        broker.process = process
        broker.switching, broker.controller, broker.is_up = switching, None, False

        def after_event() -> None:
            self.lease.on_event(name)
            if switching.running is not broker.controller:
                broker.controller, broker.is_up, broker.line = switching.running, False, None
                self.tables.forget(name)
            if broker.controller is None or not broker.has_begun:
                return
            if broker.is_up:
                self._look(broker)
            else:
                self._boot(broker)
            self._look_at_tables(name)
            self._look_at_ends(broker)
            if broker.is_master:
                self._look_at_confirmed(broker)

        return after_event

    @guarded
    def end(self, name: str) -> None:
        """Read what a process has written last that is killed now."""
        broker = self.brokers[name]
        line = broker.line
        self.tables.forget(name)
        if broker.is_up and not broker.is_wiped and line is not None:
            for position, data in broker.copy.files.read(broker.copy.end):
                self._written(broker, line, position, data)
        broker.is_up, broker.controller, broker.switching, broker.line = False, None, None, None

    def on_power_loss(self, name: str) -> None:
        """A broker that has been killed loses what it has not synced."""
        broker = self.brokers[name]
        if not broker.is_synced:
            broker.may_lack_end = True
            self.lose_unsynced(name)

    def _boot(self, broker: Replica) -> None:
        """Read a log that was just opened, in whatever role."""
        log, copy = broker.log, broker.copy
        self.book.reread(copy, log.first_position, log.end_position)
        broker.is_up, broker.is_wiped = True, False
        broker.key = NONE
        # A master opens with what it has; all of that counts in its epoch.
        broker.committed = copy.end if broker.is_master else log.committed_position
        self._check_epochs(broker, copy.base)
        self._check_members(self.members(), "opens its log")
        if broker.is_master:
            self._begin_epoch(broker)
        self._look(broker)

    def _begin_epoch(self, broker: Replica) -> None:
        """A master begins. Errors: `Violation`: it may not, or lacks what was acknowledged."""
        epoch, other = broker.epoch, self.book.of_epoch(broker.epoch)
        if other is not None:
            raise Violation(self.fence_name, f"{broker.name} begins epoch {epoch} again")
        decided = self.decisions.masters.get(epoch)
        if decided != broker.disk_id:
            raise Violation(
                self.fence_name,
                f"{broker.name} has id {broker.disk_id} and is master in epoch {epoch}, of which "
                f"{decided} is the master",
            )
        self._check_kept(broker)
        broker.may_lack_end = False
        broker.line = self.book.begin(epoch, broker.copy)
        broker.copy.lines = {broker.line.number}
        broker.copy.is_damaged = False
        self._count("epochs")
        if _with_something(broker.epochs_on_disk()) != list(broker.line.starts):
            raise Violation(
                self.epochs_name,
                f"{broker.name} begins with the epochs {broker.line.starts}, and has synced "
                f"{broker.epochs_on_disk()}",
            )

    def _check_kept(self, broker: Replica) -> None:
        """A new master has all that counted, unless its disk has lost it."""
        copy = broker.copy
        lost = [at for at, one in self.kept.items() if not self.book.has(copy, at, one.row.data)]
        if not lost:
            return
        first = min(lost)
        one = self.kept[first]
        if not copy.is_damaged and not self.was_in_doubt:
            raise Violation(
                self.lost_name,
                f"{broker.name} begins epoch {broker.epoch} with a log that ends at {copy.end}; "
                f"what lies at {first} was {one.how} "
                f"{(self._now_ns() - one.told_ns) // NS_PER_MS} ms before",
            )
        self._check_nobody_has_it(broker, first)
        self.excused += 1
        self._count("ends_lost")
        for at in lost:
            row = self.kept.pop(at).row
            self.replaced.add((*row.queue, row.offset))
        for line in self.book.lines:
            self.replaced |= {
                (*row.queue, row.offset) for at, row in line.rows.items() if at >= first
            }

    def _check_nobody_has_it(self, broker: Replica, first: int) -> None:
        """No other one that was in sync has what a new master has lost. Errors: `Violation`."""
        row = self.kept[first].row
        for other in self.brokers.values():
            is_whole = not (other.copy.is_damaged or other.may_lack_end)
            if self.was_in_doubt:  # one that was in sync ran, and was compared
                is_whole = self.book.has(other.copy, first, row.data)
            if other is not broker and other.disk_id in self.in_force and is_whole:
                raise Violation(
                    self.short_name,
                    f"{broker.name} begins epoch {broker.epoch} with a log that ends at "
                    f"{broker.copy.end}: it has lost what lies at {first} with its power, and "
                    f"{other.name}, which was in sync, has not",
                )

    # Looks

    @guarded
    def _look_at_ends(self, broker: Replica) -> None:
        self._ends.look(broker.name, broker.running, broker.copy, is_synced=broker.is_synced)

    @guarded
    def _look_at_tables(self, name: str) -> None:
        self.tables.on_event(name)

    @guarded
    def _look(self, broker: Replica) -> None:
        log, copy = broker.log, broker.copy
        key = (log.end_position, log.own_position, log.committed_position)
        if key == broker.key:
            return
        begin = copy.end
        if key[0] > begin:
            if broker.line is not None:
                for position, data in copy.files.read(begin, key[0]):
                    self._written(broker, broker.line, position, data)
            else:
                if begin == 0 and log.first_position:
                    copy.forget(log.first_position)
                self.book.follow(copy, key[0])
                self._check_followed(broker)
                self._check_repaired(broker)
            self._check_epochs(broker, begin)
        broker.key = key
        self._check_counted(broker, key[2])

    @staticmethod
    def _written(broker: Replica, line: EpochLine, position: int, data: bytes) -> None:
        line.add(position, data, 0)
        broker.copy.add(position, line.rows[position])

    def _check_followed(self, broker: Replica) -> None:
        """What a slave has taken is the log of the master of the epoch that it follows."""
        line = self.book.of_epoch(broker.epoch)
        if line is None or line.number not in broker.copy.lines:
            raise Violation(
                self.book.diverged_name,
                f"{broker.name} follows the master of epoch {broker.epoch}, and its log, up to "
                f"{broker.copy.end}, is not the beginning of that one's",
                node=broker.name,
            )

    def _check_repaired(self, broker: Replica) -> None:
        """A slave that has all that its master has is whole again."""
        copy, line = broker.copy, self.book.of_epoch(broker.epoch)
        if copy.is_damaged and not copy.base and line is not None and copy.end >= line.end:
            copy.is_damaged = False

    def _check_epochs(self, broker: Replica, begin: int) -> None:
        """The epochs on a disk say of each record under which master it was written."""
        copy, found = broker.copy, broker.epochs_on_disk()
        line = self.book.lines[max(copy.lines)] if broker.line is None else broker.line
        assert isinstance(line, EpochLine), line
        for position in line.between(begin, copy.end):
            told = next((one for one, start in reversed(found) if start <= position), 0)
            if told != line.epoch_at(position):
                raise Violation(
                    self.epochs_name,
                    f"{broker.name} has synced the epochs {found}, and what lies at {position} was "
                    f"written in epoch {line.epoch_at(position)}",
                )

    def _check_counted(self, broker: Replica, committed: int) -> None:
        """What a broker counts as committed it dispatches: the whole in-sync set has it."""
        if committed <= broker.committed:
            return
        begin, broker.committed = broker.committed, committed
        line = broker.line or self.book.of_epoch(broker.epoch)
        if line is None:
            return
        for position in line.between(begin, committed):
            row = line.rows[position]
            self._check_held(broker, row, position, "counts")
            self.tables.on_counted(position, row)

    @guarded
    def _look_at_confirmed(self, broker: Replica) -> None:
        """What a slave counts as having confirmed it has told since it is connected.

        Over another connection it may have confirmed what it has lost since, with its power.
        """
        mode: Any = broker.running.mode
        followers = mode._ha._in_sync._followers
        for link in mode._ha._links:
            found = followers.get(getattr(link, "slave_id", 0))
            told = link.position if link.is_confirming else 0
            if found is not None and found.confirmed > told:
                raise Violation(
                    self.confirmed_name,
                    f"{broker.name} counts {found.confirmed} as confirmed by {link.slave_id}, "
                    f"which has told it {told} over this connection",
                    node=broker.name,
                )

    # Who has what

    def running(self) -> Iterator[tuple[str, BrokerController]]:
        """Yield the brokers that serve in some role."""
        for broker in self.brokers.values():
            if broker.is_up and broker.running._started:
                yield broker.name, broker.running

    def members(self, group: Group | None = None) -> Iterator[Replica]:
        """Yield the in-sync replicas by the last decision whose disks are whole."""
        group = group or self.decisions.group
        if group is None:
            return
        for one in group.in_sync:
            broker = self.brokers[self._broker_at(group.replicas[one].address)]
            if broker.disk_id == one and not broker.copy.is_damaged:
                yield broker

    def unsettled(self) -> str:
        """Return which master waits for an answer about its in-sync set; nothing if none does."""
        for broker in self.brokers.values():
            role = None if broker.switching is None else broker.switching.role
            if isinstance(role, AsMaster) and (role.in_sync.asked or role.in_sync.is_unclear):
                return f"{broker.name} waits for another in-sync set"
        return ""

    def _check_held(self, broker: Replica, row: Row, position: int, what: str) -> None:
        """Each in-sync replica has a record that counts now. Errors: `Violation`."""
        size = len(row.data)
        for member in self.members():
            if not self.book.has(member.copy, position, row.data):
                raise Violation(
                    self.early_name,
                    f"{broker.name} {what} what lies at {position}, {size} bytes, in epoch "
                    f"{broker.epoch}; {member.name} is in sync, and its log ends at "
                    f"{member.copy.end} or is another",
                )
            # A start that hangs writes again what it has read, and what is there stays.
            is_due = member.is_synced and not member.hangs
            if is_due and not member.copy.files.is_durable(position, size):
                raise Violation(
                    self.unsynced_name,
                    f"{broker.name} {what} what lies at {position}, {size} bytes; {member.name} "
                    "has SYNC_FLUSH, and may lose it now",
                )

    def _keep(self, position: int, row: Row, how: str) -> None:
        """Take that a record must not be lost from now on. Errors: `Violation`."""
        known = self.kept.setdefault(position, Kept(row, how, self._now_ns()))
        if known.row.data != row.data:
            raise Violation(
                self.lost_name,
                f"what lies at {position} is {how}; another record there was {known.how} before",
            )

    @guarded
    def on_decided(self, before: Group | None, after: Group) -> None:
        """The controllers have changed something: whoever is in sync has what counted."""
        self._note_change(before, after)
        if before is not None and before.in_sync == after.in_sync:
            return
        if before is not None and before.master_epoch == after.master_epoch:
            grown = len(after.in_sync) > len(before.in_sync)
            self._count("sets_grown" if grown else "sets_shrunk")
        self._check_members(self.members(after), "is let in, or stays,")

    def _note_change(self, before: Group | None, after: Group) -> None:
        """Remember whose log counted last, and who has been let in."""
        if before is None:
            return
        if before.master_epoch < after.master_epoch:
            self._check_doubt(before)
            if self.book.of_epoch(before.master_epoch) is not None:
                self.in_force = frozenset(before.in_sync)
                self.was_in_doubt = False
            self.was_in_doubt = self.was_in_doubt or before.in_doubt
            return
        came = set(after.in_sync) - {*before.in_sync, *before.reserve}
        for broker in self.brokers.values():
            if broker.disk_id in came:
                broker.may_lack_end = False

    def _check_doubt(self, group: Group) -> None:
        """Controllers doubt only a set of which everybody has lost its power. Errors: `Violation`.

        Then alone somebody else may be elected, and what was acknowledged be lost.
        """
        members = [one for one in self.brokers.values() if one.disk_id in group.in_sync]
        whole = [one.name for one in members if not (one.may_lack_end or one.copy.is_damaged)]
        if group.in_doubt and whole:
            raise Violation(
                self.doubt_name, f"{group.in_sync} are in doubt, and {whole[0]} has kept its power"
            )

    def _check_members(self, members: Iterable[Replica], what: str) -> None:
        """Whoever is in sync has all that counted: its log is the beginning of a master's."""
        last = max(self.kept, default=None)
        if last is None:
            return
        kept = self.kept[last]
        for member in members:
            if not self.book.has(member.copy, last, kept.row.data):
                raise Violation(
                    self.grown_name,
                    f"{member.name} {what} and is in sync; its log ends at {member.copy.end}, and "
                    f"what lies at {last} was {kept.how}",
                )

    # What is answered

    def on_stored(self, name: str, code: int, position: int) -> None:
        """A broker answers a send. Errors: `Violation`."""
        broker = self.brokers[name]
        line = broker.line
        row = None if line is None else line.rows.get(position)
        if row is None:
            raise Violation(
                self.lost_name,
                f"{name} answers {code} for {position}, which its log does not have as a master's",
            )
        if code != SUCCESS:
            self._count(f"told_{code}")
            return
        self._check_held(broker, row, position, "acknowledges")
        self.lease.check(name)
        self._keep(position, row, "acknowledged")

    def on_served(self, name: str, records: bytes) -> None:
        """A broker hands out records: they are its log's, and count. Errors: `Violation`."""
        broker = self.brokers[name]
        for position, _ in self.handed_out(name, records, self.book.has):
            line = self.book.lines[max(broker.copy.lines)]
            row = line.rows[position]
            if position not in self.kept:
                self._check_held(broker, row, position, "hands out")
            self._keep(position, row, "handed out")


def _with_something(epochs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the epochs of a log without a first one that ends where it begins.

    An empty log keeps that one, for former masters of it to know that it has nothing of theirs.
    """
    is_empty = len(epochs) > 1 and epochs[0][1] == epochs[1][1]
    return epochs[1:] if is_empty else epochs
