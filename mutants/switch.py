"""Planted bugs where controllers say who is master: epochs, and what counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mutants.planting import Mutant, patch, patches

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCHS: Final = "store.ha.switch.epochs:"
_IN_SYNC: Final = "store.ha.switch.in_sync:InSync."
_ACKNOWLEDGES_ALONE: Final = patch(
    _IN_SYNC + "limit",
    (
        "return min([own, *(self._confirmed(one) for one in waits_for)])",
        "return own",
    ),
)
_SLAVE: Final = "store.ha.switch.slave:SwitchHaSlave.on_welcome"

SWITCH: Final[Sequence[Mutant]] = (
    Mutant(
        name="switch-promoted-ends-at-what-it-left-aside",
        breaks="A promoted master ends at a record that it quarantined as a slave, at each start.",
        source="docs/replication.md: what is refused.",
        plant=patch(
            "broker.modes.switched:_over_copied",
            ("PlainMode(core, log, Copied, mark=", "PlainMode(core, log, mark="),
        ),
    ),
    Mutant(
        name="switch-empty-epochs-count",
        breaks="An epoch in which nothing was written stays in the list of the log.",
        source="RocketMQ 5 EpochFileCache.appendEntry refuses the next epoch then.",
        plant=patch(_EPOCHS + "begin_epoch", ("clip(epochs, end)[", "epochs[")),
    ),
    Mutant(
        name="switch-first-epoch-forgotten",
        breaks="A former master is shut out that had only a tail when an empty log was elected.",
        source="docs/replication.md: it cuts off what it had alone, follows, and is in sync again.",
        plant=patch(_EPOCHS + "begin_epoch", (" or _begun(epochs, end)[:1]", "")),
    ),
    Mutant(
        name="switch-tail-kept",
        breaks="A former master keeps what it wrote alone.",
        source="docs/adr/0020, step 4.",
        plant=patch(_EPOCHS + "consistent_point", ("min(end, ends[one])", "end")),
    ),
    Mutant(
        name="switch-longer-epoch-counts",
        breaks="What only one of two logs has of their last common epoch counts as the same.",
        source="RocketMQ 5 EpochFileCache.findConsistentPoint.",
        plant=patch(_EPOCHS + "consistent_point", ("min(end, ends[one])", "max(end, ends[one])")),
    ),
    Mutant(
        name="switch-acknowledged-before-the-set",
        breaks="A master acknowledges what one in-sync replica has, not all.",
        source="RocketMQ 5, allAckInSyncStateSet=false.",
        plant=patch(
            _IN_SYNC + "limit",
            (
                "return min([own, *(self._confirmed(one) for one in waits_for)])",
                "return max((self._confirmed(one) for one in waits_for), default=own)",
            ),
        ),
    ),
    Mutant(
        name="switch-acknowledged-alone",
        breaks="A master acknowledges what it alone has, whoever is in sync.",
        source="RocketMQ 5 with inSyncReplicas=1 while two are in the set.",
        plant=_ACKNOWLEDGES_ALONE,
    ),
    Mutant(
        name="switch-old-epoch-acknowledged",
        breaks="A master that reaches no controller goes on, and acknowledges what it alone has.",
        source="docs/adr/0020, step 4; RocketMQ issue 7689.",
        plant=patches(
            _ACKNOWLEDGES_ALONE,
            patch(
                "broker.switch.broker:SwitchingBroker._on_silence",
                ("if isinstance(self.role, AsMaster):", "if False:"),
            ),
        ),
    ),
    Mutant(
        name="switch-shrunk-before-it-was-decided",
        breaks="A master does without a slave as soon as it has asked for that.",
        source="RocketMQ 5 AutoSwitchHAService.maybeShrinkSyncStateSet marks it locally.",
        plant=patch(_IN_SYNC + "ask", ("self._pending |= members", "self.members = members")),
    ),
    Mutant(
        name="switch-asked-for-does-not-count",
        breaks="A master does not wait for whom it has asked to let in.",
        source="RocketMQ issue 5663.",
        plant=patch(_IN_SYNC + "limit", ("(self.members | self._pending)", "self.members")),
    ),
    Mutant(
        name="switch-let-in-behind",
        breaks="A slave is let in that lacks some of what was acknowledged.",
        source="RocketMQ 5 AutoSwitchHAService.maybeExpandInSyncStateSet.",
        plant=patch(_IN_SYNC + "_next_one", ("found.confirmed >= counted", "found.confirmed >= 0")),
    ),
    Mutant(
        name="switch-let-in-in-a-pause-only",
        breaks="A slave that keeps up is never let in while entries follow each other closely.",
        source="RocketMQ 5 AutoSwitchHAService.maybeExpandInSyncStateSet.",
        plant=patch(_IN_SYNC + "_hold_for_one", ("and not self._pending", "and False")),
    ),
    Mutant(
        name="switch-confirmed-before-it-came-again",
        breaks="What a slave confirmed counts, though it lost some of it before it came again.",
        source="A power cut under ASYNC_FLUSH, a disk that is rolled back.",
        plant=patch(
            _IN_SYNC + "on_connected",
            ("found.confirmed = found.target = found.target_ms = 0", "found.target = 0"),
        ),
    ),
    Mutant(
        name="switch-any-code-is-a-refusal",
        breaks="Whatever code controllers answer, the set that was asked for counts as refused.",
        source="ResponseCode.SYSTEM_ERROR: the outcome is unknown.",
        plant=patch(
            "broker.switch.in_sync_keeper:InSyncKeeper.step",
            ("is_certain=answer.code in _REFUSED", "is_certain=True"),
        ),
    ),
    Mutant(
        name="switch-one-refused-shuts-out-all",
        breaks="All slaves that keep up are asked for at once, with one that is always refused.",
        source="A slave whose heartbeats the controllers refuse, for its clock.",
        plant=patch(
            _IN_SYNC + "_next_one",
            ("{min(fit)[1]} if fit else set()", "{one for _, one in fit}"),
            ("and now_ms - found.refused_ms >= REFUSED_MS", ""),
        ),
    ),
    Mutant(
        name="switch-unanswered-taken-for-refused",
        breaks="A request without an answer counts as one that was refused.",
        source="docs/adr/0020.",
        plant=patch(
            _IN_SYNC + "on_unanswered",
            (
                "self.asked, self.is_unclear = None, True",
                "self.asked, self._pending = None, frozenset()",
            ),
        ),
    ),
    Mutant(
        name="switch-stale-epoch-followed",
        breaks="A slave follows a master of an earlier epoch.",
        source="docs/adr/0020; RocketMQ 5 AutoSwitchHAClient compares epochs.",
        plant=patch(_SLAVE, ("welcome.epoch != self._epoch", "welcome.epoch < 0")),
    ),
    Mutant(
        name="switch-earlier-epoch-followed",
        breaks="A slave takes over the epochs of a master that is of before its own last one.",
        source="docs/adr/0020, step 3; a controller that leads no more.",
        plant=patch(_SLAVE, ("own[-1].epoch > welcome.epoch", "False")),
    ),
    Mutant(
        name="switch-earlier-view-believed",
        breaks="A broker without a role believes a controller that knows an earlier epoch.",
        source="docs/adr/0020, step 3.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._follow",
            ("max(self._registration.epoch, 0 if role is None else role.epoch)", "0"),
        ),
    ),
    Mutant(
        name="switch-full-disk-ends-the-slave",
        breaks="A disk that is full when another master comes ends the slave's process.",
        source="docs/replication.md: the disk is full, and it asks every 5 s.",
        plant=patch(_SLAVE, ("error.__cause__.errno in NO_SPACE", "False")),
    ),
    Mutant(
        name="switch-closed-link-confirms",
        breaks="What a slave confirmed over the connection before counts until that is gone.",
        source="A slave that restarted with less than it had, sooner than its reset is seen.",
        plant=patch(
            "store.ha.switch.master:SwitchHaMaster.on_known",
            ('self.on_closed(one, "it has come again")', "pass"),
        ),
    ),
    Mutant(
        name="switch-old-connections-count",
        breaks="What a slave confirmed before it lost the end of its log lets it in afterwards.",
        source="A power cut closes no connection; KIP-966, unclean shutdowns.",
        plant=patch(
            "broker.switch.in_sync_keeper:InSyncKeeper.on_view",
            ("and set_epoch:", "and False:"),
        ),
    ),
    Mutant(
        name="switch-a-change-behind-the-own-one-passed-over",
        breaks="The same, where the master hears of that and of whom it has let in at once.",
        source="docs/adr/0020: the set has another epoch after each of these registrations.",
        plant=patch(
            "broker.switch.in_sync_keeper:InSyncKeeper.on_view",
            ("> set_epoch + has_let_in and set_epoch", "!= set_epoch and not has_let_in"),
        ),
    ),
    Mutant(
        name="switch-gives-way-with-messages",
        breaks="A master gives way to a log that lacks what it has acknowledged.",
        source="docs/replication.md, a directory from before there was a controller.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._follow",
            ("self._progress.of(self.running)[1] == 0", "True"),
        ),
    ),
    Mutant(
        name="switch-gives-way-and-goes-on",
        breaks="A master acknowledges while it lets in who has nothing of it.",
        source="docs/replication.md, a directory from before there was a controller.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._give_way",
            ("role.in_sync.is_open = False", "pass"),
        ),
    ),
    Mutant(
        name="switch-gives-way-while-it-takes",
        breaks="What a master is sent while it lets in an older log has that shut out.",
        source="Who has something in a later epoch is elected before who has more in none.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._give_way",
            ("await self._end_role(reason)", "pass"),
        ),
    ),
    Mutant(
        name="switch-gives-way-with-what-came-last",
        breaks="A master lets in an older log though it was sent something as it closed.",
        source="Who has something in a later epoch is elected before who has more in none.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._give_way",
            ("if self._progress.of(None)[1]:", "if False:"),
        ),
    ),
    Mutant(
        name="switch-progress-before-the-last-writes",
        breaks="A broker that has closed tells where its log ended before it was closed.",
        source="What was on its way is written at a stop.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._end_role",
            ("self._progress.keep(running)  # what", "pass  # what"),
        ),
    ),
    Mutant(
        name="switch-port-kept",
        breaks="What answers while there is no role keeps the port from the broker that has one.",
        source="docs/replication.md, a broker and its roles.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._begin_role",
            ("await self._waiting.close()", "pass"),
        ),
    ),
    Mutant(
        name="switch-waits-in-silence",
        breaks="A broker without a role says that it knows no such request.",
        source="docs/replication.md, a broker and its roles.",
        plant=patch(
            "broker.switch.waiting:WaitingPort.look",
            ("{int(code): self._answer for code in RequestCode}", "{}"),
        ),
    ),
    Mutant(
        name="switch-nothing-is-not-confirmed",
        breaks="A slave of an empty log leaves the in-sync set again and again.",
        source="docs/replication.md: a slave that has not caught up is taken out, and no other.",
        plant=patch(
            "store.ha.switch.master:SwitchHaMaster.on_report",
            ("if link.position is not None:", "if link.position:"),
        ),
    ),
    Mutant(
        name="switch-keys-read-anew",
        breaks="A broker ends at a switch while its keys are being renewed.",
        source="docs/operations.md, keys and certificates: what was read before goes on to count.",
        plant=patch(
            "broker.modes.plain:PlainMode.open",
            ("self.credentials.begin()", "self.credentials.load()"),
        ),
    ),
    Mutant(
        name="switch-end-behind-a-hole",
        breaks="After a loss of power a replica says that it has what lies behind a lost page.",
        source="docs/replication.md, who lost its power; the kernel writes pages in any order.",
        plant=patch(
            "broker.switch.progress:LogProgress._find_end",
            ("if directory.was_clean:", "if True:"),
        ),
    ),
    Mutant(
        name="switch-lost-end-not-told",
        breaks="A broker that may have lost the end of its log registers as if it had not.",
        source="KIP-966, unclean shutdowns; Kafka before it.",
        plant=patch(
            "broker.modes.lost_end:may_lack_end",
            ("mark != _SYNCED and (not boot_id or mark != boot_id)", "False"),
        ),
    ),
    Mutant(
        name="switch-any-id-is-believed",
        breaks="A slave counts as the one that it says it is, whoever it has proven to be.",
        source="Two directories with one key: what one confirms counts for the other.",
        plant=patch(
            "store.ha.switch.master:SwitchSlaveLink._check_id",
            ("proven != str(self.slave_id)", "False"),
        ),
    ),
    Mutant(
        name="switch-heartbeat-from-elsewhere",
        breaks="A heartbeat from another address keeps a replica alive, and makes it homeless.",
        source="A forged 904 took a living master its office.",
        plant=patch(
            "namesrv.controller.processor:ControllerProcessor.heartbeat",
            ('not in ("", header.broker_addr)', "is None"),
        ),
    ),
    Mutant(
        name="switch-office-taken-without-a-code",
        breaks="Whoever says the id and address of a living master takes its office.",
        source="A forged 1003; RocketMQ 5 asks for no check code there.",
        plant=patch(
            "namesrv.controller.machine:_register",
            ("command.other_alive and not command.check_code", "False"),
        ),
    ),
    Mutant(
        name="switch-acknowledged-cut-off",
        breaks="A slave cuts off what was acknowledged, for a master that lacks it.",
        source="docs/adr/0020.",
        plant=patch(_SLAVE, ("point < min(end, log.committed_position)", "point < 0")),
    ),
    Mutant(
        name="switch-surplus-not-seen",
        breaks="A slave follows with a tail that its master has not.",
        source="RocketMQ 5 AutoSwitchHAClient.doTruncate.",
        plant=patch(_SLAVE, ("if point < end:", "if point < 0:")),
    ),
    Mutant(
        name="switch-cut-to-what-counts",
        breaks="A slave cuts its log at what it knows to be confirmed, not where the logs part.",
        source="Kafka before KIP-101: truncation to the high watermark; KAFKA-1211.",
        plant=patch(
            _SLAVE,
            (
                "point = consistent_point(own, end, welcome.epochs, welcome.end)",
                "point = min(log.committed_position, welcome.end)",
            ),
        ),
    ),
    Mutant(
        name="switch-epoch-not-on-disk",
        breaks="A master takes messages in its epoch before that is on its disk.",
        source="RocketMQ 5 EpochFileCache: the file is flushed when an entry is appended.",
        plant=patch(
            "store.ha.switch.epoch_file:EpochFile.begin",
            ("self.save(epochs)", "self.epochs = epochs"),
        ),
    ),
    Mutant(
        name="switch-lease-ignored",
        breaks="A master that reaches no controller goes on for ever.",
        source="docs/adr/0020, lease; Kafka's zombie controllers and brokers.",
        plant=patch(
            "broker.switch.broker:SwitchingBroker._on_silence",
            ("if silent_ms < self._config.controller_silence_ms:", "if silent_ms >= 0:"),
        ),
    ),
    Mutant(
        name="switch-read-before-it-counts",
        breaks="A slave dispatches what the in-sync set may not have.",
        source="RocketMQ 5 DefaultMessageStore.getConfirmOffset.",
        plant=patch(
            "store.ha.switch.logs:SwitchSlaveLog._counted",
            ("min(own, self._confirmed)", "own"),
        ),
    ),
    Mutant(
        name="switch-set-never-shrinks",
        breaks="Who is to leave the in-sync set stays in it, and the request is granted.",
        source="RocketMQ 5 ReplicasInfoManager.alterSyncStateSet: the set of the request.",
        plant=patch(
            "namesrv.controller.machine:_alter",
            (
                "members = tuple(sorted(set(command.in_sync)))",
                "members = tuple(sorted({*group.in_sync, *command.in_sync}))",
            ),
        ),
    ),
    Mutant(
        name="switch-gone-slave-stays",
        breaks="A master never asks for a set without a slave that is gone.",
        source="KIP-966: who does not follow holds up what waits for the whole set.",
        plant=patch(
            _IN_SYNC + "wanted",
            (
                "if one == self.own_id or self._keeps_up(one, now_ms)}",
                "}",
            ),
        ),
    ),
    Mutant(
        name="switch-hanging-up-not-heard",
        breaks="A controller waits for silence though the connection of a master has ended.",
        source="RocketMQ 5 DefaultBrokerHeartbeatManager.onBrokerChannelClose.",
        plant=patch(
            "namesrv.controller.liveness:Liveness.on_connection_closed",
            ("if heard.connection_id == connection_id", "if False"),
        ),
    ),
    Mutant(
        name="switch-asked-set-waited-for",
        breaks="Whoever was asked for once is waited for, though the set has been decided since.",
        source="docs/replication.md: what counts is what the members of the decided set have.",
        plant=patch(
            "store.ha.switch.in_sync:InSync.on_decided",
            (
                "self.asked, self._pending, self.is_unclear = None, frozenset(), False",
                "self.asked, self.is_unclear = None, False",
            ),
        ),
    ),
    Mutant(
        name="switch-first-offset-stays",
        breaks="What a group commits later in the log does not take the place of what it had.",
        source="docs/adr/0002: values of records are set.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.apply",
            (
                "applied[queue_id] = offset",
                "applied[queue_id] = min(offset, applied.get(queue_id, offset))",
            ),
        ),
    ),
    Mutant(
        name="controller-votes-for-the-longer-log",
        breaks="Controllers compare how long logs are before their terms: nobody may be elected.",
        source="Raft paper 5.4.1: the log whose last term is later is the newer one.",
        plant=patch(
            "namesrv.controller.raft:Raft._would_vote",
            (
                "(message.last_term, message.last_index) >= (term, index)",
                "(message.last_index, message.last_term) >= (index, term)",
            ),
        ),
    ),
)
