"""The rules of the controllers, written twice, say the same of commands at random."""

from random import Random

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.controller.commands import AlterInSync, ApplyId, Code, Elect, Register, Remove
from namesrv.controller.machine import Machine
from sim.switch.rules import follows

NAME, IDS = "pair", range(1, 5)


def some(random, ids=IDS):
    return tuple(one for one in ids if random.random() < 0.6)


def command(random, group):
    """Return a command that may well be granted."""
    one = random.choice(IDS)
    base = {"group": NAME}
    epoch = group.master_epoch if group is not None else 0
    epoch += random.random() < 0.1
    wanted = random.choice((0, one))
    cluster = "c" if random.random() < 0.95 else "d"
    code = f"code{one}" if random.random() < 0.9 else "copy"
    alive = list(some(random))
    random.shuffle(alive)
    kind = random.choice(
        (ApplyId, Register, Register, AlterInSync, AlterInSync, Elect, Elect, Remove)
    )
    if kind is ApplyId:
        return ApplyId(**base, cluster=cluster, id=one, check_code=code)
    if kind is Register:
        return Register(
            **base, cluster=cluster, id=one, check_code=random.choice((code, "")),
            address=f"10.0.0.{one}:{random.choice((1, 2))}", other_alive=random.random() < 0.3,
            may_lack_end=random.random() < 0.4, last_epoch=max(0, epoch - random.choice((0, 1, 2))),
        )  # fmt: skip
    if kind is AlterInSync:
        set_epoch = group.in_sync_epoch if group is not None else 0
        return AlterInSync(
            **base, master=(group.master if group is not None else 0) or one, master_epoch=epoch,
            in_sync_epoch=set_epoch + (random.random() < 0.1), in_sync=some(random),
            alive=tuple(alive),
        )  # fmt: skip
    if kind is Elect:
        return Elect(
            **base, master_epoch=epoch, alive=tuple(alive), wanted=wanted,
            designated=bool(wanted) and random.random() < 0.3, unclean=random.random() < 0.2,
        )  # fmt: skip
    return Remove(
        **base, ids=some(random, IDS[2:]), alive=tuple(alive), also_living=random.random() < 0.5
    )


def differences(seed, steps=400):
    """Apply commands, and yield those that end otherwise than the rules say."""
    random, machine = Random(seed), Machine()
    for _ in range(steps):
        before = machine.groups.get(NAME)
        one = command(random, before)
        wanted = follows(before, one)
        outcome = machine.apply(one)
        is_granted = outcome.code is Code.SUCCESS
        if is_granted != (wanted is not None) or machine.groups.get(NAME) != (wanted or before):
            yield one, before, outcome, wanted


@pytest.mark.parametrize("seed", range(20))
def test_both_say_the_same(seed):
    assert next(differences(seed), None) is None


def test_many_commands_are_granted_and_many_refused():
    random, machine = Random(1), Machine()
    codes = [machine.apply(command(random, machine.groups.get(NAME))).code for _ in range(2_000)]
    assert len(set(codes)) > 8
    assert codes.count(Code.SUCCESS) > 300
    assert machine.groups[NAME].master_epoch > 20


def test_who_is_elected_is_judged():
    with planted(BY_TESTS["elected-is-the-last-that-lives"]):
        assert any(next(differences(seed), None) is not None for seed in range(5))
