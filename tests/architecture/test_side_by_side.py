"""Every test runs once, and what runs alone runs when nothing else does, at any speed."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.side_by_side import ALONE, LONG, WAITING, SideBySideThenAlone, count_jobs

TOGETHER = [f"tests/unit/test_{file}.py::test_{n}" for file in range(6) for n in range(3 + file)]
LONG_ONES = [f"{LONG[0]}test_{file}.py::test_{n}" for file in range(2) for n in range(2)]
ALONE_ONES = [
    f"{place if place.endswith('.py') else place + 'test_it.py'}::test_{n}"
    for place in ALONE
    for n in range(2)
]


class Worker:
    """Runs a test once it knows the one behind it, or that there is none, as xdist's do."""

    def __init__(self, name):
        self.gateway = SimpleNamespace(id=name)
        self.queue = []
        self.shutting_down = False

    def send_runtest_some(self, indices):
        assert not self.shutting_down
        self.queue += indices

    def shutdown(self):
        self.shutting_down = True

    def can_run(self):
        return len(self.queue) > (0 if self.shutting_down else 1)


class Run:
    """A whole run with workers whose speed is drawn."""

    def __init__(self, tests, jobs, rng):
        self.tests, self.rng, self.ran, self.crashed = tests, rng, [], []
        option = SimpleNamespace(loadscopereorder=True)
        config = SimpleNamespace(option=option, getvalue=lambda _name: ["popen"] * jobs)
        self.scheduler = SideBySideThenAlone(config)
        self.workers = [Worker(f"gw{number}") for number in range(jobs)]
        for worker in self.workers:
            self.scheduler.add_node(worker)
        for worker in self.workers:
            self.scheduler.add_node_collection(worker, tests)
        self.scheduler.schedule()

    def finish(self, crash_at=None):
        while able := [worker for worker in self.workers if worker.can_run()]:
            worker = self.rng.choice(able)
            test = self.tests[worker.queue[0]]
            others = [other for other in self.workers if other is not worker]
            if test.startswith(ALONE):
                assert not any(other.queue for other in others), test
            if len(self.ran) == crash_at:
                self._crash(worker, test)
                crash_at = None
                continue
            self.ran.append(test)
            self.scheduler.mark_test_complete(worker, worker.queue.pop(0))
        assert not any(worker.queue for worker in self.workers)
        assert all(worker.shutting_down for worker in self.workers)
        assert self.scheduler.tests_finished

    def _crash(self, worker, test):
        """As DSession does: another worker takes the place of the one that is gone."""
        self.workers.remove(worker)
        self.crashed.append(test)
        assert self.scheduler.remove_node(worker) == test
        self.workers.append(replacement := Worker("gw-new"))
        self.scheduler.add_node(replacement)
        self.scheduler.add_node_collection(replacement, self.tests)
        self.scheduler.schedule()


@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "tests",
    [TOGETHER, ALONE_ONES, TOGETHER + ALONE_ONES, TOGETHER[:3] + ALONE_ONES, LONG_ONES + TOGETHER],
)
@pytest.mark.parametrize("seed", range(3))
def test_every_test_runs_once_and_what_runs_alone_does(tests, jobs, seed):
    run = Run(tests, jobs, random.Random(seed))
    run.finish()
    assert sorted(run.ran) == sorted(tests)
    alone = [test for test in run.ran if test.startswith(ALONE)]
    assert run.ran[len(run.ran) - len(alone) :] == alone == [t for t in tests if t in set(alone)]


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("crash_at", range(0, len(TOGETHER + ALONE_ONES), 5))
def test_a_worker_that_dies_costs_no_other_test(jobs, crash_at):
    tests = TOGETHER + ALONE_ONES
    run = Run(tests, jobs, random.Random(crash_at))
    run.finish(crash_at)
    assert len(run.crashed) == 1
    assert sorted(run.ran + run.crashed) == sorted(tests), "nor is it run again, to kill another"


def test_files_that_take_long_are_begun_first():
    run = Run(TOGETHER + ALONE_ONES + LONG_ONES, 2, random.Random(1))
    assert {run.tests[worker.queue[0]] for worker in run.workers} == {LONG_ONES[0], LONG_ONES[2]}


def test_workers_are_started_only_where_they_are_worth_it():
    assert count_jobs(["tests/unit/client/test_stop.py"], captures=True) == 0
    assert count_jobs(["tests/docker"], captures=True) == 0
    assert count_jobs(["tests"], captures=False) == 0
    assert count_jobs(["tests"], captures=True) != 1


@pytest.mark.parametrize(("cores", "waiting", "computing"), [(1, 2, 0), (2, 3, 2), (64, 8, 8)])
def test_one_worker_more_than_cores_where_tests_wait(monkeypatch, cores, waiting, computing):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(cores)), raising=False)
    for paths in (["tests"], ["tests/integration"], ["tests/unit/cli", "tests/chaos/"]):
        assert count_jobs(paths, captures=True) == waiting
    assert count_jobs(["tests/unit"], captures=True) == computing


def test_what_is_named_here_is_there():
    """A file that was renamed would run side by side, and nobody would know."""
    root = Path(__file__).parents[2]
    assert [place for place in (*ALONE, *WAITING, *LONG) if not (root / place).exists()] == []
