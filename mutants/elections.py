"""Planted bugs in elections: votes and terms, and who may lead.

Sources: Raft paper 5.1, 5.2, 5.4.1; dissertation 4.2.3, 6.2, 9.6; the issues of PySyncObj and
DLedger that are named.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

_SAVE = "dledger.storage.state_files:HardStateFile.save"
_LOAD = "dledger.storage.state_files:HardStateFile.load"
_VOTED = "or state.voted_for != saved.voted_for"

ELECTIONS: Final = (
    Mutant(
        name="vote-not-persisted",
        breaks="The term is written to disk and the vote is not, so that a restart forgets it.",
        source="Raft Figure 2, votedFor is persistent; PySyncObj issue 84.",
        plant=patch(
            _SAVE, ("encode_hard_state(state)", "encode_hard_state(HardState(state.term, None))")
        ),
    ),
    Mutant(
        name="term-not-persisted",
        breaks="A term that was learned from others is written only together with a vote.",
        source="Raft Figure 2, currentTerm is persistent; PySyncObj issue 201.",
        plant=patch(
            _SAVE, ("    try:\n", "    if state.voted_for is None:\n        return\n    try:\n")
        ),
    ),
    Mutant(
        name="vote-file-deleted-first",
        breaks="The file of term and vote is deleted before the new one takes its name, and a"
        " missing one is taken for a new replica's.",
        source="DLedger IOUtils.string2File and MemberState.loadTerm.",
        needs="crash_at",
        plant=patches(
            patch(
                _SAVE,
                (
                    "self._disk.replace(self._path",
                    "self._disk.remove(self._path)\n        self._disk.replace(self._path",
                ),
            ),
            patch(_LOAD, ("if log_is_empty:", "if True:")),
        ),
    ),
    Mutant(
        name="vote-given-twice",
        breaks="Every candidate of a term gets the vote, not the first one alone.",
        source="Raft 5.2: each server votes for at most one candidate in a given term.",
        needs="drop duplicate delay bridge flap restart_all",
        plant=patch(
            "dledger.core.election:on_vote_request",
            ("state.voted_for is None and state.leader_id is None", "True"),
        ),
    ),
    Mutant(
        name="votes-counted-not-voters",
        breaks="Each answer counts, so that a repeated one is a second vote.",
        source="Raft 5.2: votes from a majority of the servers; PySyncObj __votesCount.",
        needs="duplicate replay",
        plant=patch(
            "dledger.core.election:count_vote",
            (
                "state.votes[voter] = granted",
                'state.votes[f"{voter}/{len(state.votes)}"] = granted',
            ),
        ),
    ),
    Mutant(
        name="stale-vote-counted",
        breaks="A vote of an earlier term is counted for the candidacy of this one.",
        source="Raft 5.1: what is of a stale term says nothing about this one.",
        needs="reorder replay delay",
        plant=patch(
            "dledger.core.raft:Raft.step",
            (
                "elif message.term < state.term:",
                "elif message.term < state.term and not isinstance(message, VoteReply):",
            ),
        ),
    ),
    Mutant(
        name="candidate-log-not-compared",
        breaks="A vote is given whatever the candidate's log is.",
        source="Raft 5.4.1; RocketMQ issue 2178 (a replica that was behind truncated the others).",
        plant=patch(
            "dledger.core.log:RaftLog.is_up_to_date",
            ("return (last_term, last_index) >= (self.last_term, self.last_index)", "return True"),
        ),
    ),
    Mutant(
        name="pre-vote-answered-with-own-term",
        breaks="A granted pre-vote names the voter's term, which the candidate takes for stale.",
        source="Dissertation 9.6; nobody is ever elected: liveness.",
        plant=patch(
            "dledger.core.election:on_pre_vote_request",
            ("term = request.term if granted else state.term", "term = state.term"),
        ),
    ),
    Mutant(
        name="check-quorum-off",
        breaks="A leader that hears of no majority goes on and holds its clients.",
        source="Dissertation 6.2; liveness.",
        needs="isolate one_way leader_minority bridge halves drop",
        plant=patch(
            "dledger.core.election:check_quorum", ("if heard < state.quorum:", "if False:")
        ),
    ),
    Mutant(
        name="read-index-without-round",
        breaks="A read is confirmed by answers to heartbeats that were sent before it was asked.",
        source="Dissertation 6.4; etcd issue 20418 (a stale read after a pause).",
        needs="pause hung_disk clock_drift",
        plant=patch(
            "dledger.core.read_index:_maybe_confirm",
            ("round_heard >= number", "round_heard >= 0"),
        ),
    ),
    Mutant(
        name="transfer-never-given-up",
        breaks="A leader asks its successor once, and then waits for it and refuses all sends.",
        source="Dissertation 3.10; DLedger issue 85 (preferred leader stuck for ever); liveness.",
        needs="transfer",
        plant=patch(
            "dledger.core.transfer:tick",
            ("elif state.tick >= transfer.deadline_tick:", "elif False:"),
            ("if left % state.config.heartbeat_ticks == 0:", "if False:"),
        ),
    ),
    Mutant(
        name="vote-in-a-known-term-forgotten",
        breaks="A vote is on disk only if its term is news; in a term that was known it is not.",
        source="Raft Figure 2, votedFor is persistent; PySyncObj issue 84.",
        needs="transfer delay",
        plant=patches(
            patch("dledger.core.raft:Raft.ready", (_VOTED, "")),
            patch("dledger.core.raft:Raft._has_other_work", (_VOTED, "")),
        ),
    ),
)
