"""Whom the commands that change members ask, and how long they ask."""

import asyncio

import msgspec
import pytest

from cli import membership
from cli.admin import AdminError
from cli.membership import find_leader, insist
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand

SOLO = {"node": "solo", "role": "LEADER", "term": 1, "mode": "ASYNC_MASTER"}
LEADER = {"node": "n0", "group": "g", "role": "LEADER", "term": 3, "voters": ["n0"]}


class Brokers:
    """Brokers by address: the name server knows them all, each says its status."""

    def __init__(self, statuses):
        self.statuses = statuses
        self.kept = []

    async def request(self, addr, command, _timeout_ms):
        if addr == "ns":
            brokers = {"brokerAddrs": {str(n): a for n, a in enumerate(self.statuses)}}
            return RemotingCommand(0, body=msgspec.json.encode({"brokerAddrTable": {"x": brokers}}))
        if command.code != RequestCode.RAFT_STATUS:
            self.kept.append(command)
        return RemotingCommand(0, body=msgspec.json.encode(self.statuses[addr]))


def test_brokers_in_no_group_are_no_group_to_choose():
    found = asyncio.run(find_leader(Brokers({"a": SOLO, "b": LEADER}), ("ns",), ""))
    assert (found["node"], found["address"]) == ("n0", "b")


def test_where_no_broker_is_in_a_group_that_is_said_at_once():
    with pytest.raises(AdminError, match="a: it is in no Raft group") as refused:
        asyncio.run(find_leader(Brokers({"a": SOLO}), ("ns",), ""))
    assert not refused.value.may_retry, "it is not asked for a minute"


def test_who_leads_is_asked_again_while_an_election_goes_on(monkeypatch):
    monkeypatch.setattr(membership, "RETRY_S", 0)
    brokers, asked = Brokers({"a": LEADER | {"role": "CANDIDATE"}}), []

    async def look():
        asked.append(1)
        if len(asked) == 3:
            brokers.statuses["a"] = LEADER
        return await find_leader(brokers, ("ns",), "g")

    assert asyncio.run(insist(look, lambda: True))["node"] == "n0"
    assert len(asked) == 3
    brokers.statuses["a"] = LEADER | {"role": "CANDIDATE"}
    with pytest.raises(AdminError, match="no leader of g is known"):
        asyncio.run(insist(look, lambda: len(asked) < 6))
    assert len(asked) == 6


def test_commands_wait_for_an_election_before_they_ask(monkeypatch):
    """Of a change whose leader is not known at first, within the time that was given."""
    monkeypatch.setattr(membership, "RETRY_S", 0)
    brokers, looked = Brokers({"a": LEADER | {"learners": [], "index": 4}}), []

    async def leader_after_a_while(*_args):
        looked.append(1)
        if len(looked) < 3:
            raise AdminError("no leader is known", may_retry=True)
        return {**brokers.statuses["a"], "address": "a"}

    monkeypatch.setattr(membership, "find_leader", leader_after_a_while)
    monkeypatch.setattr(membership, "run_job", lambda job: asyncio.run(job(brokers)))
    membership.remove("n0", namesrv="h:1")
    assert [command.ext_fields for command in brokers.kept] == [{"op": "remove", "node": "n0"}]
