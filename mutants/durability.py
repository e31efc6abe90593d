"""Planted bugs between memory and disk: what is said to be safe and is not.

Sources: Raft paper Figure 2 (stable storage before responding); dissertation 10.2.1; the contract
in `dledger.core.ready`; the issues that are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.codec.properties import Checkpoint
from dledger.driver import Driver
from dledger.storage.log_store import LogStore
from mutants.planting import Mutant, patch, replace

if TYPE_CHECKING:
    from dledger.storage.log_store import DirtyFiles

_COMPLETE = "dledger.driver:Driver.complete"


def no_fsync() -> None:
    """Say that entries are synced without asking the disk."""

    def sync(self: LogStore, dirty: DirtyFiles) -> None:
        del self, dirty

    replace(LogStore, "sync", sync)


def checkpoint_ahead() -> None:
    """Note as synced and committed what is only written."""

    def checkpoint(self: Driver) -> Checkpoint:
        return Checkpoint(self._store.last_index, self._raft.state.delivered_index)

    replace(Driver, "checkpoint", checkpoint)


DURABILITY: Final = (
    Mutant(
        name="no-fsync",
        breaks="With SYNC_FLUSH entries are said to be synced, and no sync is done.",
        source="Raft Figure 2; NATS 2.12.1 (Jepsen); PySyncObj issue 84.",
        flush="SYNC_FLUSH",
        plant=no_fsync,
    ),
    Mutant(
        name="reply-before-sync",
        breaks="With SYNC_FLUSH a follower acknowledges entries when they are written.",
        source="Raft Figure 2: on stable storage before responding.",
        flush="SYNC_FLUSH",
        plant=patch(_COMPLETE, ("self._writes_synced < self._writes", "self._writes_synced < 0")),
    ),
    Mutant(
        name="leader-counts-itself-unsynced",
        breaks="With SYNC_FLUSH the leader counts itself before its own sync has returned.",
        source="Dissertation 10.2.1.",
        flush="SYNC_FLUSH",
        plant=patch(_COMPLETE, ("ready.entries and not self._is_sync", "ready.entries")),
    ),
    Mutant(
        name="torn-tail-kept",
        breaks="Recovery takes an entry for whole when its header is; the body's CRC is not read.",
        source="DLedger issue 285; etcd issue 16596 (a torn write is found at the start).",
        needs="power_loss power_loss_all",
        plant=patch(
            "dledger.storage.recovery:_Walk._check_entry",
            ("body_matches(header.body_crc, body)", "body_matches(0, body)"),
        ),
    ),
    Mutant(
        name="checkpoint-ahead",
        breaks="The checkpoint says of entries that they are synced when they are only written.",
        source="PySyncObj pull 197 (meta ahead of the journal after a loss of power).",
        plant=checkpoint_ahead,
    ),
    Mutant(
        name="disk-full-taken-for-written",
        breaks="Entries for which there was no space are acknowledged as if they were written.",
        source="RocketMQ issue 2398, rostam issue 94: an error of the disk that nobody looks at.",
        needs="disk_full",
        plant=patch(
            "dledger.driver:Driver._write",
            ("self._raft.abort(ready)", "pass"),
            ("return False", "self._writes += 1"),
        ),
    ),
    Mutant(
        name="bit-rot-served",
        breaks="Bytes of the log go to a reader without a look at their checksum.",
        source="NATS issue 7549 (a flipped bit loses acknowledged data).",
        needs="bit_rot",
        plant=patch(
            "dledger.storage.log_store:LogStore.body_at", ("body_crc == crc32(body)", "True")
        ),
    ),
    Mutant(
        name="failed-sync-ignored",
        breaks="A sync of the log that fails is taken for one that succeeded.",
        source="The fsync error of PostgreSQL, 2018: marked clean, the next one succeeds.",
        needs="eio",
        plant=patch(
            "dledger.storage.log_store:LogStore.sync",
            ('raise _failed("sync", error) from error', "return"),
        ),
    ),
    Mutant(
        name="synced-not-noted",
        breaks="The file that says how far the log is synced is not written when a sync returns.",
        source="dledger/storage/synced_file.py: corruption there would pass for a torn write.",
        plant=patch(
            "dledger.storage.state_files:CheckpointFile.mark", ("self._write_mark()", "pass")
        ),
    ),
)
