"""Planted bugs of slaves of the classic modes: what they serve, what they take from their master.

Sources: RocketMQ SlaveSynchronize, PullMessageProcessor, MQClientInstance; docs/replication.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

SLAVES: Final = (
    Mutant(
        name="by-hand-ends-at-what-it-left-aside",
        breaks="A slave made the master by hand ends at what it quarantined, at each start.",
        source="docs/replication.md: what is refused.",
        plant=patch(
            "broker.modes.copied:anomalies_of",
            ("return Copied if is_copied else Unreplicated", "return Unreplicated"),
        ),
    ),
    Mutant(
        name="slave-unmarked",
        breaks="A directory does not tell that its log was copied.",
        source="docs/replication.md: what is refused.",
        plant=patch(
            "broker.modes.copied:note_copied", ("if disk.read(path) is None:", "if False:")
        ),
    ),
    Mutant(
        name="slave-moves-a-queue",
        breaks="A consumer believes a slave that lags when it calls an offset illegal.",
        source="RocketMQ PullMessageProcessor: offsetCheckInSlave is false by default.",
        plant=patch(
            "ledgermq.client.puller:Puller._take",
            (
                "(self._on_illegal_offset(result) if is_master else self._on_no_use(addr))",
                "self._on_illegal_offset(result)",
            ),
        ),
    ),
    Mutant(
        name="offsets-asked-of-followers",
        breaks="A consumer asks a follower of a Raft group for offsets while no leader is known.",
        source="docs/adr/0007: what another replica knows may lie before what was acknowledged.",
        plant=patch(
            "ledgermq.client.leader:LeaderCalls._answers",
            ("await self._probe(addr, queue)", "await asyncio.sleep(0)"),
        ),
    ),
    Mutant(
        name="slave-ahead-of-its-log",
        breaks="A slave takes over offsets and delays before its log has come so far.",
        source="RocketMQ SlaveSynchronize: delayOffset.json is copied whatever the log has.",
        plant=patch(
            "broker.slave_sync.service:SlaveSync._take_progress",
            ("elif min(self._log.end, self._log.applied) >= told.log_end:", "else:"),
        ),
    ),
    Mutant(
        name="wiped-master-believed",
        breaks="A slave believes the tables of a master that has lost its log.",
        source="RocketMQ SlaveSynchronize: topicConfigTable.clear() and putAll().",
        plant=patch(
            "broker.slave_sync.service:SlaveSync._refusal",
            ("if told.log_end < own_end:", "if told.log_end < 0:"),
        ),
    ),
    Mutant(
        name="tables-of-another-log",
        breaks="A slave takes tables from a master whose log it refuses, and deletes its topics.",
        source="RocketMQ SlaveSynchronize asks whoever name servers call the master.",
        plant=patch(
            "broker.modes.slave:SlaveMode.followed_master",
            ('return self.master_address if is_same else ""', "return self.master_address"),
        ),
    ),
    Mutant(
        name="slave-offset-past-the-end",
        breaks="A slave made the master keeps offsets past its queues: it skips what comes there.",
        source="RocketMQ ConsumerOffsetManager keeps offsets whatever the log has.",
        plant=patch(
            "broker.state.own_offsets:OwnOffsets.bound",
            ("if own is None or own <= end:", "if True:"),
        ),
    ),
    Mutant(
        name="offset-sync-overwrites",
        breaks="What a slave took from consumers is overwritten by the older offsets of its"
        " master.",
        source="RocketMQ SlaveSynchronize.syncConsumerOffset: putAll().",
        plant=patch(
            "broker.state.own_offsets:OwnOffsets._compare_key",
            (
                "if own is not None and is_as_before and _is_news(own, now):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="given-offset-hides-the-next",
        breaks="A slave takes what it gave its master for the word of somebody else, and forgets"
        " what a group committed to it meanwhile.",
        source="docs/replication.md: reads from slaves; a consumer that is slow to return.",
        plant=patch(
            "broker.state.own_offsets:OwnOffsets.note_given",
            ("if one.queue_id in self._bases.get(key, {}):", "if False:"),
        ),
    ),
    Mutant(
        name="given-offset-forgotten-by-a-restart",
        breaks="A slave that starts anew takes what it gave its master for the word of somebody.",
        source="RocketMQ's slaves give nothing back.",
        plant=patch(
            "broker.state.own_offsets:OwnOffsets._rows_of",
            ("given = self._given.get((key, number))", "given = None"),
        ),
    ),
    Mutant(
        name="reset-to-what-was-before-undone",
        breaks="A group that is moved at the master to where it was before it was given an offset"
        " is moved on by its slave.",
        source="RocketMQ ResetOffsetByTime: who moves a group has the last word.",
        plant=patch(
            "broker.state.own_offsets:OwnOffsets._compare_key",
            ("now == given != base", "False"),
        ),
    ),
    Mutant(
        name="offset-of-minus-one-believed",
        breaks="A slave forgets what a group committed because its master says -1.",
        source="RocketMQ ConsumerManageProcessor.queryConsumerOffset: below 0 is not found.",
        plant=patch(
            "broker.state.own_offsets:_said",
            ("offset is None or offset < 0", "offset is None"),
        ),
    ),
    Mutant(
        name="slave-gives-older-back",
        breaks="A slave gives its master an offset back that is before the one it has there.",
        source="found by the simulator: a consumer that began at a slave's older offset.",
        plant=patch(
            "broker.state.own_offsets:_is_news",
            ("own > now", "own != now"),
        ),
    ),
    Mutant(
        name="slave-forgets-too-early",
        breaks="A slave forgets what a group committed to it, and what its master has instead still"
        " waits for the log.",
        source="found by the simulator: a master that is cut off again.",
        plant=patch(
            "broker.slave_sync.service:SlaveSync.follow",
            (
                "self._wait_with(addr, told)",
                "self._wait_with(addr, told);"
                " await in_turns(self._own.compare_steps(told.offsets))",
            ),
        ),
    ),
    Mutant(
        name="reset-undone-by-a-slave",
        breaks="A slave gives its master an offset back though the group was moved there since.",
        source="RocketMQ ResetOffsetByTime: who moves a group has the last word.",
        plant=patch(
            "broker.state.own_offsets:OwnOffsets._compare_key",
            ("is_as_before = now in {base, given, None}", "is_as_before = True"),
        ),
    ),
    Mutant(
        name="slave-corrects-offsets",
        breaks="A slave that lags tells consumers that their offsets are outside the queue.",
        source="RocketMQ MessageStoreConfig.offsetCheckInSlave, which is false.",
        plant=patch(
            "broker.processor.pull:PullProcessor._code",
            ("if code == ResponseCode.PULL_OFFSET_MOVED and self._is_slave:", "if False:"),
        ),
    ),
    Mutant(
        name="slave-sends-consumers-back",
        breaks="A slave that lags has nothing, and tells consumers to go on at its own end.",
        source="RocketMQ DefaultMessageStore.nextOffsetCorrection.",
        plant=patch(
            "broker.processor.pull:PullProcessor._answer",
            ("if self._is_slave and code == ResponseCode.PULL_NOT_FOUND:", "if False:"),
        ),
    ),
    Mutant(
        name="slave-keeps-offsets-of-pulls",
        breaks="A slave keeps the offsets that come with pulls, which may be older than its"
        " master's.",
        source="RocketMQ PullMessageProcessor: brokerRole != SLAVE.",
        plant=patch(
            "broker.processor.pull:PullProcessor.handle",
            (" and not self._is_slave", ""),
        ),
    ),
    Mutant(
        name="first-page-is-all",
        breaks="Of tables that are longer than an answer a slave takes the first page for all.",
        source="100,000 consumer groups: a slave followed none of its master's tables.",
        plant=patch(
            "broker.slave_sync.service:SlaveSync._pages",
            ("if following is None:", "if following or True:"),
        ),
    ),
    Mutant(
        name="pages-without-end",
        breaks="A slave asks a master on as long as it names pages, and follows none.",
        source="A review: row numbers that rise, without rows.",
        plant=patch(
            "broker.slave_sync.service:SlaveSync._pages",
            ("len(pages) < PAGES_MAX", "len(pages) < 10_000"),
        ),
    ),
    Mutant(
        name="told-in-one-turn",
        breaks="A slave reads all that its master tells in one turn of its loop.",
        source="RocketMQ SlaveSynchronize, which has a thread.",
        plant=patch(
            "broker.slave_sync.told:_Table.read",
            ("if number % ROWS_PER_STEP == 0:", "if number == 0:"),
        ),
    ),
    Mutant(
        name="copies-promised-and-not-made",
        breaks="A synchronous master is started that was asked for more copies than it waits for.",
        source="RocketMQ 5 CommitLog.asyncPutMessage: inSyncReplicas.",
        plant=patch(
            "broker.controller_settings:ControllerSettings.check_in_sync",
            ("wanted > SYNC_MASTER_COPIES", "wanted < 0"),
        ),
    ),
    Mutant(
        name="set-waited-for-as-for-a-disk",
        breaks="With controllers a send waits for the in-sync set as long as for a slow disk.",
        source="RocketMQ 5 GroupTransferService: slaveTimeout.",
        plant=patch(
            "broker.controller_settings:ControllerSettings.ack_wait_ms",
            ("if self.enable_controller_mode and not is_synced:", "if False:"),
        ),
    ),
    Mutant(
        name="slave-connected-after-it-follows",
        breaks="A slave that follows says that it is connected, until something comes.",
        source="Found in review; asyncio may hand data over before whoever dialled goes on.",
        plant=patch(
            "store.ha.slave:HaSlave._follow",
            ("if not (link.is_verified or self._was_turned_away):", "if True:"),
        ),
    ),
    Mutant(
        name="former-master-followed-on",
        breaks="A slave that is told of another master goes on with the one that it has.",
        source="RocketMQ HAClient.updateMasterAddress; seen by no test that there was.",
        plant=patch("store.ha.slave:HaSlave.set_master", ("self._link.close()", "pass")),
    ),
    Mutant(
        name="half-a-record-compared",
        breaks="A slave compares the first half of its last record with the master's.",
        source="docs/replication.md: what is refused; seen by no test that there was.",
        plant=patch(
            "store.ha.intake:Intake._compare",
            (
                "count = min(len(data), self._known_end - position)",
                "count = min(len(data), self._known_end - position) // 2",
            ),
        ),
    ),
    Mutant(
        name="last-of-many-runs-lost",
        breaks="Of more than two runs that come at once a slave leaves out the last.",
        source="docs/replication.md; seen by no test that there was.",
        plant=patch(
            "store.ha.intake:Intake.take",
            ("self._log.copy(runs)", "self._log.copy(runs[:-1] if len(runs) > 2 else runs)"),
        ),
    ),
    Mutant(
        name="group-gone-at-first-sight",
        breaks="A slave forgets a group that one answer of its master does not have.",
        source="docs/replication.md, tables: what was missing twice goes.",
        plant=patch(
            "broker.slave_sync.changes:Changes.of_names",
            ("sorted(missing & self._missing_groups)", "sorted(missing)"),
        ),
    ),
    Mutant(
        name="offset-just-past-the-end",
        breaks="A new master keeps an offset that is a little past the end of its queue.",
        source="docs/replication.md, switching by hand; seen by no test that there was.",
        plant=patch(
            "broker.state.own_offsets:OwnOffsets.bound",
            ("own <= end:", "own <= end + 3:"),
        ),
    ),
    Mutant(
        name="followed-while-it-settles",
        breaks="A slave that is elected takes what its former master sends until it has its role.",
        source="docs/adr/0020; seen by no test that there was.",
        plant=patch(
            "broker.modes.switched:SwitchedSlave.settle", ('self._ha.set_master("")', "pass")
        ),
    ),
)
