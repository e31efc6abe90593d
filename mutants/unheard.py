"""Planted bugs of what nobody hears, or what is held on to for a moment too long.

Each needs two things at once that seldom meet: a change that no other member gets, and the end of
its leader; a disk without room, and several messages that come due; a listener that outlasts the
wait for it.
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
        name="level-resumes-at-the-last",
        breaks="Where several messages of a level were refused, all but the last are passed over.",
        source="A disk without room as several messages come due.",
        plant=patch(
            "broker.delays.service:DelayedDelivery._go_back",
            ("min(level.next_offset, offset)", "offset"),
        ),
    ),
    Mutant(
        name="places-counted-on-from-what-was-cut",
        breaks="Who leads again numbers the messages of a queue on from what it lost meanwhile.",
        source="Raft 5.3; a leader that is cut off, and elected once more.",
        plant=patch(
            "store.write.commit_log:CommitLog.become_writable",
            (
                "queue.next_offset = queue.max_offset",
                "queue.next_offset = max(queue.next_offset, queue.max_offset)",
            ),
        ),
    ),
    Mutant(
        name="given-away-after-a-while",
        breaks="A queue in order is given to the next member while a listener still works on it.",
        source="RocketMQ RebalancePushImpl.removeUnnecessaryMessageQueue: tryLock for a second.",
        plant=patch("ledgermq.client.orderly:OrderlyService.settle", ("not running", "True")),
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
        name="older-answer-about-a-broker",
        breaks="A slow answer about one topic overwrites what a later one said of its brokers.",
        source="docs/client.md (routes): the answer that was asked for last counts.",
        plant=patch(
            "ledgermq.client.route:RouteCache._store",
            ("if route.t_fetched_ns >= self._told_ns.get(name, 0)", "if True"),
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
