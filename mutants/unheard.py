"""Planted bugs of what nobody hears, or what is held on to for a moment too long.

Each needs two things at once that seldom meet: a change that no other member gets, and the end of
its leader; topics that are new, and a snapshot; a wish, and a rebalance that is under way; a
message that was refused, and a broker that does not take it back.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

UNHEARD: Final = (
    Mutant(
        name="first-cut-configuration-kept",
        breaks="A change of the members that is the first entry to be cut off stays in force.",
        source="Raft dissertation 4.1; a leader that nobody else heard of it.",
        plant=patch("dledger.core.membership:roll_back", (">= max(index, 0)", "> max(index, 0)")),
    ),
    Mutant(
        name="text-of-topics-outlives-a-snapshot",
        breaks="A broker registers the topics that it had before it took a snapshot.",
        source="docs/storage.md (snapshots): all tables are exchanged at once.",
        plant=patch(
            "broker.state.topic_config:TopicTable._replace",
            ("self.encoded_bytes, self._encoded = size, None", "self.encoded_bytes = size"),
        ),
    ),
    Mutant(
        name="wish-cleared-afterwards",
        breaks="A consumer forgets a wish to rebalance that comes while it rebalances.",
        source="RocketMQ RebalanceService.wakeup, ServiceThread.waitForRunning.",
        plant=patch(
            "ledgermq.client.group_member:GroupMember._rebalance_loop",
            ("self._wanted.clear()", "pass"),
            (
                "balanced = await self._rebalance()",
                "balanced = await self._rebalance(); self._wanted.clear()",
            ),
        ),
    ),
    Mutant(
        name="kept-for-later-counts-as-done",
        breaks="A message that nobody took back is committed while it waits to be tried again.",
        source="RocketMQ ConsumeMessageConcurrentlyService.processConsumeResult: msgBackFailed.",
        plant=patch(
            "ledgermq.client.consume:ConsumeService._hand_back",
            ("kept.append(message)", "kept.append(message); process_queue.finish([message])"),
        ),
    ),
)
