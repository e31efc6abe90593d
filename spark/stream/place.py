"""Where a watch lies on disk, who may be there, and whether its run goes on.

RUN/running             locked by whoever records, as long as that process lives
RUN/watch/end           written by whoever started the watch: all is recorded
RUN/watch/lock          locked by the one watch of a run
RUN/watch/alarms.jsonl  what was told, a line each; it stays
RUN/watch/landing, state, checkpoint  what the stream reads and keeps; removed at its end

Where the run's directory cannot be written at all, a folder of this user's and this run's in the
place for temporary files is what ``RUN/watch`` is elsewhere.

Knows nothing of Spark. Source: docs/chaos.md, "While it runs".
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

from spark.stream.feed import LANDING

FOLDER: Final = "watch"
ALARMS_FILE: Final = "alarms.jsonl"
END_FILE: Final = "end"
LOCK_FILE: Final = "lock"
RUNNING_FILE: Final = "running"
SCRATCH: Final = (LANDING, "state", "checkpoint")
READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Why nothing can be written to a directory, though there is nothing wrong with it."""


class Life(Enum):
    """What becomes of the record of a run."""

    GOES_ON = "more may be recorded"
    OVER = "all is recorded"
    DEAD = "whoever recorded it is gone, and did not end it"


class CannotWatchError(Exception):
    """The directory is no run, or another watch has it; the message says which."""


def life_of(run: Path) -> Life:
    """Return whether anything more will be recorded of a run. Errors: OSError."""
    held = is_held(run / RUNNING_FILE)  # looked at first: it is let go after the run has ended
    if (run / FOLDER / END_FILE).exists() or (run / "tables").is_dir():
        return Life.OVER
    return Life.GOES_ON if held else Life.DEAD


def is_held(path: Path) -> bool:
    """Return whether another process has locked a file; not if it is not there. Errors: OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextmanager
def taken(run: Path) -> Iterator[Path]:
    """Yield the folder of the one watch of ``run``; what the stream kept is removed at the end.

    It is a temporary one where the run may only be read. Errors: CannotWatchError; OSError if
    nothing can be written there.
    """
    if not (run / "run.json").is_file() or not (run / "raw").is_dir():
        why = "there is nothing of that name" if not run.exists() else "it has no run.json and raw/"
        raise CannotWatchError(f"{run} is no run of ours: {why}")
    folder, fd = _opened(run)
    try:
        if not _lock(fd):
            told = folder / ALARMS_FILE
            raise CannotWatchError(f"{run} is watched already; what that tells: {told}")
        clear(folder)
        try:
            yield folder
        finally:
            clear(folder)
    finally:
        os.close(fd)


def _opened(run: Path) -> tuple[Path, int]:
    """Return the folder for a watch of ``run``, and its open lock file. Errors: OSError."""
    folder = run / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        return folder, _lock_file(folder)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
    folder = aside(run)
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()  # a name that others could guess: it has to be ours
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise CannotWatchError(f"{run} cannot be written, and {folder} belongs to somebody else")
    return folder, _lock_file(folder)


def aside(run: Path) -> Path:
    """Return where a watch keeps and tells what it sees of a run that it may only read."""
    name = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"ledgermq-watch-{os.getuid()}-{name}"


def _lock_file(folder: Path) -> int:
    return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def clear(folder: Path) -> None:
    """Remove what a stream kept."""
    for name in SCRATCH:
        shutil.rmtree(folder / name, ignore_errors=True)


def _lock(fd: int) -> bool:
    """Lock a file for as long as it is open; return whether nobody else has it. Errors: OSError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
