"""Those who stay in a group are told soon who has come and gone."""

from types import SimpleNamespace

import pytest

from broker.groups.client_registry import BROADCASTING
from broker.processor.client import ClientProcessor
from dledger.core.model import Role
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.oracles.base import Violation
from sim.oracles.told_members import NAME, NOTIFY, TOLD_TICKS, ToldMembers

GROUP = "readers"
FIRST, SECOND, THIRD = ("10.0.2.1", 1), ("10.0.2.2", 2), ("10.0.2.3", 3)


class Leader:
    """A leader that counts members of one group, and what it has told them."""

    name = "n0"

    def __init__(self, *members, model="CLUSTERING"):
        self.is_up, self.incarnation = True, 1
        self.hangs = lambda: False
        self.disk = SimpleNamespace(is_watched=False)
        self.state = SimpleNamespace(role=Role.LEADER, tick=0)
        self.now_ns = 0
        self.group = SimpleNamespace(name=GROUP, traits=SimpleNamespace(message_model=model))
        consumers = SimpleNamespace(groups=lambda: [self.group])
        self.controller = SimpleNamespace(tables=SimpleNamespace(consumers=consumers))
        self.taps = {}
        self.oracle = ToldMembers()
        self.look(0, members)

    def look(self, ticks, members=None):
        """Let time pass, with these members at the end of it."""
        if members is not None:
            self.group.clients = {
                number: SimpleNamespace(connection=SimpleNamespace(remote=one))
                for number, one in enumerate(members)
            }
            for one in members:
                tap = SimpleNamespace(end=SimpleNamespace(remote=one), is_closed=False, pushed={})
                self.taps.setdefault(one, tap)
        self.state.tick += ticks
        self.now_ns += 50 * ticks
        self.oracle.on_tick(self, self.taps.values(), self.now_ns)
        return self

    def tell(self, member):
        """Tell a member."""
        self.taps[member].pushed[NOTIFY, GROUP] = self.now_ns
        return self


@pytest.mark.parametrize("members", [(FIRST,), (FIRST, SECOND, THIRD)])
def test_who_stays_is_told_of_who_came_or_went(members):
    leader = Leader(FIRST, SECOND).look(20, members)
    with pytest.raises(Violation, match=NAME):
        leader.look(TOLD_TICKS + 1)


def test_who_was_told_since_then_is_owed_nothing():
    Leader(FIRST, SECOND).tell(FIRST).look(20, (FIRST,)).look(TOLD_TICKS + 1)
    leader = Leader(FIRST, SECOND).look(20, (FIRST, SECOND)).look(20, (FIRST,))
    leader.tell(FIRST).look(TOLD_TICKS + 1)


def test_what_was_said_before_is_no_answer():
    leader = Leader(FIRST, SECOND).tell(FIRST).look(20).look(20, (FIRST,))
    with pytest.raises(Violation, match=NAME):
        leader.look(TOLD_TICKS + 1)


@pytest.mark.parametrize(
    "excuse",
    [
        lambda leader: setattr(leader.state, "role", Role.FOLLOWER),
        lambda leader: setattr(leader, "is_up", False),
        lambda leader: setattr(leader, "incarnation", 2),
        lambda leader: setattr(leader, "hangs", lambda: True),
        lambda leader: setattr(leader.disk, "is_watched", True),
        lambda leader: setattr(leader.taps[FIRST], "is_closed", True),
    ],
)
def test_who_cannot_tell_or_be_told_is_excused(excuse):
    leader = Leader(FIRST, SECOND).look(20, (FIRST,))
    excuse(leader)
    leader.look(TOLD_TICKS + 1)


def test_who_has_left_as_well_is_told_nothing():
    Leader(FIRST, SECOND).look(20, (FIRST,)).look(1, ()).look(TOLD_TICKS + 1)


def test_members_that_get_everything_need_not_know_of_each_other():
    Leader(FIRST, SECOND, model=BROADCASTING).look(20, (FIRST,)).look(TOLD_TICKS + 1)


def told():
    """Which groups are told when a connection closes."""
    processor, groups = ClientProcessor.__new__(ClientProcessor), []
    processor._waiting = {}
    processor._producers = SimpleNamespace(close=lambda _id: None)
    processor._consumers = SimpleNamespace(close=lambda _id: ["a", "b"])
    processor._notifier = SimpleNamespace(notify=groups.append)
    processor.on_close(SimpleNamespace(id=7))
    return groups


def test_a_broker_tells_the_groups_of_a_connection_that_closes():
    assert told() == ["a", "b"]
    with planted(BY_TESTS["leaving-told-to-nobody"]):
        assert told() == []
