"""The argument of ADR 20, tried: what a master acknowledged is in the log of every later one.

A model of brokers over the real rules of the controller. Every message between broker and
controller, and between master and slave, may come late, twice or never; brokers may be cut off,
stop and start, and lose the end of their log with the power while another one in sync is whole. A
master acknowledges what all of its in-sync set has: all of the set that the
controller has confirmed to it, and of the one that it has asked for.
"""

import random

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.commands import AlterInSync, ApplyId, Code, Elect, Register
from namesrv.controller.machine import Machine

IDS = (1, 2, 3)


class Broker:
    """What a broker knows: its log with the epoch of each message, and what it was told."""

    def __init__(self):
        self.log = []
        self.epoch = 0
        self.is_master = False
        self.members = ()
        self.set_epoch = 0
        self.asked = None
        self.confirmed = {}
        self.life = 0
        """How often it has lost its power."""
        self.is_down = self.has_lost = False
        self.began = 0
        """The last epoch that its directory knows of."""
        self.lives = {}
        """As a master: of which life of a slave its connection is at least."""


class Group:
    """A controller's group and its brokers; ``acked`` is the longest log that was acknowledged."""

    def __init__(self, waits_for_asked=True, drops_outsiders=True, counts_changes=True):
        self.machine = Machine()
        self.brokers = {one: Broker() for one in IDS}
        self.acked = []
        self.late = []
        self.requests = []
        self.waits_for_asked, self.drops_outsiders = waits_for_asked, drops_outsiders
        self.counts_changes = counts_changes
        for one in IDS:
            self.machine.apply(ApplyId(group="g", cluster="C", id=one, check_code=f"c{one}"))
            self.machine.apply(Register(group="g", cluster="C", id=one, address=f"h:{one}"))

    @property
    def row(self):
        return self.machine.groups["g"]

    def elect(self, alive, epoch):
        if self.row.in_doubt:
            alive = sorted(alive, key=self.has_most)
        elected = self.machine.apply(Elect(group="g", master_epoch=epoch, alive=alive))
        if elected.code is Code.SUCCESS and not self.brokers[elected.group.master].is_down:
            log = self.brokers[elected.group.master].log
            assert log[: len(self.acked)] == self.acked, "acknowledged, and lost by an election"

    def has_most(self, one):
        """Return what puts those first that have most, as `namesrv.controller.liveness` does."""
        log = self.brokers[one].log
        return -log[-1][0] if log else 0, -len(log)

    def learn(self, one):
        """Have a broker hear what the controller says now."""
        broker, row = self.brokers[one], self.row
        if broker.is_down:
            return
        if row.master_epoch > broker.epoch or (row.master == one and not broker.is_master):
            broker.epoch = row.master_epoch
            broker.is_master = row.master == one
            broker.confirmed, broker.asked, broker.lives = {}, None, {}
            if broker.is_master:
                assert row.in_sync == (one,), "somebody has been it in this epoch"
                broker.began = row.master_epoch
        if broker.is_master and row.master == one and row.in_sync_epoch > broker.set_epoch:
            is_next = row.in_sync_epoch == broker.set_epoch + 1 or not self.counts_changes
            has_let_in = broker.asked == row.in_sync and len(row.in_sync) > len(broker.members)
            has_let_in = has_let_in and is_next
            broker.members, broker.set_epoch = row.in_sync, row.in_sync_epoch
            broker.asked = None
            for other in () if has_let_in or not self.drops_outsiders else IDS:
                if other not in row.in_sync:
                    broker.confirmed.pop(other, None)
                    broker.lives[other] = self.brokers[other].life

    def follow(self, one, master, count):
        """Have a slave cut what it has not in common with a master of its epoch, and copy."""
        slave, leader = self.brokers[one], self.brokers[master]
        if slave.is_master or not leader.is_master or slave.epoch != leader.epoch:
            return
        if slave.is_down:
            return
        common = 0
        for mine, its in zip(slave.log, leader.log, strict=False):
            if mine != its:
                break
            common += 1
        slave.log = leader.log[: max(common, min(len(leader.log), common + count))]
        slave.began = max(slave.began, slave.epoch)
        self.late.append((one, master, slave.epoch, len(slave.log), slave.life))

    def confirm(self, number):
        """Have a report of a slave arrive, maybe late or a second time."""
        if self.late:
            one, master, epoch, length, life = self.late[number % len(self.late)]
            leader = self.brokers[master]
            is_open = life >= leader.lives.get(one, 0)
            if leader.is_master and leader.epoch == epoch and is_open:
                leader.confirmed[one] = max(leader.confirmed.get(one, 0), length)

    def ask(self, one, members):
        """Have a master ask for another in-sync set; whom it adds has all that it acknowledged."""
        broker = self.brokers[one]
        if broker.is_master and broker.asked is None:
            acked = self._confirmed(broker, one, broker.members)
            enough = all(
                member in broker.members or broker.confirmed.get(member, 0) >= acked
                for member in members
            )
            if enough:
                broker.asked = tuple(sorted({one, *members}))
                self.requests.append(
                    AlterInSync(
                        group="g", master=one, master_epoch=broker.epoch,
                        in_sync_epoch=broker.set_epoch, in_sync=broker.asked, alive=IDS,
                    )
                )  # fmt: skip

    def alter(self, number):
        """Have a request arrive at the controller, maybe late or again; `learn` brings the rest."""
        if self.requests:
            self.machine.apply(self.requests[number % len(self.requests)])

    def _confirmed(self, broker, one, members):
        return min(
            (len(broker.log) if member == one else broker.confirmed.get(member, 0))
            for member in {one, *members}
        )

    def ack(self, one):
        """Have a master acknowledge as much as it may."""
        broker = self.brokers[one]
        if not broker.is_master or not broker.members:
            return
        asked = broker.asked or () if self.waits_for_asked else ()
        log = broker.log[: self._confirmed(broker, one, (*broker.members, *asked))]
        if len(log) > len(self.acked):
            assert log[: len(self.acked)] == self.acked, "two histories were acknowledged"
            self.acked = log

    def restart(self, one):
        """Have a broker stop and start: it has its log, and is no master."""
        broker = self.brokers[one]
        broker.is_master = broker.is_down = False
        self.machine.apply(
            Register(
                group="g", cluster="C", id=one, address=f"h:{one}", may_lack_end=broker.has_lost,
                last_epoch=broker.began,
            )
        )  # fmt: skip
        broker.has_lost = False

    def lose(self, one, count):
        """Have a broker lose its power, with the end of its log if others keep what counts."""
        others = [
            other
            for number, other in self.brokers.items()
            if number != one and number in self.row.in_sync and not other.is_down
        ]
        kept = any(other.log[: len(self.acked)] == self.acked for other in others)
        if not kept or any(other.has_lost for other in self.brokers.values()):
            count = 0  # all was synced; nobody knows that
        broker = self.brokers[one]
        broker.log = broker.log[: max(len(broker.log) - count, 0)]
        broker.life += 1
        broker.is_master, broker.is_down, broker.has_lost = False, True, True


def work(rng, master, slave):
    """Return a message that a slave copies and its master acknowledges."""
    return [
        ("send", master), ("follow", slave, master, 3), ("confirm", -1 - rng.randrange(2)),
        ("ack", master),
    ]  # fmt: skip


def join(rng, master, slave):
    """Return a slave's way into the in-sync set."""
    others = [one for one in IDS if rng.random() < 0.5]
    return [
        ("learn", slave), ("follow", slave, master, 9), ("confirm", -1),
        ("ask", master, [slave, *others]), ("alter", -1 - rng.randrange(2)), ("learn", master),
    ]  # fmt: skip


def switch(rng, master, slave):
    """Return the end of a master, for the controller at least, and what the next one does."""
    alive = [one for one in IDS if one != master or rng.random() < 0.2]
    rng.shuffle(alive)
    return [("elect", tuple(alive)), ("learn", slave), *(("learn", one) for one in alive)]


def shrink(rng, master, slave):
    """Return the end of a slave's membership."""
    staying = [one for one in IDS if one != slave]
    late = ("alter", -1 - rng.randrange(4))
    return [("ask", master, staying), ("alter", -1), ("learn", master), late]


def cut_short(rng, master, slave):
    """Return a loss of power, what is done before anybody knows of it, and the way back."""
    one, other = rng.sample((master, slave), 2)
    steps = [("lose", one, rng.randrange(4))]
    steps += [step for step in (("ask", other, [one]), ("alter", -1)) if rng.random() < 0.5]
    steps += [("restart", other), ("elect", (one,))] if rng.random() < 0.5 else []
    return [*steps, ("restart", one), ("learn", other), ("alter", -1), ("learn", one)]


def restart(_rng, master, slave):
    return [("restart", slave), ("restart", master), ("learn", slave), ("learn", master)]


def draw(seed, losses=0.0):
    """Return steps: what brokers do, in pieces of which some steps are lost and some moved."""
    rng = random.Random(seed)
    steps = [("elect", IDS), *(("learn", one) for one in IDS)]
    for _ in range(rng.randrange(10, 50)):
        kinds = (work, join, switch, shrink, restart, cut_short)
        kind = rng.choices(kinds, (8, 4, 2, 1, 0.3, losses))[0]
        master, slave = rng.sample(IDS, 2)
        found = [step for step in kind(rng, master, slave) if rng.random() < 0.9]
        if rng.random() < 0.1:
            rng.shuffle(found)
        steps += found
    return steps


def run(group, steps):
    """Take the steps; return how many messages were acknowledged."""
    for number, (kind, *rest) in enumerate(steps):
        if kind == "elect":
            group.elect(rest[0], group.row.master_epoch)
        elif kind == "send":
            broker = group.brokers[rest[0]]
            if broker.is_master:
                broker.log.append((broker.epoch, number))
        elif kind == "ask":
            group.ask(rest[0], tuple(rest[1]))
        else:
            getattr(group, kind)(*rest)
    return len(group.acked)


def campaign(seeds, losses=0.0, **options):
    """Run groups; return how many messages were acknowledged, and how many masters there were."""
    acked = masters = 0
    for seed in range(seeds):
        group = Group(**options)
        acked += run(group, draw(seed, losses))
        masters += group.row.master_epoch
    return acked, masters


def test_nothing_acknowledged_is_lost_by_an_election():
    acked, masters = campaign(2_000)
    assert acked > 4_000
    assert masters > 3_000


@pytest.mark.parametrize("name", ["elected-though-not-in-sync", "in-sync-set-not-compared"])
def test_the_same_groups_lose_messages_by_a_planted_bug(name):
    with planted(BY_TESTS[name]), pytest.raises(AssertionError, match="acknowledged"):
        campaign(2_000)


def test_the_same_groups_lose_messages_if_a_master_does_not_wait_for_whom_it_adds():
    with pytest.raises(AssertionError, match="acknowledged"):
        campaign(2_000, waits_for_asked=False)


def test_nothing_acknowledged_is_lost_with_the_power_while_one_in_sync_is_whole():
    acked, masters = campaign(1_500, losses=2.0)
    assert acked > 1_500
    assert masters > 2_000


@pytest.mark.parametrize(
    "name",
    [
        "lost-end-stays-in-sync", "lost-end-let-in-by-an-earlier-request",
        "elected-in-absence-has-the-office", "reserve-of-a-master-in-office",
    ],
)  # fmt: skip
def test_groups_that_lose_power_lose_messages_by_a_planted_bug(name):
    with planted(BY_TESTS[name]), pytest.raises(AssertionError, match="acknowledged"):
        campaign(3_000, losses=2.0)


def test_groups_lose_messages_if_what_was_confirmed_before_a_loss_of_power_lets_somebody_in():
    with pytest.raises(AssertionError, match="acknowledged"):
        campaign(3_000, losses=2.0, drops_outsiders=False)


def let_in_by_what_it_had(**options):
    """Have 1 hear at once that 2 was let in, and that 3 has lost the end of its log since."""
    copied = [step for one in (2, 3) for step in (("follow", one, 1, 9), ("confirm", -1))]
    started = [("elect", IDS), *(("learn", one) for one in IDS), ("send", 1), *copied, ("ack", 1)]
    changed = [("ask", 1, [2]), ("alter", -1), ("lose", 3, 1), ("restart", 3), ("learn", 1)]
    again = [("learn", 3), ("ask", 1, [2, 3]), ("alter", -1), ("learn", 1), ("elect", (3,))]
    return run(Group(**options), [*started, *changed, *again])


def test_what_was_confirmed_before_a_loss_that_is_heard_of_late_lets_nobody_in():
    assert let_in_by_what_it_had() == 1
    with pytest.raises(AssertionError, match="acknowledged"):
        let_in_by_what_it_had(counts_changes=False)


def kept_when_all_lose_power(seed):
    """Return how much of what was acknowledged the next master has, and how much the living had."""
    group, rng = Group(), random.Random(seed)
    run(group, draw(seed))
    for broker in group.brokers.values():
        broker.log = broker.log[: max(len(broker.log) - rng.randrange(4), 0)]
        broker.is_master, broker.is_down, broker.has_lost = False, True, True
    back = rng.sample(IDS, rng.choice((2, 3)))
    for one in back:
        group.restart(one)
    if not group.row.in_doubt:
        return 0, 0  # who was in sync last did not come back
    had = {one: common(group.brokers[one].log, group.acked) for one in back}
    alive = tuple(sorted(back, key=group.has_most))
    elected = group.machine.apply(
        Elect(group="g", master_epoch=group.row.master_epoch, alive=alive)
    )
    assert elected.code is Code.SUCCESS
    return had[elected.group.master], max(had.values())


def common(log, acked):
    return next(
        (n for n, pair in enumerate(zip(log, acked, strict=False)) if pair[0] != pair[1]),
        min(len(log), len(acked)),
    )


def test_where_all_lose_their_power_no_more_is_lost_than_has_to_be():
    found = [kept_when_all_lose_power(seed) for seed in range(400)]
    assert all(kept == had for kept, had in found)
    assert sum(had > 0 for _, had in found) > 100
    with planted(BY_TESTS["last-cut-elected"]):
        assert not all(kept == had for kept, had in map(kept_when_all_lose_power, range(400)))


def switched():
    """Return steps to a group with 1 as master of epoch 1, 2 in sync, and one message."""
    return [
        ("elect", (1,)), ("learn", 1), ("learn", 2), ("learn", 3), ("follow", 2, 1, 0),
        ("confirm", 0), ("ask", 1, [2]), ("alter", -1), ("learn", 1), ("send", 1),
        ("follow", 2, 1, 3), ("confirm", 1), ("ack", 1),
    ]  # fmt: skip


def test_the_steps_of_a_plain_switch_acknowledge_and_elect():
    group = Group()
    assert run(group, switched()) == 1
    run(group, [("elect", (2, 3)), ("learn", 2), ("send", 2), ("ack", 2)])
    assert (group.row.master, group.row.master_epoch) == (2, 2)


def test_a_former_master_acknowledges_nothing_more_once_another_one_is_elected():
    group = Group()
    run(group, [*switched(), ("elect", (2,)), ("learn", 2), ("send", 1), ("follow", 2, 1, 3)])
    assert run(group, [("confirm", 2), ("ack", 1)]) == 1


def test_a_master_that_does_not_wait_for_whom_it_adds_loses_messages():
    """The change is applied, its answer is late: RocketMQ issue 5663."""
    steps = [
        ("elect", (1,)), ("learn", 1), ("learn", 2), ("follow", 2, 1, 0), ("confirm", 0),
        ("ask", 1, [2]), ("alter", -1), ("send", 1), ("ack", 1), ("elect", (2,)),
    ]  # fmt: skip
    assert run(Group(), steps) == 0
    with pytest.raises(AssertionError, match="lost by an election"):
        run(Group(waits_for_asked=False), steps)


def test_an_election_of_one_that_was_not_in_sync_loses_messages():
    steps = [*switched(), ("elect", (3,))]
    run(Group(), steps)
    with (
        planted(BY_TESTS["elected-though-not-in-sync"]),
        pytest.raises(AssertionError, match="lost by an election"),
    ):
        run(Group(), steps)
