"""How far a log was known to be confirmed, on disk: what is before that is never cut off.

Queues on disk say it too, some seconds late. A log that has lost its end says no more of what
comes to those places, so the file goes before anything does.

One line, replaced whole: the position, a blank, the CRC-32 of its digits.
Source: docs/adr/0020, why nothing acknowledged is lost, step 2.
"""

import asyncio
import logging
import zlib
from typing import Final

from ledgermq.runtime.disk import NO_SPACE, Disk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import check_replaced

CONFIRMED_FILE: Final = "confirmedPosition"
PERIOD_S: Final = 1.0
"""So often the position is written, if it has moved."""
_BYTES_MAX: Final = 64

_log: Final = logging.getLogger(__name__)


class ConfirmedFile:
    """Owns the file in ``directory``; the directory's lock is its owner's business."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.path: Final = f"{directory}/{CONFIRMED_FILE}"
        self._disk = disk
        self.position = 0
        """As the file has it, 0 for nothing."""
        self._writing: asyncio.Future[bool] | None = None

    def load(self, end: int) -> None:
        """Read the file of a log that ends at ``end``. Errors: `FatalError`.

        One that cannot be understood says nothing, and the queues bound what is lost, as without.
        """
        check_replaced(self._disk.size, self.path)
        try:
            data = self._disk.read(self.path)
            found = 0 if data is None else _decode(data)
            if data is not None and not found:
                _log.warning("event=confirmed_position_unreadable file=%s", self.path)
            if found > end:
                self._disk.remove(self.path)
        except OSError as error:
            raise FatalError(f"{self.path} cannot be read or removed: {error}") from error
        self.position = min(found, end)

    async def save(self, position: int) -> None:
        """Write a later position, in a thread; with the disk full, nothing. Errors: `FatalError`.

        One at a time; whoever waits here may be cancelled, and then has to `finish`.
        """
        if position > self.position:
            loop = asyncio.get_running_loop()
            self._writing = loop.run_in_executor(None, self._write, position)
            if await asyncio.shield(self._writing):
                self.position = position
            self._writing = None

    async def finish(self) -> None:
        """Wait for what is being written: nobody else may write meanwhile. Errors: `FatalError`."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))
            self._writing.result()

    def _write(self, position: int) -> bool:
        digits = b"%d" % position
        try:
            self._disk.replace(self.path, b"%b %d\n" % (digits, zlib.crc32(digits)))
        except OSError as error:
            if error.errno in NO_SPACE:
                return False
            message = f"{self.path} cannot be written: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        return True


def _decode(data: bytes) -> int:
    """Return the position of a file, 0 for one that says none."""
    digits, _, crc = data[:_BYTES_MAX].strip().partition(b" ")
    is_whole = digits.isdigit() and crc == b"%d" % zlib.crc32(digits)
    return int(digits) if is_whole else 0
