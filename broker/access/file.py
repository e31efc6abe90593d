"""The access file: read at the start, and again when it has changed; written by administrators.

What is wrong with it at the start is fatal; later it is told in one line, and the rules that were
read before go on to count. Each broker has a file of its own: nothing spreads it.
Source: AclUtils, AclFileWatchService 4.9.7.
"""

from __future__ import annotations

import asyncio
import logging
import pathlib
from typing import TYPE_CHECKING, Any, Final

from broker.access.rules import NOBODY, Rules, read_rules
from broker.limits import ACCESS_FILE_BYTES_MAX
from ledgermq.runtime.disk import NO_FILES
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.regular import read_named
from ledgermq.runtime.tasks import attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk

_log: Final = logging.getLogger(__name__)

REFRESH_MS: Final = 5_000
SETTING: Final = "rocketmq.acl.plain.file"
Document = dict[str, Any]


class AccessFile:
    """The rules of one broker.

    Args:
        path: where they are.
        disk: writes them.
        clock: says when they were changed.
    """

    def __init__(self, path: str, disk: Disk, clock: Clock) -> None:
        self.path = path
        self._disk = disk
        self._clock = clock
        self._stamp: tuple[int, ...] | None = None
        self._problem: str | None = ""
        """Why what the file says does not count, None if it does; empty: it was never read."""
        self._changing = asyncio.Lock()
        self.rules: Rules = NOBODY
        self.document: Document = {}
        """What the file says, as YAML has it."""

    def load(self) -> None:
        """Read it. Errors: `FatalError` names the file and what is wrong."""
        self._stamp = self._stat()
        try:
            self._take(self._read())
        except (OSError, ValueError) as error:
            self._problem = str(getattr(error, "strerror", None) or error)
            raise FatalError(f"{SETTING}={self.path}: {self._problem}") from error
        self._problem = None
        if not self.rules.accounts:
            _log.warning("event=access_without_accounts file=%s", self.path)
        others = sorted(map(str, (pathlib.Path(self.path).parent / "acl").glob("*.y*ml")))
        if others:  # Whoever has an account there is refused, and nothing else would say why.
            _log.warning("event=access_files_not_read first=%s files=%d", others[0], len(others))

    def begin(self) -> None:
        """Read it; one that was read in another role of this process has rules that go on to count.

        Errors: `FatalError` for one that was not.
        """
        if self._problem == "":
            self.load()
        else:
            self.refresh()

    def refresh(self) -> bool:
        """Read it again if it has changed; return whether other rules count now."""
        stamp, known = self._stat(), self._problem
        if stamp == self._stamp:
            return False
        try:
            self.load()
        except FatalError as error:
            if getattr(error.__cause__, "errno", None) in NO_FILES:
                self._stamp = ()  # read it again though it stays as it is
                if self._problem == known:
                    return False
            _log.warning(
                "event=access_not_read error=%r kept=%r", error.message, "the rules before"
            )
            return False
        _log.info("event=access_read file=%s accounts=%d", self.path, len(self.rules.accounts))
        return True

    async def watch(self) -> None:
        """Read it again whenever it has changed, until cancelled; the loop does not wait for it."""
        while True:
            await asyncio.sleep(REFRESH_MS / 1000)
            async with self._changing:
                await asyncio.to_thread(attempt, "the access file", self.refresh)

    async def change(self, change: Callable[[Document], object]) -> None:
        """Have ``change`` made to a copy of what the file says, and that from now on.

        What somebody has just written into the file is read before, so that it is not undone.

        Errors: `ValueError`, `OSError`, and what ``change`` raises; nothing has changed then.
        """
        async with self._changing:
            await asyncio.to_thread(self.refresh)
            if self._problem is not None:
                raise ValueError(f"mend {self.path} first: {self._problem}")
            document = {**self.document}
            change(document)
            await asyncio.to_thread(self._write, document)

    def _write(self, document: Document) -> None:
        import yaml  # type: ignore[import-untyped]  # it has no types

        rules = read_rules(document)
        versions = document.get("dataVersion") or [{}]
        counter = int(versions[0].get("counter", 0)) + 1
        document = {
            **document,
            "dataVersion": [{"counter": counter, "timestamp": self._clock.wall_ms()}],
        }
        data = yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
        if len(data) > ACCESS_FILE_BYTES_MAX:
            raise ValueError(f"the file would be larger than {ACCESS_FILE_BYTES_MAX} bytes")
        # Where the path is a link, the file that it leads to.
        self._disk.replace(str(pathlib.Path(self.path).resolve()), data)
        self._stamp = self._stat()
        self.rules, self.document = rules, document

    @property
    def version(self) -> tuple[int, int]:
        """How often it was changed by administrators, and when (ms); zeros if never."""
        found = (self.document.get("dataVersion") or [{}])[0]
        return int(found.get("counter", 0)), int(found.get("timestamp", 0))

    def _take(self, document: object) -> None:
        rules = read_rules(document)
        taken: Document = document if isinstance(document, dict) else {}
        _check_version(taken.get("dataVersion"))
        self.rules, self.document = rules, taken

    def _read(self) -> object:
        """Return what is in the file. Errors: `OSError`, `ValueError`."""
        import yaml

        data = read_named(self.path, int(ACCESS_FILE_BYTES_MAX))
        try:
            return yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # a safe loader
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            # The text of the error quotes the line, which may hold a secret key.
            place = "" if mark is None else f", line {mark.line + 1}"
            raise ValueError(f"no YAML{place}") from None
        except RecursionError:
            raise ValueError("no YAML that can be read: too deep") from None
        except (LookupError, AttributeError, TypeError):  # of PyYAML, for a value like !!bool x
            raise ValueError("no YAML that can be read: a value is not of its type") from None

    def _stat(self) -> tuple[int, ...] | None:
        """Return what changes with the file, and with who may read it."""
        try:
            status = pathlib.Path(self.path).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size


def _check_version(found: object) -> None:
    if found is None:
        return
    first = found[0] if isinstance(found, list) and found else None
    if not isinstance(first, dict) or not all(isinstance(one, int) for one in first.values()):
        raise ValueError("dataVersion: a list with counter and timestamp is expected")
