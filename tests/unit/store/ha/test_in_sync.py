"""What counts where a controller keeps an in-sync set: the real rules of both, in a model.

Messages between master and controller, and between master and slave, come late, twice, or never;
masters are elected, slaves fall behind and catch up. Nothing that counted is ever lost.
"""

from __future__ import annotations

import random

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import Mutant, planted
from namesrv.controller.commands import AlterInSync, ApplyId, Code, Elect, Register
from namesrv.controller.machine import Machine
from store.ha.switch.in_sync import GONE_MS, HOLD_MS, InSync

IDS = (1, 2, 3)
BEHIND_MS = 1_500


def three(**settings: int) -> InSync:
    """Return what a master has with 1 and 2 in sync, and 3 behind."""
    found = InSync(1, BEHIND_MS, **settings)
    found.on_decided((1,), 1)
    for one in (2, 3):
        found.on_connected(one, 0)
    found.on_confirmed(2, 100, 0, 100)
    found.on_decided((1, 2), 2)
    return found


def test_what_the_whole_set_has_counts() -> None:
    found = three()
    assert found.limit(500) == 100
    found.on_confirmed(3, 500, 10, 500)
    assert found.limit(500) == 100, "3 is not in the set"
    found.on_confirmed(2, 400, 20, 500)
    assert found.limit(500) == 400
    found.on_confirmed(2, 300, 30, 500)  # late
    assert found.limit(500) == 400
    assert found.limit(350) == 350, "the own disk has no more"


def test_whoever_is_asked_for_counts_before_the_answer_and_nobody_is_left_out_before_it() -> None:
    found = three()
    found.on_confirmed(2, 500, 20, 500)
    found.on_confirmed(3, 500, 20, 500)
    assert found.wanted(500, 30) == {1, 2, 3}
    found.ask(frozenset({1, 2, 3}))
    found.on_confirmed(2, 700, 40, 700)
    assert found.limit(700) == 500, "3 may be elected from now on"
    assert found.wanted(500, 40) is None, "one request at a time"
    found.on_decided((1, 2, 3), 3)
    assert found.limit(700) == 500
    assert found.wanted(500, 40 + BEHIND_MS) == {1}  # 2 has what there was, and 3 even less
    found.ask(frozenset({1}))
    assert found.limit(900) == 500, "only the controller lets somebody go"
    found.on_decided((1,), 4)
    assert found.limit(900) == 900


def test_a_request_that_nobody_answered_may_be_granted_until_the_set_is_another_one() -> None:
    found = three()
    for one in (2, 3):
        found.on_confirmed(one, 500, 20, 500)
    found.ask(frozenset({1, 2, 3}))
    found.on_unanswered()
    found.on_confirmed(2, 700, 30, 700)
    assert found.limit(700) == 500
    found.ask(frozenset({1, 2, 3}))
    found.on_refused(0)  # the second one; the first may come yet
    assert found.limit(700) == 500
    assert found.is_unclear
    found.on_decided((1, 2), 2)  # known, says nothing
    assert found.limit(700) == 500
    found.on_decided((1, 2), 3)
    assert found.limit(700) == 700


def test_a_request_that_another_decision_overtook_is_not_unclear() -> None:
    found = three()
    found.on_confirmed(3, 100, 20, 100)
    found.ask(frozenset({1, 2, 3}))
    found.on_decided((1, 2, 3), 3)  # learned otherwise; the answer never comes
    found.on_unanswered()
    assert not found.is_unclear


def let_in_beside_one_that_is_refused() -> bool:
    found = InSync(1, BEHIND_MS)
    found.on_decided((1,), 1)
    for now_ms in range(0, 1_000, 100):
        for one in (2, 3):
            found.on_connected(one, now_ms)
            found.on_confirmed(one, 500, now_ms, 500)
        wanted = found.wanted(500, now_ms)
        if wanted is None:
            continue
        found.ask(wanted)
        if 2 in wanted:
            found.on_refused(now_ms)
        else:
            found.on_decided(wanted, found.set_epoch + 1)
    return found.members == {1, 3}


def test_a_slave_that_is_always_refused_keeps_nobody_out() -> None:
    assert let_in_beside_one_that_is_refused()
    with planted(BY_TESTS["switch-one-refused-shuts-out-all"]):
        assert not let_in_beside_one_that_is_refused()


def let_in_amid_sends(until_ms: int, *, hangs_ms: int = 10**9) -> tuple[bool, int]:
    """Return whether 2, which has each entry some milliseconds after 1, is let in; and a delay.

    That is the longest time for which nothing counted. 2 hangs from ``hangs_ms`` on.
    """
    found, counted, counted_ms, longest_ms = InSync(1, BEHIND_MS), 0, 0, 0
    found.on_decided((1,), 1)
    found.on_connected(2, 0)
    for now_ms in range(until_ms):
        end, its = 9 + now_ms, 5 + min(now_ms, hangs_ms)
        found.on_confirmed(2, its, now_ms, end)
        if (limit := found.limit(end)) > counted:
            counted, counted_ms = limit, now_ms
        longest_ms = max(longest_ms, now_ms - counted_ms)
        if now_ms % 100 == 0 and (wanted := found.wanted(counted, now_ms)):
            assert its >= counted, "who is asked for has all that counts"
            found.ask(wanted)
            found.on_decided(wanted, found.set_epoch + 1)
    return found.members == {1, 2}, longest_ms


def test_a_slave_is_let_in_though_entries_follow_each_other_without_a_pause() -> None:
    assert let_in_amid_sends(10_000) == (True, 4)
    is_in, longest_ms = let_in_amid_sends(10_000, hangs_ms=1_900)
    assert not is_in
    assert longest_ms < HOLD_MS + 200, "who hangs holds nothing up for long"
    with planted(BY_TESTS["switch-let-in-in-a-pause-only"]):
        assert let_in_amid_sends(10_000) == (False, 0)


def test_a_slave_that_entries_wait_for_holds_nothing_up_once_it_is_gone() -> None:
    found = InSync(1, BEHIND_MS)
    found.on_decided((1,), 1)
    found.on_connected(2, 0)
    for now_ms in range(0, 10_000, 100):
        if not found.is_holding:
            found.on_confirmed(2, 500, now_ms, 500)
            assert found.wanted(900, now_ms) is None
    assert (found.is_holding, found.limit(900)) == (True, 500)
    found.on_gone(2, 10_000)
    assert (found.is_holding, found.limit(900)) == (False, 900)


def let_in_with_a_lost_tail() -> bool:
    """Return whether 2 is asked for though it lost a part of what counts while it was out."""
    found = three()
    found.on_confirmed(2, 500, 10, 500)
    found.on_gone(2, 20)
    found.on_decided((1,), 3)
    found.on_connected(2, 30)
    found.on_confirmed(2, 400, 40, 500)
    return found.wanted(500, 50) == {1, 2}


def test_a_slave_that_lost_its_tail_is_not_let_in() -> None:
    assert not let_in_with_a_lost_tail()
    with planted(BY_TESTS["switch-confirmed-before-it-came-again"]):
        assert let_in_with_a_lost_tail()


def test_what_was_confirmed_over_an_earlier_connection_counts_no_more() -> None:
    found = three()
    found.on_confirmed(2, 500, 10, 500)
    found.on_gone(2, 20)
    found.on_connected(2, 30)
    assert found.limit(500) == 0, "it may have lost it"
    with planted(BY_TESTS["confirmed-before-it-reconnected"]):
        planted_in = three()
        planted_in.on_confirmed(2, 500, 10, 500)
        planted_in.on_gone(2, 20)
        planted_in.on_connected(2, 30)
        assert planted_in.limit(500) == 500
    found.on_confirmed(2, 400, 40, 500)
    assert found.limit(500) == 400
    found.on_gone(3, 50)
    assert [row["id"] for row in found.status(500)] == [2], "who is in no set is forgotten"


def test_a_refused_request_is_forgotten() -> None:
    found = three()
    for one in (2, 3):
        found.on_confirmed(one, 500, 20, 500)
    found.ask(frozenset({1, 2, 3}))
    found.on_refused(0)
    found.on_confirmed(2, 700, 30, 700)
    assert found.limit(700) == 700


def test_nothing_counts_without_the_controllers_word_or_with_too_few() -> None:
    found = InSync(1, BEHIND_MS)
    assert found.limit(500) == 0
    found.on_decided((1,), 1)
    assert found.limit(500) == 500
    found.is_open = False
    assert found.limit(500) == 0
    few = InSync(1, BEHIND_MS, count_min=2)
    few.on_decided((1,), 1)
    assert few.limit(500) == 0


def test_a_slave_without_a_connection_is_behind_soon_and_one_that_lags_later() -> None:
    found = three()
    found.on_confirmed(2, 500, 100, 500)
    found.on_gone(2, 200)
    assert found.wanted(500, 200 + GONE_MS - 1) is None
    assert found.wanted(500, 200 + GONE_MS) == {1}
    found.on_connected(2, 1_300)
    assert found.wanted(500, 1_400) is None
    found.on_confirmed(2, 600, 1_500, 900)  # it moves, and has never caught up
    assert found.wanted(600, 100 + BEHIND_MS) == {1}


def test_who_lacks_what_counts_is_not_let_in() -> None:
    found = three()
    found.on_confirmed(2, 500, 20, 500)
    found.on_confirmed(3, 499, 20, 500)
    assert found.wanted(500, 30) is None
    found.on_gone(3, 40)
    found.on_confirmed(3, 500, 40, 500)
    assert found.wanted(500, 50) is None, "it is not there"


class Broker:
    """A log with the epoch of each message, and what it is as a master."""

    def __init__(self, one: int) -> None:
        self.one = one
        self.log: list[tuple[int, int]] = []
        self.epoch = 0
        self.set: InSync | None = None
        self.counted = 0


class Model:
    """Brokers over the controller's rules and ours; ``acked`` is what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = Machine()
        self.brokers = {one: Broker(one) for one in IDS}
        self.acked: list[tuple[int, int]] = []
        self.requests: list[AlterInSync] = []
        self.reports: list[tuple[int, int, int, int]] = []
        self.now_ms = self.number = self.masters = 0
        for one in IDS:
            self.machine.apply(ApplyId(group="g", cluster="C", id=one, check_code=f"c{one}"))
            self.machine.apply(Register(group="g", cluster="C", id=one, address=f"h:{one}"))

    def elect(self) -> None:
        group = self.machine.groups["g"]
        alive = [one for one in IDS if one != group.master and self.rng.random() < 0.8]
        self.rng.shuffle(alive)
        done = self.machine.apply(
            Elect(group="g", master_epoch=group.master_epoch, alive=tuple(alive))
        )
        if done.code is not Code.SUCCESS:
            return
        group = self.machine.groups["g"]
        chosen = self.brokers[group.master]
        log = chosen.log
        assert log[: len(self.acked)] == self.acked, "acknowledged, and lost by an election"
        self.masters += 1
        chosen.epoch = group.master_epoch
        chosen.set = InSync(chosen.one, BEHIND_MS)
        chosen.set.on_decided(group.in_sync, group.in_sync_epoch)
        chosen.counted = len(log)  # its set is itself

    def send(self) -> None:
        for broker in self.brokers.values():
            if broker.set is not None and self.rng.random() < 0.7:
                self.number += 1
                broker.log.append((broker.epoch, self.number))

    def follow(self) -> None:
        slave, master = self.rng.sample(sorted(IDS), 2)
        mine, its = self.brokers[slave], self.brokers[master]
        if its.set is None or its.epoch < mine.epoch:
            return
        if its.epoch > mine.epoch:
            mine.set = None
        if mine.set is not None:
            return
        mine.epoch = its.epoch
        common = 0
        for a, b in zip(mine.log, its.log, strict=False):
            if a != b:
                break
            common += 1
        del mine.log[common:]
        mine.log += its.log[common : common + self.rng.randrange(1, 5)]
        its.set.on_connected(slave, self.now_ms)
        self.reports.append((slave, master, its.epoch, len(mine.log)))

    def report(self) -> None:
        if not self.reports:
            return
        slave, master, epoch, position = self.rng.choice(self.reports[-6:])
        leader = self.brokers[master]
        if leader.set is not None and leader.epoch == epoch:
            leader.set.on_confirmed(slave, position, self.now_ms, len(leader.log))

    def tend(self) -> None:
        group = self.machine.groups["g"]
        for broker in self.brokers.values():
            found = broker.set
            if found is None:
                continue
            wanted = found.wanted(broker.counted, self.now_ms)
            if wanted is not None:
                found.ask(wanted)
                request = AlterInSync(
                    group="g", master=broker.one, master_epoch=broker.epoch,
                    in_sync_epoch=found.set_epoch, in_sync=tuple(sorted(wanted)), alive=IDS,
                )  # fmt: skip
                self.requests.append(request)
                self.answer(broker, request)
            elif self.rng.random() < 0.3 and group.master_epoch == broker.epoch:
                found.on_decided(group.in_sync, group.in_sync_epoch)

    def answer(self, broker: Broker, request: AlterInSync) -> None:
        assert broker.set is not None
        how = self.rng.random()
        if how < 0.2:
            broker.set.on_unanswered()  # and it comes late, or never
            return
        done = self.machine.apply(request)
        if how < 0.4:
            broker.set.on_unanswered()
        elif done.code is Code.SUCCESS and done.group is not None:
            broker.set.on_decided(done.group.in_sync, done.group.in_sync_epoch)
        else:
            broker.set.on_refused(0)

    def late(self) -> None:
        if self.requests:
            self.machine.apply(self.rng.choice(self.requests[-4:]))

    def lose(self) -> None:
        for broker in self.brokers.values():
            if broker.set is not None and self.rng.random() < 0.3:
                broker.set.on_gone(self.rng.choice(IDS), self.now_ms)

    def lose_tail(self) -> None:
        """Have a slave that is in no set lose the end of its log; it comes again later."""
        sets = [frozenset(self.machine.groups["g"].in_sync)] + [
            found.members | found._pending for one in self.brokers.values() if (found := one.set)
        ]
        out = [
            broker
            for one, broker in self.brokers.items()
            if broker.set is None and broker.log and not any(one in members for members in sets)
        ]
        if out:
            broker = self.rng.choice(out)
            del broker.log[self.rng.randrange(len(broker.log)) :]
            self.reports = [report for report in self.reports if report[0] != broker.one]
            for other in self.brokers.values():
                if other.set is not None and other.set.follows(broker.one):
                    other.set.on_gone(broker.one, self.now_ms)

    def count(self) -> None:
        for broker in self.brokers.values():
            if broker.set is None:
                continue
            broker.counted = max(broker.counted, broker.set.limit(len(broker.log)))
            log = broker.log[: broker.counted]
            if len(log) > len(self.acked):
                assert log[: len(self.acked)] == self.acked, "two histories were acknowledged"
                self.acked = log

    def run(self) -> None:
        steps = (
            [self.send] * 4 + [self.follow] * 8 + [self.report] * 8 + [self.tend] * 4
            + [self.count] * 4 + [self.late, self.lose, self.lose_tail, self.elect]
        )  # fmt: skip
        self.elect()
        for _ in range(150):
            self.now_ms += self.rng.randrange(120)
            self.rng.choice(steps)()


def campaign(seeds: int) -> tuple[int, int]:
    acked = masters = 0
    for seed in range(seeds):
        model = Model(seed)
        model.run()
        acked += len(model.acked)
        masters += model.masters
    return acked, masters


def test_nothing_that_counted_is_lost() -> None:
    acked, masters = campaign(1_500)
    assert acked > 10_000
    assert masters > 2_000


@pytest.mark.parametrize(
    "bug",
    [
        BY_TESTS["switch-acknowledged-before-the-set"],
        BY_TESTS["switch-shrunk-before-it-was-decided"],
        BY_TESTS["switch-asked-for-does-not-count"], BY_TESTS["switch-let-in-behind"],
        BY_TESTS["switch-unanswered-taken-for-refused"],
    ],
    ids=lambda bug: bug.name,
)  # fmt: skip
def test_planted_something_is_lost(bug: Mutant) -> None:
    with planted(bug), pytest.raises(AssertionError, match="acknowledged"):
        campaign(1_500)
