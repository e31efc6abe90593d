"""What effects share: who plays which role, how links are cut by several faults at once.

Also the base of all effects. Knows no single kind of fault.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sim.faults.plan import FaultEvent, Role
from sim.link import Delay
from sim.rng import SplitRng

if TYPE_CHECKING:
    from sim.faults.guard import Guard
    from sim.faults.target import Target

NS_PER_MS = 1_000_000
Pair = tuple[str, str]
"""A direction between two hosts, by name."""


class Stage:
    """The world, and what the faults of a run have in common."""

    def __init__(
        self, target: "Target", guard: "Guard", spring: Callable[[FaultEvent], None]
    ) -> None:
        self.target = target
        self.guard = guard
        self.spring = spring
        """Has a fault happen now that no plan knows."""
        self.excused: dict[str, None] = {}
        """Hosts whose process may end by itself."""
        self.excused_starts: dict[str, None] = {}
        """Those whose process may do so while it begins."""
        self._cuts: dict[Pair, list[int]] = {}
        self._delays: dict[Pair, list[Delay]] = {}
        self._leaders: list[str] = []
        self.is_over = False
        """Whether everything has been healed: what was to come later is left out."""

    # Time

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""
        return self.target.trace.now_ns

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self.target.at(self.now_ns + int(delay_ms * NS_PER_MS), action)

    # Roles

    def note_leader(self) -> None:
        """Remember who leads."""
        leader = self.target.leader()
        if leader is not None and self._leaders[-1:] != [leader]:
            self._leaders = [*self._leaders[-1:], leader]

    def voters(self) -> tuple[str, ...]:
        """Return the voters of the group, as far as is known."""
        return self.guard.voters()

    def resolve(self, role: str, rng: SplitRng) -> tuple[str, ...]:
        """Return the hosts that a role stands for now; none if nobody plays it."""
        target = self.target
        groups: dict[str, Callable[[], Iterable[str]]] = {
            Role.ALL: self.voters,
            Role.PRODUCER: lambda: _some([n for n in target.clients() if n.startswith("p")], rng),
            Role.CONSUMER: lambda: _some(self.consumers(), rng),
            Role.MEMBER: lambda: _some(target.members(), rng),
            Role.ASKER: lambda: _some([n for n in target.members() if n.startswith("x")], rng),
            Role.NAMESRV: lambda: _some(target.namesrvs(), rng),
            Role.CONTROLLER: lambda: filter(None, (target.controller(),)),
            Role.RANDOM: lambda: _some(self.voters(), rng),
            Role.FOLLOWER: lambda: _some(self.followers(), rng),
            Role.FOLLOWER_0: lambda: self.followers()[:1],
            Role.FOLLOWER_1: lambda: self.followers()[1:2],
            Role.LEADER: lambda: (self.leader(rng),),
            Role.EX_LEADER: lambda: tuple(self._leaders[:1]) or (self.leader(rng),),
            Role.MOST_BEHIND: lambda: (self.most_behind(),),
        }
        found = groups.get(role)
        if found is not None:
            return tuple(found())
        known = (*target.brokers(), *target.clients(), *target.namesrvs(), *target.alone())
        assert role in (*known, *target.members()), role
        return (role,)

    def consumers(self) -> list[str]:
        """Return the hosts of consumers, who may leave in good order."""
        return [name for name in self.target.clients() if name.startswith("c")]

    def leader(self, rng: SplitRng) -> str:
        """Return the leader; while there is none, any voter."""
        return self.target.leader() or rng.choice(self.voters())

    def followers(self) -> tuple[str, ...]:
        """Return the voters but the leader."""
        leader = self.target.leader()
        return tuple(name for name in self.voters() if name != leader)

    def most_behind(self) -> str:
        """Return the voter with the shortest log."""
        replicas = self.target.watch.replicas
        return min(self.voters(), key=lambda name: (replicas[name].last_index, name))

    # Links, which several faults may hold cut or slow at the same time

    def address(self, name: str) -> str:
        """Return the address of a host."""
        return self.target.host(name).address

    def cut(self, pair: Pair, *, acks: bool = True) -> None:
        """Cut a direction; it stays so until each that cut it has healed it."""
        held = self._cuts.setdefault(pair, [])
        held.append(int(acks))
        self.target.network.cut(*map(self.address, pair), acks=bool(max(held)))

    def heal(self, pair: Pair, *, acks: bool = True) -> None:
        """Take one `cut` back."""
        held = self._cuts[pair]
        held.remove(int(acks))
        source, target = map(self.address, pair)
        if not held:
            self.target.network.heal(source, target)
        elif acks and not max(held):
            self.target.network.link(source, target).cut_acks = False

    def delay(self, pair: Pair, delay: Delay) -> None:
        """Slow a direction down."""
        held = self._delays.setdefault(pair, [])
        held.append(delay)
        source, target = map(self.address, pair)
        self.target.network.delay(source, target, delay)

    def end_delay(self, pair: Pair, delay: Delay) -> None:
        """Take one `delay` back."""
        held = self._delays[pair]
        held.remove(delay)
        network = self.target.network
        source, target = map(self.address, pair)
        network.delay(source, target, held[-1] if held else network.delay_default)


class Effect(ABC):
    """One fault on the hosts that its target turned out to be."""

    def __init__(self, stage: Stage, event: FaultEvent, names: tuple[str, ...]) -> None:
        self.stage = stage
        self.target = stage.target
        self.event = event
        self.names = names
        self.name = names[0]
        self.rng = SplitRng(event.seed)

    def obstacle(self) -> str:
        """Return why it cannot be applied now; nothing if it can."""
        return ""

    def objection(self) -> str:
        """Return why it must not be applied now, by the budget; nothing if it may."""
        return ""

    @abstractmethod
    def apply(self) -> None:
        """Do it."""

    def undo(self) -> None:  # noqa: B027 - some faults cannot be taken back
        """Take it back, as far as that is possible; called once."""

    @abstractmethod
    def count(self) -> float:
        """Return the witness: a number that grows when the fault has an effect."""

    def others(self) -> tuple[str, ...]:
        """Return the other brokers than the first target; of a name server, the other ones."""
        return tuple(name for name in self.peers() if name != self.name)

    def peers(self) -> Sequence[str]:
        """Return the brokers; if the first target is a name server, all of these."""
        servers = self.target.namesrvs()
        return servers if self.name in servers else self.target.brokers()


def both(a: str, b: str) -> tuple[Pair, Pair]:
    """Return both directions between two hosts."""
    return (a, b), (b, a)


def _some(names: Sequence[str], rng: SplitRng) -> tuple[str, ...]:
    return (rng.choice(names),) if names else ()
