"""A controller grants the in-sync set that was asked for, and doubts no log without a reason."""

import json

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.commands import AlterInSync, ApplyId, Code, Elect, Register
from namesrv.controller.machine import Machine
from sim.disk import SimDisk
from sim.oracles.base import Findings, Violation
from sim.rng import SplitRng
from sim.switch.decisions import Decisions
from sim.switch.replica import IDENTITY_FILE
from sim.switch.replicas import Replicas

NAME = "pair"


class Controllers:
    """One controller, and who judges it."""

    def __init__(self, on_change=lambda *_: None):
        self.machine = Machine()
        self.decisions = Decisions(NAME, on_change)
        self.index = 0
        for one in (1, 2):
            code, address = f"code{one}", f"10.0.0.{one}:10911"
            self.apply(ApplyId(group=NAME, cluster="c", id=one, check_code=code))
            self.apply(Register(group=NAME, cluster="c", id=one, check_code=code, address=address))
        self.apply(Elect(group=NAME, master_epoch=0, alive=(1, 2), wanted=1))

    def apply(self, command):
        self.index += 1
        outcome = self.machine.apply(command)
        self.decisions.on_applied("ns0", self.index, self.machine, command, outcome)
        return outcome

    def ask(self, *members, epoch=1, alive=(1, 2)):
        """Ask for an in-sync set as the master of an epoch."""
        return self.apply(
            AlterInSync(
                group=NAME, master=1, master_epoch=epoch, in_sync=members, alive=alive,
                in_sync_epoch=self.machine.groups[NAME].in_sync_epoch,
            )
        )  # fmt: skip


def test_sets_that_are_granted_or_refused_are_sound():
    controllers = Controllers()
    assert controllers.ask(1, 2).code is Code.SUCCESS
    assert controllers.ask(1, 2).code is Code.SUCCESS
    assert controllers.ask(2, 1).code is Code.SUCCESS
    assert controllers.ask(1).code is Code.SUCCESS
    assert controllers.ask(1, 2, epoch=2).code is not Code.SUCCESS
    assert controllers.ask(1, 2, alive=(1,)).code is not Code.SUCCESS
    assert controllers.machine.groups[NAME].in_sync == (1,)
    assert controllers.decisions.last == controllers.index


def test_a_set_that_never_shrinks_is_noticed():
    controllers = Controllers()
    controllers.ask(1, 2)
    with (
        planted(BY_TESTS["switch-set-never-shrinks"]),
        pytest.raises(Violation, match="A36 another in-sync set than was asked for"),
    ):
        controllers.ask(1)


def test_what_another_group_is_granted_says_nothing():
    controllers = Controllers()
    controllers.apply(ApplyId(group="other", cluster="c", id=1, check_code="code"))
    address = "10.0.0.9:10911"
    controllers.apply(
        Register(group="other", cluster="c", id=1, check_code="code", address=address)
    )
    controllers.apply(Elect(group="other", master_epoch=0, alive=(1,), wanted=1))
    asked = AlterInSync(
        group="other", master=1, master_epoch=1, in_sync=(1,), alive=(1,), in_sync_epoch=1
    )
    assert controllers.apply(asked).code is Code.SUCCESS


def elected_of_two_in_doubt():
    """Return who is elected of two that may both lack something, of which 1 has more."""
    controllers = Controllers()
    controllers.ask(1, 2)
    for one in (1, 2):
        address = f"10.0.0.{one}:10911"
        controllers.apply(
            Register(
                group=NAME, cluster="c", id=one, check_code=f"code{one}", address=address,
                may_lack_end=True, last_epoch=1,
            )
        )  # fmt: skip
    controllers.apply(Elect(group=NAME, master_epoch=1, alive=(1, 2)))
    return controllers.machine.groups[NAME].master


def test_an_election_of_who_has_less_is_noticed():
    assert elected_of_two_in_doubt() == 1
    with (
        planted(BY_TESTS["last-cut-elected"]),
        pytest.raises(Violation, match="A36 elected though another one has more"),
    ):
        elected_of_two_in_doubt()


def make_replicas():
    """Return what judges two brokers with ids 1 and 2, of which nothing has run."""
    disks = {f"n{one}": SimDisk(SplitRng(one)) for one in (1, 2)}
    for one in (1, 2):
        disks[f"n{one}"].make_directories("/store")
        disks[f"n{one}"].replace(IDENTITY_FILE, json.dumps({"brokerId": one}).encode())
    return Replicas(
        disks, dict.fromkeys(disks, False), 1 << 20, Findings(),
        broker_at=lambda address: f"n{address[7]}", now_ns=lambda: 0, count=lambda _: None,
    )  # fmt: skip


def doubted(*without_power):
    """Let some lose their power, and all come back; return what is found, and of an election."""
    replicas = make_replicas()
    controllers = Controllers(replicas.on_decided)
    controllers.ask(1, 2)
    told = []
    for one in (1, 2):
        if one in without_power:
            replicas.on_power_loss(f"n{one}")
        address = f"10.0.0.{one}:10911"
        comes_back = Register(
            group=NAME, cluster="c", id=one, check_code=f"code{one}", address=address,
            may_lack_end=one in without_power, last_epoch=1,
        )  # fmt: skip
        try:
            controllers.apply(comes_back)
        except Violation as broken:
            told.append(str(broken))
    assert controllers.machine.groups[NAME].master == 0
    assert controllers.apply(Elect(group=NAME, master_epoch=1, alive=(2, 1))).changed
    return told + [str(one) for one in replicas.findings.all]


def test_a_set_is_in_doubt_only_if_all_of_it_lost_their_power():
    assert not doubted()
    assert not doubted(2)
    assert not doubted(2, 1)
    with planted(BY_TESTS["controller-doubts-whoever-is-left"]):
        found = doubted(2)
    assert any("A36 decided otherwise than the rules say" in one for one in found)
    assert any("A36 in doubt without" in one for one in found)
