"""Which runs of a campaign are under way at once, without the runs."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from chaos.campaign.directory import Directory
from chaos.campaign.outcome import Outcome, spent_s
from chaos.campaign.overlap import make_all
from chaos.campaign.plan import WITHOUT_SPARK, Job
from chaos.campaign.runner import Keep, Runner
from ledgermq.runtime.clock import SystemClock


def job(number: int, *options: str) -> Job:
    return Job(number=number, scenario="s", seed=1, options=options)


class Line:
    """Runs that go on until a test lets them be judged, and end."""

    def __init__(self, many: int) -> None:
        self.many = many
        self.done: set[int] = set()
        self.quiet: set[int] = set()
        self.ends = {number: asyncio.Event() for number in range(many)}
        self.raises: dict[int, BaseException] = {}
        self.told: list[str] = []

    def following(self, going: Collection[int]) -> Job | None:
        left = [n for n in range(self.many) if n not in self.done and n not in going]
        return job(left[0]) if left else None

    async def make(self, one: Job) -> None:
        self.told.append(f"begin {one.number}")
        try:
            await self.ends[one.number].wait()
        except asyncio.CancelledError:
            self.told.append(f"cancel {one.number}")
            raise
        if error := self.raises.get(one.number):
            raise error
        self.told.append(f"end {one.number}")
        self.done.add(one.number)

    def is_quiet(self, one: Job) -> bool:
        return one.number in self.quiet


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.campaign.overlap.LOOK_S", 0.001)


def start(line: Line) -> asyncio.Task[None]:
    return asyncio.create_task(make_all(line.following, line.make, line.is_quiet))


async def reach(line: Line, *told: str) -> None:
    async with asyncio.timeout(5):
        while line.told != list(told):
            await asyncio.sleep(0.001)


def test_the_next_run_begins_while_one_is_judged_and_never_a_third() -> None:
    async def check() -> None:
        line = Line(3)
        task = start(line)
        await reach(line, "begin 0")
        await asyncio.sleep(0.01)
        assert line.told == ["begin 0"], "its brokers still run"
        line.quiet.add(0)
        await reach(line, "begin 0", "begin 1")
        line.quiet.add(1)
        await asyncio.sleep(0.01)
        assert line.told == ["begin 0", "begin 1"], "two are judged"
        line.ends[0].set()
        await reach(line, "begin 0", "begin 1", "end 0", "begin 2")
        line.ends[2].set()  # a later one may be over first
        await reach(line, "begin 0", "begin 1", "end 0", "begin 2", "end 2")
        assert not task.done()
        line.ends[1].set()
        await task
        assert line.done == {0, 1, 2}

    asyncio.run(check())


def test_without_a_quiet_one_runs_come_one_after_the_other() -> None:
    async def check() -> None:
        line = Line(2)
        task = start(line)
        await reach(line, "begin 0")
        line.ends[0].set()
        await reach(line, "begin 0", "end 0", "begin 1")
        line.ends[1].set()
        await task

    asyncio.run(check())


def test_what_one_raises_ends_the_other_too() -> None:
    async def check() -> None:
        line = Line(3)
        line.quiet.add(0)
        line.raises[0] = OSError("no disk")
        task = start(line)
        await reach(line, "begin 0", "begin 1")
        line.ends[0].set()
        with pytest.raises(OSError, match="no disk"):
            await task
        assert line.told == ["begin 0", "begin 1", "cancel 1"]

    asyncio.run(check())


def test_an_interrupt_ends_both() -> None:
    async def check() -> None:
        line = Line(3)
        line.quiet.add(0)
        task = start(line)
        await reach(line, "begin 0", "begin 1")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(line.told[2:]) == ["cancel 0", "cancel 1"]

    asyncio.run(check())


def test_a_run_is_quiet_once_the_first_checker_has_spoken_and_spark_is_asked(
    tmp_path: Path,
) -> None:
    with Directory(tmp_path) as directory:
        runner = Runner(directory, SystemClock(), Keep())
        alone, both = job(0, WITHOUT_SPARK), job(1)
        for one in (alone, both):
            assert not runner.is_quiet(one)
            verdict = directory.run(one) / "verdict"
            verdict.mkdir(parents=True)
            assert not runner.is_quiet(one)
            (verdict / "inprocess.json").write_text("{}")
        assert not runner.is_quiet(alone), "its end takes no longer than the start of the next"
        assert runner.is_quiet(both)


def test_seconds_of_two_runs_at_once_count_once() -> None:
    def over(number: int, began_s: float, seconds: float) -> Outcome:
        began_ms = int(began_s * 1000)
        return Outcome(
            job=job(number), verdict="valid", exit_code=0, began_ms=began_ms, seconds=seconds
        )

    runs = [over(0, 100, 60), over(1, 130, 60), over(2, 140, 10), over(3, 500, 7)]
    assert spent_s(runs) == pytest.approx(60 + 30 + 7)
    assert spent_s(runs[::-1]) == pytest.approx(97)
    assert spent_s([]) == 0
