"""Controllers' Rafts over simulated disks, with a clock and links in the hands of a test."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj

from ledgermq.runtime.disk import RealDisk
from namesrv.controller.commands import Register, encode_command
from namesrv.controller.machine import Machine
from namesrv.controller.raft import Raft
from namesrv.controller.wire import Envelope, decode, encode
from sim.disk import SimDisk
from sim.inode import PowerLossMode
from sim.rng import SplitRng

if TYPE_CHECKING:
    from namesrv.controller.wire import Message

DIRECTORY = "/var/controller"


def command(number: int) -> bytes:
    """Return a command that tells itself apart; it changes nothing, since the group is unknown."""
    return encode_command(Register(group="g", cluster="C", id=1, address=f"h:{number}"))


class Recorder(Machine):
    """A machine that remembers what it applied."""

    def __init__(self, groups=None):
        super().__init__(groups)
        self.applied = []

    def apply(self, found):
        self.applied.append(int(found.address.partition(":")[2]))
        return super().apply(found)


class World:
    """So many controllers; messages wait in ``queues`` until they are delivered."""

    def __init__(self, seed: int, monkeypatch, folder: str = "") -> None:
        """With a ``folder`` the files are real, which PySyncObj's own snapshots are, too."""
        self.random = random.Random(seed)
        random.seed(seed)  # PySyncObj draws its election timeouts from there
        self.now = 1_000.0
        monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: self.now)
        self.names = ["n0", "n1", "n2"]
        self.folder = folder
        self.disks: dict[str, Any] = {
            name: RealDisk() if folder else SimDisk(SplitRng(seed * 10 + number))
            for number, name in enumerate(self.names)
        }
        self.queues: dict[tuple[str, str], list[bytes]] = {}
        self.cut: set[frozenset[str]] = set()
        self.nodes: dict[str, Raft] = {}
        self.proposed = 0
        self.decided: list[int] = []
        for name in self.names:
            self.disks[name].make_directories(self.directory(name))
            self.start(name)

    def directory(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else DIRECTORY

    def others(self, name: str) -> tuple[str, ...]:
        return tuple(one for one in self.names if one != name)

    def start(self, name: str) -> None:
        def post(peer: str, message: Message) -> bool:
            if peer not in self.nodes or frozenset((name, peer)) in self.cut:
                return False
            self.queues.setdefault((name, peer), []).append(encode(name, 1, 1, message))
            return True

        directory = self.directory(name)
        self.nodes[name] = Raft(name, self.others(name), self.disks[name], directory, post)
        self.nodes[name].machine = Recorder()
        self.connect(name)

    def connect(self, name: str) -> None:
        """Bring up the links of a node that are not cut."""
        for other in self.others(name):
            if other in self.nodes and frozenset((name, other)) not in self.cut:
                self.nodes[name].on_link(other, is_up=True)
                self.nodes[other].on_link(name, is_up=True)

    def disconnect(self, name: str, other: str) -> None:
        """Lose what is on the way between two, and have both know."""
        for pair in ((name, other), (other, name)):
            self.queues.pop(pair, None)
            if pair[0] in self.nodes:
                self.nodes[pair[0]].on_link(pair[1], is_up=False)

    def kill(self, name: str, mode: PowerLossMode | None) -> None:
        """End a node; with a mode its machine loses its power, too."""
        gone = self.nodes.pop(name)
        gone._wire.destroy()
        for other in self.others(name):
            self.disconnect(name, other)
        if self.folder:
            gone.journal._destroy()
        elif mode is None:
            self.disks[name].crash()
        else:
            self.disks[name].power_loss(mode)

    def deliver(self, share: float = 1.0) -> None:
        """Deliver what waits, in the order of each link; with ``share`` some links only."""
        for (source, target), queue in sorted(self.queues.items()):
            if queue and self.random.random() < share:
                waiting, self.queues[source, target] = queue[:], []
                for data in waiting:
                    if target in self.nodes:
                        self.nodes[target].receive(source, unpack(data).message)

    def turn(self, seconds: float, share: float = 1.0) -> None:
        """Let time pass and everybody do what is due."""
        self.now += seconds
        for name in self.names:
            if name in self.nodes:
                self.nodes[name].turn()
        self.deliver(share)

    def leader(self) -> Raft | None:
        return next(
            (self.nodes[one] for one in self.names if one in self.nodes and self.nodes[one].leads),
            None,
        )

    def settle(self, seconds: float = 20.0) -> Raft:
        """Heal everything and wait for a leader that everybody follows."""
        self.cut.clear()
        for name in self.names:
            if name not in self.nodes:
                self.start(name)
            self.connect(name)
        end = self.now + seconds
        while self.now < end:
            self.turn(0.02)
        found = self.leader()
        assert found is not None, "nobody leads"
        return found

    def propose(self) -> int:
        """Propose at whoever believes to lead; a number of what is decided is kept."""
        self.proposed += 1
        number = self.proposed

        def done(outcome, _why):
            if outcome is not None:
                self.decided.append(number)

        for node in self.nodes.values():
            if node._isLeader():
                node.propose(command(number), done)
        return number

    def check(self) -> None:
        """Check that all have applied the same, with all that was decided in it."""
        applied = [self.nodes[name].machine.applied for name in self.names]
        assert applied[1:] == applied[:-1], "controllers differ"
        missing = [one for one in self.decided if one not in applied[0]]
        assert not missing, f"decided and lost: {missing}"


def unpack(data: bytes) -> Envelope:
    return decode(data)


MODES = (None, *PowerLossMode)


def disturb(world: World, chance: float) -> None:
    """Cut, heal, kill or start, by a number below 1."""
    rng = world.random
    if chance < 0.04:
        name, other = rng.sample(world.names, 2)
        world.disconnect(name, other)
        world.cut.add(frozenset((name, other)))
    elif chance < 0.12:
        world.cut.clear()
        for name in world.nodes:
            world.connect(name)
    elif chance < 0.15:
        for name in rng.sample(world.names, rng.randrange(1, 4)):
            if name in world.nodes:
                world.kill(name, rng.choice(MODES))
    elif chance < 0.3:
        for name in world.names:
            if name not in world.nodes:
                world.start(name)


def campaign(seed: int, monkeypatch, turns: int = 250) -> World:
    """Run a group under cuts, kills and losses of power; check it at the end."""
    world = World(seed, monkeypatch)
    rng = world.random
    for _ in range(turns):
        world.turn(rng.choice((0.02, 0.02, 0.1, 0.3)), share=rng.choice((1.0, 1.0, 0.6)))
        if rng.random() < 0.4 and world.proposed < 150:
            world.propose()
        else:
            disturb(world, rng.random())
    world.settle()
    world.propose()
    for _ in range(50):
        world.turn(0.02)
    world.check()
    assert world.proposed in world.decided, "a healed group decides nothing"
    return world


def campaigns(seeds: int, monkeypatch) -> int:
    """Run so many groups; return how much was decided."""
    return sum(len(campaign(seed, monkeypatch).decided) for seed in range(seeds))
