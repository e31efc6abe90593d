"""The watch beside a run, without Spark: what is read, what nodes say, who differs."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from chaos.catalogue.live import WHOLLY
from chaos.verdict import CombinedVerdict, with_watch
from chaos.watch import (
    BYTES_PER_S,
    END_LIMIT_S,
    SHOWN_MAX,
    Watch,
    alarms_path,
    differences,
    end_limit_s,
)
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from spark.stream import place
from spark.stream.feed import DamagedFeedError, Feed
from spark.stream.place import SCRATCH, CannotWatchError, Life
from spark.stream.replicas import Replicas
from spark.stream.told import in_words
from tests.spark.recording import ORDERLY, Recording, S, plants


def landed(feed):
    files = sorted(feed.folder.glob("part-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_what_was_added_is_landed_once_and_a_torn_line_waits(tmp_path):
    run = Recording(tmp_path / "run")
    feed = Feed(run.run, tmp_path / "landing")
    first = run.traffic(3, 1)
    assert feed.look(run.clock) == 3 * 3 + 1
    assert feed.look(run.clock) == 0
    torn = run.run / "raw" / "consumer-1.jsonl"
    whole = torn.read_bytes()
    run.deliver(first[0])
    added = torn.read_bytes()[len(whole) :]
    torn.write_bytes(whole + added[:20])
    assert feed.look(run.clock) == 0
    torn.write_bytes(whole + added)
    assert feed.look(run.clock) == 1
    rows = landed(feed)
    facts = [row for row in rows if row["what"] != "mark"]
    assert len(facts) == feed.rows == 11
    marks = [row for row in rows if row["what"] == "mark"]
    assert [mark["rows"] for mark in marks] == [10, 10, 10, 11]
    assert {mark["t"] for mark in marks} == {run.clock}
    ends = [row for row in facts if row["what"] == "end"]
    assert [row["queue_offset"] for row in ends] == [0, 0, 0]
    assert {row["hash"] for row in ends} == {message["hash"] for message in first}


def test_a_backlog_says_nothing_of_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("spark.stream.feed.BYTES_PER_LOOK", 2_000)
    run = Recording(tmp_path / "run")
    run.traffic(30, 10)
    feed = Feed(run.run, tmp_path / "landing")
    feed.look(run.clock)
    assert feed.is_behind
    (mark,) = [row for row in landed(feed) if row["what"] == "mark"]
    assert mark["t"] == 0
    assert mark["due"] < run.clock - 5 * S  # as far as the file that is least far
    while feed.is_behind:
        feed.look(run.clock)
    assert landed(feed)[-1]["t"] == run.clock
    assert feed.rows == 30 * 3 + 3


def test_a_delivery_waits_for_the_first_send_to_its_topic(tmp_path, monkeypatch):
    """It was read before its send: of a backlog, or since both were recorded as files were read."""
    run = Recording(tmp_path / "run")
    feed = Feed(run.run, tmp_path / "landing")
    sent = {"key": 1 << 40, "hash": 7, "queue": 0, "offset": 0}
    for topic in ("new", "nobody's"):
        run.deliver(sent, topic=topic)
    assert feed.look(run.clock) == 0
    value = {"topic": "new", "msg_key": sent["key"], "body_hash": 7, "body_len": 10}
    run._event("invoke", sent | {"op": 1}, value)
    assert feed.look(run.clock) == 2
    assert [row["topic"] for row in landed(feed) if row["what"] == "delivery"] == ["new"]
    run._event("invoke", sent | {"op": 2}, value | {"topic": "nobody's"})
    assert feed.look(run.clock) == 1, "all that was sent before it had been read"


def test_consumers_wait_where_producers_are_far_behind_them(tmp_path, monkeypatch):
    """What waits for the first send to its topic has a limit, and none of it is left out."""
    monkeypatch.setattr("spark.stream.feed.BYTES_PER_LOOK", 4_000)
    monkeypatch.setattr("spark.stream.feed.EARLY_MAX", 20)
    run = Recording(tmp_path / "run")
    run.traffic(60, 1)
    sent = {"key": 2 << 40, "hash": 7, "queue": 0, "offset": 0}
    run._event("invoke", sent | {"op": 900}, {
        "topic": "new", "msg_key": sent["key"], "body_hash": 7, "body_len": 10,
    })  # fmt: skip
    for _ in range(200):
        run.deliver(sent, topic="new")
    feed = Feed(run.run, tmp_path / "landing")
    most = 0
    for _ in range(200):
        feed.look(run.clock)
        most = max(most, len(feed._early))
        if not feed.is_behind:
            break
    assert 20 <= most < 60
    assert not feed.is_behind
    assert sum(row["topic"] == "new" and row["what"] == "delivery" for row in landed(feed)) == 200


def test_a_line_that_is_longer_than_a_look_is_read_or_named(tmp_path, monkeypatch):
    monkeypatch.setattr("spark.stream.feed.BYTES_PER_LOOK", 64)
    run = Recording(tmp_path / "run")
    run.traffic(2, 1)
    feed = Feed(run.run, tmp_path / "landing")
    for _ in range(100):
        feed.look(run.clock)
    assert not feed.is_behind
    assert feed.rows == 2 * 3 + 1
    monkeypatch.setattr("spark.stream.feed.LINE_BYTES_MAX", 64)
    with pytest.raises(DamagedFeedError, match=r"\.jsonl:1: a line of more than"):
        Feed(run.run, tmp_path / "other").look(run.clock)


def test_a_hole_in_a_recording_is_named(tmp_path):
    run = Recording(tmp_path / "run")
    run.traffic(2, 1)
    run._lines["producer-1"] += 1
    run.invoke()
    with pytest.raises(DamagedFeedError, match=r"producer-1.jsonl:5: record 5"):
        Feed(run.run, tmp_path / "landing").look(run.clock)


def test_nodes_are_judged_by_answers_that_follow_each_other(tmp_path):
    run = Recording(tmp_path / "run")
    run.probe("n0", 1, commit=1)
    wanted = [one for one in plants(run) if one[0] in {"A30", "A32", "A33"}]
    feed = Feed(run.run, tmp_path / "landing")
    feed.look(run.clock)
    answers = [row for row in landed(feed) if row["what"] == "probe"]
    replicas, told = Replicas(), []
    for answer in answers:  # one at a time: as it comes in many batches
        told += replicas.hear([answer], forget=False)
    assert [(alarm.check, alarm.key) for alarm in told] == wanted
    at_once = list(Replicas().hear(answers, forget=True))
    assert [(a.check, a.key) for a in at_once] == [one for one in wanted if one[0] != "A32"]
    overlapping = [{**answer, "ended": 1 << 62} for answer in answers]
    assert [a.check for a in Replicas().hear(overlapping, forget=False)] == ["A30"]


def test_a_node_has_a_term_and_a_log_in_each_of_its_groups():
    told = [(0, 900, 7), (1, 20, 3), (0, 901, 7), (1, 21, 3)]
    answers = [
        {"t": 2 * t, "ended": 2 * t + 1, "node": "n0", "raft_group": group, "boot": "b",
         "role": "follower", "term": term, "commit": commit, "applied": commit}
        for t, (group, commit, term) in enumerate(told)
    ]  # fmt: skip
    assert list(Replicas().hear(answers, forget=False)) == []
    fallen = {**answers[2], "t": 8, "commit": 800}
    assert [alarm.check for alarm in Replicas().hear([*answers, fallen], forget=False)] == ["A33"]


def write(run, *lines):
    alarms_path(run).parent.mkdir(parents=True, exist_ok=True)
    alarms_path(run).write_text("".join(json.dumps(line) + "\n" for line in lines))


ALARM = {"what": "alarm", "check": "A54", "key": "7", "severity": "CRIT", "title": "t",
         "explain": "e", "excusable": False}  # fmt: skip


def verdict(**checks):
    return {"checks": {c: {"verdict": v, "count": n} for c, (v, n) in checks.items()}}


def test_an_alarm_has_to_be_found_by_the_verdict(tmp_path):
    assert differences(tmp_path, verdict()) == []  # nobody watched
    write(tmp_path, ALARM)
    assert differences(tmp_path, verdict(A54=("invalid", 1), A53=("valid", 0))) == []
    assert differences(tmp_path, verdict(A54=("valid", 0), A53=("invalid", 1))) == []
    assert differences(tmp_path, verdict(A54=("unknown", 0), A53=("valid", 0))) == []
    (line,) = differences(tmp_path, verdict(A54=("valid", 0), A53=("valid", 0)))
    assert line == "alarm A54 of 7 was raised during the run, and the verdict does not confirm it"
    assert {"A5", "A54"} <= WHOLLY
    before = CombinedVerdict(
        verdict="valid", exit_code=0, reasons=(), local={}, spark=None, disagreements=()
    )
    after = with_watch(before, [line])
    assert (after.verdict, after.exit_code) == ("unknown", 2)
    assert after.reasons == (f"A48: watch and verdict differ: {line}",)
    assert with_watch(before, []) is before


def test_the_first_grave_alarm_is_told_once(tmp_path):
    async def follow(stop_on, severity):
        said = []
        watch = Watch(tmp_path, said.append, stop_on)
        write(tmp_path, {**ALARM, "severity": severity}, {"what": "batch"})
        watch._look()
        watch._look()
        return said, watch.grave.is_set()

    for stop_on, severity, grave in (
        ("critical", "CRIT", True), ("critical", "MAJOR", False), ("major", "MAJOR", True),
        (None, "CRIT", False),
    ):  # fmt: skip
        said, is_grave = asyncio.run(follow(stop_on, severity))
        assert said == ["ALARM A54 t: e"]
        assert is_grave == grave


def test_what_the_faults_may_excuse_is_told_and_ends_no_run(tmp_path):
    write(tmp_path, {**ALARM, "check": "A15", "excusable": True})
    said = []
    watch = Watch(tmp_path, said.append, "critical")
    watch._look()
    assert said == ["ALARM A15 t: e; the faults of the plan may excuse it"]
    assert not watch.grave.is_set()
    with planted(HARNESS_BUGS["stopped-by-what-is-excused"]):
        wrong = Watch(tmp_path, said.append, "critical")
        wrong._look()
        assert wrong.grave.is_set()


def test_of_very_many_alarms_some_are_shown(tmp_path):
    many = [{**ALARM, "key": str(key)} for key in range(SHOWN_MAX + 30)]
    write(tmp_path, *many, {**ALARM, "check": "A53"})
    said = []
    Watch(tmp_path, said.append, None)._look()
    more = "more alarms of A54: watch/alarms.jsonl"
    assert said == ["ALARM A54 t: e"] * SHOWN_MAX + [more, "ALARM A53 t: e"]


@pytest.mark.parametrize(
    ("durability", "faults", "may_lose", "forget"),
    [
        ("quorum", ["kill"], False, False),
        ("quorum", ["wipe"], True, True),
        ("none", ["kill"], True, False),
        ("quorum", ["lie", "kill"], False, False),
        ("quorum", ["lie", "kill", "power_loss"], True, True),
    ],
)
def test_the_feed_knows_what_the_plan_may_take(tmp_path, durability, faults, may_lose, forget):
    run = Recording(tmp_path / "run")
    about = json.loads((run.run / "run.json").read_text())
    contract = {"durability": durability, "flush": "SYNC_FLUSH"}
    (run.run / "run.json").write_text(json.dumps(about | {"contract": contract}))
    for fault in faults:
        run.write("harness", "faults", kind=fault, status="planned")
    feed = Feed(run.run, tmp_path / "landing")
    feed.look(run.clock)
    assert feed.may_lose is may_lose
    assert feed.nodes_forget is forget


def test_a_broken_run_json_is_named(tmp_path):
    run = Recording(tmp_path / "run")
    (run.run / "run.json").write_text('{"run_id": ')
    with pytest.raises(DamagedFeedError, match=r"run\.json: Expecting value"):
        Feed(run.run, tmp_path / "landing")


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_run_goes_on_as_long_as_its_harness_lives(tmp_path):
    run = Recording(tmp_path / "run").run
    assert place.life_of(run) is Life.DEAD
    command = [sys.executable, "-c", HOLDER, str(run / "running")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert place.life_of(run) is Life.GOES_ON
        holder.kill()
        holder.wait(30)
    assert place.life_of(run) is Life.DEAD
    with planted(HARNESS_BUGS["watch-waits-for-the-dead"]):
        assert place.life_of(run) is Life.GOES_ON
    (run / "tables").mkdir()
    assert place.life_of(run) is Life.OVER


def test_calls_of_orderly_groups_are_landed(tmp_path):
    run = Recording(tmp_path / "run")
    (sent,) = run.traffic(1, 1)
    began = run.clock
    run.clock += S
    run.call(sent, "c1", began)

    def calls(name):
        feed = Feed(run.run, tmp_path / name)
        feed.look(run.clock)
        return [row for row in landed(feed) if row["what"] == "call"]

    (call,) = calls("sound")
    assert (call["grp"], call["node"], call["queue_id"]) == (ORDERLY, "c1", sent["queue"])
    assert (call["begun"], call["ended"]) == (began, run.clock)
    with planted(HARNESS_BUGS["watch-hears-no-calls"]):
        assert calls("broken") == []


def test_a_run_has_one_watch_at_a_time(tmp_path):
    run = Recording(tmp_path / "run").run
    with place.taken(run) as folder:
        for name in SCRATCH:
            (folder / name).mkdir()
        with pytest.raises(CannotWatchError, match=r"is watched already; .*alarms\.jsonl"):
            place.taken(run).__enter__()
        assert all((folder / name).is_dir() for name in SCRATCH), "it is the first one's"
    assert not any((folder / name).exists() for name in SCRATCH)
    with planted(HARNESS_BUGS["two-watches-of-one-run"]), place.taken(run), place.taken(run):
        pass  # nobody notices


@pytest.mark.parametrize("number", sorted(place.READ_ONLY))
def test_a_run_that_may_only_be_read_is_watched_from_aside(tmp_path, monkeypatch, number):
    run = Recording(tmp_path / "run").run
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(aside))
    before, make = sorted(run.rglob("*")), Path.mkdir

    def refuse(path, *arguments, **options):
        if path.is_relative_to(run):
            raise OSError(number, os.strerror(number), str(path))
        make(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with place.taken(run) as folder:
        assert folder == place.aside(run)
        assert folder.parent == aside
        assert folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(CannotWatchError, match="is watched already"):
            place.taken(run).__enter__()
    assert sorted(run.rglob("*")) == before
    folder.joinpath(place.LOCK_FILE).unlink()
    folder.rmdir()
    (aside / "others").mkdir()
    folder.symlink_to(aside / "others")  # a name that could be guessed
    with pytest.raises(CannotWatchError, match="belongs to somebody else"):
        place.taken(run).__enter__()
    with planted(HARNESS_BUGS["watch-in-the-place-of-others"]), place.taken(run):
        pass  # nobody notices


@pytest.mark.parametrize(
    ("name", "why"), [("gone", "there is nothing"), (".", "it has no run.json and raw/")]
)
def test_what_is_no_run_is_not_watched(tmp_path, name, why):
    with pytest.raises(CannotWatchError, match=why), place.taken(tmp_path / name):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_end_before_the_end_is_said():
    line = {"what": "end", "rows": 3, "alarms": 0, "whole": False, "why": Life.DEAD.value}
    assert "not all was seen: whoever recorded it is gone" in str(in_words(line))
    assert str(in_words({**line, "whole": True})).endswith("all of the run was seen")
    told = str(in_words({**ALARM, "excusable": True}))
    assert told == "ALARM A54 t: e; the faults of the plan may excuse it (CRIT)"


def test_a_large_record_has_more_time_to_be_read(tmp_path):
    run = Recording(tmp_path / "run").run
    assert end_limit_s(run) == END_LIMIT_S
    (run / "raw" / "consumer-1.jsonl").write_bytes(bytes(3 * BYTES_PER_S))
    assert end_limit_s(run) == END_LIMIT_S + 3
