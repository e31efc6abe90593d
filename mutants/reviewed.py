"""Planted bugs that a review of the code saw in it, and that no run had shown.

Most are of a second failure: a crash behind damage, a refusal behind a removal. Tests find them.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

REVIEWED: Final = (
    Mutant(
        name="damaged-table-kept-as-its-backup",
        breaks="A table that could not be read is copied over the backup it was restored from.",
        source="RocketMQ ConfigManager.load: a file or its .bak can be read.",
        plant=patch(
            "broker.state.snapshot:Snapshot.write",
            ("is_kept = name != _INDEX_FILE and name not in self._unread",
             "is_kept = name != _INDEX_FILE"),
        ),
    ),
    Mutant(
        name="overtaken-sync-counts-nothing",
        breaks="A sync that a cut overtook counts for nothing, what lies before the cut included.",
        source="docs/raft.md: what is synced is synced; no later sync covers it again.",
        plant=patch(
            "dledger.driver:Driver.begin",
            ("sync.last_index = min(sync.last_index, kept)", "sync.last_index = -1"),
        ),
    ),
    Mutant(
        name="configurations-saved-before-the-cut",
        breaks="A replica notes the configurations of its log before it cuts one off: a crash in"
        " between leaves that one in the log, and the replica counts voters without it.",
        source="Raft dissertation 4.1: the latest configuration in the log is in force.",
        plant=patch(
            "dledger.driver:Driver.persist_state",
            ("    if ready.truncate_from is not None and",
             "    if ready.configs is not None and self._membership_file is not None:\n"
             "        self._membership_file.save(ready.configs)\n"
             "    if ready.truncate_from is not None and"),
        ),
    ),
    Mutant(
        name="snapshot-ahead-of-the-log",
        breaks="A snapshot holds the state as of an entry that a loss of power can still take.",
        source="Write-ahead logging: what follows from an entry is written behind it.",
        plant=patch(
            "broker.retention.compaction:Compactor.compact",
            ("await node.operations.sync_to(state_index)", "True"),
        ),
    ),
    Mutant(
        name="all-segments-removed-in-one-go",
        breaks="All segments that a trim drops are removed in one piece of work: a leader takes its"
        " own disk for hung, and votes wait.",
        source="docs/raft.md, When the disk fails; RocketMQ deleteFileBatchMax.",
        plant=patch(
            "dledger.storage.log_store:LogStore.trim",
            ("data.parts(REMOVED_AT_ONCE)", "data.parts(1 << 20)"),
        ),
    ),
    Mutant(
        name="round-of-the-future-believed",
        breaks="An answer to a round of heartbeats that has not begun confirms all reads until it"
        " has: a leader that is cut off answers with what is no longer the newest.",
        source="Raft dissertation 6.4; dledger.core.plausible: what nothing could take back.",
        plant=patch(
            "dledger.core.replication:on_heartbeat_reply",
            ("if reply.round <= state.heartbeat_round:", "if reply.round:"),
        ),
    ),
    Mutant(
        name="new-group-counted-by-its-requests",
        breaks="Each request of a group that is being created takes one from the stock of new"
        " groups: a slow creation with many pulls leaves none for others.",
        source="docs/security.md, Limits: new consumer groups.",
        plant=patch(
            "broker.groups.new_groups:NewGroups.for_request",
            ("if self._is_being_created(config.group_name):", "if False:"),
        ),
    ),
    Mutant(
        name="nobody-woken-since-a-failure",
        breaks="Once waking held pulls has raised, no pull is woken any more: all wait their time.",
        source="RocketMQ PullRequestHoldService.notifyMessageArriving, run for each message.",
        plant=patch(
            "broker.pulls.wake_up:WakeUp._run",
            ("except Exception as error:", "except SystemError as error:"),
        ),
    ),
    Mutant(
        name="given-up-in-order-without-end",
        breaks="What an orderly consumer of Java 4.9 gives up comes to it again, without end.",
        source="SendMessageProcessor.handleRetryAndDLQ; ConsumeMessageOrderlyService 4.9.7.",
        plant=patch("broker.sends.send_back:dead_letter", ("times_max - 1", "times_max")),
    ),
    Mutant(
        name="dead-letter-is-a-half",
        breaks="A retry whose properties say that it was half a transaction is one again where it"
        " should be a dead letter: its producer is asked for its end.",
        source="SendMessageProcessor.sendMessage: for clients under version 4.6.1.",
        plant=patch(
            "broker.sends.send_back:direct_to_dead_letters",
            ("startswith(_NOT_OF_THE_DEAD)", 'startswith("DELAY\x01")'),
        ),
    ),
    Mutant(
        name="heard-of-in-another-group",
        breaks="A member whose leaving (35) was lost stays in its group, with a share of the queues"
        " that nobody reads, as long as its process is in another group.",
        source="RocketMQ ConsumerGroupInfo.updateChannel, which has it so.",
        plant=patch(
            "broker.groups.client_registry:ConsumerRegistry.register",
            ("client = msgspec.structs.replace(client)", "pass"),
        ),
    ),
    Mutant(
        name="read-again-in-a-topic-made-anew",
        breaks="A topic that is deleted and made anew goes on at its offsets, with the messages"
        " that it had, and its groups begin again: they get all of these once more.",
        source="RocketMQ AdminBrokerProcessor.deleteTopic, which leaves offsets.",
        plant=patch(
            "broker.offsets.cleaning:OffsetCleaner._useless",
            ("if not self._holds(topic, queue_id)", "if queue_id >= 0"),
        ),
    ),
    Mutant(
        name="no-topic-for-a-reply",
        breaks="A reply of a producer with a namespace is refused (17): nobody has made its topic.",
        source="RocketMQ ReplyMessageProcessor, AbstractSendMessageProcessor.msgCheck.",
        plant=patch(
            "broker.sends.creation:Creator.topic_for_reply",
            ("if config is None:", "if True:"),
        ),
    ),
    Mutant(
        name="refused-copies-cost",
        breaks="A message that is given back to a topic which takes nothing counts as copied.",
        source="docs/security.md, Limits: bytes that are copied for who gives messages back.",
        plant=patch(
            "broker.processor.send_back:SendBackProcessor._give_back",
            (
                "queue_id = self._queue(destination)",
                "self._budget.take(address, len(message.body))\n"
                "    queue_id = self._queue(destination)",
            ),
        ),
    ),
    Mutant(
        name="refused-offset-of-a-removed-group",
        breaks="An offset that was on its way as its group was removed, and is refused, is put"
        " again: the group is removed, and its offset there.",
        source="RocketMQ ConsumerOffsetManager.removeOffset.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.withdraw",
            (".append(queue_id)\n            self.drop(key, queue_id)", ".append(queue_id)"),
        ),
    ),
    Mutant(
        name="kv-served-unsaved",
        breaks="A name server serves a value that it could not save, and has told so.",
        source="RocketMQ KVConfigManager.persist; what was told as failed is not there.",
        plant=patch(
            "namesrv.kv_config:KvConfig._replace",
            ("    if self._path:\n", "    self._table = table\n    if self._path:\n"),
        ),
    ),
    Mutant(
        name="older-registration-overwrites",
        breaks="A large registration that waited for its turn overwrites a small one that came"
        " behind it on the same connection, and was taken at once.",
        source="RocketMQ RouteInfoManager.registerBroker takes them as they come.",
        plant=patch(
            "namesrv.route_table:RouteTable._is_overtaken",
            ("live.arrival > registration.arrival", "False"),
        ),
    ),
    Mutant(
        name="stamps-stand-still-as-a-clock-is-set-back",
        breaks="Stamps stand still for as long as the wall clock was set back, and with them"
        " delayed messages and questions about halves.",
        source="docs/security.md, Clocks; RocketMQ ScheduleMessageService.correctDeliverTimestamp.",
        plant=patch("store.write.stamps:Stamps._pace", ("self.last += passed_ms // 2", "pass")),
    ),
)  # fmt: skip
