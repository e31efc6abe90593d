"""A follower that nothing hinders has what its leader had a while ago."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.following import CALM_NS, LAG_NS, NAME, Following

S = 1_000_000_000


def followed(*, last=4, up=True, watched=False, calm_s=10, wait_ns=LAG_NS, term=3, listed=True):
    """Look at a leader twice, whose log ended with entry 5 at first."""
    clock = SimpleNamespace(ns=100 * S)
    disk = SimpleNamespace(is_watched=watched)
    follower = SimpleNamespace(
        name="n1", is_up=up, disk=disk, hangs=lambda: False, is_corrupt=False, last_index=last
    )
    state = SimpleNamespace(term=3, progress={"n1": None} if listed else {})
    leader = SimpleNamespace(name="n0", state=state, last_index=5)
    oracle = Following(
        SimpleNamespace(now_ns=lambda: clock.ns), {"n0": leader, "n1": follower}
    )  # fmt: skip
    oracle.disturbed_ns = lambda: clock.ns - calm_s * S
    oracle.on_tick(leader)
    clock.ns += wait_ns
    leader.last_index, state.term = 9, term
    oracle.on_tick(leader)


def test_a_follower_that_lacks_what_was_there_long_ago_is_left_behind():
    with pytest.raises(Violation, match=NAME):
        followed()


@pytest.mark.parametrize(
    "said",
    [
        {"last": 5},
        {"up": False},
        {"watched": True},
        {"calm_s": (CALM_NS + LAG_NS) // S - 1},
        {"wait_ns": LAG_NS - 1},
        {"term": 4},
        {"listed": False},
    ],
)
def test_who_is_hindered_or_has_it_is_not(said):
    followed(**said)
