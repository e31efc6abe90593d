"""Checks at start: what is said of the directory of a Raft group that a broker alone is given."""

import asyncio
import errno
import socket

import pytest

from broker import ports
from broker.config import BrokerConfig
from broker.ports import check_log, check_no_group, check_no_plain_log, check_understood
from dledger.codec.properties import Identity, encode_identity
from dledger.mark import LogMark
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    ROCKETMQ_FILE,
    CheckpointHead,
    StoreTimes,
    encode_times,
    join_checkpoint,
)


def complaint(store):
    with pytest.raises(FatalError) as error:
        check_no_group(RealDisk(), BrokerConfig(broker_name="a", store_path=str(store)))
    return error.value.message


def test_a_member_is_told_its_own_group_and_never_to_lead_alone(tmp_path):
    (tmp_path / "dledger-n2").mkdir()
    identity = encode_identity(Identity("RaftGroup0", "n2", "0" * 16))
    (tmp_path / "dledger-n2/identity").write_bytes(identity)
    said = complaint(tmp_path)
    assert "holds the log of a Raft group (dledger-n2)" in said
    assert "enableDLegerCommitLog=true, dLegerGroup=RaftGroup0, dLegerSelfId=n2 and" in said
    assert "the dLegerPeers that it had: never fewer" in said
    assert "dLegerPeers=" not in said


@pytest.mark.parametrize("identity", [None, b"nonsense"])
def test_a_directory_that_does_not_say_its_group_gets_no_name_for_it(tmp_path, identity):
    (tmp_path / "dledger-n0").mkdir()
    if identity is not None:
        (tmp_path / "dledger-n0/identity").write_bytes(identity)
    said = complaint(tmp_path)
    assert "the dLegerGroup it had, dLegerSelfId=n0" in said
    assert "dLegerGroup=" not in said


def test_a_directory_without_such_a_log_is_taken(tmp_path):
    check_no_group(RealDisk(), BrokerConfig(store_path=str(tmp_path)))


def knocked():
    """What somebody is told who connects to a port while a start looks at it."""
    told = []

    async def look():
        loop = asyncio.get_running_loop()
        create = loop.create_server

        async def create_and_knock(*arguments, **options):
            server = await create(*arguments, **options)
            with socket.socket() as client:
                told.append(client.connect_ex(server.sockets[0].getsockname()))
            return server

        loop.create_server = create_and_knock
        await ports.check_port_free("listenPort", "127.0.0.1", 0)

    asyncio.run(look())
    return told


def test_a_port_that_is_looked_at_takes_no_connection():
    """Who connected would have a connection on which nobody answers, for as long as it likes."""
    assert knocked() == [errno.ECONNREFUSED]
    with planted(BY_TESTS["port-tried-by-listening"]):
        assert knocked() == [0]


def test_a_port_that_somebody_listens_at_is_told():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(FatalError, match=f"listenPort: 127.0.0.1:{port} is in use by another"):
            asyncio.run(ports.check_port_free("listenPort", "127.0.0.1", port))


# A log that is gone

LOGS = {False: "commitlog", True: "dledger-n0/data"}


def left(path, *, physic=0, logics=0, mark=-1):
    """Leave the files of a directory that say how far a log was dispatched.

    RocketMQ, killed within its first ten seconds, knows a time of the queues and none of the log.
    """
    times = StoreTimes(physic, logics or physic, 0)
    (path / ROCKETMQ_FILE).write_bytes(encode_times(times))
    head = CheckpointHead(
        file_bytes=20, block_bytes=20, store_timestamp=physic, marks=(LogMark(mark, 1, mark),)
    )
    (path / CHECKPOINT_FILE).write_bytes(join_checkpoint(head, []))


def look(path, *, raft):
    """Return why a broker does not start in a directory, empty where it does."""
    group = {"group": "g", "self_id": "n0", "peers": "n0-127.0.0.1:1"} if raft else {}
    fields = {f"dledger_{name}": value for name, value in group.items()}
    config = BrokerConfig(broker_name="a", store_path=str(path), enable_dledger=raft, **fields)
    try:
        check_log(RealDisk(), config)
    except FatalError as error:
        return error.message
    return ""


@pytest.mark.parametrize("raft", [False, True])
@pytest.mark.parametrize(
    ("says", "name"),
    [
        ({"physic": 7}, ROCKETMQ_FILE),
        ({"logics": 7}, ROCKETMQ_FILE),
        ({"mark": 0}, CHECKPOINT_FILE),
    ],
)
def test_a_log_that_is_gone_is_not_begun_anew(tmp_path, says, name, raft):
    left(tmp_path, **says)
    said = look(tmp_path, raft=raft)
    assert f"{tmp_path}/{LOGS[raft]} holds no log, and {tmp_path}/{name} says" in said
    assert "Is the disk mounted" in said
    (tmp_path / LOGS[raft]).mkdir(parents=True)
    assert look(tmp_path, raft=raft) == said, "where it is mounted is there"
    (tmp_path / LOGS[raft] / f"{65536:020}").touch()
    assert not look(tmp_path, raft=raft)


def test_a_log_that_is_gone_and_begins_anew_is_found(tmp_path):
    with planted(BY_TESTS["missing-log-begins-anew"]), pytest.raises(AssertionError):
        test_a_log_that_is_gone_is_not_begun_anew(
            tmp_path, {"physic": 7}, ROCKETMQ_FILE, raft=False
        )


@pytest.mark.parametrize("raft", [False, True])
def test_a_directory_in_which_no_message_was_may_have_no_log(tmp_path, raft):
    assert not look(tmp_path, raft=raft)
    assert not look(tmp_path / "none", raft=raft)
    left(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text("{}")
    assert not look(tmp_path, raft=raft), "tables stay where an operator gives up a log"


def test_a_snapshot_may_stand_for_all_of_a_log(tmp_path):
    left(tmp_path, physic=7, mark=5)
    assert look(tmp_path, raft=True)
    (tmp_path / "dledger-n0").mkdir()
    (tmp_path / "dledger-n0/snapshot").touch()
    assert not look(tmp_path, raft=True)


def not_understood(path, **fields):
    """Return why a broker leaves a directory alone, empty where it takes it."""
    config = BrokerConfig(broker_name="a", store_path=str(path), **fields)
    try:
        check_understood(RealDisk(), config)
    except FatalError as error:
        return error.message
    return ""


def test_a_log_in_several_directories_is_to_be_moved_into_one(tmp_path):
    said = not_understood(tmp_path, store_path_commit_log=f"{tmp_path}/a,{tmp_path}/b")
    assert "move all files of these into one of them" in said
    assert not not_understood(tmp_path, store_path_commit_log=f"{tmp_path}/a")


def test_what_rocketmq_5_keeps_elsewhere_is_not_passed_over(tmp_path):
    (tmp_path / "consumequeue").touch()
    assert not not_understood(tmp_path), "whoever opens the queues tells"
    (tmp_path / "consumequeue").unlink()
    for made, word in (("consumequeue/CURRENT", "RocksDB"), ("batchconsumequeue/T", "BatchCQ")):
        (tmp_path / made).parent.mkdir()
        assert not not_understood(tmp_path)
        (tmp_path / made).touch()
        said = not_understood(tmp_path)
        assert word in said
        assert f"{tmp_path}/{made.partition('/')[0]}" in said
        (tmp_path / made).unlink()
    (tmp_path / "consumequeue/CURRENT/0").mkdir(parents=True)
    assert not not_understood(tmp_path), "a topic may have the name of that file"


@pytest.mark.parametrize("name", ["topics", "consumerOffsets", "rdb"])
def test_tables_that_rocketmq_5_keeps_elsewhere_are_not_passed_over(tmp_path, name):
    """A broker that began with empty ones would have groups begin anew."""
    (tmp_path / "config" / name).mkdir(parents=True)
    assert not not_understood(tmp_path)
    (tmp_path / "config" / name / "CURRENT").touch()
    said = not_understood(tmp_path)
    assert f"{tmp_path}/config holds tables" in said
    assert f"({name})" in said
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue/CURRENT").touch()
    assert not_understood(tmp_path) == said, "RocketMQ must run for it, with its queues"


def of_a_member(path, **fields):
    """Return why a member of a group does not start in a directory, empty where it does."""
    group = {"dledger_group": "g", "dledger_self_id": "n0", "dledger_peers": "n0-127.0.0.1:1"}
    config = BrokerConfig(
        broker_name="a", store_path=str(path), enable_dledger=True, **group, **fields
    )
    try:
        check_no_plain_log(RealDisk(), config)
    except FatalError as error:
        return error.message
    return ""


def test_a_member_does_not_pass_over_a_plain_log(tmp_path):
    """RocketMQ goes on reading the log that a broker had before DLedger was switched on."""
    log = tmp_path / "commitlog"
    log.mkdir()
    assert not of_a_member(tmp_path)
    (log / f"{0:020}").touch()
    assert "Set enableDLegerCommitLog=false" in of_a_member(tmp_path)
    (tmp_path / "dledger-n0").mkdir()
    assert "messages from before this group" in of_a_member(tmp_path)
    (log / f"{0:020}").unlink()
    assert not of_a_member(tmp_path), "retention has removed it"
    several = {"store_path_commit_log": f"{tmp_path}/a,{tmp_path}/b"}
    assert not of_a_member(tmp_path, **several)
    (tmp_path / "b").mkdir()
    (tmp_path / f"b/{0:020}").touch()
    assert "messages from before this group" in of_a_member(tmp_path, **several)
