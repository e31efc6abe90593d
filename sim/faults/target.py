"""What faults need of the world; `sim.world.World` has it."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dledger.operations import Operations
    from sim.clock import SimClock
    from sim.disk import SimDisk
    from sim.faults.plan import Plan
    from sim.inode import PowerLossMode
    from sim.lookout import Lookout
    from sim.network import SimNetwork
    from sim.trace import Trace


class Machine(Protocol):
    """A host; `sim.context.Host`."""

    name: str
    address: str
    clock: "SimClock"
    incarnation: int
    """Rises with each life of its process."""

    @property
    def alive(self) -> bool:
        """Whether a process runs on it."""
        ...

    @property
    def paused(self) -> bool:
        """Whether its process is held."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether its process waits for a `resume`."""
        ...


class Node(Protocol):
    """The running replica of a broker; `dledger.node.DLedgerNode`."""

    @property
    def operations(self) -> "Operations":
        """What may be asked of it."""
        ...


class Log(Protocol):
    """A replica as the watch knows it, also while it is down; `sim.oracles.replica.Replica`."""

    is_up: bool
    is_wiped: bool
    lost_power: bool

    @property
    def last_index(self) -> int:
        """Last entry of its log."""
        ...

    def mark(self, index: int) -> Any:  # noqa: ANN401 - a Mark, which has a ``term``
        """Return what identifies an entry, None where it is not held."""
        ...


class Committed(Protocol):
    """The committed log; `sim.oracles.truth.Truth`."""

    committed: list[Any]
    first_voters: tuple[str, ...]

    def voters_of(
        self,
        replica: Any,  # noqa: ANN401 - a Log
        last_index: int | None = None,
    ) -> tuple[str, ...]:
        """Return the voters by the log of a replica, or as long as it ended at ``last_index``."""
        ...


class Knowledge(Protocol):
    """What the watch knows; `sim.oracles.watch.Watch`."""

    @property
    def replicas(self) -> Mapping[str, Log]:
        """Return all replicas by host."""
        ...

    @property
    def truth(self) -> Committed:
        """Return the committed log."""
        ...

    def excuse_corruption(self, name: str) -> None:
        """Take that bytes on a disk have just been damaged on purpose."""
        ...


class Target(Protocol):
    """Machines with names, what runs on them, and what can be done to them."""

    plan: "Plan"
    network: "SimNetwork"
    trace: "Trace"
    lookout: "Lookout"

    @property
    def watch(self) -> Knowledge:
        """Return what is known of the replicas."""
        ...

    def brokers(self) -> Sequence[str]:
        """Return the hosts of brokers, those that may join included."""
        ...

    def namesrvs(self) -> Sequence[str]:
        """Return the hosts of name servers."""
        ...

    def clients(self) -> Sequence[str]:
        """Return the hosts of producers (``p0``...) and consumers (``c0``...)."""
        ...

    def members(self) -> Sequence[str]:
        """Return the hosts with members of further groups."""
        ...

    def alone(self) -> Sequence[str]:
        """Return the hosts of brokers outside the group."""
        ...

    def host(self, name: str) -> Machine:
        """Return a machine."""
        ...

    def disk(self, name: str) -> "SimDisk":
        """Return the disk of a machine."""
        ...

    def node(self, name: str) -> Node | None:
        """Return the replica that runs on a host, None while none does."""
        ...

    def is_recovering(self, name: str) -> bool:
        """Whether the replica on a host began empty and nobody has let it vote yet."""
        ...

    def synced_index(self, name: str) -> int:
        """Return the last entry that a host's replica knows as synced, -1 while none runs."""
        ...

    def leader(self) -> str | None:
        """Return who leads."""
        ...

    def controller(self) -> str | None:
        """Return the controller that leads, None where none does."""
        ...

    def peer_address(self, name: str) -> str:
        """Return ``host:port`` where a broker listens for its peers."""
        ...

    def start(self, name: str) -> None:
        """Start the process of a host unless one runs."""
        ...

    def stop(self, name: str) -> None:
        """Ask the process of a host to end."""
        ...

    def crash(self, name: str) -> None:
        """Kill the process of a host."""
        ...

    def pause(self, name: str) -> None:
        """Hold the process of a host."""
        ...

    def resume(self, name: str) -> None:
        """Let it go on."""
        ...

    def power_loss(self, name: str, mode: "PowerLossMode") -> None:
        """Cut the power of a machine."""
        ...

    def wipe(self, name: str) -> None:
        """Kill the process of a host and empty its disk."""
        ...

    def compact(self, name: str) -> None:
        """Have a broker of the group drop the beginning of its log."""
        ...

    def run_on(self, name: str, coro: Coroutine[Any, Any, None]) -> object | None:
        """Run a coroutine as part of the process of a host, None where none runs."""
        ...

    def at(self, when_ns: int, action: Callable[[], object]) -> None:
        """Do something at a virtual time, whatever the processes do."""
        ...
