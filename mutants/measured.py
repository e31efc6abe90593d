"""Planted bugs of somebody who had read the product alone, which no plan had shown before.

What brings each about, or judges it, came with them (docs/simulation.md, "Measured a fifth time").
Sources: the places in the product's own code and docs that the bugs contradict.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

MEASURED: Final = (
    Mutant(
        name="rejoin-before-its-barrier",
        breaks="Who lost its directory votes as soon as the others have the barrier.",
        source="dledger.core.rejoin, step 4: the replica holds it, too.",
        plant=patch(
            "dledger.core.rejoin:tick",
            ("min(log.commit_index, state.progress[peer].match_index)", "log.commit_index"),
        ),
    ),
    Mutant(
        name="gone-follower-keeps-the-log",
        breaks="A follower that is down for good keeps its leader from trimming: the disk fills.",
        source="docs/raft.md: who is silent is sent a snapshot.",
        plant=patch("dledger.trimming:Trimmer.limit", ("if lives and progress", "if progress")),
    ),
    Mutant(
        name="preferred-asked-again-at-once",
        breaks="Sends of a group stop again and again for a preferred leader that cannot lead.",
        source="dledger.core.transfer: a pause in election timeouts, doubled each time.",
        plant=patch(
            "dledger.core.transfer:_prefer",
            ("state.prefer_pause * state.config.election_ticks_max", "state.prefer_pause"),
        ),
    ),
    Mutant(
        name="delay-goes-back-to-the-last-failure",
        breaks="Of several delayed messages whose puts end together the first are never delivered.",
        source="RocketMQ ScheduleMessageService goes on where it was.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._go_back",
            ("min(level.next_offset, offset)", "offset"),
        ),
    ),
    Mutant(
        name="offsets-too-large-wait-for-ever",
        breaks="A record of offsets that fits into no segment is tried for ever: none is written.",
        source="Offsets of long group names in a log of small segments; found as seed 375.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.take_proposals",
            ("if size + more > STATE_ENTRY_BYTES_MAX:", "if size + more > 131_072:"),
        ),
    ),
    Mutant(
        name="producer-by-its-first-heartbeat",
        breaks="A producer is forgotten two minutes after its first heartbeat, and lives on.",
        source="RocketMQ ProducerManager.registerProducer: setLastUpdateTimestamp at each.",
        plant=patch(
            "broker.groups.client_registry:ProducerRegistry.register",
            ("known.last_seen_ms = client.last_seen_ms", "pass"),
        ),
    ),
    Mutant(
        name="restored-tables-not-written",
        breaks="Tables of a snapshot are not saved, and the index is: a start has the old ones.",
        source="docs/raft.md, snapshots: what is applied and what is kept go together.",
        plant=patch(
            "broker.state.snapshot:Snapshot._restore_steps",
            ("self._revisions[kind] += 1", "pass"),
        ),
    ),
    Mutant(
        name="removed-topic-told",
        breaks="A topic that was removed is told to tools, slaves and name servers.",
        source="RocketMQ AdminBrokerProcessor.getAllTopicConfig.",
        plant=patch(
            "broker.state.topic_config:TopicTable._remove",
            ("self._encoded = None", "pass"),
        ),
    ),
    Mutant(
        name="busy-queue-given-away",
        breaks="A queue whose listener takes more than a second is unlocked: two work on it.",
        source="RocketMQ ConsumeMessageOrderlyService: unlocked once nobody works on it.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService.settle", ("return not running", "return True")
        ),
    ),
    Mutant(
        name="paused-parts-reversed",
        breaks="What waits of a paused queue, in several parts, is polled in another order.",
        source="docs/client.md: messages of a queue are polled in order.",
        plant=patch(
            "ledgermq.client.polled:Polled.take",
            ("extendleft(reversed(put_back))", "extendleft(put_back)"),
        ),
    ),
    Mutant(
        name="order-to-rebalance-unheard",
        breaks="A consumer that is told of other members of its group looks at its next turn only.",
        source="RocketMQ ClientRemotingProcessor.notifyConsumerIdsChanged: rebalanceImmediately.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._on_ids_changed",
            ("self._wanted.set()", "pass"),
        ),
    ),
    Mutant(
        name="readable-queues-cleaned",
        breaks="A group loses its offsets in queues that can only be read any more.",
        source="docs/security.md: offsets of queues that are there stay.",
        plant=patch(
            "broker.offsets.cleaning:OffsetCleaner._useless",
            ("entry.queues]", "entry.write_queues]"),
        ),
    ),
    Mutant(
        name="no-deliveries-means-usual",
        breaks="What a consumer fails for that wants nothing twice comes again sixteen times.",
        source="RocketMQ SendMessageProcessor.consumerSendMsgBack: maxReconsumeTimes as sent.",
        plant=patch(
            "broker.sends.send_back:_times_max", ("if asked is None or", "if not asked or")
        ),
    ),
    Mutant(
        name="manual-commit-lacks-the-last-poll",
        breaks="A caller who commits by himself commits all but what the last poll gave out.",
        source="docs/client.md: all that was given out until now.",
        plant=patch(
            "ledgermq.client.lite_pull:LitePullConsumer.commit",
            ("self._polled.finish()", "pass"),
        ),
    ),
    Mutant(
        name="older-snapshot-sent-again",
        breaks="Who has shipped a snapshot ships its bytes as the next one: a follower stays back.",
        source="docs/raft.md, snapshots: the file of the snapshot that counts.",
        plant=patch(
            "dledger.storage.snapshot_files:SnapshotFiles.read",
            ("if self._file is None or self._file_id != self.meta.id:", "if self._file is None:"),
        ),
    ),
)

MEASURED_BY_TESTS: Final = (
    Mutant(
        name="selector-asked-again",
        breaks="A send whose queue a function chose goes to another one when it is tried again.",
        source="docs/client.md: all attempts go to the queue that was chosen.",
        plant=patch(
            "ledgermq.client.delivery:Delivery.run",
            ("self._choice = None  # However often it is tried, it keeps its queue.", "pass"),
        ),
    ),
    Mutant(
        name="greeted-once-for-all",
        breaks="A broker is not told anew who asks when the connection is another one.",
        source="RocketMQ ProducerManager knows producers by their channel.",
        plant=patch(
            "ledgermq.client.request_reply:Requests._is_greeted",
            ("self._greeted.get(addr) == connection.id", "addr in self._greeted"),
        ),
    ),
)
"""Found by tests, which were written for them."""
