"""CHANGE_MEMBERSHIP: what each outcome is answered with."""

import asyncio
import contextlib
import json

import pytest
import typer

from broker.processor.membership import MembershipProcessor, read_change
from cli.admin import AdminError
from cli.membership import check_old, describe, for_people, is_done, replace
from dledger.core.configuration import Change, ChangeKind
from dledger.errors import MembershipRefused, NotLeader, OutcomeUnknown
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand


class Group:
    def __init__(self, error=None):
        self.error = error
        self.changes = []
        self.operations = self

    async def change_membership(self, change):
        self.changes.append(change)
        if self.error is not None:
            raise self.error
        return 7

    def status(self):
        return {"voters": ["n0", "n1"], "learners": ["n3"], "membership_version": 4}


def ask(group, **fields):
    request = RemotingCommand(code=RequestCode.CHANGE_MEMBERSHIP, ext_fields=fields)
    return asyncio.run(MembershipProcessor(group).handle(None, request))


def test_change_is_answered_with_the_group_it_made():
    group = Group()
    answer = ask(group, op="add_learner", node="n3", address="h:1")
    assert answer.code == 0
    expected = {"index": 7, "voters": ["n0", "n1"], "learners": ["n3"], "version": 4}
    assert json.loads(answer.body) == expected
    assert group.changes == [Change(ChangeKind.ADD_LEARNER, "n3", "h:1")]
    assert describe(expected) == "entry 7, voters n0,n1, learners n3"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (NotLeader("n1"), 14, "the leader is n1"),
        (MembershipRefused("behind", retriable=True), 2, "behind"),
        (MembershipRefused("no member"), 1, "no member"),
        (OutcomeUnknown("no majority"), 1, "outcome unknown: no majority"),
    ],
)
def test_refusal_says_whether_to_ask_again(error, code, words):
    answer = ask(Group(error), op="remove", node="n3")
    assert answer.code == code
    assert words in answer.remark


@pytest.mark.parametrize("fields", [{}, {"op": "demote", "node": "n1"}, {"op": "remove"}])
def test_request_that_says_nothing_is_refused(fields):
    assert ask(Group(), **fields).code == 1
    with pytest.raises(MembershipRefused):
        read_change(fields)


@pytest.mark.parametrize(
    ("op", "node", "done"),
    [
        ("add_learner", "n3", True), ("add_learner", "n4", False), ("add_learner", "n0", True),
        ("add_learner", "n1", False), ("promote", "n0", True), ("promote", "n3", False),
        ("remove", "n9", True), ("remove", "n3", False),
    ],
)  # fmt: skip
def test_command_that_is_repeated_sees_what_is_done(op, node, done):
    addresses = {"n0": "h:1", "n1": "h:2", "n3": "h:1"}
    status = {"voters": ["n0", "n1"], "learners": ["n3"], "addresses": addresses}
    assert is_done({"op": op, "node": node, "address": "h:1"}, status) is done


@pytest.mark.parametrize(
    ("new", "old", "sound"),
    [
        ("n4", "n1", True), ("n3", "n1", True),  # n3 was added before
        ("n0", "n2", True),  # all was done before
        ("n4", "n9", False), ("n3", "n9", False),
    ],
)  # fmt: skip
def test_replacement_of_who_is_no_member_adds_nobody(new, old, sound):
    steps = [{"op": "add_learner", "node": new}, {"op": "remove", "node": old}]
    with (
        contextlib.nullcontext() if sound else pytest.raises(AdminError, match="n9 is not a member")
    ):
        check_old(steps, {"voters": ["n0", "n1"], "learners": ["n3"]})


def test_replica_does_not_replace_itself():
    with pytest.raises(typer.BadParameter, match="n1 cannot replace itself"):
        replace("n1", "h:1", "n1")


def test_status_is_shown_in_words():
    row = for_people({"voters": ["n0", "n1"], "learners": [], "fresh": False})
    assert (row["voters"], row["learners"], row["fresh"]) == ("n0,n1", "", "")
