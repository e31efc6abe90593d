"""Planted bugs of what was known to be weak in log and store, and is mended. Each has a test."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

LOG_AND_STORE: Final = (
    Mutant(
        name="members-forgotten-are-the-first",
        breaks="A snapshot names the members with which the group began, as those of a later log.",
        source="Ongaro's dissertation 4.1: the latest configuration in the log is in force.",
        plant=patch(
            "dledger.core.configuration:Membership.knows",
            ("return oldest.index <= index or oldest.configuration.version <= 1", "return True"),
        ),
    ),
    Mutant(
        name="marker-left-behind",
        breaks="A start removes the whole log for the marker of an install that was refused.",
        source="docs/raft.md: the marker of an install says that the log is void.",
        plant=patch(
            "dledger.storage.snapshot_files:SnapshotFiles.save",
            ("        self._drop_marker()\n", ""),
        ),
    ),
    Mutant(
        name="name-of-a-file-believed",
        breaks="Messages of a queue whose only file is zeros count as known, by the file's name.",
        source="RocketMQ's queue files are named by the offset of their first unit, in bytes.",
        plant=patch(
            "store.recovery.beginnings:_end_of_search",
            ("_is_borne_out(queue) and", "True and"),
        ),
    ),
    Mutant(
        name="counts-from-nothing-again",
        breaks="A queue whose only file is zeros counts from 0 at the second start: groups wait.",
        source="RocketMQ keeps a queue's last file, so that the queue counts on.",
        plant=patch(
            "store.recovery.beginnings:keep_counts",
            ("if offset and not _is_borne_out(queue):", "if False:"),
        ),
    ),
    Mutant(
        name="begun-queue-vouched-for",
        breaks="A checkpoint names a queue without a unit, and the next start dispatches all.",
        source="docs/storage.md: a queue whose files do not bear it out is made anew.",
        plant=patch(
            "store.recovery.checkpointer:Picture.note",
            ("queue.first_file < queue.written >=", "0 < queue.written >="),
        ),
    ),
    Mutant(
        name="large-snapshot-before-votes",
        breaks="A leader that trims gives up as the disk takes 3 s to write its tables.",
        source="docs/raft.md: a sync that has not returned for so long says that the disk hangs.",
        plant=patch(
            "dledger.trimming:Trimmer._worker_for",
            ("if size_bytes <= LARGE_BYTES:", "if True:"),
        ),
    ),
    Mutant(
        name="synced-files-closed",
        breaks="What is being synced is closed for another file: it counts as synced, and is not.",
        source="`Segments.sync` passes over files that are open no more: they were removed.",
        plant=patch(
            "dledger.segments.row:Segments._close_one", (" and base not in self._syncing", "")
        ),
    ),
    Mutant(
        name="damage-passed-over",
        breaks="Messages of a damaged block that the log still has are lost to consumers.",
        source="docs/storage.md: a damaged block is made again from the log.",
        plant=patch(
            "store.queues.start:maybe_offset_past_damage",
            (" or _physical(queue.read(low, 1), 0) > position", ""),
        ),
    ),
)
