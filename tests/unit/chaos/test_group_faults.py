"""Faults of the group and of its clients where they take no effect: the witness must say so."""

import asyncio
from dataclasses import dataclass, field

import pytest

from chaos.backends.base import ClusterFailed
from chaos.nemesis import membership
from chaos.nemesis.base import Setting
from chaos.nemesis.clients import COMINGS, Storm
from chaos.nemesis.journal import lift
from chaos.nemesis.membership import Remove, Transfer
from chaos.nemesis.retention import Trim
from chaos.probe import NodeStatus
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.world import World


@dataclass
class Group(World):
    """Members as they would answer; ``broken``: what they say yes to and do not do."""

    leader: str | None = "n0"
    term: int = 4
    voters: set[str] = field(default_factory=lambda: {"n0", "n1", "n2"})
    learners: set[str] = field(default_factory=set)
    refusals: list[str] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)

    def status_addr(self, node):
        return (node, 1)

    def member_addr(self, of, node):
        return f"{of}:{node}"

    async def ask(self, node):
        return NodeStatus(
            node=node, t_ns=self.now, ok=True, role="leader" if node == self.leader else "",
            term=self.term,
        )  # fmt: skip

    async def answer(self, _cluster, node, code, fields=None):
        if code == membership.RAFT_STATUS:
            role = "LEADER" if node == self.leader else "FOLLOWER"
            members = {"voters": sorted(self.voters), "learners": sorted(self.learners)}
            return {"role": role, "term": self.term, **members}
        self.asked.append(fields)
        if self.refusals:
            raise ValueError(self.refusals.pop(0))
        if code == membership.TRANSFER and "transfer" not in self.broken:
            self.leader, self.term = fields["target"], self.term + 1
        elif code == membership.CHANGE and fields["op"] not in self.broken:
            self._change(fields["op"], fields["node"])
        return {}

    def _change(self, op, node):
        if op == "remove":
            self.voters.discard(node)
        elif op == "add_learner":
            self.learners.add(node)
        else:
            self.learners.discard(node)
            self.voters.add(node)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for name in ("DONE_S", "LEADS_S"):
        monkeypatch.setattr(membership, name, 0.2)
    monkeypatch.setattr(membership, "POLL_S", 0.01)


def counts(monkeypatch, world, fault, between=lambda world: None):
    monkeypatch.setattr(membership, "_ask", getattr(world, "answer", None))

    async def body():
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        between(world)
        await fault.undo()
        await fault.probe_after()

    asyncio.run(body())
    return fault.witness.effective


def setting(world):
    return Setting(cluster=world, probe=world, clock=world)


def test_a_member_is_removed_and_added_again_where_the_leader_finds_it(monkeypatch):
    world = Group(refusals=["code 2: another change", "code 14: n0 leads"])
    assert counts(monkeypatch, world, Remove(setting(world), "n1"))
    assert world.voters == {"n0", "n1", "n2"}
    assert not world.learners
    assert {"op": "add_learner", "node": "n1", "address": "n0:n1"} in world.asked


def test_a_removal_counts_if_nobody_leads_for_a_moment(monkeypatch):
    class Elects(Group):
        """Whoever leads is not known each first time that somebody asks."""

        async def answer(self, cluster, node, code, fields=None):
            told = await super().answer(cluster, node, code, fields)
            if node == self.leader and code == membership.RAFT_STATUS:
                self.turns = not getattr(self, "turns", False)
                return told | ({"role": "CANDIDATE"} if self.turns else {})
            return told

    world = Elects()
    assert counts(monkeypatch, world, Remove(setting(world), "n1"))


@pytest.mark.parametrize("broken", ["remove", "promote"])
def test_a_member_that_stays_or_never_returns_does_not_count(monkeypatch, broken):
    world = Group(broken={broken})
    assert not counts(monkeypatch, world, Remove(setting(world), "n1"))


def test_a_member_that_was_none_before_does_not_count(monkeypatch):
    world = Group(voters={"n0", "n2"})
    assert not counts(monkeypatch, world, Remove(setting(world), "n1"))


def comes_back(world):
    world.voters.add("n1")


def test_a_removal_that_somebody_took_back_meanwhile_does_not_count(monkeypatch):
    world = Group()
    assert not counts(monkeypatch, world, Remove(setting(world), "n1"), comes_back)


def test_a_witness_that_does_not_look_is_found_out(monkeypatch):
    with planted(HARNESS_BUGS["member-removed-unseen"]):
        world = Group()
        assert counts(monkeypatch, world, Remove(setting(world), "n1"), comes_back)


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (Group(refusals=["code 1: n1 is the last voter"]), "last voter"),
        (Group(leader=None), "nobody leads"),
    ],
)
def test_a_removal_that_is_refused_or_that_nobody_can_make_fails_with_the_reason(
    monkeypatch, world, why
):
    with pytest.raises(ClusterFailed, match=why):
        counts(monkeypatch, world, Remove(setting(world), "n1"))


def test_where_there_are_no_members_none_is_removed():
    with pytest.raises(ClusterFailed, match="no member"):
        Remove(setting(World()), "n1")


def test_what_the_journal_has_of_a_member_is_lifted_once(monkeypatch):
    world = Group(voters={"n0", "n2"})
    monkeypatch.setattr(membership, "_ask", world.answer)
    for _ in range(2):
        asyncio.run(lift(world, {"do": "member", "node": "n1"}))
    assert world.voters == {"n0", "n1", "n2"}
    assert len(world.asked) == 2


def test_a_transfer_counts_if_the_one_who_was_named_leads_a_later_term(monkeypatch):
    world = Group()
    assert counts(monkeypatch, world, Transfer(setting(world), "n2"))


@pytest.mark.parametrize("leader", ["n2", "n0"])
def test_a_transfer_to_who_leads_already_or_that_did_not_happen_does_not_count(monkeypatch, leader):
    world = Group(leader=leader, broken={"transfer"})
    assert not counts(monkeypatch, world, Transfer(setting(world), "n2"))


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (Group(refusals=["code 1: n2 is too far behind"]), "too far behind"),
        (Group(leader=None), "nobody leads"),
    ],
)
def test_a_transfer_that_is_refused_fails_with_the_reason(monkeypatch, world, why):
    with pytest.raises(ClusterFailed, match=why):
        counts(monkeypatch, world, Transfer(setting(world), "n2"))


@dataclass
class Consumers:
    """The consumers of a run; newcomers get ``gets`` messages each."""

    gets: int = 5
    places: int = 10
    names: list[str] = field(default_factory=lambda: ["consumer-0", "consumer-1"])
    dies: bool = False
    came: int = 0
    role: str = "consumer"

    def running(self, role):
        return list(self.names) if role == self.role else []

    async def join(self, role):
        assert role == self.role
        if not self.places:
            return None
        self.places -= 1
        self.came += 1
        self.names.append(f"new-{self.came}")
        return self.names[-1]

    async def leave(self, name):
        self.names.remove(name)
        if self.dies and "consumer-0" in self.names:
            self.names.remove("consumer-0")
        return self.gets


def storm(clients):
    async def body():
        given = Setting(cluster=None, probe=None, clock=None, clients=clients)
        fault = Storm(given, stay_ms=10, away_ms=5, role=clients.role)
        await fault.probe_before()
        await fault.apply()
        await fault.probe_during()
        async with asyncio.timeout(30):
            while fault._gone < COMINGS and not fault._task.done():
                await asyncio.sleep(0.005)
        await fault.undo()
        await fault.probe_after()
        return fault.witness.effective

    return asyncio.run(body())


def test_consumers_that_come_and_go_make_a_storm():
    clients = Consumers()
    assert storm(clients)
    assert clients.names == ["consumer-0", "consumer-1"]


def test_a_storm_of_orderly_members_counts_them_and_no_others():
    clients = Consumers(role="orderly")
    assert storm(clients)
    given = Setting(cluster=None, probe=None, clock=None, clients=Consumers())
    with pytest.raises(ClusterFailed, match="no orderly runs"):
        Storm(given, stay_ms=1, away_ms=1, role="orderly")


@pytest.mark.parametrize(
    "clients", [Consumers(places=0), Consumers(places=1), Consumers(gets=0), Consumers(dies=True)]
)
def test_a_storm_without_newcomers_or_messages_or_in_which_others_end_does_not_count(clients):
    assert not storm(clients)


def test_a_storm_needs_clients():
    with pytest.raises(ClusterFailed, match="no clients"):
        Storm(setting(World()), stay_ms=1, away_ms=1)


@dataclass
class Logs(World):
    """Brokers that trim their logs when asked, unless they are broken."""

    first: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("n0", "n1", "n2"), 0))
    upto: list[int] = field(default_factory=list)

    def status_addr(self, node):
        return (node, 1)

    async def ask(self, node):
        begin = self.first[node]
        return NodeStatus(node=node, t_ns=self.now, ok=True, commit=500, first_index=begin)

    def connection(self, node, _port):
        return Asked(self, node)


@dataclass
class Asked:
    world: Logs
    node: str

    async def ask(self, code, timeout_s, fields):
        assert code == 29004
        if "refuse" in self.world.broken:
            raise ValueError("code 16: not allowed")
        self.world.upto.append(int(fields["upto"]))
        if not {"trim", self.node} & self.world.broken:
            self.world.first[self.node] = int(fields["upto"]) + 1
        return {}

    def close(self):
        pass


@pytest.mark.parametrize(
    ("broken", "effective"), [(set(), True), ({"trim"}, False), ({"n1"}, False)]
)
def test_a_log_is_trimmed_if_it_begins_later(monkeypatch, broken, effective):
    world = Logs(broken=broken)
    monkeypatch.setattr("chaos.nemesis.retention.StatusConnection", world.connection)
    assert counts(monkeypatch, world, Trim(setting(world), "n0", "n1", keep=100)) is effective
    assert world.upto == [400, 400]


def test_a_log_that_is_not_trimmed_fails_with_the_reason(monkeypatch):
    world = Logs(broken={"refuse"})
    monkeypatch.setattr("chaos.nemesis.retention.StatusConnection", world.connection)
    with pytest.raises(ClusterFailed, match="n0 did not trim its log: code 16"):
        counts(monkeypatch, world, Trim(setting(world), "n0", keep=1))
