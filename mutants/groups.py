"""Planted bugs where the group changes or a log begins anew: members, lost disks, snapshots.

Sources: Ongaro's dissertation 4.1-4.2; the raft-dev erratum of July 2015; Raft paper 7.
"""

from __future__ import annotations

from typing import Final

from mutants.planting import Mutant, patch, patches

_MAYBE_COMMIT: Final = "dledger.core.replication:maybe_commit"

GROUPS: Final = (
    Mutant(
        name="learner-counted-in-majority",
        breaks="What a learner holds counts as if a voter held it.",
        source="Dissertation 4.2.1; etcd raft tracks learners apart for this reason.",
        needs="add replace",
        plant=patch(
            _MAYBE_COMMIT,
            (
                "index = majority_index(matches)",
                "matches += [p.match_index for p in state.progress.values()"
                " if p.node_id not in state.voters]\n"
                "    index = sorted(matches)[-state.quorum]",
            ),
        ),
    ),
    Mutant(
        name="removed-leader-counts-itself",
        breaks="A leader that is being removed counts itself for the entry that removes it.",
        source="Dissertation 4.2.2; Kafka pull 17146 (a controller that removes itself).",
        needs="remove replace",
        plant=patch(_MAYBE_COMMIT, ("    if state.is_voter:\n", "    if True:\n")),
    ),
    Mutant(
        name="two-changes-at-once",
        breaks="A change of the group begins although the one before is not committed.",
        source="Dissertation 4.1 and its erratum; etcd raft issue 372 (no overlap).",
        needs="add remove replace",
        plant=patch(
            "dledger.core.membership:plan",
            ("if log.term_at(log.commit_index) != state.term:", "if False:"),
            ("if latest.index > log.commit_index:", "if False:"),
        ),
    ),
    Mutant(
        name="cut-configuration-kept",
        breaks="A configuration whose entry is truncated stays in force.",
        source="Dissertation 4.1: a server falls back to the one before it in its log.",
        needs="add remove replace",
        plant=patch(
            "dledger.core.membership:roll_back",
            ("if state.membership.latest.index >= max(index, 0):", "if False:"),
        ),
    ),
    Mutant(
        name="wiped-node-votes",
        breaks="A replica that lost its directory votes and campaigns as if it knew its promises.",
        source="Raft Figure 2, persistent state; NATS issue 7567; Protocol-Aware Recovery.",
        needs="wipe",
        plant=patches(
            patch(
                "dledger.core.rejoin:may_vote",
                ("return not state.fresh or last_index == NO_INDEX", "return True"),
            ),
            patch(
                "dledger.core.membership:may_campaign",
                ("if state.fresh and state.log.last_index != NO_INDEX:", "if False:"),
            ),
        ),
    ),
    Mutant(
        name="snapshot-with-wrong-last-term",
        breaks="A snapshot names the term in which it was made for that of its last entry.",
        source="Raft 7: lastIncludedTerm is what the next AppendEntries is checked against.",
        needs="wipe add replace crash isolate halves leader_minority power_loss",
        plant=patch("dledger.trimming:Trimmer.trim", ("plan.base_term,", "self._raft.state.term,")),
    ),
)
