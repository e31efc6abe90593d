"""Planted bugs that were thought of late, when the scenarios of live runs were frozen.

Each is a mistake in one line of what runs execute, of another kind than those before: who reads
which queue, what a leader believes of its followers, what it tells of offsets, levels, tags, keys,
and what a sync, a snapshot or a slave that is gone stands for.
Source: docs/chaos.md, Calibration.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

LATE: Final = (
    Mutant(
        name="odd-queues-without-a-reader",
        breaks="Of queues that do not divide evenly among members the last ones have no reader.",
        source="RocketMQ AllocateMessageQueueAveragely: the first mod members get one more.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._share",
            (
                "client_id, queues, ids",
                "client_id, queues[: len(queues) // len(ids) * len(ids)], ids",
            ),
        ),
    ),
    Mutant(
        name="followers-believed-equal",
        breaks="A new leader believes that its followers have all that lies before its term.",
        source="Raft paper Figure 2: matchIndex[] is initialized to 0.",
        plant=patch(
            "dledger.core.progress:Progress.__init__",
            (
                "LogIndex = NO_INDEX\n    self.next_index",
                "LogIndex = next_index - 1\n    self.next_index",
            ),
        ),
    ),
    Mutant(
        name="offset-told-as-replicated",
        breaks="A leader tells the offset that is replicated, not a newer one that it accepted.",
        source="docs/adr/0002: what a leader took it tells until it has another.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.query",
            ("if queues is not None:", "if queues is not None and key not in self._applied:"),
        ),
    ),
    Mutant(
        name="asked-level-ignored",
        breaks="What a listener refuses waits for the usual level, whichever it asked for.",
        source="RocketMQ SendMessageProcessor.asyncConsumerSendMsgBack: 0 alone is the usual one.",
        plant=patch("broker.sends.send_back:destination_of", ("level or max(", "max(")),
    ),
    Mutant(
        name="delayed-without-its-tag",
        breaks="The copy of a delayed message has no code of its tag: no filter lets it by.",
        source="RocketMQ ScheduleMessageService.messageTimeup: tagsString2tagsCode.",
        plant=patch("broker.delays.copies:scheduled_of", ("tags_code(properties)", "0")),
    ),
    Mutant(
        name="committed-not-found-by-key",
        breaks="Messages of committed transactions are not in the index of keys.",
        source="RocketMQ IndexService.buildIndex: TRANSACTION_ROLLBACK_TYPE alone is left out.",
        plant=patch("store.index.keys:KeyHashes.rows", ("flags & 12 == 12", "flags & 12")),
    ),
    Mutant(
        name="released-counts-as-confirmed",
        breaks="What a master let go without its slave counts as confirmed by it.",
        source="spec/disk.md 7.2: FLUSH_SLAVE_TIMEOUT for what no slave confirmed in time.",
        plant=patch(
            "store.ha.gate:Gate.limit",
            (
                "if min(own, self.confirmed) == own:",
                "if own <= max(self.confirmed, self.released):",
            ),
        ),
    ),
    Mutant(
        name="sync-counts-for-what-came-meanwhile",
        breaks="A sync that returns counts for what was written while it was under way.",
        source="docs/raft.md: an answer leaves when what it speaks of is synced.",
        flush="SYNC_FLUSH",
        plant=patch(
            "dledger.driver:Driver.end_sync", ("synced, sync.writes)", "synced, self._writes)")
        ),
    ),
    Mutant(
        name="client-stored-alone-is-ok",
        breaks="A send that only the master has stored is told to be SEND_OK.",
        source="RocketMQ MQClientAPIImpl.processSendResponse: each code has a status.",
        plant=patch(
            "ledgermq.client.send_codec:decode_acknowledgement",
            ("return status, stored", "return SendStatus.SEND_OK, stored"),
        ),
    ),
    Mutant(
        name="snapshot-lacks-a-level",
        breaks="A snapshot lacks how far the last level of delays is delivered.",
        source="RocketMQ delayOffset.json: all levels.",
        plant=patch(
            "broker.delays.progress:DelayProgress.snapshot_steps",
            ("in self.offsets()]", "in self.offsets()[:-1]]"),
        ),
    ),
    Mutant(
        name="orderly-called-again-at-once",
        breaks="An orderly listener that failed is called again at once, whatever it asked for.",
        source="RocketMQ ConsumeMessageOrderlyService.submitConsumeRequestLater: milliseconds.",
        plant=patch(
            "ledgermq.client.orderly:OrderlyService._suspend",
            ("timeout(wait_ms / 1000)", "timeout(wait_ms / 1_000_000)"),
        ),
    ),
    Mutant(
        name="group-goes-before-its-last",
        breaks="A name server drops a group whose last broker but one has gone.",
        source="RocketMQ RouteInfoManager.unregisterBroker: a name goes with its last address.",
        plant=patch(
            "namesrv.route_table:RouteTable._remove",
            ("if group.addrs:", "if len(group.addrs) > 1:"),
        ),
    ),
)
