"""Which tests may run side by side, and how the workers of pytest-xdist get them.

``make test`` starts a worker for each core, and one more where many tests wait. First they share
the files of tests that compute or wait and keep to themselves, one file at a time each, so that a
file's fixtures are made once. When all those have ended, one worker runs what needs the machine to
itself, one test after the other. All of it is one run of pytest with one report. ``make test
JOBS=0`` runs everything in one process, in the order of the files.
"""

import os
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ALONE = (
    "tests/docker/",  # one engine
    "tests/interop/",  # a cluster and a JVM
    # How long something takes is what these ask:
    "tests/chaos/test_proxy.py",
    "tests/integration/test_bench_store.py",
    "tests/integration/test_dledger.py",
    "tests/integration/test_dledger_leadership.py",
    "tests/integration/test_hostile_server.py",
    "tests/integration/test_large_floods.py",
    "tests/integration/test_remoting_floods.py",
    "tests/integration/test_remoting_turns.py",
    "tests/integration/test_store_group.py",
    "tests/integration/test_turns_at_the_limits.py",
)
"""Folders and files whose tests run one after the other, while nothing else runs."""

WAITING = ("tests/integration/", "tests/chaos/")
"""Whose tests leave the processor to others for most of their time: elections, syncs, faults."""

LONG = ("tests/spark/", "tests/sim/", "tests/wheel/", *WAITING)
"""Begun first, so that no worker is left alone with them at the end."""

JOBS_MAX = 8
"""A worker costs a process with all imports; what runs alone dominates from here on."""

_ALONE_UNIT = "alone"


def count_jobs(arguments: list[str], *, captures: bool) -> int:
    """Return how many workers are worth their start; 0 is none, everything in this process.

    A few files are not, and workers do not show what a test prints while it runs (``-s``).
    """
    paths = [Path(argument.partition("::")[0]) for argument in arguments]
    wide = [path for path in paths if path.is_dir() and not f"{path}/".startswith(ALONE)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    waits = any(folder.startswith(f"{path}/") for path in wide for folder in WAITING)
    jobs = min((cores or 1) + waits, JOBS_MAX)
    return jobs if wide and captures and jobs > 1 else 0


class SideBySideThenAlone(LoadScopeScheduling):
    """Gives out files; those of `ALONE` as one unit, last, to the only worker that is left."""

    def _split_scope(self, nodeid):
        path = nodeid.partition("::")[0]
        return _ALONE_UNIT if path.startswith(ALONE) else path

    def remove_node(self, node):
        """Give what a worker that died has left to others, but for the test that it died of."""
        units = self.assigned_work[node].values()
        left = [(unit, test) for unit in units for test, has_run in unit.items() if not has_run]
        if not left:
            return super().remove_node(node)
        unit, culprit = left[0]
        unit[culprit] = True
        super().remove_node(node)
        return culprit

    def mark_test_complete(self, node, item_index, duration=0):
        super().mark_test_complete(node, item_index, duration)
        for other in self.nodes:
            if other is not node:
                self._reschedule(other)

    def _reschedule(self, node):
        """Give ``node`` files until it has enough to do; without any left, it ends."""
        while self.workqueue and not node.shutting_down:
            if self._only_alone_is_left():
                if node is not self._last_node():
                    break
                if self._others_are_busy(node):
                    return
            elif self._pending_of(self.assigned_work[node]) > 2:
                return
            self._assign_work_unit(node)
        if not node.shutting_down:
            node.shutdown()  # It runs what it has.

    def _assign_work_unit(self, node):
        if self._only_alone_is_left():
            if node is not self._last_node() or self._others_are_busy(node):
                return
        else:
            self.workqueue.move_to_end(min(self.workqueue, key=self._turn), last=False)
        super()._assign_work_unit(node)

    def _turn(self, scope):
        """Sort the long ones first, then by the number of tests, and what runs alone last."""
        return scope == _ALONE_UNIT, not scope.startswith(LONG), -len(self.workqueue[scope])

    def _only_alone_is_left(self):
        return list(self.workqueue) == [_ALONE_UNIT]

    def _others_are_busy(self, node):
        works = self.assigned_work.items()
        return any(self._pending_of(work) for other, work in works if other is not node)

    def _last_node(self):
        return next((node for node in self.nodes if not node.shutting_down), None)
