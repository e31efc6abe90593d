"""Where a broadcasting consumer has come to, in a file of its own.

The folder and the file are those of RocketMQ's client, which can read and go on with them:
``~/.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json``, and beside it the content before as ``.bak``.
A write replaces the file as a whole. Source: LocalFileOffsetStore (spec/wire.md 7.6).
"""

import asyncio
import contextlib
import logging
import threading
from pathlib import Path
from typing import Final

import msgspec

from ledgermq.client.errors import OffsetsUnusable
from ledgermq.client.message import MessageQueue
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.tolerant_json import FILE, loads
from ledgermq.runtime.disk import Closeable, DirectoryInUse, Disk, RealDisk
from ledgermq.runtime.errors import FatalError

_log = logging.getLogger(__name__)

DEFAULT_DIRECTORY: Final = "~/.rocketmq_offsets"
_IN_USE: Final[set[str]] = set()
"""Folders of this process: the lock of a file keeps out other processes only."""


class LocalOffsets:
    """The offsets of one member of one group."""

    def __init__(
        self, directory: str, client_id: str, group: str, disk: Disk | None = None
    ) -> None:
        if "/" in client_id or client_id.startswith("."):
            raise ValueError(f"client id {client_id!r} cannot be the name of a folder")
        folder = Path(directory or DEFAULT_DIRECTORY).expanduser() / client_id / group
        self._folder = str(folder)
        self.path = str(folder / "offsets.json")
        self._disk = disk or RealDisk()
        self._lock: Closeable | None = None
        self._offsets: dict[MessageQueue, int] = {}
        self._written = b""
        self._has_changed = False
        self._turn = asyncio.Lock()
        self._under_way: asyncio.Future[None] | None = None
        """The write of a flush, which goes on where the flush is cancelled."""
        self._guard = threading.Lock()
        """Of the next three: the thread of a write asks and tells."""
        self._is_open = False
        self._pending: bytes | None = None
        """What is written, or waits for a thread to be; nothing else is. The folder is kept."""
        self._last: bytes | None = None
        """What is written behind that, by who has closed it."""

    def open(self) -> None:
        """Take the folder for this consumer and read what is there.

        Errors: ``OffsetsUnusable`` when another consumer has it, or nothing there can be read.
        """
        if self._folder in _IN_USE:
            raise OffsetsUnusable(self._taken())
        try:
            self._disk.make_directories(self._folder)
            self._lock = self._disk.lock(self.path + ".lock")
        except DirectoryInUse as error:
            raise OffsetsUnusable(self._taken()) from error
        except (OSError, FatalError) as error:
            raise OffsetsUnusable(f"{self._folder} cannot be used for offsets: {error}") from error
        _IN_USE.add(self._folder)
        self._is_open = True
        try:
            self._offsets = self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others have the folder. Calling it again is harmless.

        A write that outlasted its flush cannot be stopped: the folder is free once it has ended,
        since it would replace what the next consumer has written. What moved meanwhile is written
        behind it.
        """
        with self._guard:
            self._is_open = False
            if self._pending is None:
                self._let_go()
            elif self._has_changed:
                self._has_changed = False
                self._last = _render(self._offsets)

    def get(self, queue: MessageQueue) -> int:
        """Return the next offset to consume of ``queue``, -1 if there is none."""
        return self._offsets.get(queue, -1)

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Remember the next offset to consume; `flush` writes it."""
        if self._offsets.get(queue) != offset:
            self._offsets[queue] = offset
            self._has_changed = True

    async def flush(self) -> None:
        """Write what has changed; a failure is a warning, and tried again next time.

        Where this is cancelled a write goes on, and the next flush waits for it first.
        """
        async with self._turn:
            await self._wait_for_write()
            if not self._has_changed or not self._is_open:
                return
            self._has_changed = False
            loop, content = asyncio.get_running_loop(), _render(self._offsets)
            self._pending = content
            try:
                self._under_way = loop.run_in_executor(None, self._write, content)
            except RuntimeError as error:  # The machine has no thread left.
                self._pending = None
                self._on_failed(error)
                return
            self._under_way.add_done_callback(self._on_written)
            await self._wait_for_write()

    async def _wait_for_write(self) -> None:
        if self._under_way is not None:
            await asyncio.wait({self._under_way})

    def _on_written(self, writing: asyncio.Future[None]) -> None:
        self._under_way = None
        error = writing.exception()
        if error is not None:
            self._on_failed(error)

    def _on_failed(self, error: BaseException) -> None:
        self._has_changed = True
        _log.warning("path=%s event=offsets_not_written error=%s", self.path, error)

    def _write(self, content: bytes) -> None:
        """Write the file, in a thread; not what a thread was missing for, which it may get late."""
        with self._guard:
            if content is not self._pending:
                return
        try:
            self._replace(content)
        finally:
            self._end_write()

    def _replace(self, content: bytes) -> None:
        if self._written:
            self._disk.replace(self.path + ".bak", self._written)
        self._disk.replace(self.path, content)
        self._written = content

    def _end_write(self) -> None:
        with self._guard:
            last, self._last = self._last, None
            if last is None:
                self._pending = None
                if not self._is_open:
                    self._let_go()
                return
        try:
            self._replace(last)
        finally:
            self._end_write()

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            _IN_USE.discard(self._folder)

    def _load(self) -> dict[MessageQueue, int]:
        """Return the offsets of the file, or of the one before where it cannot be read."""
        failure: Exception | None = None
        for path in (self.path, self.path + ".bak"):
            try:
                content = self._disk.read(path)
                if content:
                    offsets = _parse(content)
                    self._written = content
                    return offsets
            except (OSError, FatalError, RemoteProtocolError) as error:
                failure = error
                _log.warning("path=%s event=offsets_unreadable error=%s", path, error)
        if failure is not None:
            said = f"{self.path} holds no offsets ({failure}); remove it and its .bak to begin anew"
            raise OffsetsUnusable(said)
        return {}

    def _taken(self) -> str:
        return (
            f"another consumer keeps its offsets in {self._folder}: give each broadcasting member "
            "of a group on one machine an instance_name of its own"
        )


def _render(offsets: dict[MessageQueue, int]) -> bytes:
    """Return the text of the file: fastjson's, with objects as keys."""
    rows = [
        msgspec.json.encode({"brokerName": name, "queueId": number, "topic": topic}).decode()
        + f":{offset}"
        for (topic, name, number), offset in sorted(offsets.items())
    ]
    return ('{"offsetTable":{' + ",".join(rows) + "}}").encode()


def _parse(content: bytes) -> dict[MessageQueue, int]:
    """Return the offsets of a file. Errors: `RemoteProtocolError`."""
    table = None
    with contextlib.suppress(AttributeError):
        table = loads(content, FILE).get("offsetTable")
    try:
        found = {}
        for key, offset in (table or {}).items():
            fields = dict(key)
            queue = MessageQueue(fields["topic"], fields["brokerName"], int(fields["queueId"]))
            found[queue] = int(offset)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"no table of offsets: {error!r}") from error
    if table is None:
        raise RemoteProtocolError("no offsetTable")
    return found
