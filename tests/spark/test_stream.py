"""The verdict while a run goes on: runs are written in pieces, and each alarm has its time."""

import json
from contextlib import contextmanager

import pytest

from chaos.catalogue.live import ALARMS
from chaos.watch import differences
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from spark.history import open_history
from spark.job import run_checks, write_report
from spark.stream.memory import KEPT_NS
from spark.stream.place import Life
from spark.stream.watch import Stop, Stream, watch
from tests.spark.recording import Recording, S, plants
from tests.spark.reports import SPARK_MARKS

pytestmark = SPARK_MARKS
BATCHES = 2
"""An alarm comes with its piece, or with the next where all that was before has to be known."""


class Watched:
    """A stream that is fed by hand; the lines it said."""

    def __init__(self, session, run: Recording) -> None:
        self.run, self.lines = run, []
        self.stream = Stream.of(session, run.run, self.lines.append)

    def step(self) -> list[tuple[str, str]]:
        """Read what was written, and return the alarms that came of it."""
        known = len(self.lines)
        self.stream.feed.look(self.run.clock)
        self.query.processAllAvailable()
        assert self.stream.failure is None, self.stream.failure
        return self.alarms(known)

    def alarms(self, since: int = 0) -> list[tuple[str, str]]:
        new = self.lines[since:]
        return sorted((line["check"], line["key"]) for line in new if line["what"] == "alarm")

    @property
    def last(self):
        return next(line for line in reversed(self.lines) if line["what"] == "batch")


@contextmanager
def watched(session, tmp_path):
    told = Watched(session, Recording(tmp_path / "run"))
    told.query = told.stream.start()
    try:
        yield told
    finally:
        told.query.stop()


def verdict_of(session, run, only):
    report = run_checks(session, open_history(run), only=only, progress=lambda line: None)
    write_report(report, run / "verdict")
    return report.as_json()


def write_alarms(run, lines):
    (run / "watch" / "alarms.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


@pytest.mark.timeout(900)
def test_each_anomaly_is_told_when_it_is_recorded_and_the_verdict_agrees(session, tmp_path):
    with watched(session, tmp_path) as told:
        told.run.traffic(30, 5)
        assert told.step() == []
        wanted = []
        for check, key in plants(told.run):
            wanted.append((check, key))
            found = told.step()
            if (check, key) not in found:
                told.run.clock += 1
                found += told.step()
            assert found == [(check, key)], (check, told.lines[-3:])
        told.run.traffic(5, 1)
        assert told.step() == []  # nothing is told twice
        assert {check for check, _ in wanted} == ALARMS.keys()
        told.run.end()
        lines = [*told.lines, {"what": "end", "whole": True}]
        write_alarms(told.run.run, lines)
    verdict = verdict_of(session, told.run.run, sorted(ALARMS))
    assert {name: verdict["checks"][name]["count"] for name in ALARMS} == dict.fromkeys(ALARMS, 1)
    assert differences(told.run.run, verdict) == []
    invented = {"what": "alarm", "check": "A6", "key": "77"}
    write_alarms(told.run.run, [*lines, invented])
    assert differences(told.run.run, verdict) == [
        "alarm A6 of 77 was raised during the run, and the verdict does not confirm it"
    ]
    write_alarms(told.run.run, [line for line in lines if line.get("check") != "A56"])
    (missing,) = differences(told.run.run, verdict)
    assert "A56 of" in missing
    assert "no alarm was told" in missing


@pytest.mark.timeout(900)
@pytest.mark.parametrize("pieces", [7, pytest.param(10, marks=pytest.mark.further)])
def test_a_clean_run_never_alarms_and_what_is_kept_stays_bounded(session, tmp_path, pieces):
    """Minutes of the run's time: messages are forgotten, and come again without an alarm."""
    with watched(session, tmp_path) as told:
        kept, oldest = [], None
        for _ in range(pieces):
            messages = told.run.traffic(60, KEPT_NS / S / 3)
            oldest = oldest or messages[0]
            assert told.step() == []
            kept.append(told.last["kept"])
        assert max(kept[4:]) <= 2 * 60 * 5, (
            kept
        )  # a message and its place; a third of the time each
        assert kept[-1] <= kept[4] + 60
        told.run.deliver(oldest)  # long forgotten, and sent all the same
        assert told.step() == []
        told.run.clock += S
        assert told.step() == []
        late = told.run.invoke()
        told.run.complete(late)
        told.run.traffic(3, 15)
        assert told.step() == []
        assert (told.last["unseen"], told.last["suspects"]) == (1, 1)
        told.run.deliver(late)
        told.step()
        assert (told.last["unseen"], told.last["suspects"]) == (0, 0)


@pytest.mark.parametrize("bug", ["watch-forgets-its-forgetting", "watch-believes-a-delivery-first"])
@pytest.mark.timeout(900)
def test_a_watch_that_judges_too_early_is_seen(session, tmp_path, bug):
    with watched(session, tmp_path) as told, planted(HARNESS_BUGS[bug]):
        sent = told.run.invoke()
        told.run.complete(sent)
        assert told.step() == []
        if bug == "watch-forgets-its-forgetting":
            told.run.traffic(6, 2 * KEPT_NS / S)
            told.step()
            told.run.traffic(6, 10)
            told.run.deliver(sent)
        else:
            unread = {**sent, "key": sent["key"] + 1, "offset": 50}
            now, told.run.clock = told.run.clock, told.run.clock + S
            told.run.deliver(unread)  # its send is still on the way to the file
            told.run.clock = now
        assert [check for check, _ in told.step()] == ["A5"]


@pytest.mark.timeout(900)
def test_a_run_that_is_over_is_watched_to_its_end(session, tmp_path):
    run = Recording(tmp_path / "run")
    run.traffic(20, 4)
    lost = run.invoke()
    run.complete(lost)
    run.traffic(1, 1)
    run.end()
    lines = []
    stream = watch(session, run.run, lines.append, Stop())
    end = {"what": "end", "whole": True, "rows": stream.feed.rows, "alarms": 0}
    assert lines[-1] == {**end, "why": Life.OVER.value}
    assert stream.rows == stream.feed.rows
    assert lines[-2]["unseen"] == 1
