"""Planted bugs of what a core makes of ticks, syncs and chunks, and of what is kept in memory.

Sources: Ongaro's dissertation; etcd raft; docs/raft.md, docs/replication.md, docs/consumption.md.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch

TICKS: Final = (
    Mutant(
        name="refusal-restarts-the-timer",
        breaks="Who refuses a vote waits for another timeout all the same.",
        source="Paper 5.2: the timer begins anew when a vote is given; etcd raft, stepVote.",
        plant=patch(
            "dledger.core.election:on_vote_request",
            (
                "        stop_recovering(state, request.sender)\n"
                "        state.restart_election_timer()\n",
                "        stop_recovering(state, request.sender)\n"
                "    state.restart_election_timer()\n",
            ),
        ),
    ),
    Mutant(
        name="quorum-a-tick-later",
        breaks="A leader that no majority answers stays one for a tick more than it may.",
        source="Dissertation 6.2; etcd raft, CheckQuorum.",
        plant=patch(
            "dledger.core.election:check_quorum",
            ("progress.contact_tick > oldest", "progress.contact_tick >= oldest"),
        ),
    ),
    Mutant(
        name="given-up-and-sent-whole",
        breaks="A follower that answers nothing is sent entries again at each retry.",
        source="etcd raft, tracker/progress.go: a probe; dledger.core.replication.",
        plant=patch(
            "dledger.core.replication:give_up_window", ("    progress.silent = True\n", "")
        ),
    ),
    Mutant(
        name="candidates-without-haste",
        breaks="A candidate that nobody answers waits as long as a follower with a leader.",
        source="docs/raft.md; dledger.core.state.",
        plant=patch(
            "dledger.core.state:RaftState.restart_election_timer",
            ("        low, high = max(2, low // 4), max(4, high // 3)", "        pass"),
        ),
    ),
    Mutant(
        name="learners-by-the-last-beat",
        breaks="A learner counts as caught up by what was committed when its leader was elected.",
        source="Dissertation 4.2.1; dledger.core.membership.",
        plant=patch(
            "dledger.core.replication:tick_leader",
            ("        state.beat_commit_index = state.log.commit_index\n", ""),
        ),
    ),
    Mutant(
        name="commit-told-again",
        breaks="What an append has told of the commit index is told once more at the next tick.",
        source="Paper Figure 2 (leaderCommit); dledger.core.replication.",
        plant=patch(
            "dledger.core.replication:send_appends",
            ("        progress.commit_sent = log.commit_index\n", ""),
        ),
    ),
)
"""Found in plans."""
TICKS_BY_TESTS: Final = (
    Mutant(
        name="vote-without-patience",
        breaks="Who has given its vote campaigns itself as if it had not.",
        source="Paper 5.2; etcd raft, stepVote: electionElapsed = 0.",
        plant=patch(
            "dledger.core.election:on_vote_request",
            ("        state.restart_election_timer()\n", ""),
        ),
    ),
    Mutant(
        name="beat-of-the-last-term",
        breaks="A new leader's heartbeats are due by what it had counted when it led last.",
        source="Paper 5.2; etcd raft, reset: heartbeatElapsed = 0.",
        plant=patch(
            "dledger.core.election:become_leader", ("    state.heartbeat_elapsed = 0\n", "")
        ),
    ),
)
KEPT: Final = (
    Mutant(
        name="given-back-without-its-turn",
        breaks="An offset whose record was refused is due before those that wait for longer.",
        source="broker.state.consumer_offset.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.give_back",
            (
                "            if not may_come:\n"
                "                self._take_back(key, queue_id, offset)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="taken-as-applied-and-put-again",
        breaks="An offset that the log says by now is put into it once more.",
        source="broker.state.consumer_offset; RocketMQ ConsumerOffsetManager.",
        plant=patch(
            "broker.state.consumer_offset:ConsumerOffsetTable.apply",
            ("                self._dirty.pop((key, queue_id), None)\n", ""),
        ),
    ),
    Mutant(
        name="slave-just-far-enough-counts",
        breaks="A slave that lacks exactly what it must not lack counts as one that keeps up.",
        source="RocketMQ HAService.isSlaveOK: slaveFallbehindMax.",
        plant=patch("store.ha.gate:Gate.keeps_up", ("< self.behind_max", "<= self.behind_max")),
    ),
    Mutant(
        name="late-by-the-first-of-them",
        breaks="Of what has waited too long for a slave only the first part goes on.",
        source="RocketMQ GroupTransferService.",
        plant=patch(
            "store.ha.gate:Gate.pass_time",
            ("while self._marks and", "if self._marks and"),
        ),
    ),
    Mutant(
        name="caught-up-when-it-says-so",
        breaks="A slave that reports has caught up at that moment, whatever it lacks.",
        source="RocketMQ AutoSwitchHAService: lastCaughtUpTimestamp.",
        plant=patch(
            "store.ha.switch.in_sync:InSync.on_confirmed",
            ("max(found.caught_up_ms, found.target_ms)", "now_ms"),
        ),
    ),
    Mutant(
        name="close-again-counts-from-before",
        breaks="A slave that was close once, and far since, is waited for at once.",
        source="store.ha.switch.in_sync.",
        plant=patch(
            "store.ha.switch.in_sync:InSync._hold_for_one",
            ("            found.close_ms = None\n", "            pass\n"),
        ),
    ),
    Mutant(
        name="span-of-what-is-done-with",
        breaks="A consumer with one slow message never pauses however far it pulls ahead.",
        source="RocketMQ ProcessQueue.getMaxSpan; consumeConcurrentlyMaxSpan.",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.maybe_flow_control",
            ("self._order[-1] - self._order[0] > options", "len(self._order) > options"),
        ),
    ),
    Mutant(
        name="bytes-of-a-reset-stay",
        breaks="What a queue had before a reset counts for its limit of bytes afterwards.",
        source="RocketMQ ProcessQueue.clear: msgSize.",
        plant=patch(
            "ledgermq.client.process_queue:ProcessQueue.reset", ("    self._bytes = 0\n", "")
        ),
    ),
)
"""Found by tests."""
