"""A world for faults: machines, disks and links are the simulator's, replicas are lists."""

import contextvars
from types import SimpleNamespace

from sim.disk import SimDisk
from sim.faults.apply import Nemesis
from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Plan
from sim.handle import SimHandle
from sim.lookout import Lookout
from sim.loop import SimLoop
from sim.rng import SplitRng
from sim.transport import RESET

MS = 1_000_000
PACKAGES = {"ambush": Package.AMBUSH}


def event(kind, at_ms=1_000, for_ms=1_000, target="leader", **params):
    return FaultEvent(
        at_ms=at_ms, kind=FaultKind(kind), package=PACKAGES.get(kind, Package.CRASH),
        target=target, for_ms=for_ms, seed=5, params=params,
    )  # fmt: skip


class Replica:
    """The log of a replica: the terms of its entries."""

    def __init__(self):
        self.is_up = True
        self.is_wiped = self.lost_power = False
        self.terms = [1, 1, 1]

    @property
    def last_index(self):
        return len(self.terms) - 1

    def mark(self, index):
        return SimpleNamespace(term=self.terms[index]) if index <= self.last_index else None


class Node:
    """A replica that grants what an operator asks, after so many refusals."""

    def __init__(self, refusals=0):
        self.refusals = refusals
        self.asked = []
        self.operations = self

    async def change_membership(self, change):
        if self.refusals:
            self.refusals -= 1
            raise ValueError("not now")
        self.asked.append((change.kind.value, change.node_id, change.address))
        return 1

    async def transfer_leadership(self, target):
        self.asked.append(("transfer", target))


class FaultWorld:
    def __init__(self, *events, brokers=3, spares=0, **options):
        self.plan = Plan(
            seed=1,
            options=Options(brokers=brokers, spares=spares, **options),
            events=tuple(events),
        )
        self.loop = SimLoop(1)
        self.network = self.loop.network
        self.trace = self.loop.trace
        self.lookout = self.loop.lookout = Lookout()
        self.names = [f"n{i}" for i in range(brokers + spares)]
        self.voters = tuple(self.names[:brokers])
        self.hosts = {}
        for number, name in enumerate([*self.names, "p0", "c0", "ns0"]):
            host = self.loop.add_host(name, f"10.0.0.{number + 1}")
            host.disk = SimDisk(SplitRng(number), self.trace, host=name)
            self.hosts[name] = host
        self.replicas = {name: Replica() for name in self.names}
        self.corruption_excused = []
        self.fresh = []
        self.synced = {}
        self.changed_from = (-1, self.voters)
        self.nodes = {}
        self.who_leads = "n0"
        self.log = []
        self.watch = SimpleNamespace(
            replicas=self.replicas,
            truth=SimpleNamespace(
                committed=[], voters_of=self._voters_of, first_voters=self.voters
            ),
            excuse_corruption=self.corruption_excused.append,
        )
        for name in self.hosts:
            if name in self.voters or name not in self.names:
                self.start(name)
        self.log.clear()
        self.nemesis = Nemesis(self)

    def run(self, until_ms):
        self.loop.run_until(until_ms * MS)

    def is_cut(self, a, b):
        return self.network.link(self.hosts[a].address, self.hosts[b].address).cut

    def cuts(self):
        """Pairs of brokers cut in both directions, and those in one."""
        names = self.names
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        return {a + b for a, b in pairs if self.is_cut(a, b) and self.is_cut(b, a)}, {
            f"{a}>{b}"
            for a in names
            for b in names
            if a != b and self.is_cut(a, b) and not self.is_cut(b, a)
        }

    # Target

    def brokers(self):
        return self.names

    def namesrvs(self):
        return ["ns0"]

    def clients(self):
        return ["p0", "c0"]

    def host(self, name):
        return self.hosts[name]

    def disk(self, name):
        return self.hosts[name].disk

    def node(self, name):
        return self.nodes.setdefault(name, Node())

    def is_recovering(self, name):
        return name in self.fresh

    def _voters_of(self, _replica, last_index=None):
        """The voters; those of before the last change, as long as a log ended before that."""
        index, voters = self.changed_from
        return voters if last_index is not None and last_index < index else self.voters

    def synced_index(self, name):
        return self.synced.get(name, -1)

    def leader(self):
        return self.who_leads

    def members(self):
        return ()

    def alone(self):
        return ()

    def peer_address(self, name):
        return f"{self.hosts[name].address}:40911"

    def start(self, name):
        if not self.hosts[name].alive:
            self.loop.boot(self.hosts[name])
            self.log.append(f"start {name}")

    def crash(self, name):
        if self.hosts[name].alive:
            self.loop.kill(self.hosts[name].process, RESET)
            self.log.append(f"end {name}")

    stop = crash

    def pause(self, name):
        self.loop.pause(self.hosts[name])

    def resume(self, name):
        self.loop.resume(self.hosts[name])

    def power_loss(self, name, mode):
        self.crash(name)
        self.disk(name).power_loss(mode)

    def wipe(self, name):
        self.crash(name)
        self.disk(name).wipe()

    def compact(self, name):
        self.log.append(f"compact {name}")

    def run_on(self, name, coro):
        return self.loop.spawn(self.hosts[name].process, coro)

    def at(self, when_ns, action):
        self.loop.post(when_ns, SimHandle(when_ns, action, (), contextvars.Context(), None))
