"""Makes runs: each a process of its own that dies with this one, under a limit of time.

A run is over only when its outcome is on disk. What was broken off, by Ctrl-C, a kill of this
process or of the machine, has none: its directory is removed, and it is run again.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.backends.process import Child
from chaos.campaign.directory import Directory, read_run
from chaos.campaign.outcome import FAILED, Outcome, outcome
from chaos.campaign.plan import FAILED_IN_A_ROW, WITHOUT_SPARK, Job
from chaos.scenarios.repeat import WITHOUT_ROUNDS
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock

FREE_WANTED: Final = 2 << 30
"""Bytes that must be free before a run begins; it takes some hundreds of megabytes."""
STOP_S: Final = 30.0
"""A run that is asked to end gets so long to end its brokers and to make its tables."""
LIMIT_S: Final = 1_800.0
INTERRUPTED: Final = frozenset({130, 143})


class CannotGoOn(Exception):  # noqa: N818 - it says what is the matter
    """No further run makes sense; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What stays on the disk."""

    last: int = 3
    """Histories of valid runs."""
    bytes_max: int = 10 << 30
    """Of all histories together."""


class Runner:
    """Makes the runs of one campaign, one after the other."""

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        keep: Keep,
        *,
        limit_s: float = LIMIT_S,
        find: Callable[[str], str] = str,
    ) -> None:
        self.directory = directory
        self.done = {one.job.number: one for one in directory.outcomes()}
        self._clock = clock
        self._keep = keep
        self._limit_s = limit_s
        self._find = find
        self._failed = 0

    @property
    def outcomes(self) -> list[Outcome]:
        """The runs that are over, by number."""
        return [self.done[number] for number in sorted(self.done)]

    def run_again(self, verdicts: Collection[str]) -> int:
        """Let the runs that ended so be run again; return how many. Errors: `WrongDirectory`."""
        found = [one for one in self.outcomes if one.verdict in verdicts]
        for one in found:
            self.directory.forget(one)
            del self.done[one.job.number]
        return len(found)

    def is_quiet(self, job: Job) -> bool:
        """Tell whether a run under way has no brokers any more, and only Spark is still to speak.

        Without Spark what is left of it would take as long as the start of the next.
        """
        said = self.directory.run(job) / "verdict" / "inprocess.json"
        return WITHOUT_SPARK not in job.options and said.is_file()

    async def make(self, job: Job) -> Outcome:
        """Make a run and write its outcome down.

        Errors: `CannotGoOn` for want of disk, or after too many failures; `asyncio.CancelledError`
        if the run was interrupted: it is not over then.
        """
        free = self.directory.free_bytes()
        if free < FREE_WANTED:
            what = f"{free / 2**30:.1f} GiB are free, a run may take {FREE_WANTED / 2**30:.0f}"
            raise CannotGoOn(f"{what}; make room, and run the same command again")
        self.directory.clear(job)
        run = self.directory.run(job)
        began_ms, began_ns = self._clock.wall_ms(), self._clock.monotonic_ns()
        code = await self._run(job, arguments(job, run, self._find(job.scenario)))
        seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        files, faults = read_run(run)
        files["said"] = self.directory.said(job)
        found = outcome(job, code, (began_ms, seconds), files, faults)
        shutil.rmtree(run / "data", ignore_errors=True)  # the replicas' logs are copied elsewhere
        self.directory.add(found)
        self.done[job.number] = found
        self.directory.drop(self.outcomes, last=self._keep.last, bytes_max=self._keep.bytes_max)
        self._failed = self._failed + 1 if found.verdict == FAILED else 0
        if self._failed >= FAILED_IN_A_ROW:
            said = found.findings[0].summary
            raise CannotGoOn(f"{self._failed} runs in a row failed; the last: {said}")
        return found

    async def _run(self, job: Job, words: Sequence[str]) -> int:
        child = await Child.start(job.name, ["-m", "chaos", *words], self.directory.log(job))
        try:
            async with timeout(self._limit_s):
                code = await child.process.wait()
        except TimeoutError:
            await child.stop(STOP_S)
            self._note(job, f"ended after {self._limit_s:.0f} s, the limit of a run")
            return -1
        except asyncio.CancelledError:
            await child.stop(STOP_S)
            raise
        if code in INTERRUPTED:  # somebody ended it, not us: it proves nothing, and is not over
            raise asyncio.CancelledError
        return code

    def _note(self, job: Job, text: str) -> None:
        with contextlib.suppress(OSError), self.directory.log(job).open("a") as out:
            out.write(f"{text}\n")


def arguments(job: Job, run: Path, scenario: str) -> list[str]:
    """Return the words of ``ledgermq chaos`` that make a run.

    Scenarios that have no rounds are not asked for any.
    """
    options = list(job.options)
    if scenario in WITHOUT_ROUNDS and "--rounds" in options:
        at = options.index("--rounds")
        del options[at : at + 2]
    words = ["run", scenario, "--seed", str(job.seed), "--out", str(run), "--report", "found"]
    words += [] if job.mutant is None else ["--break", job.mutant]
    return [*words, *options]
