"""The directory of a campaign, as it lies on disk, and what of it survives a kill at any moment.

DIR/campaign.json      the settings; they never change
DIR/outcomes/N.json    one file for each run that is over, put there whole; others are not over
DIR/runs/N-.../        the run's own directory; histories go when the disk is wanted for others
DIR/logs/N-....log     what the run printed
DIR/index.html, junit.xml, summary.json  made anew after each run

Knows no scenario and no process.
"""

import contextlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from chaos.campaign.keep import histories_to_drop
from chaos.campaign.outcome import Outcome
from chaos.campaign.plan import Job, Settings
from chaos.convert import read_table
from ledgermq.runtime.disk import DirectoryInUse, RealDisk
from ledgermq.runtime.errors import FatalError

KEPT: Final = ("run.json", "verdict", "report")
"""What stays of a run whose history has gone; the report of a valid one goes as well."""
OWN: Final = frozenset({"outcomes", "runs", "logs", "lock", "campaign.json.tmp"})
"""What a campaign may have left that was killed before it had said what it is."""
SAID_BYTES: Final = 4_000
JSON_FILES: Final = {
    "run": "run.json",
    "inprocess": "verdict/inprocess.json",
    "results": "verdict/results.json",
    "judgement": "verdict/judgement.json",
}


class WrongDirectory(Exception):  # noqa: N818 - it says what is the matter
    """The directory cannot be used for this campaign; the message says why and what to do."""


def refuse_foreign(root: Path) -> None:
    """See that nothing but a campaign is there: pages and tables are put over what has their name.

    Errors: `WrongDirectory`.
    """
    with contextlib.suppress(OSError):  # `Directory` says what is the matter
        names = {path.name for path in root.iterdir()}
        if "campaign.json" not in names and names - OWN:
            what = f"{root} has {min(names - OWN)} and is no campaign"
            raise WrongDirectory(f"{what}; name another --out")


class Directory:
    """A campaign on disk; use it as a context manager, it is one process's at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._disk = RealDisk()
        self._lock: Any = None

    def __enter__(self) -> "Directory":
        """Take it. Errors: `WrongDirectory` if another process has it, or it cannot be made."""
        try:
            for name in ("outcomes", "runs", "logs"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            self._lock = self._disk.lock(str(self.root / "lock"))
        except DirectoryInUse as error:
            raise WrongDirectory(f"{self.root}: another process is at it") from error
        except (OSError, FatalError) as error:
            raise WrongDirectory(f"{self.root} cannot be used: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def settings(self) -> Settings | None:
        """Return those of the campaign that is here; None if there is none.

        Errors: `WrongDirectory` for a file that cannot be read.
        """
        raw = self._disk.read(str(self.root / "campaign.json"))
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=Settings)
        except msgspec.MsgspecError as error:
            raise WrongDirectory(f"{self.root / 'campaign.json'}: {error}") from error

    def begin(self, settings: Settings) -> None:
        """Write down what the campaign is."""
        self.write("campaign.json", msgspec.json.format(msgspec.json.encode(settings)))

    def outcomes(self) -> list[Outcome]:
        """Return the runs that are over, by number. Errors: `WrongDirectory`."""
        found = []
        for path in sorted((self.root / "outcomes").glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Outcome))
            except (OSError, msgspec.MsgspecError) as error:
                raise WrongDirectory(f"{path}: {error}; remove it to run it again") from error
        return sorted(found, key=lambda one: one.job.number)

    def add(self, outcome: Outcome) -> None:
        """Write down that a run is over: from now on it counts."""
        path = f"outcomes/{outcome.job.number:05d}.json"
        self.write(path, msgspec.json.format(msgspec.json.encode(outcome)))

    def forget(self, outcome: Outcome) -> None:
        """Let a run not be over any more: it is run again, and what it left goes when that begins.

        Errors: `WrongDirectory` if it cannot be.
        """
        path = self.root / "outcomes" / f"{outcome.job.number:05d}.json"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise WrongDirectory(f"{path} cannot be removed: {error}") from error

    def write(self, name: str, data: bytes) -> None:
        """Replace a file as a whole."""
        self._disk.replace(str(self.root / name), data)

    def run(self, job: Job) -> Path:
        """Return the directory of a run."""
        return self.root / "runs" / job.name

    def log(self, job: Job) -> Path:
        """Return where a run's output goes."""
        return self.root / "logs" / f"{job.name}.log"

    def clear(self, job: Job) -> bool:
        """Remove what a run left that was broken off; tell whether there was anything."""
        self.log(job).unlink(missing_ok=True)
        if not self.run(job).exists():
            return False
        shutil.rmtree(self.run(job))
        return True

    def said(self, job: Job) -> list[str]:
        """Return the last lines that a run printed."""
        with contextlib.suppress(OSError):
            raw = self.log(job).read_bytes()[-SAID_BYTES:]
            return raw.decode(errors="replace").splitlines()
        return []

    def free_bytes(self) -> int:
        """Return how much room is left for runs."""
        return shutil.disk_usage(self.root).free

    def drop(self, outcomes: Iterable[Outcome], *, last: int, bytes_max: int) -> list[int]:
        """Remove histories that are not to be kept; return the numbers of their runs.

        What a failed run left counts like a history, whatever it is.
        """
        known = list(outcomes)
        by_number = {one.job.number: one for one in known}
        sizes = {
            number: size
            for number, one in by_number.items()
            if self._spare(one) and (size := tree_bytes(self.run(one.job))) >= 0
        }
        gone = histories_to_drop(known, sizes, last=last, bytes_max=bytes_max)
        for number in gone:
            for path in self._spare(by_number[number]):
                _remove(path)
        return gone

    def _spare(self, one: Outcome) -> list[Path]:
        """Return what a run has left beside what is always kept."""
        kept = KEPT if one.verdict != "valid" else KEPT[:-1]
        with contextlib.suppress(OSError):
            return sorted(p for p in self.run(one.job).iterdir() if p.name not in kept)
        return []


def read_run(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a run's JSON files by name, {} for those that are not there, and its faults."""
    files: dict[str, Any] = {"report": (run / "report" / "index.html").is_file()}
    for name, path in JSON_FILES.items():
        files[name] = {}
        with contextlib.suppress(OSError, ValueError):
            files[name] = json.loads((run / path).read_text())
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(OSError, pa.ArrowException):
        rows = read_table(run, "faults")
    return files, rows


def tree_bytes(path: Path) -> int:
    """Return what a directory takes of the disk."""
    total = 0
    for one in path.rglob("*"):
        with contextlib.suppress(OSError):
            total += one.lstat().st_blocks * 512
    return total


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
