"""A group of real nodes in one process, for tests of the log on real disks and sockets."""

import asyncio

import uvloop

from chaos.backends.ports import take_ports as free_ports
from dledger.config import DLedgerConfig
from dledger.core.model import Role
from dledger.listener import DLedgerListener
from dledger.node import DLedgerNode
from ledgermq.runtime.clock import SystemClock

LIMIT_S = 20
SEGMENT = 1 << 16
NEVER_MS = 1 << 40


class Listener(DLedgerListener):
    """Remembers what it was told."""

    def __init__(self):
        self.commit_index = -1
        self.calls = 0
        self.roles = []
        self.rolled_back = []
        self.changed = asyncio.Event()

    def noop_body(self, physical_offset):
        return b"noop at %d" % physical_offset

    def on_committed(self, commit_index):
        assert commit_index > self.commit_index
        self.commit_index = commit_index
        self.calls += 1
        self.changed.set()

    def on_role(self, role, term, leader_id):
        self.roles.append((role, term, leader_id))
        self.changed.set()

    def on_rolled_back(self, first_index):
        self.rolled_back.append(first_index)
        return True


class StoppableClock(SystemClock):
    """The machine's clock; while it is stopped no tick passes, so that no timer decides."""

    def __init__(self):
        self.stopped_ms = None

    def stop(self):
        self.stopped_ms = super().monotonic_ms()

    def go_on(self):
        self.stopped_ms = None

    def monotonic_ms(self):
        return super().monotonic_ms() if self.stopped_ms is None else self.stopped_ms


class Group:
    """Some nodes of one group, in this process.

    Where the machine holds a write up, its node goes on leading, unless a test is about that: see
    `mind_slow_writes`. Elections do not mind a stall: they are counted in ticks.
    """

    listener_class = Listener
    fatal_is_expected = True

    def __init__(self, path, size=3, *, disks=None, **settings):
        ports = free_ports(size)
        self.ids = [f"n{number}" for number in range(size)]
        self.peers = {i: f"127.0.0.1:{port}" for i, port in zip(self.ids, ports, strict=True)}
        self.path = path
        self.settings = {
            "data_segment_bytes": SEGMENT, "index_segment_bytes": 32 * 100, "tick_ms": 10,
            **settings,
        }  # fmt: skip
        self.disks = disks or {}
        self.clock = StoppableClock()
        self.nodes = {}
        self.listeners = {}
        self.fatal = []

    def config(self, node_id, **other):
        settings = {"directory": f"{self.path}/{node_id}", **self.settings, **other}
        return DLedgerConfig(group="group", self_id=node_id, peers=self.peers, **settings)

    async def start(self, *ids, **other):
        for node_id in ids or self.ids:
            listener = self.listener_class()
            node = DLedgerNode(
                self.config(node_id, **other), disk=self.disks.get(node_id),
                clock=self.clock, on_fatal=self.fatal.append,
            )  # fmt: skip
            node._slow_write_ms = NEVER_MS
            await node.start(listener)
            self.nodes[node_id], self.listeners[node_id] = node, listener

    async def stop(self, *ids):
        for node_id in ids or list(self.nodes):
            node = self.nodes.pop(node_id, None)
            if node is not None:
                await node.stop()

    async def until(self, condition):
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                assert self.fatal_is_expected or not self.fatal, self.fatal
                await asyncio.sleep(0.005)

    async def leader(self):
        def found():
            leaders = [n for n in self.nodes.values() if n.is_leader and n.commit_index >= 0]
            return max(leaders, key=lambda node: node.term, default=None)

        def told(node):
            return [role for role, _, _ in self.listeners[node.self_id].roles[-1:]] == [Role.LEADER]

        await self.until(lambda: found() and told(found()))
        return found()

    async def append(self, count, size=100, tag=b""):
        """Append through whoever leads, and wait until all is committed there."""
        node = await self.leader()
        listener = self.listeners[node.self_id]
        for number in range(count):
            body = (tag + b"%d " % number).ljust(size, b".")
            offset = node.reserve(size)
            index = node.append((body[:10], body[10:]), size)
            if number % 10 == 9:
                await asyncio.sleep(0)
        await self.until(lambda: listener.commit_index >= index)
        assert bytes(node.reader.view(offset, size)) == body
        return node

    async def settle(self):
        """Wait until all that run have committed the same."""
        leader = await self.leader()
        await asyncio.sleep(0.01)  # what was appended in this turn is written in the next
        await self.until(
            lambda: all(n.commit_index == leader.end_index for n in self.nodes.values())
        )

    def mind_slow_writes(self):
        """Have a leader give up leadership after a slow write, as it does in production."""
        for node in self.nodes.values():
            node._slow_write_ms = node.config.election_timeout_ms

    def files(self, node_id, kind):
        folder = self.path / node_id / kind
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def run(main):
    uvloop.run(asyncio.wait_for(main, LIMIT_S * 3))
