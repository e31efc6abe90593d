"""A follower acknowledges no entry that its leader does not have."""

from types import SimpleNamespace

import pytest

from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.compared import NAME, Compared


def replica(name, role, terms, term=3):
    marks = [SimpleNamespace(term=one) for one in terms]
    return SimpleNamespace(
        name=name, is_up=True, is_corrupt=False, base=0, deferred=[],
        state=SimpleNamespace(role=role, term=term),
        mark=lambda index: marks[index] if 0 <= index < len(marks) else None,
    )  # fmt: skip


def judge(follower, leader, index, term=3):
    compared = Compared({one.name: one for one in (follower, leader)})
    compared.on_message(
        follower, SimpleNamespace(receiver=leader.name, term=term, match_index=index)
    )
    for check in follower.deferred:
        check()


@pytest.mark.parametrize(("index", "is_wrong"), [(-1, 0), (1, 0), (2, 1), (3, 1)])
def test_what_both_have_may_be_acknowledged(index, is_wrong):
    follower = replica("n1", Role.FOLLOWER, [1, 1, 2, 2])
    leader = replica("n0", Role.LEADER, [1, 1, 3])
    if is_wrong:
        with pytest.raises(Violation, match=NAME):
            judge(follower, leader, index)
    else:
        judge(follower, leader, index)


def test_who_leads_no_more_or_in_another_term_is_not_compared():
    follower = replica("n1", Role.FOLLOWER, [1, 2])
    judge(follower, replica("n0", Role.FOLLOWER, [1, 3]), 1)
    judge(follower, replica("n0", Role.LEADER, [1, 3], term=4), 1)
