"""Whether a directory may have lost the end of its log, though a master counted on that.

Under ASYNC_FLUSH a replica confirms what it has written. A process that dies loses nothing of that;
a machine that loses its power does. So ``abort`` says in which boot of the machine it was made: a
directory that was left without a clean stop, in another boot than this one, may lack its end. With
SYNC_FLUSH only what is synced was confirmed, and all that a start finds is synced first.
Source: docs/adr/0020; unclean shutdowns in KIP-966.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.config import FlushDiskType

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from ledgermq.runtime.disk import Disk
    from store.recovery.directory import StoreDirectory

_SYNCED: Final = b"synced"


def loss_mark(config: BrokerConfig, disk: Disk) -> bytes:
    """Return what ``abort`` is to hold while a log is written with these settings."""
    if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        return _SYNCED
    return disk.boot_id().encode()


def may_lack_end(directory: StoreDirectory, disk: Disk) -> bool:
    """Return whether a directory that was entered may have lost something. Errors: `OSError`."""
    if directory.was_clean:
        return False
    mark, boot_id = directory.read_mark(), disk.boot_id().encode()
    return mark != _SYNCED and (not boot_id or mark != boot_id)
