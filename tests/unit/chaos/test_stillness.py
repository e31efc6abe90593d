"""What stands still at the end of a run is an answer that is wrong, not a run without a verdict."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import closing
from chaos.checker import check_history
from chaos.closing import Closing
from chaos.scenario import Scenario, Step
from chaos.stillness import Stillness
from chaos.workload.audit import EMPTY_POLLS, QueueEnds
from ledgermq.client import MessageQueue, NoRoute
from ledgermq.runtime.clock import SystemClock
from tests.unit.chaos.histories import clean
from tests.unit.chaos.test_workloads import Notes

QUEUE = MessageQueue("t", "b", 2)


def test_who_moves_does_not_stand_and_who_is_over_is_forgotten():
    still = Stillness(10)
    assert not still.is_over(100)
    still.note(0, {"a": 1, "b": 1})
    still.note(9, {"a": 2, "b": 1})
    assert still.still(10) == {"b": 1}
    assert not still.is_over(10)
    assert still.is_over(19)
    still.note(20, {"a": 2})
    assert still.still(20) == {"a": 2}
    assert still
    still.forget()
    assert not still
    assert not still.is_over(99)
    still.note(30, {"a": 2})
    assert still.still(39) == {}


class Read:
    """A group and how far it has read of eight, by time; an end that nobody tells at first."""

    def __init__(self, steps: dict[int, int], *, unknown: int = 0) -> None:
        self.asked = 0
        self._steps = steps
        self._unknown = unknown

    def committed(self, _group: str) -> dict[str, int]:
        at = max(begun for begun in self._steps if begun <= self.asked)
        return {"t/2": self._steps[at]}

    async def ends(self, _reader: Any, _topic: str) -> dict[MessageQueue, QueueEnds]:
        self.asked += 1
        if self.asked <= self._unknown:
            raise NoRoute("t")
        return {QUEUE: QueueEnds(0, 8)}


def drained(read: Read, monkeypatch: Any, tmp_path: Any, **more: Any) -> tuple[Notes, list[str]]:
    """Return what is written of a drain and of its queue, and what is shown."""
    notes, shown = Notes(), []

    async def stop(_role: str) -> None: ...

    class Reader:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(closing, "STILL_S", 1.0)
    monkeypatch.setattr(closing, "queue_ends", read.ends)
    monkeypatch.setattr(closing, "auditor", lambda _: Reader())
    (tmp_path / "raw").mkdir()
    parts = SimpleNamespace(
        scenario=Scenario(name="s", drain_s=0.1, timeline=more.get("timeline", ())),
        recorder=notes, clock=SystemClock(),
        problems=[], phase=lambda *_: None, lost_alone=more.get("lost_alone", 0),
        options=SimpleNamespace(run=tmp_path),
        view=SimpleNamespace(notice=shown.append),
        cluster=SimpleNamespace(name_server_addrs=lambda: ("ns:1",)),
        workers=SimpleNamespace(
            committed=read.committed, stop=stop, problems=[],
            living=lambda _: [SimpleNamespace(history_group=more.get("living", "g"))],
        ),
        plan=SimpleNamespace(
            consumed={"g": ("t",)}, topics=("t",), reconsume_max={}, modes={"g": "clustering"}
        ),
    )  # fmt: skip
    end = Closing(parts)  # type: ignore[arg-type]
    asyncio.run(end.drain())
    for row in end._drain_rows(QUEUE, QueueEnds(0, 8), EMPTY_POLLS):
        notes.write("drain", row)
    return notes, shown


def is_drained(notes: Notes) -> bool:
    return all(row["drained"] for row in notes.of("drain"))


def verdict_of(notes: Notes) -> str:
    return check_history(clean(answers=notes.of("answers"))).results["A50"].verdict


def test_a_group_that_stands_still_is_found(monkeypatch, tmp_path):
    notes, shown = drained(Read({0: 3}), monkeypatch, tmp_path)
    (row,) = notes.of("answers")
    assert (row["subject"], row["expected"]) == ("g t/2", "read to 8")
    assert row["told"].startswith("at 3 for")
    assert verdict_of(notes) == "invalid"
    assert "not drained: g t/2 at 3 of 8" in shown[0]


@pytest.mark.parametrize(
    ("read", "more"),
    [
        (Read({0: 8}), {}),
        (Read({0: 3, 5: 8}), {}),
        (Read({0: 3, 4: 8}, unknown=4), {}),
        (Read({0: 3}), {"lost_alone": 2}),
        (Read({0: 3}, unknown=1_000), {}),
        (Read({0: 3}), {"living": "h"}),
    ],
    ids=(
        "at the end",
        "a little later",
        "once there is a route",
        "lost with a disk",
        "no route",
        "nobody of it lives",
    ),
)
def test_who_reads_on_and_whom_nobody_can_ask_are_not(monkeypatch, tmp_path, read, more):
    notes, _ = drained(read, monkeypatch, tmp_path, **more)
    assert notes.of("answers") == []


def test_nobody_waits_for_a_cluster_that_does_not_answer(monkeypatch, tmp_path):
    notes, (shown,) = drained(Read({0: 3}, unknown=1_000), monkeypatch, tmp_path)
    assert (notes.of("answers"), "waiting" in shown) == ([], False)


def test_what_is_refused_and_does_not_come_again_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(closing, "_owed", lambda *_: {closing.REFUSED: 2})
    notes, _ = drained(Read({0: 8}), monkeypatch, tmp_path)
    (row,) = notes.of("answers")
    assert (row["subject"], row["told"][:5]) == ("what was refused", "2 nev")
    assert verdict_of(notes) == "invalid"
    assert is_drained(notes)  # else what else was lost would be lost in a queue nobody judges


@pytest.mark.parametrize("kind", ["power_loss_all", "wipe", "clock_jump"])
def test_what_a_disk_may_have_lost_or_a_clock_holds_back_is_not_owed(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(closing, "_owed", lambda *_: {closing.REFUSED: 2})
    timeline = (Step(do="start", name="1", kind=kind, targets=("leader",)),)
    notes, _ = drained(Read({0: 8}), monkeypatch, tmp_path, timeline=timeline)
    assert notes.of("answers") == []
    assert not is_drained(notes)


def test_what_is_delayed_is_waited_for_and_left_to_the_checkers_if_it_never_comes(
    monkeypatch, tmp_path
):
    late = iter([3, 2, 0])
    monkeypatch.setattr(
        closing, "_owed", lambda *_: {closing.DELAYED: n} if (n := next(late)) else {}
    )
    notes, shown = drained(Read({0: 8}), monkeypatch, tmp_path)
    assert (next(late, None), notes.of("answers")) == (None, [])
    assert is_drained(notes)
    assert not shown or "delayed" in shown[0]


def test_what_was_delayed_and_never_comes_ends_the_wait(monkeypatch, tmp_path):
    monkeypatch.setattr(closing, "_owed", lambda *_: {closing.DELAYED: 1})
    notes, shown = drained(Read({0: 8}), monkeypatch, tmp_path)
    assert notes.of("answers") == []
    assert is_drained(notes)  # A1 tells that it is lost.
    assert "delayed did not come" in shown[0]


@pytest.mark.parametrize("then", [{"g t/2": 2}, {"g t/1": 3}], ids=("has moved", "is at its end"))
def test_who_moves_in_the_last_moment_stands_no_more(monkeypatch, tmp_path, then):
    monkeypatch.setattr(Stillness, "is_over", lambda *_: True)
    monkeypatch.setattr(Stillness, "still", lambda *_: then)
    notes, _ = drained(Read({0: 3}), monkeypatch, tmp_path)
    assert notes.of("answers") == []
