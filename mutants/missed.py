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
)
