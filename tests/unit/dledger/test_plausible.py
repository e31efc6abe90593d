"""What no member can have said is refused before it changes anything: terms, indexes, snapshots."""

from functools import partial

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.config import BrokerConfig
from broker.retention.compaction import StateImage, state_problem
from broker.state.snapshot import Snapshot
from broker.tables import Tables
from dledger.codec.entry import encode_span
from dledger.codec.peer import PeerCodec
from dledger.codec.snapshot import decode_snapshot, encode_snapshot
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    PreVoteRequest,
    SnapshotReply,
    TimeoutNow,
    VoteRequest,
)
from dledger.core.model import HardState, Role, SnapshotId
from dledger.core.ready import EventKind
from dledger.core.snapshot import StageWork
from dledger.limits import (
    INDEX_MAX,
    SNAPSHOT_INDEX_MAX,
    SNAPSHOT_POSITION_MAX,
    TERM_MAX,
    TERM_STEP_MAX,
)
from dledger.storage.snapshot_files import SnapshotFiles
from dledger.storage.state_files import HardStateFile
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeClock
from tests.unit.dledger.cluster import Cluster

HUGE = 2**63 - 1


@pytest.fixture
def group():
    return make_group()


def make_group():
    cluster = Cluster(3)
    cluster.elect("n0")
    cluster.propose("n0")
    cluster.stabilize()
    cluster.network.clear()
    return cluster


def state(cluster, node="n1"):
    return cluster.replicas[node].raft.state


def facts(cluster, node="n1"):
    found = state(cluster, node)
    log = found.log
    return (found.term, found.voted_for, found.role, found.leader_id, log.last_index,
            log.commit_index, found.membership.latest)  # fmt: skip


def refusals(cluster, node="n1"):
    return [e.extra for e in cluster.replicas[node].events if e.kind is EventKind.REFUSED]


def jumps(term):
    """Messages of every kind that enter a term."""
    return [
        AppendReply("n2", "n1", term, 0),
        AppendReject("n2", "n1", term, 0, 0, 0, 0),
        HeartbeatReply("n2", "n1", term, 1),
        Heartbeat("n2", "n1", term, 0, 1),
        Append("n2", "n1", term, -1, 0, -1, None),
        VoteRequest("n2", "n1", term, 5, 1, True),
        PreVoteRequest("n2", "n1", term, 5, 1),
        InstallSnapshot("n2", "n1", term, SnapshotId(50, 1, 100, 0), 0, b""),
        TimeoutNow("n2", "n1", term, 1),
    ]


def term_jump_is_refused():
    group = make_group()
    for message in jumps(HUGE):
        group.step(message)
    return facts(group)[0] == 1


def test_a_term_that_no_group_gets_to_is_refused(group):
    before = facts(group)
    for term in (HUGE, TERM_MAX, TERM_MAX + 1, 2 + TERM_STEP_MAX, -1, -HUGE):
        for message in jumps(term):
            group.step(message)
            assert facts(group) == before, message
    assert any("flaw=term" in words for words in refusals(group))
    assert term_jump_is_refused()
    with planted(BY_TESTS["term-jump-accepted"]):
        assert not term_jump_is_refused()


def test_a_member_that_was_away_for_long_comes_back(group):
    group.step(Heartbeat("n2", "n1", 1 + TERM_STEP_MAX, 0, 1))
    assert state(group).term == 1 + TERM_STEP_MAX


def test_a_new_replica_takes_the_term_of_an_old_group():
    fresh = Cluster(3, is_new=True)
    fresh.step(Heartbeat("n2", "n1", TERM_MAX, -1, 1))
    assert state(fresh).term == TERM_MAX
    other = Cluster(3, is_new=True)
    other.step(Heartbeat("n2", "n1", TERM_MAX + 1, -1, 1))
    assert state(other).term == 0


def test_refusals_are_told_once_in_a_while(group):
    for _ in range(500):
        group.step(Heartbeat("n2", "n1", HUGE, 0, 1))
    assert len(refusals(group)) == 1


def test_forged_entries_and_a_rival_are_told_once_in_a_while(group):
    log = state(group).log
    span = encode_span(log.last_index + 1, 1, log.end_position + (1 << 31), [b"forged"])
    group.step(Heartbeat("n2", "n0", HUGE, 0, 1))  # another flaw, which does not hide the rival
    for _ in range(500):
        group.step(Append("n0", "n1", 1, log.last_index, log.last_term, log.last_index, span))
        group.step(Heartbeat("n2", "n0", 1, 0, 1))
    assert refusals(group) == ["flaw=position message=Append"]
    rivals = [e for e in group.replicas["n0"].events if e.kind is EventKind.RIVAL]
    assert [(e.peer, e.term) for e in rivals] == [("n2", 1)]


def test_a_candidate_that_is_no_member_and_knows_no_more_than_we_is_not_heard(group):
    log = state(group).log
    for last in ((log.last_index, log.last_term), (log.last_index - 1, log.last_term)):
        for transfer in (False, True):
            group.step(VoteRequest("n9", "n1", 2, *last, transfer))
        group.step(PreVoteRequest("n9", "n1", 2, *last))
    assert state(group).term == 1
    assert not [m for m in group.network if m.receiver == "n9"]
    # It may have been added by an entry that is not here yet.
    group.step(VoteRequest("n9", "n1", 2, log.last_index + 1, 1, True))
    assert state(group).term == 2


def test_a_hand_over_is_taken_from_the_leader_alone(group):
    group.step(TimeoutNow("n2", "n1", 1, state(group).log.last_index))
    assert state(group).role is Role.FOLLOWER
    group.step(TimeoutNow("n0", "n1", 1, state(group).log.last_index))
    assert state(group).role is Role.CANDIDATE


@pytest.mark.parametrize("index", [INDEX_MAX + 1, HUGE, -2, -HUGE])
def test_an_index_that_cannot_be_is_refused(group, index):
    before = facts(group)
    messages = [
        Append("n0", "n1", 1, index, 1, 0, None),
        Append("n0", "n1", 1, 1, 1, index, None),
        Heartbeat("n0", "n1", 1, index, 1),
        InstallSnapshot("n0", "n1", 1, SnapshotId(index, 1, 100, 0), 0, b""),
        VoteRequest("n0", "n1", 2, index, 1, True),
    ]
    for message in messages:
        group.step(message)
        assert facts(group) == before, message
    leader = facts(group, "n0")
    matches = {p.node_id: p.match_index for p in state(group, "n0").progress.values()}
    for message in (
        AppendReply("n1", "n0", 1, index),
        AppendReject("n1", "n0", 1, index, 0, 0, 0),
        AppendReject("n1", "n0", 1, 0, index, 0, 0),
        AppendReject("n1", "n0", 1, 0, 0, 0, index),
        SnapshotReply("n1", "n0", 1, SnapshotId(1, 1, 100, 0), index),
    ):
        group.step(message)
    assert facts(group, "n0") == leader
    assert matches == {p.node_id: p.match_index for p in state(group, "n0").progress.values()}


@pytest.mark.parametrize("term", [0, 2, HUGE])
def test_entries_of_a_term_that_their_leader_has_not_are_refused(group, term):
    before = facts(group)
    log = state(group).log
    span = encode_span(log.last_index + 1, term, log.end_position, [b"forged"])
    group.step(Append("n0", "n1", 1, log.last_index, log.last_term, log.last_index, span))
    assert facts(group) == before


@pytest.mark.parametrize("away", [-1, -48, 1 << 31, 1 << 60])
def test_entries_that_lie_where_none_can_are_refused(group, away):
    before = facts(group)
    log = state(group).log
    position = max(0, log.end_position + away)
    span = encode_span(log.last_index + 1, 1, position, [b"forged"])
    group.step(Append("n0", "n1", 1, log.last_index, log.last_term, log.last_index, span))
    assert facts(group) == before
    assert any("flaw=position" in words for words in refusals(group))


_numbers = st.one_of(
    st.integers(-2, 6), st.sampled_from([-HUGE, HUGE, TERM_MAX, INDEX_MAX, TERM_STEP_MAX])
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_numbers_in_any_message_end_no_replica(data):
    """What a member may have said is believed; what it cannot have said breaks nothing."""
    cluster = make_group()
    for _ in range(data.draw(st.integers(1, 4))):
        a, b, c = (data.draw(_numbers) for _ in range(3))
        term = data.draw(st.sampled_from([0, 1, HUGE, -1]))
        sender = data.draw(st.sampled_from(["n0", "n2", "n9"]))
        message = data.draw(
            st.sampled_from(
                [
                    AppendReject(sender, "n1", term, a, b, 1, c),
                    AppendReply(sender, "n1", term, a),
                    PreVoteRequest(sender, "n1", term, a, b),
                    SnapshotReply(sender, "n1", term, SnapshotId(a, b, 10, 0), c),
                    TimeoutNow(sender, "n1", term, a),
                ]
            )
        )
        cluster.step(message)
    assert state(cluster).term <= 2


# What lies on disk


def test_a_term_from_before_the_check_is_told_with_what_to_do(tmp_path):
    file = HardStateFile(RealDisk(), str(tmp_path))
    file.save(HardState(HUGE, None))
    with pytest.raises(FatalError, match=r"currTerm.*of each member.*An absurd term"):
        file.load(log_is_empty=False)
    file.save(HardState(TERM_MAX, None))
    assert file.load(log_is_empty=False).term == TERM_MAX


GROUP = ConfigEntry(7, 2, Configuration({"n0": "h:1", "n1": "h:2"}, {"n2": "h:3"}, 4))
SEGMENT = 4096


def install(path, data, last_index, term=2, validator=lambda _state: ""):
    """Receive a snapshot; return what stands for the log then."""
    path.mkdir(exist_ok=True)
    files = SnapshotFiles(RealDisk(), str(path), SEGMENT)
    files.validator = validator
    name = decode_snapshot(data)[0].id
    assert (name.last_index, name.last_term) == (last_index, term)
    files.stage(StageWork(name, 0, data, True))
    found = files.install(name)
    files.close()
    return found


def snapshot(last=(30, 2, SEGMENT * 3), group=GROUP, state_=b"state"):
    return encode_snapshot(last, last[0] + 2, group, state_)


def test_a_snapshot_that_can_be_is_installed(tmp_path):
    assert install(tmp_path / "a", snapshot(), 30) is not None


def with_members(voters, learners=(), index=7, term=2):
    configuration = Configuration(dict.fromkeys(voters, "h:1"), dict.fromkeys(learners, "h:1"), 1)
    return ConfigEntry(index, term, configuration)


@pytest.mark.parametrize(
    "data",
    [
        snapshot((30, 2, SEGMENT * 3 + 1)),
        snapshot((30, 2, 0)),
        snapshot((30, 2, SEGMENT), with_members([])),
        snapshot((30, 2, SEGMENT), with_members([], ["n1"])),
        snapshot((30, 2, SEGMENT), with_members(["n0"], ["n0"])),
        snapshot((30, 2, SEGMENT), with_members(["n0", "rm -rf"])),
        snapshot((30, 2, SEGMENT), with_members([f"n{i}" for i in range(65)])),
        snapshot((30, 2, SEGMENT), with_members(["n0"], index=31)),
        snapshot((30, 2, SEGMENT), with_members(["n0"], term=3)),
    ],
)
def test_a_snapshot_that_cannot_be_leaves_everything_as_it_was(tmp_path, data):
    assert install(tmp_path / "a", data, 30) is None
    assert not list((tmp_path / "a").iterdir())


BEHIND = SEGMENT * 3
ROOM = SNAPSHOT_POSITION_MAX // SEGMENT * SEGMENT


def outside(last=(30, 2, BEHIND), state_index=None, **changed):
    """A snapshot whose numbers or members are what no log has."""
    place = {name: changed.pop(name) for name in ("index", "term") if name in changed}
    members = msgspec.structs.replace(GROUP.configuration, **changed)
    group = msgspec.structs.replace(GROUP, configuration=members, **place)
    return encode_snapshot(last, last[0] + 2 if state_index is None else state_index, group, b"s")


OUTSIDE = {
    "position": outside((30, 2, ROOM + SEGMENT)),
    "last position": outside((30, 2, HUGE // SEGMENT * SEGMENT)),
    "index": outside((SNAPSHOT_INDEX_MAX + 1, 2, ROOM)),
    "last index": outside((INDEX_MAX, 2, ROOM), INDEX_MAX),
    "last term": outside((30, TERM_MAX + 1, BEHIND)),
    "state index": outside(state_index=1 << 62),
    "index of the configuration": outside(index=-2),
    "term of the configuration": outside(term=-7),
    "version": outside(version=-1),
    **{
        f"address {address!r}": outside(voters={"n0": "h:1", "n1": address})
        for address in ("x", "", ":99999", "h:99999", "h:0", "\n", "h\n:1", "h:1\n", "h h:1")
    },
    "address of a learner": outside(learners={"n2": "x"}),
}


def refused(path, what):
    last = decode_snapshot(OUTSIDE[what])[0].id
    return install(path, OUTSIDE[what], last.last_index, last.last_term) is None


@pytest.mark.parametrize("what", OUTSIDE)
def test_a_snapshot_outside_of_all_bounds_leaves_everything_as_it_was(tmp_path, caplog, what):
    assert refused(tmp_path / "a", what)
    assert not list((tmp_path / "a").iterdir())
    assert "event=snapshot_refused" in caplog.text


def test_the_last_places_that_a_snapshot_may_have(tmp_path):
    last = (int(SNAPSHOT_INDEX_MAX), 2, ROOM)
    assert install(tmp_path / "a", outside(last), SNAPSHOT_INDEX_MAX) is not None
    first = outside(index=-1, term=0, version=0)
    assert install(tmp_path / "b", first, 30) is not None


def test_planted_snapshots_outside_of_all_bounds_are_found_here(tmp_path):
    with planted(BY_TESTS["snapshot-ends-anywhere"]):
        assert not refused(tmp_path / "a", "position")
        assert not refused(tmp_path / "b", "last index")
    with planted(BY_TESTS["members-at-no-address"]):
        assert not refused(tmp_path / "c", "address 'x'")


def test_a_snapshot_of_many_entries_in_little_space_is_none(tmp_path):
    data = snapshot((INDEX_MAX, 2, SEGMENT))
    assert install(tmp_path / "a", data, INDEX_MAX) is None


def bare_tables():
    tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    return Snapshot("/none", tables.state, RealDisk())


def unsound_state_is_refused(path):
    validator = partial(state_problem, bare_tables())
    return install(path, snapshot(state_=b"not of a broker"), 30, validator=validator) is None


def test_a_state_that_no_broker_wrote_is_not_installed(tmp_path):
    validator, tables = partial(state_problem, bare_tables()), bare_tables().take()
    image = msgspec.msgpack.encode(StateImage(tables, []))
    assert install(tmp_path / "a", snapshot(state_=image), 30, validator=validator) is not None
    spoilt = msgspec.msgpack.encode(StateImage(tables | {"topics.json": b"[]"}, []))
    assert install(tmp_path / "b", snapshot(state_=spoilt), 30, validator=validator) is None
    assert unsound_state_is_refused(tmp_path / "c")
    with planted(BY_TESTS["snapshot-installed-unverified"]):
        assert not unsound_state_is_refused(tmp_path / "d")


def test_the_wire_carries_what_is_refused_here():
    # The checks are the core's: a well-formed frame gets as far as there.
    one, other = PeerCodec("g", "n2", ("n1",)), PeerCodec("g", "n1", ("n2",))
    from ledgermq.remoting.protocol.frame import FrameDecoder

    message = AppendReply("n2", "n1", HUGE, 0)
    (frame,) = FrameDecoder().feed(b"".join(one.encode(message)))
    assert other.decode(frame) == message
