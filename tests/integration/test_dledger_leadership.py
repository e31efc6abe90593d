"""Transfers, read indexes and the check of the quorum over real sockets and files."""

import asyncio
import contextlib

import pytest

from chaos.history.raft_event import decode_events
from dledger.core.model import Role
from dledger.errors import NotLeader, QuorumTimeout, TransferFailed
from tests.integration.dledger_group import Group, run


@contextlib.asynccontextmanager
async def running(path, size=3, **settings):
    group = Group(path, size, **settings)
    try:
        await group.start()
        yield group
    finally:
        await group.stop()


ELECTION_TICKS = 20
SPARE_TICKS = 10
"""For what was still on its way, and since two ticks may pass at once."""


def ticks(node):
    """The time as the node counts it: where the process stands still, hardly any passes."""
    return node._raft.state.tick


def cut(group, node_id, *, others=None):
    """Let nothing pass between a node and the others; connections stay open."""
    peers = others or [i for i in group.nodes if i != node_id]
    links = [group.nodes[node_id]._transport._links[peer] for peer in peers]
    links += [group.nodes[peer]._transport._links[node_id] for peer in peers]
    for link in links:
        link.maybe_transport = lambda: None
    return links


def heal(links):
    for link in links:
        with contextlib.suppress(AttributeError):
            del link.maybe_transport


def test_leadership_goes_to_the_target_and_nothing_accepted_is_lost_or_unknown(tmp_path):
    async def main():
        async with running(tmp_path) as group:
            leader = await group.append(50)
            listener = group.listeners[leader.self_id]
            target = next(i for i in group.ids if i != leader.self_id)
            await group.settle()
            group.clock.stop()  # no timer of an election has a part in it
            term = leader.term
            for number in range(20):
                leader.reserve(100)
                last = leader.append((b"%03d" % number, b"." * 97), 100)
            handover = asyncio.create_task(leader.operations.transfer_leadership(target))
            await asyncio.sleep(0)
            with pytest.raises(NotLeader):
                leader.reserve(100)
            await handover
            assert group.nodes[target].is_leader
            assert group.nodes[target].term == term + 1
            group.clock.go_on()
            assert listener.commit_index >= last, "told before the leadership was lost"
            await group.append(10)
            await group.settle()
            files = [group.files(i, "data") for i in group.ids]
            assert files[0] == files[1] == files[2]

    run(main())


def test_transfer_to_a_dead_member_ends_and_the_leader_serves(tmp_path):
    async def main():
        async with running(tmp_path) as group:
            leader = await group.append(10)
            dead = next(i for i in group.ids if i != leader.self_id)
            await group.stop(dead)
            begin = ticks(leader)
            with pytest.raises(TransferFailed, match=dead):
                await leader.operations.transfer_leadership(dead)
            assert ticks(leader) - begin <= ELECTION_TICKS + SPARE_TICKS
            for target, words in ((leader.self_id, "leads already"), ("n7", "no voter")):
                with pytest.raises(TransferFailed, match=words):
                    await leader.operations.transfer_leadership(target)
            assert (await group.append(10)) is leader
            follower = next(n for n in group.nodes.values() if n is not leader)
            with pytest.raises(TransferFailed, match="does not lead"):
                await follower.operations.transfer_leadership(leader.self_id)

    run(main())


def test_preferred_leader_takes_over_when_it_comes_back(tmp_path):
    async def main():
        async with running(tmp_path, preferred_leader="n2") as group:
            await group.until(lambda: group.nodes["n2"].is_leader)
            await group.append(10)
            await group.stop("n2")
            await group.append(10)
            await group.start("n2")
            await group.until(lambda: group.nodes["n2"].is_leader)
            await group.append(10)

    run(main())


def test_read_index_covers_what_was_committed_and_many_callers_share_rounds(tmp_path):
    async def main():
        async with running(tmp_path) as group:
            leader = await group.append(20)
            state = leader._raft.state
            before = state.heartbeat_round
            committed = leader.commit_index
            found = await asyncio.gather(*(leader.operations.read_index() for _ in range(200)))
            assert set(found) == {committed}
            assert state.heartbeat_round - before <= 3
            follower = next(n for n in group.nodes.values() if n is not leader)
            with pytest.raises(NotLeader):
                await follower.operations.read_index()

    run(main())


def test_group_of_one_reads_without_a_round(tmp_path):
    async def main():
        async with running(tmp_path, 1) as group:
            leader = await group.append(5)
            assert await leader.operations.read_index() == leader.commit_index

    run(main())


def test_leader_cut_off_confirms_no_read_and_steps_down_within_an_election_timeout(tmp_path):
    async def main():
        async with running(tmp_path, max_wait_ack_ms=20_000) as group:
            leader = await group.append(20)
            listener = group.listeners[leader.self_id]
            links = cut(group, leader.self_id)
            begin = ticks(leader)
            leader.reserve(100)
            index = leader.append((b"p" * 100,), 100)
            with pytest.raises((NotLeader, QuorumTimeout)):
                await leader.operations.read_index()
            assert ticks(leader) - begin <= ELECTION_TICKS + SPARE_TICKS
            assert not leader.is_leader
            assert listener.roles[-1][0] is not Role.LEADER
            assert listener.commit_index < index, "what was pending has an unknown outcome"
            others = [n for n in group.nodes.values() if n is not leader]
            await group.until(
                lambda: any(n.is_leader and n.commit_index > index - 1 for n in others)
            )
            heal(links)
            await group.append(5)
            await group.settle()
            files = [group.files(i, "data") for i in group.ids]
            assert files[0] == files[1] == files[2]

    run(main())


def events(folder):
    """What the nodes have written down of themselves."""
    return {
        path.name: decode_events(file.read_bytes() for file in (path / "raft_event").iterdir())
        for path in folder.iterdir()
    }


def indexes(rows, kind):
    return [row["index"] for row in rows if row["kind"] == kind]


def test_events_tell_the_story_of_an_election_even_of_a_node_that_was_not_stopped(tmp_path):
    async def main():
        async with running(tmp_path) as group:
            leader = await group.append(30)
            await group.until(
                lambda: all(30 in indexes(rows, "commit") for rows in events(tmp_path).values())
            )
            found = events(tmp_path)
            assert sorted(found) == group.ids
            for i, rows in found.items():
                assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
                assert {row["boot_id"] for row in rows} == {group.nodes[i].boot_id}
                commits = indexes(rows, "commit")
                assert commits == sorted(commits)
                assert commits[-1] == 30
                assert max(indexes(rows, "append")) == 30
            kinds = [row["kind"] for row in found[leader.self_id]]
            assert kinds[0] == "boot"
            assert "become_leader" in kinds
            votes = [
                row
                for i, rows in found.items()
                for row in rows
                if row["kind"] == "vote_granted" and row["peer"] == leader.self_id
            ]
            assert {row["term"] for row in votes} >= {leader.term}

    run(main())


def test_status_tells_the_followers_and_who_is_dead(tmp_path):
    async def main():
        async with running(tmp_path) as group:
            leader = await group.append(10)
            await group.settle()
            dead = next(i for i in group.ids if i != leader.self_id)
            await group.stop(dead)
            await group.until(lambda: not leader.status()["followers"][dead]["alive"])
            status = leader.status()
            alive = next(i for i in group.nodes if i != leader.self_id)
            assert status["followers"][alive]["state"] == "replicate"
            assert status["followers"][alive]["match"] == leader.end_index
            assert status["followers"][alive]["contact_ms"] <= status["election_timeout_ms"]
            assert status["followers"][dead]["state"] == "probe"
            assert status["voters"] == group.ids
            assert status["transfer"] is None

    run(main())
