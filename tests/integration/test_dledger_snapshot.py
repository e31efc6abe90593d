"""Trimming and snapshots with real nodes: disks, sockets, restarts."""

import asyncio
import contextlib
import shutil

import pytest

from dledger.codec.snapshot import encode_snapshot
from dledger.errors import DLedgerError, NotLeader
from tests.integration.dledger_group import LIMIT_S, Group, Listener, run

STATE = b"state of the user " * 40_000  # several chunks


class Keeper(Listener):
    """A listener whose state is bytes that the test gives."""

    def __init__(self):
        super().__init__()
        self.installed = []
        self.trimmed = []

    def on_snapshot(self, meta, state):
        self.installed.append((meta, state))
        self.commit_index = meta.id.last_index

    def on_trimmed(self, position):
        self.trimmed.append(position)


class KeeperGroup(Group):
    listener_class = Keeper
    fatal_is_expected = False


def play(path, story, **settings):
    """Run a story with a group that is stopped whatever becomes of it."""

    async def main():
        group = KeeperGroup(path, tick_ms=25, **settings)
        try:
            await group.start()
            await story(group)
        finally:
            assert not group.fatal, group.fatal
            await group.stop()

    run(main())


async def trim(node, state=STATE):
    """Drop all that may go, as a broker does; return the plan. Who stopped counts for a while."""
    async with asyncio.timeout(LIMIT_S):
        while node.trimmer.limit().last_index < node.commit_index:
            await asyncio.sleep(0.01)
    plan = node.trimmer.plan(node.commit_index)
    assert plan is not None
    assert await node.trimmer.trim(plan, node.commit_index, state)
    return plan


def test_trimmed_log_is_dropped_read_and_opened_again(tmp_path):
    async def story(group):
        node = await group.append(3000)
        old_view = node.reader.body_view(5)
        old = bytes(old_view)
        kept = {index: bytes(node.reader.body_view(index)) for index in range(2900, 3001)}
        before = len(group.files("n0", "data")), len(group.files("n0", "index"))
        plan = await trim(node)
        assert node.first_index == plan.first_index > 2000
        assert node.first_position == plan.position == group.listeners["n0"].trimmed[0]
        assert bytes(old_view) == old, "a view that was held changed"
        files = group.files("n0", "data")
        assert min(map(int, files)) == plan.position
        assert len(files) < before[0]
        assert len(group.files("n0", "index")) < before[1]
        assert node.trimmer.plan(node.commit_index) is None
        assert node.status()["first_index"] == plan.first_index
        assert node.status()["snapshot"]["last_index"] == plan.first_index - 1
        await group.stop()
        await group.start()
        node = await group.leader()
        assert (node.first_index, node.first_position) == (plan.first_index, plan.position)
        assert {index: bytes(node.reader.body_view(index)) for index in kept} == kept
        assert node.reader.snapshot_state() == STATE
        await group.append(100)

    play(tmp_path, story, size=1)


def test_wiped_replica_gets_snapshot_under_load_and_leads(tmp_path):
    async def story(group):
        leader = await group.append(2000)
        victim = next(i for i in group.ids if i != leader.self_id)
        await group.stop(victim)
        await group.append(2000)
        plan = await trim(leader)
        shutil.rmtree(tmp_path / victim)
        load = asyncio.create_task(append_anyhow(group, 1500))
        await group.start(victim)
        await load
        await group.settle()
        installed = group.listeners[victim].installed
        assert [(m.id.last_index, s) for m, s in installed] == [(plan.first_index - 1, STATE)]
        replica = group.nodes[victim]
        assert replica.first_index == plan.first_index
        assert group.files(victim, "data") == group.files(leader.self_id, "data")
        assert sorted(p.name for p in (tmp_path / victim).glob("snapshot*")) == ["snapshot"]
        # It leads, trimmed as it is, and the others follow it.
        await replica_leads(group, victim)
        await group.append(200, tag=b"new ")
        await group.settle()

    play(tmp_path, story)


def units(group, node_id, plan):
    """The index of a node, from where its log begins."""
    files = group.files(node_id, "index")
    return b"".join(files.values())[plan.first_index * 32 - min(map(int, files)) :]


async def append_anyhow(group, count):
    """Append under whatever leader there is."""
    for number in range(0, count, 50):
        with contextlib.suppress(NotLeader):
            await group.append(50, tag=b"load %d " % number)


async def replica_leads(group, node_id):
    """Hand leadership to a node, as soon as it may have it."""
    async with asyncio.timeout(LIMIT_S):
        while not group.nodes[node_id].is_leader:
            leader = await group.leader()
            with contextlib.suppress(DLedgerError):
                await leader.operations.transfer_leadership(node_id)
            await asyncio.sleep(0.01)


def test_replica_far_behind_keeps_nothing_of_its_old_log(tmp_path):
    async def story(group):
        leader = await group.append(300)
        victim = next(i for i in group.ids if i != leader.self_id)
        await group.settle()
        await group.stop(victim)
        await group.append(3000)
        plan = await trim(leader)
        await group.start(victim)
        await group.settle()
        assert group.nodes[victim].first_index == plan.first_index
        assert group.files(victim, "data") == group.files(leader.self_id, "data")
        assert units(group, victim, plan) == units(group, leader.self_id, plan)
        await group.stop()
        await group.start()
        await group.append(10)
        await group.settle()
        assert {n.first_index for n in group.nodes.values()} == {0, plan.first_index}

    play(tmp_path, story)


def test_trimming_keeps_what_a_living_follower_lacks(tmp_path):
    async def story(group):
        leader = await group.append(1000)
        await group.settle()
        slow = leader._raft.state.progress[next(i for i in group.ids if i != leader.self_id)]
        slow.match_index, end = 900, leader.commit_index
        assert leader.trimmer.limit() == (900, f"{slow.node_id} has no more yet")
        assert leader.trimmer.plan(end).first_index <= 901
        slow.match_index = end

    play(tmp_path, story)


def test_trimming_and_nothing_to_trim(tmp_path):
    async def story(group):
        node = await group.append(100)
        assert node.trimmer.plan(node.commit_index) is None
        await group.append(2000)
        plan = node.trimmer.plan(node.commit_index)
        assert node.trimmer.plan(plan.first_index - 2) != plan
        first, second = await asyncio.gather(
            node.trimmer.trim(plan, node.commit_index, b"one"),
            node.trimmer.trim(plan, node.commit_index, b"two"),
        )
        assert (first, second) == (True, False)
        assert node.reader.snapshot_state() == b"one"
        with pytest.raises(AssertionError, match="does not cover"):
            encode_snapshot((9, 1, 4096), 8, node.reader.snapshot_meta.configuration, b"")

    play(tmp_path, story, size=1)
