"""Planted bugs from outside that a hundred and sixty plans of the simulator did not show.

What they take seldom comes together: a full disk behind a write that is under way, a cut where a
place was looked up before, one entry alone behind a lost end. Each has a test of its own.
Sources: Raft 5.3; docs/raft.md; RocketMQ.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

MISSED: Final = (
    Mutant(
        name="lost-end-not-believed",
        breaks="A follower that lost the end of its log with the power is never sent it again.",
        source="Raft 5.3: a rejection moves nextIndex back; matchIndex is what the disk holds.",
        plant=patch(
            "dledger.core.replication:on_append_reject",
            (
                "    if reject.last_index < progress.match_index:\n"
                "        # It once held more: it lost its disk. Never count it for what it does not"
                " hold any more.\n"
                "        progress.match_index = min(progress.match_index, reject.last_index)\n"
                "    elif reject",
                "    if reject",
            ),
        ),
    ),
    Mutant(
        name="acknowledged-though-dropped",
        breaks="A follower acknowledges entries that it forgot as its disk was full.",
        source="Raft 5.3: an acknowledgement says that the entry is held.",
        plant=patch("dledger.core.raft:Raft.abort", ("    state.ack_index = None\n", "")),
    ),
    Mutant(
        name="place-known-of-what-may-be-cut",
        breaks="Which entry begins at a place is remembered where a new leader may cut it off.",
        source="Raft 5.3: what is not committed may be replaced, by entries of other sizes.",
        plant=patch(
            "dledger.replicated_log:ReplicatedLog._know",
            (
                "if position <= self._node.committed_position:",
                "if position <= self._node.end_position:",
            ),
        ),
    ),
    Mutant(
        name="refused-change-is-done",
        breaks="A change of members that a full disk kept out of the log is answered as done.",
        source="docs/raft.md: a change is answered once its entry is committed.",
        plant=patch(
            "dledger.node:DLedgerNode._complete",
            ("    self._service.on_rolled_back(first_index)\n", ""),
        ),
    ),
    Mutant(
        name="client-known-topic-made-anew",
        breaks="While no route has a topic, its producer sends to queues of the default topic.",
        source="MQClientInstance.updateTopicRouteInfoFromNameServer keeps a route that it has.",
        plant=patch(
            "ledgermq.client.route:RouteCache._fetch",
            (
                "if known is not None and not known.provisional:",
                "if known is not None and not self._default_topic:",
            ),
        ),
    ),
    Mutant(
        name="deaf-peer-passes-over",
        breaks="Who reads too slowly is told to go on behind messages that it was not sent.",
        source="RocketMQ PullMessageProcessor: nextBeginOffset is behind what the answer has.",
        plant=patch(
            "broker.processor.pull:PullProcessor._answer_slow",
            ("            pull.offset,\n", "            result.next_offset,\n"),
        ),
    ),
    Mutant(
        name="deliveries-of-another-term-count",
        breaks="Deliveries on their way as a term ended are waited for in all later ones.",
        source="broker.delays.service: how puts under way ended is what the log says.",
        plant=patch(
            "broker.delays.service:DelayedDelivery.start",
            ("    self._in_flight = self._in_flight_bytes = 0\n", ""),
        ),
    ),
    Mutant(
        name="installed-amid-a-removal",
        breaks="A snapshot takes the place of a log of which a trim has not removed all yet.",
        source="docs/raft.md: the segments of a log follow on each other at each start.",
        plant=patch(
            "dledger.storage.log_store:LogStore.stage",
            ("while work.install and self._dropped:", "while False:"),
        ),
    ),
    Mutant(
        name="copied-behind-the-term",
        breaks="Offsets are copied by a broker that lost its leadership while it waited for that.",
        source="docs/adr/0007: what a leader has not proposed ends with its term.",
        plant=patch(
            "broker.processor.other_groups:OtherGroupsProcessor._copied",
            (
                "    source, target = header.src_group, header.dest_group\n",
                "    source, target = header.src_group, header.dest_group\n"
                "    drops = self._tables.offsets.drops\n",
            ),
        ),
    ),
    Mutant(
        name="failed-write-counts",
        breaks="Offsets of a broadcasting member whose write failed count as written.",
        source="docs/client.md: a member that could not write tries again.",
        plant=patch(
            "ledgermq.client.local_offsets:LocalOffsets.flush",
            (
                "        self._under_way.add_done_callback(self._on_written)\n"
                "        await self._wait_for_write()\n",
                "        self._under_way.add_done_callback(self._on_written)\n"
                "        await self._wait_for_write()\n"
                "        self._has_changed = False\n",
            ),
        ),
    ),
    Mutant(
        name="topic-that-may-come-is-there",
        breaks="A send goes on behind a topic of which nobody knows whether it was made.",
        source="docs/adr/0005: an outcome that is unknown is told as such.",
        plant=patch(
            "broker.sends.creation:Creator._create_parked",
            (
                "None if status is PutStatus.OK else",
                "None if status.is_stored or status.outcome_unknown else",
            ),
        ),
    ),
    Mutant(
        name="longest-log-of-any-epoch",
        breaks="Of the replicas that live, who has the longest log comes before a later epoch.",
        source="docs/adr/0020; ReplicasInfoManager of RocketMQ 5 compares epochs first.",
        plant=patch(
            "namesrv.controller.liveness:Liveness.alive",
            (
                "(-heard.epoch, -heard.max_offset, one)",
                "(-heard.max_offset, -heard.epoch, one)",
            ),
        ),
    ),
    Mutant(
        name="covered-in-part",
        breaks="A segment goes of which only the beginning is covered by what is on disk.",
        source="docs/operations.md (retention); spec/disk.md 5.8.",
        plant=patch(
            "broker.retention_policy:expired_before",
            ("segment.end > covered", "segment.start > covered"),
        ),
    ),
    Mutant(
        name="checkpoint-of-before-a-cut",
        breaks="A checkpoint that was made before a cut is written behind it.",
        source="docs/raft.md (recovery): what counts as synced must be there at the next start.",
        plant=patch(
            "dledger.storage.state_files:CheckpointFile.lower", ("        self.cuts += 1\n", "")
        ),
    ),
)
