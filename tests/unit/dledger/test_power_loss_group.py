"""SYNC_FLUSH: what was acknowledged survives the loss of power of all replicas at once.

Cores, drivers and files are the real ones, on simulated disks; the network is a list. Every seed
draws deliveries, losses, ticks, syncs that return late, kills and power cuts of one replica or all.
"""

import errno
import random

import pytest

from dledger.codec.entry import encode_span
from dledger.codec.snapshot import decode_snapshot, encode_snapshot
from dledger.config import DLedgerConfig, FlushDiskType
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.messages import Append, AppendReply, Heartbeat, InstallSnapshot
from dledger.core.model import Role
from dledger.driver import Driver
from dledger.replica import open_replica
from dledger.segments.row import Segments
from dledger.storage.state_files import HardStateFile
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.disk import SimDisk
from sim.disk_rules import Action, Op, Rule
from sim.inode import PowerLossMode
from sim.rng import SplitRng

IDS = ("n0", "n1", "n2")
SYNC_MEANWHILE = 0.3


class Node:
    """One replica on its disk; ``raft`` is None while it is down."""

    def __init__(self, group, node_id):
        self.group = group
        self.disk = SimDisk(SplitRng(f"{group.seed} {node_id}"))
        self.config = DLedgerConfig(
            group="g",
            self_id=node_id,
            peers=dict.fromkeys(IDS, "127.0.0.1:1"),
            directory=f"/{node_id}",
            flush_disk_type=FlushDiskType.SYNC_FLUSH,
            data_segment_bytes=4096,
            index_segment_bytes=32 * 16,
            heartbeat_ticks=2,
            election_ticks_min=5,
            election_ticks_max=10,
        )
        self.raft = None
        self.syncs = []

    def start(self):
        replica = open_replica(self.config, self.disk, self.group.chance_rng, self.make_noop)
        self.replica, self.raft, self.store = replica, replica.raft, replica.store
        self.driver = Driver(
            self.raft,
            self.store,
            replica.hard_state_file,
            membership_file=replica.membership_file,
            flush_disk_type=self.config.flush_disk_type,
            send=self.group.network.append,
        )
        self.syncs = []

    def make_noop(self, index, term, end_position):
        position = self.store.place(end_position, 48 + 4)
        return encode_span(index, term, position, (b"noop",))

    def work(self):
        """Work off what the core wants; note what it tells as committed."""
        while (ready := self.raft.ready()) is not None:
            if self.driver.begin(ready):
                if self.group.chance.random() < SYNC_MEANWHILE:
                    self.begin_sync()  # another thread does it while this one is not done yet
                self.driver.persist_state(ready)
            self.driver.complete(ready)
        if self.raft.state.role is Role.LEADER:
            self.group.acknowledge(self)

    def propose(self, body):
        state = self.raft.state
        if state.role is Role.LEADER:
            position = self.store.place(state.log.end_position, len(body) + 48)
            self.raft.propose(encode_span(state.log.last_index + 1, state.term, position, [body]))
            self.work()

    def begin_sync(self):
        sync = self.driver.begin_sync()
        if sync is not None:
            self.store.sync(sync.dirty)
            self.syncs.append(sync)

    def end_sync(self):
        if self.syncs:
            self.driver.end_sync(self.syncs.pop(0))
            file = self.replica.checkpoint_file
            file.save(self.driver.checkpoint(), file.cuts)
            self.work()

    def check_synced(self):
        """What counts as synced would be there after a loss of power now."""
        index = self.driver.synced_index
        assert index <= self.store.last_index, "synced beyond the end"
        if index >= self.store.first_index:
            position, size, _ = self.store.entry(index)
            offset = position % self.config.data_segment_bytes
            path = f"{self.config.directory}/data/{position - offset:020}"
            assert self.disk.is_durable(path, offset, size), f"entry {index} is not synced"

    def stop(self, mode, seed):
        self.raft = None
        if mode is None:
            self.disk.crash()
        else:
            self.disk.power_loss(mode, seed)

    def entries(self):
        return [
            (self.store.entry(index)[2], bytes(self.store.body_view(index)))
            for index in range(self.store.last_index + 1)
        ]


class Group:
    def __init__(self, seed):
        self.seed = seed
        self.chance = random.Random(seed)
        self.chance_rng = self.chance
        self.network = []
        self.acknowledged = []
        self.proposed = 0
        self.nodes = {node_id: Node(self, node_id) for node_id in IDS}
        for node in self.nodes.values():
            node.start()

    @property
    def up(self):
        return [node for node in self.nodes.values() if node.raft is not None]

    def acknowledge(self, leader):
        """The leader answers its senders up to here."""
        for index in range(len(self.acknowledged), leader.raft.state.delivered_index + 1):
            term, body = leader.store.entry(index)[2], bytes(leader.store.body_view(index))
            self.acknowledged.append((term, body))

    def deliver(self):
        for _ in range(self.chance.randint(1, 8)):
            if self.network:
                late = self.chance.random() < 0.2
                number = self.chance.randrange(len(self.network)) if late else 0
                message = self.network.pop(number)
                node = self.nodes[message.receiver]
                if node.raft is not None:
                    node.raft.step(message)
                    node.work()

    def tick(self):
        for node in self.up:
            for _ in range(self.chance.randint(0, 3)):
                node.raft.tick()
                node.work()

    def propose(self):
        for node in self.up:
            for _ in range(self.chance.randint(1, 3)):
                self.proposed += 1
                node.propose(b"%d." % self.proposed * self.chance.randint(1, 120))

    def sync(self):
        for node in self.up:
            self.chance.choice((node.begin_sync, node.end_sync, node.end_sync))()

    def lose_power(self, all_of_them):
        mode = self.chance.choice((None, *PowerLossMode))
        for node in self.up if all_of_them else [self.chance.choice(self.up or [None])]:
            if node is not None:
                node.stop(mode, self.chance.randrange(1 << 30))
        if all_of_them:
            self.network.clear()
            self.restart()

    def restart(self):
        for node in self.nodes.values():
            if node.raft is None:
                node.start()

    def run(self, steps=600):
        actions = {
            self.deliver: 50,
            self.tick: 16,
            self.propose: 10,
            self.sync: 25,
            lambda: self.lose_power(all_of_them=False): 2,
            lambda: self.lose_power(all_of_them=True): 2,
            self.restart: 4,
            lambda: self.network and self.network.pop(): 3,
        }
        for action in self.chance.choices(list(actions), list(actions.values()), k=steps):
            action()
            self.check()
        self.restart()
        before = len(self.acknowledged)
        for _ in range(400):
            self.tick()
            self.propose()
            while self.network:
                self.deliver()
            for node in self.up:
                node.begin_sync()
                node.end_sync()
            if len(self.acknowledged) > before + 5:
                break
        self.check()
        assert len(self.acknowledged) > before, "it goes on"

    def check(self):
        """No leader lacks what was acknowledged; a newer one has it below its first entry."""
        for node in self.up:
            node.check_synced()
        leaders = [n for n in self.up if n.raft.state.role is Role.LEADER]
        if leaders:
            newest = max(leaders, key=lambda node: node.raft.state.term)
            if newest.raft.state.log.commit_index >= 0:
                held = newest.entries()[: len(self.acknowledged)]
                assert held == self.acknowledged[: len(held)], "another entry was acknowledged"
                state = newest.raft.state
                if state.log.term_at(state.log.commit_index) == state.term:
                    assert len(held) == len(self.acknowledged), "an acknowledged entry is gone"


def leader_with_an_unsynced_tail():
    """A leader, the last entry that it has synced, and three more that nobody else hears of."""
    group = Group(0)
    node = group.nodes["n0"]
    while node.raft.state.role is not Role.LEADER:
        for _ in range(3):
            node.raft.tick()
        node.work()
        for _ in range(4):
            group.deliver()
    node.begin_sync()
    node.end_sync()
    synced = node.driver.synced_index
    for _ in range(3):
        node.propose(b"of a leader that nobody hears")
    return node, synced


def work_with_a_sync_meanwhile(node, *, returns_early):
    """Work off what is due; a sync begins while another thread cuts the log.

    It returns before or after the loop knows that the log was cut.
    """
    while (ready := node.raft.ready()) is not None:
        if node.driver.begin(ready):
            node.begin_sync()
            node.driver.persist_state(ready)
            while returns_early and node.syncs:
                node.driver.end_sync(node.syncs.pop(0))
                file = node.replica.checkpoint_file
                file.save(node.driver.checkpoint(), file.cuts)
        node.driver.complete(ready)
    while node.syncs:
        node.driver.end_sync(node.syncs.pop(0))


@pytest.mark.parametrize("returns_early", [True, False])
def test_a_sync_that_begins_while_the_log_is_cut_covers_nothing_behind_the_cut(returns_early):
    node, synced = leader_with_an_unsynced_tail()
    log, term = node.raft.state.log, node.raft.state.term + 1
    position, size, _ = node.store.entry(synced)
    other = encode_span(synced + 1, term, position + size, [b"of the next leader"])
    node.raft.step(Append("n1", "n0", term, synced, log.term_at(synced), -1, other))
    work_with_a_sync_meanwhile(node, returns_early=returns_early)
    assert node.store.last_index == synced + 1
    assert node.driver.synced_index == synced
    node.begin_sync()
    node.end_sync()
    assert node.driver.synced_index == synced + 1


def counted_after_a_sync_that_the_cut_overtook():
    """Return what a replica counts, and what it had synced before, as a sync ends.

    The core has cut what the sync covers and taken another entry; the disk has heard of neither.
    """
    node, synced = leader_with_an_unsynced_tail()
    node.work()
    node.begin_sync()
    log, term = node.raft.state.log, node.raft.state.term + 1
    position, size, _ = node.store.entry(synced)
    other = encode_span(synced + 1, term, position + size, [b"of the next leader"])
    node.raft.step(Append("n1", "n0", term, synced, log.term_at(synced), -1, other))
    while node.syncs:
        node.driver.end_sync(node.syncs.pop(0))
    return log.persisted_index, synced


def test_a_sync_that_a_cut_has_overtaken_counts_nothing_behind_it():
    counted, synced = counted_after_a_sync_that_the_cut_overtook()
    assert counted == synced
    with planted(BY_TESTS["overtaken-sync-counted"]):
        counted, synced = counted_after_a_sync_that_the_cut_overtook()
        assert counted == synced + 1


def synced_before_a_cut(*, begins_before, returns_early):
    """Return how far a replica counts as synced, and the last entry that a cut has left.

    A sync of it returns when the log is cut already; the disk has no space for what follows.
    """
    node, synced = leader_with_an_unsynced_tail()
    if begins_before:
        node.begin_sync()
    log, term = node.raft.state.log, node.raft.state.term + 1
    position, size, _ = node.store.entry(synced + 1)
    other = encode_span(synced + 2, term, position + size, [b"of the next leader"])
    node.raft.step(Append("n1", "n0", term, synced + 1, log.term_at(synced + 1), -1, other))
    ready = node.raft.ready()
    assert node.driver.begin(ready)
    if not begins_before:
        node.begin_sync()
    if returns_early:
        node.driver.end_sync(node.syncs.pop(0))
    node.driver.persist_state(ready)
    full = Rule(action=Action.FAIL, error=errno.ENOSPC, ops=frozenset({Op.WRITE}), count=1)
    node.disk.add_rule(full)
    assert not node.driver.complete(ready), "nothing is written behind the cut"
    if not returns_early:
        node.driver.end_sync(node.syncs.pop(0))
    node.check_synced()
    assert node.store.last_index == synced + 1
    return node.driver.synced_index, log.persisted_index, synced + 1


@pytest.mark.parametrize("begins_before", [True, False])
@pytest.mark.parametrize("returns_early", [True, False])
def test_a_sync_that_a_cut_overtakes_counts_what_lies_before_it(begins_before, returns_early):
    synced, persisted, kept = synced_before_a_cut(
        begins_before=begins_before, returns_early=returns_early
    )
    assert (synced, persisted) == (kept, kept)


def synced_as_an_install_fails():
    """Return how far a replica counts as synced, and its last entry.

    A sync returns when a snapshot is to take the place of the log, and finds no space. Nothing is
    written then that a later sync would cover.
    """
    node, synced = leader_with_an_unsynced_tail()
    term, last_index = node.raft.state.term + 1, node.store.last_index
    assert synced < last_index
    node.begin_sync()
    members = ConfigEntry(-1, 0, Configuration(dict.fromkeys(IDS, "127.0.0.1:1"), {}, 0))
    last = (last_index + 9, term, node.config.data_segment_bytes)
    data = encode_snapshot(last, last_index + 9, members, b"state")
    node.raft.step(InstallSnapshot("n1", "n0", term, decode_snapshot(data)[0].id, 0, data))
    node.disk.add_rule(Rule(action=Action.FAIL, error=errno.ENOSPC, glob="*snapshot*"))
    work_with_a_sync_meanwhile(node, returns_early=False)
    node.disk.heal()
    assert node.driver.begin_sync() is None, "nothing tells later"
    node.check_synced()
    return node.driver.synced_index, last_index


def test_a_sync_counts_though_an_install_fails_meanwhile():
    synced, last_index = synced_as_an_install_fails()
    assert synced == last_index


def test_the_planted_sync_that_counts_nothing_is_seen():
    with planted(BY_TESTS["overtaken-sync-counts-nothing"]):
        synced, last_index = synced_as_an_install_fails()
        assert synced < last_index
        synced, _, kept = synced_before_a_cut(begins_before=True, returns_early=False)
        assert synced < kept


@pytest.mark.parametrize("returns_early", [True, False])
def test_a_sync_that_begins_while_the_log_is_replaced_says_nothing_of_it(returns_early):
    node, synced = leader_with_an_unsynced_tail()
    term = node.raft.state.term + 1
    begin = node.config.data_segment_bytes  # where a log may begin
    members = ConfigEntry(-1, 0, Configuration(dict.fromkeys(IDS, "127.0.0.1:1"), {}, 0))
    last = (synced + 1, term, begin)
    data = encode_snapshot(last, synced + 1, members, b"state")
    node.raft.step(InstallSnapshot("n1", "n0", term, decode_snapshot(data)[0].id, 0, data))
    work_with_a_sync_meanwhile(node, returns_early=returns_early)
    assert node.store.last_index == synced + 1
    assert node.driver.synced_index == synced + 1
    assert node.replica.checkpoint_file.load().end_index <= synced + 1


@pytest.mark.parametrize("news_comes", [False, True])
def test_an_acknowledgement_that_waits_for_its_sync_ends_with_its_term(news_comes):
    """A later leader is heard of while the entries of the one before are being worked off.

    They may be cut before the sync returns, so nobody may count this replica for them any more.
    """
    leader, _ = leader_with_an_unsynced_tail()
    group = leader.group
    while leader.store.last_index > group.nodes["n1"].store.last_index:
        leader.raft.tick()
        leader.work()
        group.deliver()
    node = group.nodes["n1"]
    node.begin_sync()
    node.end_sync()
    log, term = node.raft.state.log, node.raft.state.term
    position = node.store.place(log.end_position, 48 + 4)
    span = encode_span(log.last_index + 1, term, position, [b"more"])
    node.raft.step(Append("n0", "n1", term, log.last_index, log.last_term, -1, span))
    group.network.clear()
    ready = node.raft.ready()
    assert ready.replies
    if node.driver.begin(ready):
        node.driver.persist_state(ready)
    if news_comes:
        node.raft.step(Heartbeat("n2", "n1", term + 1, -1, 0))
    node.driver.complete(ready)
    node.work()
    node.begin_sync()
    node.end_sync()
    told = [message.match_index for message in group.network if isinstance(message, AppendReply)]
    assert told == ([] if news_comes else [node.store.last_index])


SEEDS = range(60)


@pytest.mark.parametrize("first", SEEDS[::10])
def test_acknowledged_entries_survive_the_loss_of_all_power(first):
    for seed in range(first, first + 10):
        Group(seed).run()


def set_bug(monkeypatch, bug):
    init = Driver.__init__

    def hasty(self, *parts, **named):
        init(self, *parts, **named)
        self._is_sync = False

    owner, name, planted = {
        "acknowledged before the sync": (Driver, "__init__", hasty),
        "vote not written": (HardStateFile, "save", lambda self, state: None),
        "found but not synced": (Segments, "sync_from", lambda self, _: self._dirty.clear()),
        "sync does nothing": (Segments, "sync", lambda self, files: None),
    }[bug]
    monkeypatch.setattr(owner, name, planted)


@pytest.mark.parametrize(
    "bug",
    [
        "acknowledged before the sync",
        "vote not written",
        "found but not synced",
        "sync does nothing",
    ],
)
def test_planted_bug_is_caught(monkeypatch, bug):
    set_bug(monkeypatch, bug)
    for seed in range(300):
        try:
            Group(seed).run()
        except Exception:  # noqa: BLE001  # whatever it breaks, it is noticed
            return
    raise AssertionError("not caught in 300 seeds")
