"""Three replicas of the production's own class, with simulated machines under them.

``python -m tests.unit.sim.three_nodes SEED`` prints the digest of a run.
"""

import sys

from dledger.config import DLedgerConfig
from dledger.errors import DLedgerError
from dledger.listener import DLedgerListener
from dledger.node import DLedgerNode
from sim.disk import SimDisk
from sim.loop import SimLoop

NAMES = ("n0", "n1", "n2")


class Listener(DLedgerListener):
    """Counts; the state machine of these tests."""

    def __init__(self):
        self.committed = -1

    def noop_body(self, physical_offset):
        return b"noop %d" % physical_offset

    def on_committed(self, commit_index):
        assert commit_index > self.committed
        self.committed = commit_index

    def on_role(self, role, term, leader_id):
        pass


class Group:
    """A group that can be run, loaded and broken."""

    def __init__(self, seed, keep_lines=False):
        self.loop = SimLoop(seed, keep_lines=keep_lines)
        self.hosts, self.nodes = {}, {}
        for number, name in enumerate(NAMES):
            host = self.hosts[name] = self.loop.add_host(name, f"10.0.0.{number + 1}")
            host.disk = SimDisk(host.rng.split("disk"), self.loop.trace, host=name)
        for name in NAMES:
            self.start(name)

    def start(self, name):
        host = self.hosts[name]
        process = self.loop.boot(host)
        config = DLedgerConfig(
            group="g",
            self_id=name,
            peers={peer: f"{self.hosts[peer].address}:40911" for peer in NAMES},
            directory="/log",
            data_segment_bytes=64 * 1024,
            index_segment_bytes=32 * 1024,
        )

        async def main():
            node = DLedgerNode(
                config,
                disk=host.disk,
                clock=host.clock,
                rng=host.rng.split(f"life {host.incarnation}"),
                on_fatal=lambda error: self.loop.exit(process, error, error.exit_code),
            )
            await node.start(Listener())
            self.nodes[name] = node

        self.loop.spawn(process, main())

    def live(self):
        return [self.nodes[n] for n in NAMES if n in self.nodes and self.hosts[n].alive]

    def leader(self):
        leaders = [node for node in self.live() if node.is_leader]
        return max(leaders, key=lambda node: node.term, default=None)

    def elect(self, limit_ms=10_000):
        assert self.loop.run_until_true(lambda: self.leader() is not None, limit_ms)
        return self.leader()

    def put(self, body):
        """Append at the leader, if there is one; returns whether it took it."""
        leader = self.leader()
        if leader is None:
            return False

        def append():
            try:
                leader.reserve(len(body))
            except DLedgerError:
                return False
            leader.append([body], len(body))
            return True

        return self.loop.call(self.hosts[leader.self_id].process, append)

    def load(self, count, pause_ms=20):
        taken = 0
        for number in range(count):
            taken += self.put(b"%06d" % number * 20)
            self.loop.run_for(pause_ms)
        return taken

    def bodies(self, node):
        first, last = node.first_index, node.commit_index
        return [bytes(node.reader.body_view(index)) for index in range(first, last + 1)]


def run(seed):
    """Elect, replicate, lose the leader, go on, take it back; return the group."""
    group = Group(seed)
    group.elect()
    group.load(30)
    dead = group.elect().self_id
    group.loop.kill(group.hosts[dead].process)
    group.elect()
    group.load(30)
    group.start(dead)
    group.load(30)
    group.loop.run_for(2_000)
    return group


def main():
    group = run(int(sys.argv[1]))
    sys.stdout.write(f"{group.loop.trace.digest()} {group.loop.events}\n")
    group.loop.close()


if __name__ == "__main__":
    main()
