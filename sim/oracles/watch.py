"""The watch: called after every event, it looks at the replica that ran, if anything changed.

A look costs one tuple when nothing has. Source: TigerBeetle VOPR's checkers; spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    Rejoined,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import LEADER
from sim.clock import latest_stamp_ms
from sim.oracles.applied import Applied, Monotonic
from sim.oracles.base import Findings, Oracle, Violation
from sim.oracles.brokers import Brokers
from sim.oracles.compared import Compared
from sim.oracles.cutting import oracles_of_files
from sim.oracles.durable import Durable
from sim.oracles.election import ElectionSafety, Votes
from sim.oracles.following import LOOK_TICKS, Following
from sim.oracles.healthy import Healthy
from sim.oracles.in_force import InForce
from sim.oracles.leadership import (
    Amnesia,
    Changes,
    Elected,
    HandOver,
    Invariants,
    Matches,
    Tenure,
)
from sim.oracles.log import Commits, LeaderCompleteness, LogMatching
from sim.oracles.manners import Manners
from sim.oracles.noting import Noting
from sim.oracles.offsets_kept import OffsetsKept
from sim.oracles.pace import FatalFailure, FlushLag, HungDisk
from sim.oracles.promotion import Promotion
from sim.oracles.reading import Reading
from sim.oracles.remembered import Remembered
from sim.oracles.replica import NO_KEY, Change, Damaged, Key, Replica
from sim.oracles.restarting import Restarting
from sim.oracles.serving import Serving
from sim.oracles.steps import Steps
from sim.oracles.tables import Tables
from sim.oracles.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.controller import BrokerController
    from dledger.core.messages import Message
    from sim.clock import SimClock


DRIFT_AFTER_CORRECTION_MS: Final = 61_000
"""A clock that is corrected by what others showed may drift on, until it is apart from them."""
ANSWER_TICKS: Final = 20
"""How often it is asked whether a leader owes answers."""
PLAIN: Final = (Append, Heartbeat, HeartbeatReply)
"""Messages that promise nothing of their sender's but its term."""


class Watch:
    """All oracles over the replicas of one group.

    Args:
        names: the brokers, those that may join later included.
        voters: the first voters.
        is_sync: whether the group flushes before it acknowledges.
        polite: addresses of clients that say what they mean.
        on_change: hears of each change, for the trace.
        on_message: hears of each message that leaves, likewise.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        voters: tuple[str, ...],
        *,
        is_sync: bool,
        polite: frozenset[str] = frozenset(),
        on_change: Callable[[Replica, Change], None],
        on_message: Callable[[Replica, Message], None] | None = None,
    ) -> None:
        self.findings = Findings()
        self.replicas = {name: Replica(name, 1 << at) for at, name in enumerate(names)}
        self.truth = Truth(voters)
        self.elections, self.votes = ElectionSafety(), Votes()
        self.elected, self.amnesia = Elected(self.truth), Amnesia(self.truth)
        self.tenure = Tenure(self.truth)
        self.matches = Matches()
        self.compared = Compared(self.replicas)
        self.durable = Durable(self.truth, self.replicas, is_sync=is_sync)
        bits = {name: replica.bit for name, replica in self.replicas.items()}
        self.on_ticks: list[Callable[[Replica], None]] = []
        """Hear of a leader, now and then."""
        self._on_change = on_change
        self._on_say = on_message
        for replica in self.replicas.values():
            replica.known = self.truth.marks
        self.invariants, self.monotonic = Invariants(), Monotonic()
        self.log_matching = LogMatching(self.truth, keeps_unsynced=is_sync)
        self.commits = Commits(self.truth, bits, is_sync=is_sync)
        self.changes, self.in_force = Changes(self.truth), InForce(self.truth)
        self.promotion = Promotion(self.truth)
        self.applied, self.tables = Applied(self.truth), Tables(self.truth)
        self.brokers = Brokers(self.truth, self.tables, polite)
        self.healthy, self.following = Healthy(self.truth), Following(self.truth, self.replicas)
        self.hand_over, self.manners = HandOver(), Manners(self.truth)
        self.offsets_kept = OffsetsKept(self.truth)
        self.flush_lag, self.hung_disk = FlushLag(), HungDisk()
        self.fatal_failure, self.remembered = FatalFailure(), Remembered()
        self.serving, self.noting = Serving(self.findings), Noting()
        self.steps, self.restarting = Steps(self.findings, self.truth), Restarting(self.findings)
        self.reading = Reading(self.truth, self.findings)
        self._oracles: tuple[Oracle, ...] = (
            self.elections,
            self.votes,
            self.elected,
            self.amnesia,
            self.durable,
            self.invariants,
            self.remembered,
            self.monotonic,
            self.log_matching,
            LeaderCompleteness(self.truth),
            self.commits,
            self.changes,
            self.in_force,
            self.promotion,
            self.applied,
            self.tables,
            self.healthy,
            self.hand_over,
            self.manners,
            self.flush_lag,
            self.fatal_failure,
            self.serving,
            self.reading,
            self.noting,
            *oracles_of_files(self.findings, self.replicas),
            self.steps,
            self.restarting,
        )

    def tell_time(
        self, now_ns: Callable[[], int], clocks: Sequence[SimClock], *, is_told: bool
    ) -> None:
        """Let the oracles know the time, and what the clocks of brokers show.

        ``is_told``: whether members tell each other their clocks.
        """
        self.truth.now_ns = now_ns
        self.truth.latest_ms = lambda: latest_stamp_ms(clocks)
        if is_told:
            self.truth.ahead_ms = DRIFT_AFTER_CORRECTION_MS

    def begin(self, name: str, controller: BrokerController, incarnation: int) -> Replica:
        """Follow a process that starts."""
        replica = self.replicas[name]
        replica.controller = controller
        replica.node = controller.node
        replica.incarnation = incarnation
        replica.is_up = replica.is_leaving = False
        return replica

    def excuse_corruption(self, name: str) -> None:
        """Take that bytes on a disk have just been damaged on purpose."""
        self.replicas[name].mark_corrupt()
        self.truth.may_fall = True

    def looking_at(self, replica: Replica) -> Callable[[], None]:
        """Return what is to be called after each event of its process. Errors: `Violation`."""
        node, look = replica.node, self._look
        check_matches, check_tick = self.matches.on_event, self._check_tick

        def after_event() -> None:
            if not (replica.is_up and node._opened):
                if node._opened:
                    self._boot(replica)
                replica.is_up = node._opened
                return
            state = replica.state
            log = state.log
            key = (  # what `Replica.read_key` returns: a call would cost as much
                state.role,
                state.term,
                log.commit_index,
                replica.store.last_index,
                log.last_term,
                replica.applied_index,
                state.delivered_index,
            )
            if state.role is LEADER:
                if replica.tick != state.tick:
                    replica.tick = state.tick
                    check_tick(replica)
                check_matches(replica)
            if key != replica.key:
                look(replica, key)
            if replica.deferred:
                self._check_deferred(replica)

        return after_event

    @staticmethod
    def _check_deferred(replica: Replica) -> None:
        deferred, replica.deferred = replica.deferred, []
        for validator in deferred:
            validator()

    def _check_tick(self, replica: Replica) -> None:
        """Look at a leader, once a tick."""
        self.tenure.on_event(replica)
        self.hand_over.on_tick(replica)
        self.hung_disk.on_tick(replica)
        self.serving.on_tick(replica)
        self.brokers.taking.on_tick(replica)
        if not replica.tick % LOOK_TICKS:
            self.following.on_tick(replica)
        if not replica.tick % ANSWER_TICKS:
            self.brokers.on_tick(replica)
            self.offsets_kept.on_tick(replica)
            for look in self.on_ticks:
                look(replica)

    def check_end(self, name: str) -> None:
        """Look at what a process leaves behind that is about to be killed."""
        replica = self.replicas[name]
        if replica.is_up and replica.node._opened:
            try:
                self.durable.on_kill(replica)
                self.noting.on_kill(replica)
            except Exception as error:  # noqa: BLE001 - the caller is the nemesis
                self.findings.report(error)

    def look_again(self, name: str) -> None:
        """Read the whole log of a replica once more, at the end of a run. Errors: `Violation`."""
        replica = self.replicas[name]
        self.steps.at_end()
        self.tables.at_end(replica)
        if replica.is_up and not replica.is_corrupt:
            self.noting.check_install(replica)
            known = replica.marks
            base = replica.base
            self._read(replica)
            if known[max(0, replica.base - base) :] != replica.marks:
                raise Violation(
                    "A34 log matching", f"the log of {name} is not what it was", node=name
                )

    def _boot(self, replica: Replica) -> None:
        replica.is_up = True
        replica.boot_ns = self.truth.now_ns()
        replica.deferred = []
        replica.attach()
        driver = replica.node._driver
        send, validator, report = driver._send, self._on_message, self.findings.report

        def tapped(message: Message) -> None:
            try:
                validator(replica, message)
            except Exception as error:  # noqa: BLE001 - the caller is production's code
                report(error)
            send(message)

        driver._send = tapped
        self.brokers.early.on_boot(replica)
        self._read(replica)
        for oracle in self._oracles:
            oracle.on_boot(replica)
        self.hung_disk.on_boot(replica)
        replica.is_wiped = replica.lost_power = False
        replica.key = (*NO_KEY[:1], *replica.read_key()[1:])
        self._look(replica, replica.read_key())

    def _look(self, replica: Replica, key: Key) -> None:
        try:
            kept, old_last = replica.follow()
        except Damaged as error:
            self._damaged(replica, error)
            kept = old_last = replica.last_index
        before = replica.key
        change = Change(before, key, kept, old_last)
        replica.key = key
        self._on_change(replica, change)
        if before[0] is key[0] and before[1] == key[1]:
            self._check_work(replica, change)
        else:
            for oracle in self._oracles:
                oracle.on_change(replica, change)

    def _check_work(self, replica: Replica, change: Change) -> None:
        """Ask those oracles that can have something to say while role and term are as before."""
        before, now, kept, old_last = change
        self.durable.on_change(replica, change)
        self.invariants.on_change(replica, change)
        self.steps.on_change(replica, change)
        self.restarting.on_change(replica, change)
        self.fatal_failure.on_change(replica, change)
        is_applied, is_told = now[5] == before[5], now[6] == before[6]
        if not (is_applied and is_told):
            self.monotonic.on_change(replica, change)
            self.noting.on_change(replica, change)
        is_log = now[3] == old_last == kept
        if not is_log:
            self.remembered.on_change(replica, change)
            self.log_matching.on_change(replica, change)
        if not (is_told and now[2] == before[2] and (is_log or now[6] <= kept)):
            self.commits.on_change(replica, change)
            self.manners.on_change(replica, change)
        if not is_log:
            self.changes.on_change(replica, change)
            self.in_force.on_change(replica, change)
            self.promotion.on_change(replica, change)
            self.hand_over.on_change(replica, change)
            self.flush_lag.on_change(replica, change)
        if not is_applied:
            self.applied.on_change(replica, change)
            self.tables.on_change(replica, change)
            self.serving.on_change(replica, change)

    def _read(self, replica: Replica) -> None:
        try:
            replica.read_anew()
        except Damaged as error:
            self._damaged(replica, error)

    def _damaged(self, replica: Replica, error: Damaged) -> None:
        if not replica.is_corrupt:
            raise Violation("A34 log matching", str(error), node=replica.name) from error

    def _on_message(self, replica: Replica, message: Message) -> None:
        if self._on_say is not None:
            self._on_say(replica, message)
        self.reading.on_message(replica, message)
        self.promotion.on_message(replica, message)
        if isinstance(message, PLAIN):
            if message.term == replica.told_term:
                return  # it tells nothing but a term, and that was judged
            replica.told_term = message.term
        self.votes.on_message(replica, message)
        if isinstance(message, VoteRequest | VoteReply):
            self.elected.on_message(replica, message)
            self.amnesia.on_message(replica, message)
        elif isinstance(message, Rejoined):
            self.amnesia.on_message(replica, message)
        elif isinstance(message, PreVoteReply):
            self.manners.on_message(replica, message)
        elif isinstance(message, TimeoutNow):
            self.hand_over.on_message(replica, message)
        self.durable.on_message(replica, message)
        self.matches.on_message(replica, message)
        if isinstance(message, AppendReply):
            self.compared.on_message(replica, message)
            last = replica.node._store.last_index
            if message.match_index > last:
                raise Violation(
                    "A38 acknowledged what is not held",
                    f"{replica.name} acknowledges {message.match_index}, its log ends at {last}",
                    node=replica.name,
                )
