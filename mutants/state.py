"""Planted bugs of what requests make a group keep: its tables, and the size of log entries.

Tests find them, see ``BY_TESTS`` in `mutants.patches`.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

STATE: Final = (
    Mutant(
        name="refused-amid-a-hand-over",
        breaks="Offsets that are refused during a hand-over that fails are never replicated.",
        source="found by the simulator; the leader goes on, and has these in memory alone.",
        plant=patch(
            "broker.offsets.replication:OffsetReplicator._settled",
            (
                "if status not in (PutStatus.OK, PutStatus.UNKNOWN):",
                "if status not in (PutStatus.OK, PutStatus.NOT_LEADER, PutStatus.UNKNOWN):",
            ),
        ),
    ),
    Mutant(
        name="unbounded-entry",
        breaks="A leader appends an entry that is larger than a frame between members.",
        source="Seen in this system: one request left a group without a leader for good.",
        plant=patch(
            "dledger.appender:Appender.reserve",
            ("if size_bytes > self._entry_bytes_max:", "if False:"),
        ),
    ),
    Mutant(
        name="offset-proposals-by-count",
        breaks="An entry of offsets is bounded by their number, whatever their names take.",
        source="Seen in this system: 400 offsets of groups with long names were one entry.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.take_proposals",
            ("if size + more > STATE_ENTRY_BYTES_MAX:", "if size + more > 2**31:"),
        ),
    ),
    Mutant(
        name="no-fair-shares",
        breaks="One group may take up all that a table has room for.",
        source="Dynamic thresholds of shared buffers (Choudhury and Hahne).",
        plant=patch(
            "broker.fair_share:FairShare.fits",
            ("self._used_by.get(holder, 0) + more <= free // SHARE", "free >= 0"),
        ),
    ),
    Mutant(
        name="offsets-of-nothing",
        breaks="Offsets of topics, queues and groups that do not exist are kept.",
        source="RocketMQ 4.9 ConsumerManageProcessor.updateConsumerOffset.",
        plant=patch(
            "broker.processor.offset:OffsetProcessor.handle_update",
            ("self._refusal(header) or self._commit(header)", "self._commit(header)"),
        ),
    ),
    Mutant(
        name="group-at-the-end-told-zero",
        breaks="A group that begins at the end is told 0 for an old topic, and reads all of it.",
        source="RocketMQ's clients before 5; spec/wire.md 3.7.",
        plant=patch(
            "broker.processor.offset:OffsetProcessor._begins_at_zero",
            ("header.set_zero_if_not_found is False", "False"),
        ),
    ),
    Mutant(
        name="locks-of-nothing",
        breaks="Queues that do not exist can be locked, as many as anyone likes.",
        source="RocketMQ RebalanceLockManager, which takes any queue.",
        plant=patch(
            "broker.processor.lock:LockProcessor._exists",
            ("entry is not None and 0 <= queue.queue_id < entry.queues", "True"),
        ),
    ),
    Mutant(
        name="lock-entries-unbounded",
        breaks="A lock request is one entry, however long it is.",
        source="Seen in this system: a request of 16 MiB became an entry that no frame carries.",
        plant=patch(
            "broker.state.queue_lock:split_change",
            ("if queues and size + more > STATE_ENTRY_BYTES_MAX:", "if False:"),
        ),
    ),
    Mutant(
        name="offsets-never-forgotten",
        breaks="Offsets of topics that are gone stay for ever.",
        source="RocketMQ ConsumerOffsetManager.scanUnsubscribedTopic, called by nobody in 4.9.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.apply_forget",
            ("applied.pop(queue_id, None) is not None", "False"),
        ),
    ),
    Mutant(
        name="offsets-removed-by-another-name",
        breaks="An offset under a key without a topic is removed under a key that is not there.",
        source="A forged table: its leader writes an entry each second, for ever.",
        plant=patch(
            "broker.offsets.cleaning:OffsetCleaner.tick",
            ("self._found[key] = useless", 'self._found[f"{topic}@{group}"] = useless'),
        ),
    ),
    Mutant(
        name="offsets-removed-as-they-were-found",
        breaks="A group that is there again, and has committed, before the walk that found its"
        " offsets for the second time ends, loses them.",
        source="A walk over 100,000 topics and groups takes 40 s.",
        plant=patch(
            "broker.offsets.cleaning:OffsetCleaner._end_walk",
            ("if ids and (ids := self._useless(topic, group, ids)):", "if ids:"),
        ),
    ),
    Mutant(
        name="offsets-of-a-directory-cleaned",
        breaks="A broker on its own removes offsets that RocketMQ kept of groups in no table.",
        source="A store of 4.9.7 with offsets of a group that had sent no heartbeat.",
        plant=patch("broker.offsets.cleaning:OffsetCleaner.tick", ("key in self._left", "False")),
    ),
    Mutant(
        name="unreadable-table-behind-us-made-of-the-log",
        breaks="A table that RocketMQ left unreadable is written over, where we were there before.",
        source="RocketMQ ConfigManager.loadBak: it does not start.",
        plant=patch(
            "broker.state.shared_snapshot:SharedSnapshot.load_for",
            ("self.has_foreign or not is_ours", "not is_ours"),
        ),
    ),
    Mutant(
        name="offsets-of-what-was-deleted-left",
        breaks="A group that is deleted and made anew goes on where the former one was.",
        source="docs/operations.md, deleteSubGroup: offsets go some seconds later.",
        plant=patch(
            "broker.offsets.cleaning:OffsetCleaner.tick",
            ("not self._was_deleted(topic, group)", "True"),
        ),
    ),
    Mutant(
        name="new-queues-skipped",
        breaks="A group that begins at the end skips what a topic got before it had found it.",
        source="RocketMQ's rule for a queue that is young, spec/wire.md 3.7.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember.first_offset",
            ("is_old = queue in self._queues_at_first.get(queue.topic, ())", "is_old = True"),
        ),
    ),
    Mutant(
        name="topics-without-bound",
        breaks="Topics are created until no registration of them fits into a frame.",
        source="RocketMQ TopicConfigManager, which has no bound.",
        plant=patch(
            "broker.state.topic_config:TopicTable._has_room",
            ("self.encoded_bytes + TOPIC_BYTES_MAX <= TOPICS_BYTES_MAX", "True"),
        ),
    ),
    Mutant(
        name="any-topic-filter-type",
        breaks="A topic is created with any text for its filter type, of any length.",
        source="Seen in this system: one request 17 became an entry that no frame carries.",
        plant=patch(
            "broker.processor.admin:AdminProcessor._refusal",
            ("if kind not in FILTER_TYPES:", "if False:"),
        ),
    ),
    Mutant(
        name="groups-without-stock",
        breaks="A client may have any number of groups created by heartbeats.",
        source="RocketMQ SubscriptionGroupManager.findSubscriptionGroupConfig.",
        plant=patch("broker.groups.new_groups:Stock.take", ("if self.left == 0:", "if False:")),
    ),
    Mutant(
        name="lost-change-told-committed",
        breaks="A change of members that a full disk rolled back is told to be committed.",
        source="Seen in this system: another entry of the same term took its index.",
        plant=patch(
            "dledger.membership:MembershipService._watch", ("if wait.is_lost:", "if False:")
        ),
    ),
    Mutant(
        name="topic-made-behind-its-change",
        breaks="A send makes a topic with defaults behind the change by which a tool sets it up.",
        source="RocketMQ TopicConfigManager: the later one finds the topic there.",
        plant=patch(
            "broker.sends.creation:Creator._create_parked",
            ("await self._changed_topics.waits(name, lambda: self._has_topic(name))", "pass"),
        ),
    ),
)
