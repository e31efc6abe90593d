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
            "dledger.storage.snapshot_files:SnapshotFiles.save", ("    self._drop_marker()\n", "")
        ),
    ),
)
