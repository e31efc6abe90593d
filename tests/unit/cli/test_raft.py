"""What the raft commands make of answers and of event files."""

import json
import time

import pytest

from cli.main import run
from cli.raft import slaves_of, validator
from dledger.config import DLedgerConfig
from dledger.core.model import Role
from dledger.core.ready import Event, EventKind
from dledger.recorder import Recorder
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk


def seen(match, *, alive=True):
    return {
        "match": match, "next": match + 1, "state": "replicate", "contact_ms": 5, "alive": alive,
    }  # fmt: skip


def leader(**followers):
    return {
        "address": "a:1", "node": "n0", "group": "g", "role": "LEADER", "leader": "n0",
        "last_index": 9, "followers": followers,
    }  # fmt: skip


def test_group_in_order_is_healthy():
    rows = [leader(n1=seen(9)), {"node": "n1", "group": "g", "leader": "n0"}]
    followers = validator(rows)
    assert [row["health"] for row in rows] == ["ok", "ok"]
    assert [(row["follower"], row["behind"], row["health"]) for row in followers] == [
        ("n1", 0, "ok")
    ]


def test_member_that_its_leader_misses_is_dead_and_gets_a_row():
    rows = [leader(n1=seen(4, alive=False), n2=seen(9))]
    (dead, alive) = validator(rows)
    assert (dead["health"], dead["behind"], alive["health"]) == ("dead", 5, "ok")
    assert rows[1] == {"node": "n1", "role": "DEAD", "health": "dead"}


def test_learner_is_called_one():
    row = leader(n3=seen(9)) | {"learners": ["n3"]}
    assert validator([row])[0]["kind"] == "learner"


def test_broker_that_does_not_answer_and_one_without_a_leader():
    rows = [{"address": "a:1", "error": "gone"}, {"address": "a:2", "leader": None}]
    assert validator(rows) == []
    assert [row["health"] for row in rows] == ["no answer", "no leader"]


def test_broker_that_waits_for_controllers_has_no_role():
    error = "a:1: answered with code 14: this broker has no role: there is no master"
    rows = [{"address": "a:1", "error": error}]
    validator(rows)
    assert rows[0]["health"] == "no role"


def master(mode, *slaves):
    return {"address": "a:1", "node": "a", "leader": "a", "mode": mode, "slaves": list(slaves)}


SLAVE = {"remote": "127.0.0.1:5", "position": 7, "behind": 2, "confirms": True}


@pytest.mark.parametrize(
    ("row", "health"),
    [
        (master("SYNC_MASTER"), "no slave"),
        (master("SYNC_MASTER", SLAVE), "ok"),
        (master("SYNC_MASTER", {**SLAVE, "confirms": False}), "no slave"),
        (master("ASYNC_MASTER"), "ok"),
    ],
)
def test_a_synchronous_master_needs_a_slave(row, health):
    validator([row])
    assert row["health"] == health


@pytest.mark.parametrize(
    ("state", "health"),
    [
        ("connected", "ok"), ("following", "ok"), ("no master is known", "no master is known"),
        ("m:1 has another log", "m:1 has another log"),
    ],
)  # fmt: skip
def test_a_slave_that_does_not_follow_says_what_is_wrong(state, health):
    row = {"address": "s:1", "leader": "m:1", "following": {"master": "m:1", "state": state}}
    validator([row])
    assert row["health"] == health


def test_slaves_are_shown_as_their_master_sees_them():
    rows = [master("SYNC_MASTER", SLAVE), {"address": "s:1", "leader": "a"}]
    assert slaves_of(rows) == [{"master": "a:1", "slave": "127.0.0.1:5", **SLAVE}]


@pytest.fixture
def store(tmp_path):
    config = DLedgerConfig(
        group="g", self_id="n0", peers={"n0": ""}, directory=str(tmp_path / "n0" / "dledger-n0"),
        event_file_bytes=64 * 1024,
    )  # fmt: skip
    recorder = Recorder(config, RealDisk(), SystemClock(), "b1")
    recorder.open(3, 7, 6)
    recorder.note(
        Event(EventKind.ROLE, 4, Role.CANDIDATE),
        Event(EventKind.VOTE, 5, Role.FOLLOWER, "n2", 7, 3),
    )
    recorder.close()
    return tmp_path


def test_events_are_printed_from_any_directory_above(store, capsys):
    assert run(["admin", "raftEvents", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "node=n0 event=boot term=3 index=7 prev_index=6 boot=b1 node=n0 group=g" in lines[0]
    assert lines[2].endswith("node=n0 event=vote_granted term=5 index=7 prev_index=3 peer=n2")


def test_events_by_kind_last_and_as_json(store, capsys):
    path = str(store / "n0" / "dledger-n0" / "raft_event")
    assert run(["admin", "raftEvents", path, "--kind", "vote", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    row = json.loads(line)
    assert (row["node"], row["boot_id"], row["seq"], row["peer"]) == ("n0", "b1", 3, "n2")
    assert run(["admin", "raftEvents", path, "--last", "1"]) == 0
    assert "vote_granted" in capsys.readouterr().out


def test_events_that_are_followed_begin_with_the_last_ones(store, capsys, monkeypatch):
    def stop(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop)
    assert run(["admin", "raftEvents", str(store), "--last", "1", "--follow"]) == 130
    (line,) = capsys.readouterr().out.splitlines()
    assert "vote_granted" in line


def test_directory_without_events_is_one_line_and_code_1(tmp_path, capsys):
    assert run(["admin", "raftEvents", str(tmp_path)]) == 1
    assert "no directory raft_event below" in capsys.readouterr().err
