"""Planted bugs that show where brokers are pressed: full disks, hand-overs in vain, wrong clocks.

Sources: spec/disk.md 5.8; docs/storage.md (retention); docs/raft.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

PRESSED: Final = (
    Mutant(
        name="full-once-refused-for-ever",
        breaks="A broker whose disk was above the highest ratio refuses sends for good.",
        source="`broker.retention.service`; RocketMQ DefaultMessageStore.CleanCommitLogService.",
        plant=patch(
            "broker.retention.service:Retention._set_level",
            ("if Level.FULL in (level, before):", "if level is Level.FULL:"),
        ),
    ),
    Mutant(
        name="crowded-disk-takes-on",
        breaks="A broker whose disk is above the highest ratio goes on taking messages.",
        source="spec/disk.md 5.8.",
        plant=patch(
            "broker.retention.service:Retention._set_level",
            ("self._refuse(level is Level.FULL)", "self._refuse(level > Level.FULL)"),
        ),
    ),
    Mutant(
        name="no-space-once-closed",
        breaks="A leader whose disk was full for a moment refuses sends until its role changes.",
        source="`dledger.disk.full`: the gate opens by itself.",
        plant=patch(
            "dledger.node:DLedgerNode._pass_time",
            (
                "    self._appender.accepting = self._may_accept()\n",
                "    self._appender.accepting = self._appender.accepting and self._may_accept()\n",
            ),
        ),
    ),
    Mutant(
        name="refused-offsets-left",
        breaks="Offsets refused at a hand-over in vain wait in memory until their leader ends.",
        source="`broker.offsets.replication`: all but an unknown outcome is put again.",
        plant=patch(
            "broker.offsets.replication:OffsetReplicator._settled",
            (
                "(PutStatus.OK, PutStatus.UNKNOWN)",
                "(PutStatus.OK, PutStatus.UNKNOWN, PutStatus.NOT_LEADER)",
            ),
        ),
    ),
    Mutant(
        name="clock-days-ahead-believed",
        breaks="A broker that begins with a clock days ahead drops all that it holds as old.",
        source="`broker.retention_policy`: such a clock may be wrong.",
        plant=patch(
            "broker.retention_policy:ClockWatch.is_sound",
            ("wall_ms - newest_ms > START_AHEAD_MS", "newest_ms - wall_ms > START_AHEAD_MS"),
        ),
    ),
)
