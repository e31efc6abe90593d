"""Hypothesis drives a cluster into trouble; after every step Figure 3 must hold (see `cluster`).

Two worlds: ASYNC_FLUSH, where a crash ends a process and keeps its page cache, and SYNC_FLUSH,
where a crash may also be a loss of power. In both, disks fill up and links are cut one way.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dledger.config import FlushDiskType
from dledger.core.configuration import ChangeKind
from dledger.core.model import Role
from tests.unit.dledger.cluster import Cluster

NODES = st.integers(0, 4)
FAST = {"heartbeat_ticks": 2, "election_ticks_min": 5, "election_ticks_max": 10}


class RaftMachine(RuleBasedStateMachine):
    flush_disk_type = FlushDiskType.ASYNC_FLUSH

    @initialize(size=st.sampled_from([3, 3, 4, 5]), seed=st.integers(0, 1000))
    def begin(self, size, seed):
        self.cluster = Cluster(size, seed=seed, flush_disk_type=self.flush_disk_type, **FAST)

    def node(self, number):
        return self.cluster.ids[number % len(self.cluster.ids)]

    @rule(number=NODES, ticks=st.integers(1, 12))
    def tick(self, number, ticks):
        self.cluster.tick(self.node(number), ticks)

    @rule(ticks=st.integers(1, 12))
    def tick_all(self, ticks):
        self.cluster.tick_all(ticks)

    @rule(number=NODES)
    def campaign(self, number):
        self.cluster.campaign(self.node(number))

    @rule(number=NODES, count=st.integers(1, 3))
    def propose(self, number, count):
        node = self.node(number)
        if node in self.cluster.up:
            for _ in range(count):
                self.cluster.propose(node)

    @precondition(lambda self: self.cluster.network)
    @rule(number=st.integers(0, 50), count=st.integers(1, 20))
    def deliver(self, number, count):
        for _ in range(count):
            if self.cluster.network:
                self.cluster.deliver(number % len(self.cluster.network))

    @precondition(lambda self: self.cluster.network)
    @rule(count=st.integers(1, 60))
    def deliver_in_order(self, count):
        for _ in range(count):
            if self.cluster.network:
                self.cluster.deliver()

    @precondition(lambda self: self.cluster.network)
    @rule(number=st.integers(0, 50))
    def drop(self, number):
        del self.cluster.network[number % len(self.cluster.network)]

    @precondition(lambda self: self.cluster.network)
    @rule(number=st.integers(0, 50))
    def duplicate(self, number):
        network = self.cluster.network
        network.append(network[number % len(network)])

    @rule(one=NODES, other=NODES)
    def cut(self, one, other):
        self.cluster.cut.add((self.node(one), self.node(other)))

    @rule()
    def heal(self):
        self.cluster.heal()

    @rule(number=NODES)
    def crash(self, number):
        self.cluster.crash(self.node(number))

    @rule(number=NODES)
    def restart(self, number):
        self.cluster.restart(self.node(number))

    @rule(number=NODES, peer=NODES)
    def unreachable(self, number, peer):
        self.cluster.do(self.node(number), lambda raft: raft.unreachable(self.node(peer)))

    @rule(number=NODES)
    def disk_full(self, number):
        store = self.cluster.replicas[self.node(number)].store
        store.is_full = not store.is_full

    @rule(number=NODES)
    def sync(self, number):
        self.cluster.sync(self.node(number))

    def teardown(self):
        """Liveness: healed, with all nodes up, a leader is found and what it appends commits."""
        if hasattr(self, "cluster"):
            self.end()

    def end(self, *, members_only=False):
        cluster = self.cluster
        cluster.heal()
        for replica in cluster.replicas.values():
            replica.store.is_full = False
        for node in cluster.ids:
            cluster.restart(node)
        for _ in range(150):
            cluster.tick_all()
            cluster.sync_all()
            for _ in range(min(len(cluster.network), 500)):
                cluster.deliver()
        leader = cluster.leader()
        assert cluster[leader].state.role is Role.LEADER
        cluster.propose(leader, b"last")
        for _ in range(30):
            cluster.tick_all()
            cluster.sync_all()
            for _ in range(min(len(cluster.network), 500)):
                cluster.deliver()
        assert cluster.committed[-1][1] == b"last"
        nodes = cluster[leader].state.membership.latest.configuration.members
        nodes = nodes if members_only else cluster.ids
        assert all(cluster.log(node) == cluster.log(leader) for node in nodes)


class PowerMachine(RaftMachine):
    flush_disk_type = FlushDiskType.SYNC_FLUSH

    @rule(number=NODES)
    def lose_power(self, number):
        self.cluster.crash(self.node(number), power=True)

    @rule()
    def sync_all(self):
        self.cluster.sync_all()


class MembershipMachine(PowerMachine):
    """Servers come and go, and lose their directories, as far as the rule for that covers it."""

    @initialize(size=st.sampled_from([3, 3, 4, 5]), seed=st.integers(0, 1000))
    def begin(self, size, seed):
        mode = self.flush_disk_type
        self.cluster = Cluster(size, seed=seed, flush_disk_type=mode, is_new=True, **FAST)

    @rule(kind=st.sampled_from(ChangeKind), number=NODES)
    def change(self, kind, number):
        for leader in self.cluster.up:
            if self.cluster[leader].state.role is Role.LEADER:
                self.cluster.change(leader, kind, self.node(number))

    @precondition(lambda self: len(self.cluster.ids) < 7)
    @rule()
    def join(self):
        self.cluster.join(f"n{len(self.cluster.ids)}")

    @rule(number=NODES)
    def wipe(self, number):
        if self.cluster.may_wipe(self.node(number)):
            self.cluster.wipe(self.node(number))

    def teardown(self):
        """Liveness, for the members that the last leader knows."""
        if hasattr(self, "cluster"):
            self.end(members_only=True)


for machine in (RaftMachine, PowerMachine, MembershipMachine):
    machine.TestCase.settings = settings(
        max_examples=40,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )

TestRaftMachine = RaftMachine.TestCase
TestPowerMachine = PowerMachine.TestCase
TestMembershipMachine = MembershipMachine.TestCase
