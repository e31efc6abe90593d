"""Events and statuses of replicas against the rules of Raft, without Spark: A30-A33, A35 (iii)."""

import pytest

from chaos.checker.events import (
    check_commits,
    check_leaders,
    check_terms,
    check_votes,
    find_cut_commits,
)
from chaos.checker.model import History

SEEN = {"witness": {"effective": True}}
UNSEEN = {"witness": {"effective": False}}


class Story:
    """Events of nodes, in the order in which they are told."""

    def __init__(self):
        self.events = []
        self.probes = []
        self.faults = []

    def event(self, node, kind, term, index=-1, peer=None, boot_id="b1"):
        seq = 1 + sum(row["node"] == node for row in self.events)
        self.events.append(
            {"node": node, "kind": kind, "term": term, "index": index, "peer": peer, "seq": seq,
             "boot_id": boot_id, "group": 0}
        )  # fmt: skip

    def probe(self, node, t0, t1, **said):
        self.probes.append({"node": node, "t0": t0, "t1": t1, "ok": True, "boot_id": "b1", **said})

    def history(self):
        return History(
            topic="t", group="g", raft_events=self.events, probes=self.probes,
            faults=self.faults,
        )  # fmt: skip


CHECKS = (check_leaders, check_votes, check_terms, check_commits)


@pytest.fixture
def story():
    told = Story()
    for node in ("n0", "n1", "n2"):
        told.event(node, "boot", 0)
        told.event(node, "become_candidate" if node == "n0" else "vote_granted", 1, 3, "n0")
        told.event(node, "append", 1, 3)
        told.event(node, "commit", 1, 3)
    told.event("n0", "become_leader", 1, peer="n0")
    return told


def found(story):
    history = story.history()
    counts = {check(history).check: check(history).count for check in CHECKS}
    return {check: n for check, n in counts.items() if n} | (
        {"A35": len(cut)} if (cut := find_cut_commits(history)) else {}
    )


def test_story_by_the_rules_is_sound(story):
    story.event("n1", "append", 0, 9)
    story.event("n1", "truncate", 2, 4)
    story.event("n1", "vote_granted", 2, peer="n2")
    assert found(story) == {}


def test_nothing_told_is_nothing_checked():
    assert {check(Story().history()).verdict for check in CHECKS} == {"not checked"}


def test_each_broken_rule_is_found(story):
    story.event("n1", "become_leader", 1)
    assert found(story) == {"A30": 1}
    story.event("n2", "vote_granted", 1, peer="n1", boot_id="b2")
    assert found(story) == {"A30": 1, "A31": 1}
    story.event("n2", "boot", 0, 3, boot_id="b3")
    assert found(story) == {"A30": 1, "A31": 1, "A32": 1}
    story.event("n0", "commit", 1, 2)
    assert found(story) == {"A30": 1, "A31": 1, "A32": 1, "A33": 1}
    story.event("n1", "truncate", 1, 3)
    assert found(story) == {"A30": 1, "A31": 1, "A32": 1, "A33": 1, "A35": 1}


def test_answers_that_overlap_in_time_say_nothing_about_order(story):
    story.probe("n0", 10, 30, role="LEADER", term=3, commit=9, applied=9)
    story.probe("n0", 20, 25, role="LEADER", term=2, commit=8, applied=8)
    assert found(story) == {}
    story.probe("n0", 40, 41, role="LEADER", term=1, commit=7, applied=7)
    assert found(story) == {"A32": 1, "A33": 2}


def test_wiped_node_has_lost_its_memory_by_contract(story):
    wipe = {"kind": "disk.wipe", "targets": ["n1"], "status": "healed", "t_on0": 5, "t_on1": None}
    wipe |= SEEN
    story.faults = [wipe]
    story.event("n1", "boot", 0, boot_id="b2")
    story.event("n1", "vote_granted", 1, peer="n2", boot_id="b2")
    assert found(story) == {}
    for never in ({"status": "skipped"}, {"t_on0": None}, UNSEEN, {"witness": None}):
        story.faults = [wipe | never]
        assert found(story) == {"A31": 1, "A32": 1, "A35": 1}, never


def test_node_whose_syncs_lied_remembers_what_it_promised_unless_it_lost_its_power(story):
    lie = {"kind": "lie", "targets": ["n1"], "status": "healed", "t_on0": 5, "t_on1": 6} | SEEN
    loss = lie | {"kind": "power_loss", "t_on0": 7, "t_on1": 8}
    story.event("n1", "boot", 0, boot_id="b2")
    story.event("n1", "vote_granted", 1, peer="n2", boot_id="b2")
    story.faults = [lie, loss]
    assert found(story) == {}
    for others in ([], [loss | {"targets": ["n2"]}], [loss | {"kind": "kill"}]):
        story.faults = [lie, *others]
        assert found(story) == {"A31": 1, "A32": 1, "A35": 1}, others


def test_node_that_begins_again_without_what_it_had_committed_lost_it(story):
    story.event("n1", "boot", 1, 3, boot_id="b2")
    assert found(story) == {}
    story.event("n2", "boot", 1, 2, boot_id="b2")
    assert found(story) == {"A35": 1}
    loss = {"kind": "proc.powerloss", "targets": ["n2"], "status": "healed"} | SEEN
    story.faults = [loss | {"t_on0": 5, "t_on1": None}]
    assert found(story) == {}
