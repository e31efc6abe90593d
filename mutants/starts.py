"""Planted bugs of what is made of a damaged or missing log, by a start and by a read."""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

STARTS: Final = (
    Mutant(
        name="every-family-or-none",
        breaks="A port with TLS is not opened where the kernel has no IPv6.",
        source="asyncio's own servers leave out families that the kernel lacks.",
        plant=patch(
            "ledgermq.remoting.transport.listening:SocketListener.start",
            ("if error.errno != errno.EAFNOSUPPORT:", "if True:"),
        ),
    ),
    Mutant(
        name="promises-outlive-a-cut",
        breaks="What comes to a place that was cut off counts as synced: a torn write is taken.",
        source="A former master with a tail, and a loss of power before the next checkpoint.",
        plant=patch(
            "broker.modes.plain:PlainMode.lower_promises",
            ("self._directory.lower_times(self.log.synced_timestamp)", "pass"),
        ),
    ),
    Mutant(
        name="damage-judged-by-where-to-begin",
        breaks="One flipped bit takes what was synced up to 3 s before the checkpoint, for ever.",
        source="RocketMQ CommitLog.recoverAbnormally; a log whose sender has been idle for a day.",
        plant=patch(
            "store.plain.recovery:_Known.__init__",
            ("synced or Synced(safe_ms)", "Synced(safe_ms)"),
        ),
    ),
    Mutant(
        name="sync-of-the-rest-not-promised",
        breaks="What was synced behind the last message but for some is never known as synced.",
        source="A checkpoint is written when something comes; the last sync is later.",
        plant=patch(
            "store.recovery.checkpointer:Checkpointer._is_due",
            ("return self._times(applied[1], stored) != times", "return False"),
        ),
    ),
    Mutant(
        name="last-millisecond-taken-for-synced",
        breaks="A record of the millisecond of the last sync counts as synced, and is not.",
        source="Times count in milliseconds, and many records are stored in each.",
        plant=patch(
            "store.recovery.directory:SyncedTimes.__call__",
            ("is_synced = end <= self._log_end()", "is_synced = True"),
        ),
    ),
    Mutant(
        name="zero-taken-for-unwritten",
        breaks="A start cuts the log at a message that ends with a zero, with all behind it.",
        source="A record that RocketMQ's door lets in, and its master sends.",
        plant=patch(
            "store.plain.record:is_torn",
            ("if ends_zero and not any(view[end : end + SECTOR_BYTES]):", "if ends_zero:"),
        ),
    ),
    Mutant(
        name="names-of-queues-unseen",
        breaks="A file under the name of a topic ends a serving broker at the first send to it.",
        source="A start looked at the queues that it knew.",
        plant=patch(
            "store.recovery.loading:Loading.load",
            ("check_queue_names(self._queues.directory)", "pass"),
        ),
    ),
    Mutant(
        name="tables-behind-a-link-to-nothing",
        breaks="A member whose folder of tables is a link to nothing serves until the first save.",
        source="What is not there was looked at, and the folder that it is in was not.",
        plant=patch(
            "broker.state.snapshot:Snapshot._check_replaced", ("check_link(self._directory)", "")
        ),
    ),
    Mutant(
        name="missing-log-begins-anew",
        breaks="A log on a disk that is not mounted begins anew at 0, and its queues go.",
        source="RocketMQ, which starts with an empty log there.",
        plant=patch(
            "store.recovery.known:check_log_is_there",
            ("if any(map(is_segment_name, disk.names(log))):", "if True:"),
        ),
    ),
    Mutant(
        name="unit-not-looked-at-again",
        breaks="A sound message is passed over, since the unit that names it is damaged.",
        source="A unit has no CRC of its own; the block that it is in is compared once.",
        plant=patch(
            "store.read.reader:Reader._judge",
            (
                "except DamagedUnits:\n        return GetStatus.DAMAGED",
                "except DamagedUnits:\n        return GetStatus.LOST",
            ),
        ),
    ),
    Mutant(
        name="lost-message-asked-for-for-ever",
        breaks="A consumer asks a broker on its own for a damaged message without end.",
        source="A pull of a group, where another member has it; RocketMQ hands out the bytes.",
        plant=patch(
            "broker.processor.pull:_passed_over",
            ("next_offset=result.next_offset + 1", "next_offset=result.next_offset"),
        ),
    ),
    Mutant(
        name="queues-made-anew-not-seen-after-a-kill",
        breaks="A topic that RocketMQ made again, and was killed: its messages are in no queue.",
        source="RocketMQ TopicConfigManager.deleteTopicConfig; our checkpoint is from before.",
        plant=patch(
            "store.recovery.foreign:take_over",
            ("not directory.was_clean and not is_foreign", "not directory.was_clean"),
        ),
    ),
    Mutant(
        name="rebuild-of-a-former-log",
        breaks="A rebuild that was interrupted goes on, though a broker ran since: messages lack.",
        source="docs/storage.md: queues and index are those of the whole log.",
        plant=patch(
            "store.offline.rebuild:Rebuild.survey",
            ("self._made_up_to() == _made_up_to(plan.last)", "True"),
        ),
    ),
    Mutant(
        name="repair-stays-where-the-log-was",
        breaks="A queue is not repaired, nor any other, once the log lost what was being read.",
        source="Retention drops the beginning of the log at any time.",
        plant=patch(
            "store.recovery.repair:Repairer._walk",
            ("max(self._next, self._log.first_position)", "self._next"),
        ),
    ),
    Mutant(
        name="repair-waits-for-a-peer-that-is-none",
        breaks="A damaged message in a log of its own keeps all queues from being repaired.",
        source="No replica has another copy: nobody repairs the log.",
        plant=patch(
            "store.recovery.repair:Repairer._step", ("if not self._is_replicated:", "if False:")
        ),
    ),
    Mutant(
        name="cancelled-wait-ends-a-checkpoint",
        breaks="Who waited for a checkpoint and was cancelled takes it for ended: the next begins.",
        source="A stop of the server cancels a compaction; both write the same file.",
        plant=patch(
            "store.recovery.checkpointer:Checkpointer.finish",
            (
                "await asyncio.shield(self._begin(self._picture_now(applied), is_last=is_last))",
                "await self._begin(self._picture_now(applied), is_last=is_last)",
            ),
        ),
    ),
    Mutant(
        name="retention-before-a-repair",
        breaks="A plain log drops what damaged units of a queue are to be made again from.",
        source="docs/storage.md: the log has them, as long as it has the messages.",
        plant=patch(
            "broker.modes.plain:PlainRetainedLog.drop_before",
            ("if lacking and self._store.is_repairing:", "if False:"),
        ),
    ),
    Mutant(
        name="expired-queue-files-go-at-once",
        breaks="All files of queues that retention drops are removed in one turn of the loop.",
        source="Each removal waits for the disk; queues that are filled alike lose one together.",
        plant=patch(
            "store.queues.start:LogStart.drop_what_waits",
            ("removed < REMOVALS_MAX and ", ""),
            ("drop_files(REMOVALS_MAX - removed)", "drop_files()"),
            ("if removed < REMOVALS_MAX:", "if True:"),
        ),
    ),
    Mutant(
        name="index-synced-again",
        breaks="A sync of the key index that finds no space is tried again, and believed.",
        source="fsync(2): after an error the pages are clean, and the next call returns at once.",
        plant=patch(
            "store.index.file:sync",
            (
                'raise FatalError(f"cannot sync index file {path}: {error}", EXIT_ENVIRONMENT)'
                " from error",
                "raise",
            ),
        ),
    ),
    Mutant(
        name="rebuild-of-what-is-not-confirmed",
        breaks="A rebuilt slave takes its surplus for acknowledged, and is shut out by its master.",
        source="ADR 20: what not all of the in-sync set has is in no queue.",
        plant=patch(
            "store.offline.rebuild:Rebuild._is_unconfirmed",
            ("return self._confirmed is not None and record.end > self._confirmed", "return False"),
        ),
    ),
    Mutant(
        name="skipped-unit-reaches-far",
        breaks="A queue that is taken over ends where it has a unit for what is no message.",
        source="RocketMQ ConsumeQueue.recover adds up place and size of a unit.",
        plant=patches(
            patch(
                "store.recovery.foreign_queues:_good_units",
                ("(size if size != SKIPPED_BYTES else 0)", "size"),
            ),
            patch(
                "store.recovery.foreign_queues:_place",
                ("size if size != SKIPPED_BYTES else 0", "size"),
            ),
        ),
    ),
    Mutant(
        name="nothing-looked-up-behind-no-message",
        breaks="A queue that was lost is not made again where a record before it is no message.",
        source="docs/storage.md: the walk of a start steps over such a record.",
        plant=patch(
            "store.recovery.foreign_queues:ForeignQueueRecovery._lack_in",
            ("continue", "return None"),
        ),
    ),
    Mutant(
        name="given-up-by-number",
        breaks="A block of a queue is not repaired where another one had its number once.",
        source="Retention drops the first files of a queue, and blocks are counted from there.",
        plant=patches(
            patch(
                "store.recovery.repair:Repairer._maybe_one",
                ("(queue, queue.block_range(block)[0])", "(queue, block)"),
            ),
            patch(
                "store.recovery.repair:Repairer._give_up",
                ("(queue, queue.block_range(block)[0])", "(queue, block)"),
            ),
        ),
    ),
    Mutant(
        name="abort-of-no-boot",
        breaks="A replica that is killed as it takes queues over counts as one that lacks its end.",
        source="docs/replication.md: a killed process lacks nothing.",
        plant=patch(
            "store.recovery.directory:StoreDirectory.mark_unclean",
            ("self._replace(ABORT_FILE, self._mark)", 'self._replace(ABORT_FILE, b"")'),
        ),
    ),
    Mutant(
        name="beginnings-not-looked-up",
        breaks="Messages before a queue's first unit count as known: nobody reads them.",
        source="A queue whose first file was lost, and a log that has lost its beginning.",
        plant=patch(
            "store.recovery.foreign_queues:ForeignQueueRecovery.run",
            ("find_wrong_beginnings(by_key, size, self._log, is_small=self._is_small)", "()"),
        ),
    ),
    Mutant(
        name="lost-units-are-fatal",
        breaks="A queue that ends with zeros ends each start, though nothing of it is in the log.",
        source="RocketMQ goes on with such a queue where it ends, and counts from there.",
        plant=patch(
            "store.dispatch.anomalies:Unreplicated.skips",
            ("missing > _LOST_MAX or self._has_messages(queue, physical)", "True"),
        ),
    ),
)
