"""What a broker counts of what it keeps is what it keeps.

Offsets, locks, halves, members, claims, held pulls and large sends have one room each that all
groups and addresses share.
What is counted twice, or stays counted when it has gone, is refused to others in the end, and what
is not counted knows no bound. Leases of queues lie in the order in which they run out: what has is
looked for from the front, and behind one that holds nothing is found. A claim is of a member: one
that has left holds no queue back. A connection of a member that has ended is no member's any more.
Source: `broker.fair_share`; `dledger.peers.rpc`.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.groups.client_registry import MEMBER_BYTES, weight_of
from broker.state.consumer_offset import room_of
from dledger.peers.rpc import TcpTransport
from sim.oracles.base import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from broker.controller import BrokerController
    from broker.fair_share import FairShare
    from broker.groups.claims import Claims
    from broker.groups.client_registry import Client, ConsumerRegistry
    from broker.pulls.long_polling import HoldTable
    from broker.sends.room import LogRoom
    from broker.state.queue_lock import QueueLockTable
    from broker.tables import Tables
    from sim.oracles.replica import Replica

COUNTED: Final = "A39 share counted otherwise than held"
PEERS: Final = "A43 connection of a peer that is gone is kept"
CLAIMED: Final = "A41 claim of a member that is gone"
LEASED: Final = "A39 leases out of the order in which they end"
OPEN: Final = "A39 room of a log open after a stall"

Held = Counter[str | int]

LOOK_NS: Final = 100_000_000
"""How often brokers are looked at that no tick of a leader looks at."""


class Looks:
    """Looks at brokers without a Raft group, again and again.

    Args:
        at: does something at a virtual time.
        brokers: those that run and have started, by name.
    """

    def __init__(
        self,
        at: Callable[[int, Callable[[], object]], None],
        now_ns: Callable[[], int],
        brokers: Callable[[], Iterable[tuple[str, BrokerController]]],
        findings: Findings,
    ) -> None:
        self._at = at
        self._now_ns = now_ns
        self._brokers = brokers
        self._findings = findings

    def look(self) -> None:
        """Look at all, now and from now on."""
        try:
            for name, controller in self._brokers():
                check_shares(name, controller)
        except Violation as found:
            self._findings.report(found)
        self._at(self._now_ns() + LOOK_NS, self.look)


def look_at_shares(replica: Replica) -> None:
    """Look at a broker, now and then. Errors: `Violation`."""
    check_shares(replica.name, replica.controller)
    transport = replica.node._transport
    if isinstance(transport, TcpTransport):
        check_peers(replica.name, transport)


def check_shares(name: str, controller: BrokerController) -> None:
    """Compare what is counted with what is there. Errors: `Violation`."""
    tables, halves = controller.tables, controller._processors.transactions.table
    claims, pulls = tables.consumers.claims, tables.held
    shares: tuple[tuple[str, FairShare, Mapping[Any, int]], ...] = (
        ("offsets", tables.offsets.room, _by_group(tables)),
        ("locks", tables.locks._room, Counter(group for group, *_ in tables.locks._leases)),
        ("halves by group", halves.room, Counter(half.group for half in halves.rows)),
        ("halves by source", halves.sources, Counter(half.source for half in halves.rows)),
        ("members", tables.consumers._members.room, _by_address(tables)),
        ("held pulls", pulls._room, _by_holder(pulls)),
        ("filters", pulls._filters_room, _of_filters(pulls)),
        ("claims", claims._room, Counter(one.holder for one in claims._holders.values())),
        ("bytes that wait for room", controller._room._share, _by_waiting(controller._room)),
    )
    for what, share, held in shares:
        _compare(name, what, share, held)
    _check_claims(name, claims, tables.consumers)
    _check_leases(name, tables.locks)
    _check_room(name, controller)


def check_peers(name: str, transport: TcpTransport) -> None:
    """Look for connections that have ended, of members or of others. Errors: `Violation`.

    Whoever keeps them believes that the member is there, and tells nobody that it is not.
    """
    for one in (*transport._inbound, *transport._by_sender.values()):
        if one.is_connected and one._transport is None:
            text = f"{name} has a connection of {one.sender or 'nobody known'} from {one.remote}"
            raise Violation(PEERS, f"{text}, which has ended", node=name)


def _check_leases(name: str, locks: QueueLockTable) -> None:
    """Look for a lease that runs out before one that lies in front of it."""
    ends = [lease.until_ms for lease in locks._leases.values()]
    if any(one > other for one, other in pairwise(ends)):
        text = f"{name} looks for leases that have run out from the front, and has {ends[:6]}"
        raise Violation(LEASED, text, node=name)


def _check_room(name: str, controller: BrokerController) -> None:
    """A log that has committed all it has does not stand still: its room counts again."""
    room = controller._room
    if room._is_stalled and not room.used:
        text = f"{name} has committed all, and lets large messages in as if nothing went on"
        raise Violation(OPEN, text, node=name)


def _compare(name: str, what: str, share: FairShare, held: Mapping[Any, int]) -> None:
    counted = share._used_by
    if counted == held and share.used == sum(held.values()):
        return
    wrong = sorted(
        (str(one), counted.get(one, 0), held.get(one, 0))
        for one in counted.keys() | held.keys()
        if counted.get(one, 0) != held.get(one, 0)
    )
    raise Violation(
        COUNTED,
        f"{name} counts {share.used} of {what}, and has {sum(held.values())}; holder, counted,"
        f" held: {wrong[:3]}",
        node=name,
    )


def _by_group(tables: Tables) -> Held:
    """Return the room of offsets by group: one that waits is there as one that was applied is."""
    held: Held = Counter()
    applied, pending = tables.offsets._applied, tables.offsets._pending
    for key in applied.keys() | pending.keys():
        count = len(applied.get(key, {}).keys() | pending.get(key, {}).keys())
        held[key.rpartition("@")[2]] += count * room_of(key)
    return +held


def _by_address(tables: Tables) -> Held:
    """Return the room of members, and of what their groups subscribe to, by address."""
    held: Held = Counter()
    for group, client in _members(tables):
        held[client.holder] += MEMBER_BYTES + len(group)
    for one in tables.consumers.groups():
        told = map(len, msgspec.structs.astuple(one.traits))
        held[one.holder] += weight_of(one.subscriptions.values()) + sum(told)
    return +held


def _by_holder(table: HoldTable) -> Held:
    return Counter(pull.holder for held in table._by_queue.values() for pull in held.values())


def _of_filters(table: HoldTable) -> Held:
    held: Held = Counter()
    for one in table._filters.values():
        held[one.holder] += one.weight
    return +held


def _by_waiting(room: LogRoom) -> Held:
    """Return the bytes of large sends that wait for room in the log, by address."""
    held: Held = Counter()
    for address, waiting in room._flows._waiting.items():
        held[address] += sum(size_bytes for _, size_bytes in waiting)
    return +held


def _members(tables: Tables) -> Iterator[tuple[str, Client]]:
    groups: Iterable[tuple[str, dict[int, Client]]] = chain(
        ((one.name, one.clients) for one in tables.consumers.groups()),
        tables.producers._groups.items(),
    )
    for group, clients in groups:
        for client in clients.values():
            yield group, client


def _check_claims(name: str, claims: Claims, consumers: ConsumerRegistry) -> None:
    for queue, client in claims._holders.items():
        if consumers._member(queue.group, client.connection.id) is not client:
            raise Violation(
                CLAIMED,
                f"{client.client_id} has left {queue.group}, and {name} has it hold"
                f" {queue.topic}/{queue.queue_id} still",
                node=name,
            )
    kept = {queue for queues in claims._of.values() for queue in queues}
    if kept != claims._holders.keys():
        text = f"{name} has {len(claims._holders)} claims, and by connection {len(kept)}"
        raise Violation(COUNTED, text, node=name)
