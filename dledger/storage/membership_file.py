"""The file ``membership``: the configurations that the log holds, so that no start has to look.

It is written before the entries are, and not when they are cut. So what it says of an entry counts
only if that entry is in the log, and is a configuration: `MembershipFile.load` looks.
"""

import logging
from typing import Final

from dledger.codec.configuration import decode_membership, encode_membership, read_configuration
from dledger.codec.entry import HEADER_BYTES, decode_header, is_configuration
from dledger.core.configuration import ConfigEntry, Configuration
from dledger.errors import CorruptEntry, DamagedEntry, DiskFull
from dledger.storage.log_store import LogStore
from ledgermq.runtime.disk import NO_SPACE, Disk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

_log: Final = logging.getLogger(__name__)


class MembershipFile:
    """Reads and writes it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/membership"

    def load(self, store: LogStore) -> tuple[ConfigEntry, ...]:
        """Return the configurations that are in force in the log, in its order.

        Of what is trimmed from the log, the snapshot has the last one.
        Errors: `FatalError` when it is unreadable.
        """
        meta = store.snapshots.meta
        if meta is None:
            return self._load(store)
        # The file may be older than the snapshot: an install was interrupted before it was saved.
        behind = tuple(entry for entry in self._load(store) if entry.index >= store.first_index)
        base = meta.configuration
        return (base, *behind) if base.index >= 0 else behind

    def _load(self, store: LogStore) -> tuple[ConfigEntry, ...]:
        data = self._disk.read(self._path)
        if data is None:
            return ()
        try:
            entries = decode_membership(data)
        except ValueError as error:
            raise FatalError(f"{self._path} is damaged: {error}") from error
        checked = (_check(entry, store) for entry in entries)
        found = tuple(entry for entry in checked if entry is not None)
        if len(found) < len(entries):
            _log.info("event=configurations_cut file=%s kept=%d", self._path, len(found))
        return found

    def save(self, entries: tuple[ConfigEntry, ...]) -> None:
        """Make ``entries`` durable.

        Errors: `DiskFull`, then the file is as before; `FatalError` for any other failure.
        """
        try:
            self._disk.replace(self._path, encode_membership(entries))
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull from error
            raise FatalError(f"{self._path} is unwritable: {error}", EXIT_ENVIRONMENT) from error


def _check(entry: ConfigEntry, store: LogStore) -> ConfigEntry | None:
    """Return an entry as the log has it; None if it has none, or another one, in that place.

    The term alone does not tell: what a full disk kept a leader from writing, it makes anew. Who
    is a former member, the file does not say if a version wrote it that did not know of them.
    """
    if entry.index < store.first_index:
        return entry
    if entry.index > store.last_index:
        return None
    try:
        position, _, term = store.entry(entry.index)
        if term != entry.term:
            return None
        body = store.body_view(entry.index)
        if not is_configuration(decode_header(store.view(position, HEADER_BYTES))):
            return None
        found = read_configuration(body)
    except (CorruptEntry, DamagedEntry):
        return entry  # damaged on this disk; the file knows what it was
    is_same = _places(found) == _places(entry.configuration)
    return ConfigEntry(entry.index, entry.term, found) if is_same else None


def _places(configuration: Configuration) -> tuple[object, ...]:
    return configuration.voters, configuration.learners, configuration.version
