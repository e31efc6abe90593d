"""Members come and go over real sockets and disks, under load; a node returns without its disk."""

import asyncio
import dataclasses
import shutil

import pytest

from dledger import membership
from dledger.core.configuration import Change, ChangeKind
from dledger.core.model import Role
from dledger.errors import DLedgerError, MembershipRefused, NotLeader
from dledger.node import DLedgerNode
from tests.integration.dledger_group import Group, Listener, free_ports, run

ADD, PROMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.REMOVE


async def join(group, node_id):
    """Start a node that knows the others, but that they do not know."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = dataclasses.replace(
        group.config("n0"),
        self_id=node_id,
        peers={**group.peers, node_id: address},
        joining=True,
        directory=f"{group.path}/{node_id}",
    )
    node, listener = DLedgerNode(config, on_fatal=group.fatal.append), Listener()
    await node.start(listener)
    group.nodes[node_id], group.listeners[node_id] = node, listener
    return address


async def change(group, kind, node_id, address=""):
    """Have whoever leads do it, again as long as it says that it may succeed later."""
    async with asyncio.timeout(20):
        while True:
            leader = await group.leader()
            try:
                return await leader.operations.change_membership(Change(kind, node_id, address))
            except NotLeader:
                pass
            except MembershipRefused as refusal:
                if not refusal.may_retry:
                    raise
            await asyncio.sleep(0.02)


class Load:
    """Appends all the time, through whoever leads; remembers what was committed."""

    def __init__(self, group):
        self.group = group
        self.committed = set()
        self.waiting = {}
        self.number = 0
        self.task = asyncio.create_task(self.run())

    async def run(self):
        while True:
            for node in list(self.group.nodes.values()):
                if node.is_leader:
                    self.append(node)
            await asyncio.sleep(0.002)

    def append(self, node):
        body = b"load %d" % self.number
        try:
            node.reserve(len(body))
        except DLedgerError:
            return
        self.number += 1
        self.waiting[node.self_id, node.append((body,), len(body)), node.term] = body
        for key in list(self.waiting):
            node_id, index, term = key
            if node_id not in self.group.nodes:
                del self.waiting[key]
            elif self.group.nodes[node_id].commit_index >= index:
                holder, body = self.group.nodes[node_id], self.waiting.pop(key)
                if holder.reader.entry(index)[2] == term:
                    self.committed.add(body)

    async def more(self, count=20):
        """Wait until so many more are committed."""
        goal = len(self.committed) + count
        await self.group.until(lambda: len(self.committed) >= goal)

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def bodies(node):
    return [bytes(node.reader.body_view(index)) for index in range(node.end_index + 1)]


def test_group_is_changed_under_load(tmp_path):
    """Add a learner, promote it, remove the leader; a node comes back with an empty directory."""

    async def main():
        group = Group(tmp_path)
        await group.start()
        load = Load(group)
        await load.more()

        address = await join(group, "n3")
        await change(group, ADD, "n3", address)
        await group.until(lambda: group.nodes["n3"].status()["learners"] == ["n3"])
        assert group.nodes["n3"].role is Role.FOLLOWER
        await change(group, PROMOTE, "n3")
        await load.more()
        await group.until(lambda: "n3" in group.nodes["n3"].status()["voters"])

        leader = await group.leader()
        gone = leader.self_id
        await change(group, REMOVE, gone)
        await group.until(lambda: leader.role is Role.FOLLOWER)
        await load.more()
        assert gone not in (await group.leader()).status()["voters"]
        await group.stop(gone)

        wiped = next(node_id for node_id in group.nodes if not group.nodes[node_id].is_leader)
        first_life = group.nodes[wiped].status()["store_id"]
        await group.stop(wiped)
        shutil.rmtree(tmp_path / wiped)
        await load.more(5)
        if wiped == "n3":
            group.peers["n3"] = address
        await group.start(wiped)
        assert group.nodes[wiped].status()["store_id"] != first_life
        await load.more()
        await group.until(lambda: not group.nodes[wiped].status()["fresh"])
        await group.until(lambda: not (group.nodes[wiped].status()["rejoining"]))

        await load.stop()
        await group.settle()
        logs = [bodies(node) for node in group.nodes.values()]
        assert logs[0] == logs[1] == logs[2]
        assert load.committed <= set(logs[0])
        assert len(load.committed) >= 80
        # Two of three are a majority again, with the one that had lost everything.
        other = next(i for i in group.nodes if i != wiped)
        await group.stop(other)
        await group.append(10)
        await group.stop()
        assert not group.fatal

    run(main())


def test_member_that_the_others_learn_of_by_the_log_alone_can_lead(tmp_path):
    """No node but n3 has its address in its settings; a restarted one has it from its directory."""

    async def main():
        group = Group(tmp_path)
        await group.start()
        await group.append(10)
        address = await join(group, "n3")
        await change(group, ADD, "n3", address)
        await change(group, PROMOTE, "n3")
        await group.settle()
        await group.stop("n0")
        await group.start("n0")
        await group.settle()
        leader = await group.leader()
        if leader.self_id != "n3":
            await leader.operations.transfer_leadership("n3")
        await group.until(lambda: group.nodes["n3"].is_leader)
        await group.append(10)
        await group.settle()
        assert group.nodes["n0"].status()["voters"] == ["n0", "n1", "n2", "n3"]
        await group.stop()
        assert not group.fatal

    run(main())


def test_group_of_one_grows_to_three(tmp_path):
    async def main():
        group = Group(tmp_path, 1)
        await group.start()
        await group.append(5)
        for node_id in ("n1", "n2"):
            await change(group, ADD, node_id, await join(group, node_id))
            await change(group, PROMOTE, node_id)
        await group.append(5)
        await group.settle()
        await group.stop("n0")
        await group.append(5)
        await group.stop()
        assert not group.fatal

    run(main())


def test_change_is_refused_with_a_reason(tmp_path):
    async def main():
        group = Group(tmp_path)
        await group.start()
        leader = await group.leader()
        follower = next(node for node in group.nodes.values() if node is not leader)
        with pytest.raises(NotLeader):
            await follower.operations.change_membership(Change(REMOVE, "n0"))
        with pytest.raises(MembershipRefused, match="not an address"):
            await leader.operations.change_membership(Change(ADD, "n9", "nowhere"))
        with pytest.raises(MembershipRefused, match="n9 is not a member"):
            await leader.operations.change_membership(Change(REMOVE, "n9"))
        await group.append(3)
        await group.stop()
        assert not group.fatal

    run(main())


@pytest.mark.parametrize(
    ("node_id", "address", "why"),
    [
        ("", "h:1", "not a node id"),
        ("n", "h:1", "not a node id"),
        ("n 3", "h:1", "not a node id"),
        ("n3;n4", "h:1", "not a node id"),
        ("\u00e93", "h:1", "not a node id"),
        ("n" * 300 + "3", "h:1", "not a node id"),
        ("n3", "h" * 254 + ":1", "not an address"),
        ("n3", "h h:1", "not an address"),
        ("n3", "h\n:1", "not an address"),
        ("n3", "h:\uff11", "not an address"),
        ("n3", "h:" + "9" * 5000, "not an address"),
    ],
)
def test_learner_that_nobody_could_dial_never_gets_into_the_log(tmp_path, node_id, address, why):
    """One such entry would end every member that reads it, at each start."""

    async def main():
        group = Group(tmp_path, 1)
        await group.start()
        leader = await group.leader()
        last_index = leader.end_index
        with pytest.raises(MembershipRefused, match=why) as refusal:
            await leader.operations.change_membership(Change(ADD, node_id, address))
        assert not refusal.value.may_retry
        assert leader.end_index == last_index
        await group.stop()
        assert not group.fatal

    run(main())


class LongNamed(Group):
    """Its name leaves room for two bytes less than the longest id takes."""

    def config(self, node_id, **other):
        return dataclasses.replace(super().config(node_id, **other), group="g" * 188)


async def longest_learner(path):
    group = LongNamed(path, 1)
    await group.start()
    leader = await group.leader()
    try:
        await leader.operations.change_membership(Change(ADD, "n" * 61 + "3", "127.0.0.1:1"))
        await leader.operations.change_membership(Change(REMOVE, "n" * 61 + "3"))
        with pytest.raises(MembershipRefused, match="too long beside the name of this group"):
            await leader.operations.change_membership(Change(ADD, "n" * 62 + "3", "127.0.0.1:1"))
    finally:
        await group.stop()
    assert not group.fatal


def test_learner_whose_name_no_message_has_room_for_never_gets_into_the_log(tmp_path):
    run(longest_learner(tmp_path))


async def leader_that_holds_back(path):
    """Remove a leader; what it appended as it handed over, its successor has."""
    group = Group(path)
    await group.start()
    leader = await group.leader()
    appended = []

    def hand_over():
        leader.reserve(4)
        appended.append(leader.append((b"last",), 4))

    group.listeners[leader.self_id].on_hand_over = hand_over
    try:
        index = await leader.operations.change_membership(Change(REMOVE, leader.self_id))
        await group.stop(leader.self_id)
        successor = await group.leader()
        assert appended == [index - 1]
        assert successor.reader.body_view(index - 1) == b"last"
    finally:
        await group.stop()
        assert not group.fatal


def test_a_leader_that_is_removed_hands_over_what_it_held_back(tmp_path):
    run(leader_that_holds_back(tmp_path))


async def one_learner_too_many(path):
    group = Group(path, 1)
    await group.start()
    leader = await group.leader()
    try:
        await leader.operations.change_membership(Change(ADD, "n3", "127.0.0.1:1"))
        with pytest.raises(MembershipRefused, match="the group has 2 members, and may have no"):
            await leader.operations.change_membership(Change(ADD, "n4", "127.0.0.1:1"))
        await leader.operations.change_membership(Change(REMOVE, "n3"))
        await leader.operations.change_membership(Change(ADD, "n4", "127.0.0.1:1"))
    finally:
        await group.stop()
    assert not group.fatal


def test_no_group_gets_more_members_than_a_snapshot_may_name(tmp_path, monkeypatch):
    """Its members would refuse each other's snapshots for good."""
    monkeypatch.setattr(membership, "MEMBERS_MAX", 2)
    run(one_learner_too_many(tmp_path))


def test_name_that_is_no_name_does_not_end_the_link(tmp_path):
    """What no encoding of names takes is an address like one where nobody is."""

    async def main():
        group = Group(tmp_path, 1)
        await group.start()
        await change(group, ADD, "n3", "a..b:1")
        await group.append(3)
        await change(group, REMOVE, "n3")
        await group.stop()
        assert not group.fatal

    run(main())


def test_member_does_not_return_at_an_address_that_the_settings_contradict(tmp_path):
    """Settings win over the log (proxies, moved machines), so nobody would find it there."""

    async def main():
        group = Group(tmp_path)
        await group.start()
        gone = next(iter({"n0", "n1"} - {(await group.leader()).self_id}))
        await change(group, REMOVE, gone)
        await group.stop(gone)
        leader = await group.leader()
        with pytest.raises(MembershipRefused, match=f"{gone} is at {group.peers[gone]} in the"):
            await leader.operations.change_membership(Change(ADD, gone, "127.0.0.1:1"))
        await change(group, ADD, gone, group.peers[gone])
        await group.stop()
        assert not group.fatal

    run(main())
