"""The watch beside a run, without Spark: what is read, what nodes say, who differs."""

import asyncio
import json

import pyarrow.parquet as pq
import pytest

from chaos.catalogue.live import WHOLLY
from chaos.verdict import CombinedVerdict, with_watch
from chaos.watch import Watch, alarms_path, differences
from spark.stream.feed import DamagedFeedError, Feed
from spark.stream.replicas import Replicas
from tests.spark.recording import Recording, S, plants


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


def write(run, *lines):
    alarms_path(run).parent.mkdir(parents=True, exist_ok=True)
    alarms_path(run).write_text("".join(json.dumps(line) + "\n" for line in lines))


ALARM = {"what": "alarm", "check": "A54", "key": "7", "severity": "CRIT", "title": "t",
         "explain": "e"}  # fmt: skip


def verdict(**checks):
    return {"checks": {c: {"verdict": v, "count": n} for c, (v, n) in checks.items()}}


def test_an_alarm_has_to_be_found_by_the_verdict(tmp_path):
    assert differences(tmp_path, verdict()) == []  # nobody watched
    write(tmp_path, ALARM)
    assert differences(tmp_path, verdict(A54=("invalid", 1), A53=("valid", 0))) == []
    assert differences(tmp_path, verdict(A54=("valid", 0), A53=("invalid", 1))) == []
    assert differences(tmp_path, verdict(A54=("unknown", 0), A53=("valid", 0))) == []
    (line,) = differences(tmp_path, verdict(A54=("valid", 0), A53=("valid", 0)))
    assert line == "alarm A54 of 7 was told while the run went on, and is none"
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
