"""Whether the log of a directory was copied from a master, once and in part at least.

A slave leaves aside what its master says of queues and cannot be, since the log has to stay the
master's. A broker that is made the master of that log by hand has to leave the same aside, or it
would end at each start that reads it again. So a slave marks its directory, for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.dispatch.anomalies import Copied, Unreplicated

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from ledgermq.runtime.disk import Disk

COPIED_FILE: Final = "copied"
_CONTENT: Final = b"The commit log of this directory was copied from a master, or a part of it.\n"


def note_copied(config: BrokerConfig, disk: Disk) -> None:
    """Mark a directory, before anything is copied into it. Errors: `FatalError`."""
    path = f"{config.store_path}/{COPIED_FILE}"
    try:
        if disk.read(path) is None:
            disk.replace(path, _CONTENT)
    except OSError as error:
        raise FatalError(f"{path} cannot be written: {error}", EXIT_ENVIRONMENT) from error


def anomalies_of(config: BrokerConfig, disk: Disk) -> type[Unreplicated]:
    """Return what becomes of a record that no queue can take, in the log of a directory.

    Errors: `FatalError`.
    """
    path = f"{config.store_path}/{COPIED_FILE}"
    try:
        is_copied = disk.read(path) is not None
    except OSError as error:
        raise FatalError(f"{path} cannot be read: {error}") from error
    return Copied if is_copied else Unreplicated
