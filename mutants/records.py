"""Planted bugs of the record: how it is written, what becomes of a bad one, and its time stamp.

Sources: RocketMQ's CommitLog and MessageExtEncoder; what was sent to a group from outside.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

HOST_BITS: Final = (
    patch(
        "store.write.commit_log:CommitLog._record",
        ("message.sys_flag & _NO_HOSTS | flags", "message.sys_flag | flags"),
    ),
    patch(
        "store.write.commit_log:CommitLog._batch_records",
        ("batch.sys_flag & _NO_HOSTS | flags", "batch.sys_flag | flags"),
    ),
)

RECORDS: Final = (
    Mutant(
        name="host-bits-of-the-message",
        breaks="A record says of the width of its hosts what the message says, not what is in it.",
        source="RocketMQ MessageExtEncoder sets the bits from the addresses that it writes.",
        plant=patches(*HOST_BITS),
    ),
    Mutant(
        name="no-offset-for-a-quarantined-record",
        breaks="Who reads a bad record back does not count the queue offset that it was given.",
        source="State machine safety (Raft 5.4.3): all replicas apply the same entries alike.",
        plant=patch(
            "store.dispatch.anomalies:Quarantine._holes_behind",
            ("count += size > 0", "count += size < 0"),
        ),
    ),
    Mutant(
        name="a-bad-record-ends-the-process",
        breaks="A committed entry that is not a message ends every replica that reads it back.",
        source="An earlier version of ours: a send that claimed IPv6 hosts bricked its group.",
        plant=patch(
            "store.dispatch.anomalies:Quarantine.add",
            (
                "if physical in self._named:",
                "raise FatalError(f'{physical} holds no message', EXIT_ENVIRONMENT)\n"
                "    if physical in self._named:",
            ),
        ),
    ),
    Mutant(
        name="recovery-cuts-at-a-misread-record",
        breaks="The start of a plain log takes a record with wrong host bits for its end.",
        source="RocketMQ CommitLog.recoverAbnormally stops at what does not parse.",
        plant=patch(
            "store.plain.record:inspect",
            ("return _true_layout(view, at)[0] or size", "return size"),
        ),
    ),
    Mutant(
        name="tables-ahead-of-the-log",
        breaks="Tables are written as of an entry that a loss of power can still take.",
        source="Write-ahead logging: what follows from an entry is written behind it.",
        plant=patch(
            "broker.modes.raft:RaftMode.secure",
            ("await self.log.operations.sync_to(index)", "True"),
        ),
    ),
    Mutant(
        name="tables-outlive-the-log",
        breaks="Tables on disk that are ahead of the log are kept, and the log applied to them.",
        source="As above; RocketMQ's config files outlive the messages, too.",
        plant=patch("broker.modes.raft:RaftMode.load", ("self.snapshot.restore({})", "pass")),
    ),
    Mutant(
        name="stamps-follow-a-leap",
        breaks="A wall clock that leaps ahead takes the store timestamps along for good.",
        source="RocketMQ stamps with the wall clock; its timestamps fall again, ours must not.",
        plant=patch(
            "store.write.stamps:Stamps._check",
            ("if wall_ms <= self._trusted_ms:", "if wall_ms <= self._trusted_ms or True:"),
        ),
    ),
    Mutant(
        name="a-clock-is-believed-at-a-start",
        breaks="A process that starts with a clock ahead drops all segments as too old.",
        source="RocketMQ CleanCommitLogService goes by the wall clock alone.",
        plant=patch(
            "broker.retention_policy:ClockWatch.is_sound",
            ("newest_ms is not None and wall_ms - newest_ms > START_AHEAD_MS", "False"),
        ),
    ),
    Mutant(
        name="all-keys-in-one-turn",
        breaks="A replica indexes as many keys in one turn as there are messages to dispatch.",
        source="Ours: no request may hold the loop longer than 20 ms.",
        plant=patch(
            "store.dispatch.read_back:light_part",
            ("if text_bytes > LONG_TEXT_BYTES:", "if text_bytes < 0:"),
        ),
    ),
    Mutant(
        name="all-own-keys-in-one-turn",
        breaks="A leader indexes as many keys in one turn as its clients' messages have.",
        source="Ours: no request may hold the loop longer than 20 ms.",
        plant=patch(
            "store.dispatch.dispatcher:Dispatcher._dispatch_own",
            ("if cost > LONG_TEXTS_BYTES:", "if cost < 0:"),
        ),
    ),
    Mutant(
        name="half-a-batch-is-refused",
        breaks="A batch is told to have failed although its first messages are committed.",
        source="Raft 8: what was appended may commit; RocketMQ has batches in one DLedger request.",
        plant=patch(
            "store.write.uncommitted:Uncommitted.forget_from",
            ("own.answer(PutStatus.UNKNOWN)", "own.answer(PutStatus.DISK_FULL)"),
        ),
    ),
    Mutant(
        name="bad-content-ends-the-process",
        breaks="A committed state record whose content a table cannot take ends every replica.",
        source="State machine safety: what is committed is applied by all, at each start again.",
        plant=patch(
            "broker.state.replicated_state:ReplicatedState.apply",
            ("except BAD_CONTENT as error:", "except msgspec.MsgspecError as error:"),
        ),
    ),
    Mutant(
        name="text-that-looks-unwritten",
        breaks="Properties that end with zeros are stored, which a start takes for a torn write.",
        source="RocketMQ's records have a CRC of the body alone.",
        plant=patch("store.layout:looks_unwritten", ("if 0 not in properties:", "if True:")),
    ),
    Mutant(
        name="measured-without-a-crc",
        breaks="Records that lie side by side are taken for sound whatever their bodies are.",
        source="RocketMQ CommitLog.checkMessageAndReturnSize checks each CRC.",
        plant=patch("store.plain.record:measure", ("or (crc and crc !=", "or (False and crc !=")),
    ),
    Mutant(
        name="measured-wherever-it-says",
        breaks="Records that lie side by side may state another place.",
        source="spec/disk.md 5.2: a record states where it lies.",
        plant=patch("store.plain.record:measure", ("or stated != at + shift", "or False")),
    ),
)
