"""Which connection of a server has to go when there is too little for all.

What one address takes is compared with what the others take only then: behind one address may be
many clients, and while there is room, all of it is theirs. It knows connections by what they took.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, Protocol, TypeVar

from ledgermq.remoting.protocol.hosts import party_of

SILENT_SWEEPS: Final = 1
"""A connection that never spoke may go after so many sweeps for idle ones."""
IDLE_SWEEPS_MIN: Final = 2
"""One that spoke may go after so many sweeps without anything."""
STUCK_SWEEPS_MIN: Final = 2
"""A frame that does not become whole for so many sweeps is not one that somebody sends."""
SPARE_SWEEPS_MIN: Final = 4
"""One that spoke may go after so many whatever address it is of: clients are heard more often."""


class Holder(Protocol):
    """What is looked at of a connection."""

    @property
    def remote(self) -> tuple[str, int]:
        """Address of the peer."""
        ...

    @property
    def has_spoken(self) -> bool:
        """Whether it ever sent a whole frame."""
        ...

    @property
    def quiet_sweeps(self) -> int:
        """How many sweeps in a row saw nothing of it."""
        ...

    @property
    def partial_sweeps(self) -> int:
        """How many sweeps in a row saw a part of a frame, and none that was whole."""
        ...

    @property
    def receive_bytes(self) -> int:
        """Size of the buffer it reads into."""
        ...

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        ...


H = TypeVar("H", bound=Holder)


class ByAddress(Generic[H]):
    """Connections by the address of their peer: a flood asks for each that it opens."""

    def __init__(self) -> None:
        self._all: dict[str, dict[H, None]] = {}

    def add(self, connection: H) -> None:
        """Take a connection."""
        self._all.setdefault(party_of(connection.remote[0]), {})[connection] = None

    def remove(self, connection: H) -> None:
        """Forget a connection."""
        address = party_of(connection.remote[0])
        theirs = self._all[address]
        del theirs[connection]
        if not theirs:
            del self._all[address]

    def largest(self) -> Collection[H]:
        """Return the connections of the address that has most, in the order in which they came."""
        return max(self._all.values(), key=len)

    def count(self, address: str) -> int:
        """Return how many an address has."""
        address = party_of(address)
        return len(self._all.get(address, ()))


def one_to_close(
    connections: ByAddress[H], rejoin: Holder, spare: Callable[[], H | None] = lambda: None
) -> H | None:
    """Return which connection makes room for a new one, None: the new one itself goes.

    It is one of the address that has most: one that never spoke, the oldest of them first, else the
    one that is idle longest. While all of them are busy it is one that is ``spare``; without any,
    only an address that has less than half as many may take one from it.
    """
    theirs = connections.largest()
    silent = next((one for one in theirs if not one.has_spoken), None)
    is_smaller = connections.count(rejoin.remote[0]) < len(theirs) // 2
    if silent is not None and (is_smaller or silent.quiet_sweeps >= SILENT_SWEEPS):
        return silent
    idlest = max(theirs, key=lambda one: one.quiet_sweeps)
    if idlest.quiet_sweeps >= IDLE_SWEEPS_MIN:
        return idlest
    return spare() or (idlest if is_smaller else None)


def spare_ones(connections: Collection[H]) -> list[H]:
    """Return who may go where one address has most and is busy, the last one first.

    Whoever has a network of IPv6 addresses can have a connection of each: these are no address's.
    They are silent ones, the oldest of them first, then those that are idle longest.
    """
    silent = [
        one for one in connections if not one.has_spoken and one.quiet_sweeps >= SILENT_SWEEPS
    ]
    idle = [one for one in connections if one.has_spoken and one.quiet_sweeps >= SPARE_SWEEPS_MIN]
    return [*sorted(idle, key=lambda one: one.quiet_sweeps), *reversed(silent)]


def slowest_sender(connections: Collection[H]) -> H:
    """Return the connection whose half-received frame takes most, of the address that takes most.

    Frames that are stuck go before others, whatever address they are of: a thousand small parts of
    frames would have large sends be the largest. Among equals it is the one that is quiet longest.
    """
    taken: Counter[str] = Counter()
    for one in connections:
        taken[party_of(one.remote[0])] += one.receive_bytes
    return max(
        connections,
        key=lambda one: (
            one.partial_bytes > 0, one.partial_sweeps >= STUCK_SWEEPS_MIN,
            taken[party_of(one.remote[0])], one.receive_bytes, one.quiet_sweeps,
        ),
    )  # fmt: skip


def slowest_reader(unsent: Mapping[H, int]) -> H:
    """Return the connection for which most bytes wait, of the address for which most do."""
    waiting: Counter[str] = Counter()
    for one, size in unsent.items():
        waiting[party_of(one.remote[0])] += size
    return max(unsent, key=lambda one: (waiting[party_of(one.remote[0])], unsent[one]))
