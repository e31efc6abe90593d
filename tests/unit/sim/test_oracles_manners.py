"""Who hears its leader deposes nobody; who was removed leads no more."""

from types import SimpleNamespace

import pytest

from dledger.core.messages import PreVoteReply
from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.manners import DISTURBED, REMOVED, Manners
from sim.oracles.replica import Change

TIMEOUT = 10


def replica(silent=3, leader="n0", watched=False, term=3, role=Role.FOLLOWER, led=5):
    return SimpleNamespace(
        name="n1",
        disk=SimpleNamespace(is_watched=watched),
        state=SimpleNamespace(
            term=term, tick=100, contact_tick=100 - silent, leader_id=leader, role=role,
            barrier_tick=100 - led,
            config=SimpleNamespace(election_ticks_min=TIMEOUT, election_ticks_max=2 * TIMEOUT),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("speaker", "granted", "is_sound"),
    [
        (replica(), True, False),
        (replica(), False, True),
        (replica(silent=TIMEOUT), True, True),
        (replica(silent=0), True, True),
        (replica(leader=None), True, True),
        (replica(watched=True), True, True),
        (replica(term=4), True, True),
        (replica(silent=TIMEOUT, role=Role.LEADER), True, False),
        (replica(silent=TIMEOUT, role=Role.LEADER, led=0), True, True),
    ],
)
def test_no_pre_vote_is_given_against_a_leader_that_is_heard(speaker, granted, is_sound):
    manners = Manners(SimpleNamespace())
    message = PreVoteReply("n1", "n2", 4, granted)
    if is_sound:
        manners.on_message(speaker, message)
    else:
        with pytest.raises(Violation, match=DISTURBED):
            manners.on_message(speaker, message)


def test_a_pre_vote_may_leave_once_the_disk_that_held_it_up_is_sound_again():
    manners, message = Manners(SimpleNamespace()), PreVoteReply("n1", "n2", 4, granted=True)
    manners.on_message(replica(watched=True), message)
    late = replica()
    late.state.tick += 2 * TIMEOUT - 1
    late.state.contact_tick += 2 * TIMEOUT - 1
    manners.on_message(late, message)
    late.state.tick += 1
    with pytest.raises(Violation, match=DISTURBED):
        manners.on_message(late, message)


@pytest.mark.parametrize(
    ("latest", "committed", "role", "is_sound"),
    [
        ("n0 n2", "n0 n2", Role.LEADER, False),
        ("n0 n2", "n0 n2", Role.FOLLOWER, True),
        ("n0 n2", "n0 n1 n2", Role.LEADER, True),
        ("n0 n1 n2", "n0 n2", Role.LEADER, True),
    ],
)
def test_a_leader_that_was_removed_steps_down_once_that_is_committed(
    latest, committed, role, is_sound
):
    voters = {None: tuple(latest.split()), 7: tuple(committed.split())}
    truth = SimpleNamespace(
        configurations={(3, 1): voters[None]}, voters_of=lambda _one, last=None: voters[last]
    )
    key = (role, 2, 7, 7, 2, 7, 7)
    change = Change((role, 2, 6, 7, 2, 7, 7), key, 7, 7)
    if is_sound:
        Manners(truth).on_change(replica(), change)
    else:
        with pytest.raises(Violation, match=REMOVED):
            Manners(truth).on_change(replica(), change)
