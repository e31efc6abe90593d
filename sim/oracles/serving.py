"""What a broker serves to its clients, judged where it does it: reads, held pulls, group offsets.

Reads belong to the leader. Who waits for a message is woken when it comes, and sent away when the
leader is deposed. An offset that a leader took is its answer until it takes another one, whatever
is replicated meanwhile; what it has not replicated goes with its leadership.
Source: docs/adr/0007; spec/wire.md 3.5, 3.7, 7.2; `broker.state.consumer_offset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.serving_limits import HELD_MAX
from dledger.core.model import LEADER
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from broker.pulls.long_polling import HeldPull
    from sim.oracles.replica import Change, Replica

FORGET: Final = "forget-offsets"
LOOK_TICKS: Final = 4
"""A pull that could be answered and is held at two looks, so many ticks apart, is forgotten."""

Place = tuple[str, str, int]
"""Group, topic, queue id."""


class Serving:
    """Judges the answers of all brokers."""

    name = read_name = "A40 read of a replica that does not lead"
    held_name = "A41 a pull waits for what is there"
    offset_name = "A24 offset that was taken and is not told"

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._taken: dict[str, dict[Place, int]] = {}
        """By replica: the offsets that it took in its present leadership."""
        self._applied: dict[str, int] = {}
        """By replica: how many records of offsets it had applied at the last look."""
        self._removals: dict[str, int] = {}
        """By replica: how many records that remove offsets it had applied then."""
        self._held: dict[str, tuple[int, set[int]]] = {}
        """By replica: at which tick it was looked at, and which pulls could be answered then."""
        self._owed: dict[str, dict[int, HeldPull]] = {}
        """By replica: pulls that wait no more and were not read for yet."""

    def on_boot(self, replica: Replica) -> None:
        """Listen to what a broker is asked from now on."""
        self._taken[replica.name] = {}
        self._applied.pop(replica.name, None)
        self._removals.pop(replica.name, None)
        self._held.pop(replica.name, None)
        self._owed[replica.name] = {}
        self._listen_to_reads(replica)
        self._listen_to_held(replica)
        self._listen_to_offsets(replica)

    def _listen_to_reads(self, replica: Replica) -> None:
        store = replica.controller.store
        get, owed = store.reader.get, self._owed[replica.name]

        def checked(*place: Any) -> Any:  # noqa: ANN401  # whatever it takes, and returns
            if not store.writer.writable:
                text = f"{replica.name} reads {place[0]}/{place[1]}@{place[2]} for a client"
                self._report(self.read_name, text, replica)
            if owed:
                for token in [token for token, pull in owed.items() if _place(pull) == place[:3]]:
                    del owed[token]
            return get(*place)

        store.reader.get = checked  # type: ignore[assignment,method-assign]  # likewise

    def _listen_to_held(self, replica: Replica) -> None:
        table, owed = replica.controller.tables.held, self._owed[replica.name]
        arrived, expire, hold = table.arrived, table.expire, table.hold
        store, reader = replica.controller.store, replica.controller.store.reader

        def owe(pulls: list[HeldPull]) -> None:
            if store.readable:  # else they are sent away, and nobody reads for them
                owed.update((pull.token, pull) for pull in pulls)

        def held(pull: HeldPull) -> bool:
            is_held, end = hold(pull), reader.max_offset(pull.topic, pull.queue_id)
            if is_held and pull.offset < end:
                text = f"{replica.name} lets a pull of {pull.topic}/{pull.queue_id} wait, which "
                text = f"{text}has seen what lies before {pull.offset}; the queue ends at {end}"
                self._report(self.held_name, text, replica)
            return is_held

        def woken(
            topic: str, queue_id: int, max_offset: int, limit: int = HELD_MAX
        ) -> list[HeldPull]:
            pulls = arrived(topic, queue_id, max_offset, limit)
            owe(pulls)
            return pulls

        def expired(now_ms: int, limit: int = HELD_MAX) -> list[HeldPull]:
            pulls = expire(now_ms, limit)
            owe(pulls)
            return pulls

        table.arrived = woken  # type: ignore[method-assign]  # to listen to it
        table.expire = expired  # type: ignore[method-assign]  # likewise
        table.hold = held  # type: ignore[method-assign]  # likewise

    def _listen_to_offsets(self, replica: Replica) -> None:
        controller, taken = replica.controller, self._taken[replica.name]
        table = controller.tables.offsets
        commit, drop_pending, withdraw = table.commit, table.drop_pending, table.withdraw

        def checked(group: str, topic: str, queue_id: int, offset: int) -> bool:
            is_taken = commit(group, topic, queue_id, offset)
            if is_taken:
                taken[group, topic, queue_id] = offset
                if not controller.store.writer.writable:
                    text = f"{replica.name} takes an offset of {group} and does not lead"
                    self._report(self.read_name, text, replica)
            return is_taken

        def dropped() -> None:
            drop_pending()
            taken.clear()
            if table.has_pending:
                text = f"{replica.name} leads no more, and still tells what it had not replicated"
                self._report(self.offset_name, text, replica)

        def withdrawn(group: str) -> dict[str, list[int]]:
            for place in [place for place in taken if place[0] == group]:
                del taken[place]  # its group is being removed, with its offsets
            return withdraw(group)

        table.withdraw = withdrawn  # type: ignore[method-assign]  # to listen to it
        table.commit = checked  # type: ignore[method-assign]  # to listen to it
        table.drop_pending = dropped  # type: ignore[method-assign]  # likewise

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare the offsets a leader tells with those it took. Errors: `Violation`."""
        controller = replica.controller
        if change.now[0] is not LEADER:
            self.on_tick(replica)
            return
        applied = controller.tables.state.revisions["offset"]
        if self._applied.get(replica.name) == applied or not controller.store.writer.writable:
            return
        self._applied[replica.name] = applied
        offsets = controller.tables.offsets
        self._drop_forgotten(replica)
        for (group, topic, queue_id), offset in self._taken[replica.name].items():
            told = offsets.query(group, topic, queue_id)
            if told != offset:
                raise Violation(
                    self.offset_name,
                    f"{replica.name} took {offset} for {group} in {topic}/{queue_id}, and tells "
                    f"{told}",
                    node=replica.name,
                )

    def _drop_forgotten(self, replica: Replica) -> None:
        """Take that a record of the log has removed offsets, such as those of no group."""
        tables, taken = replica.controller.tables, self._taken[replica.name]
        removals = tables.state.revisions.get(FORGET, 0)
        if removals == self._removals.get(replica.name, 0):
            return
        self._removals[replica.name] = removals
        for place in [place for place in taken if tables.offsets.query(*place) is None]:
            del taken[place]

    def on_tick(self, replica: Replica) -> None:
        """Look at the pulls that a broker holds. Errors: `Violation`."""
        tick = replica.state.tick
        known_tick, known = self._held.get(replica.name, (tick - LOOK_TICKS, set()))
        if tick - known_tick < LOOK_TICKS:
            return
        controller = replica.controller
        self._check_owed(replica)
        held, store = controller.tables.held, controller.store
        writable = store.writer.writable
        idle: set[int] = set()
        for (topic, queue_id), waiting in held._by_queue.items() if len(held) else ():
            end = store.reader.max_offset(topic, queue_id) if writable else 1 << 62
            for token, pull in waiting.items():
                if pull.offset < end:
                    idle.add(token)
                    if token in known and not pull.connection.closed:
                        raise Violation(
                            self.held_name,
                            f"{replica.name} (term {replica.state.term}, writable "
                            f"{writable}) holds a pull of {topic}/{queue_id}@{pull.offset}, "
                            f"the queue ends at {store.reader.max_offset(topic, queue_id)}",
                            node=replica.name,
                        )
        self._held[replica.name] = (tick, idle)

    def _check_owed(self, replica: Replica) -> None:
        owed = self._owed[replica.name]
        for token, pull in list(owed.items()):
            del owed[token]
            if not pull.connection.closed:
                raise Violation(
                    self.held_name,
                    f"{replica.name} has woken a pull of {pull.topic}/{pull.queue_id}@"
                    f"{pull.offset}, and does not answer it",
                    node=replica.name,
                )

    def _report(self, oracle: str, text: str, replica: Replica) -> None:
        self.findings.report(Violation(oracle, text, node=replica.name))


def _place(pull: HeldPull) -> tuple[str, int, int]:
    return pull.topic, pull.queue_id, pull.offset
