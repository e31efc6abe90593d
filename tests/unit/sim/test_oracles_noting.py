"""What a killed process had delivered some time ago is in its checkpoint."""

from types import SimpleNamespace

import pytest

from dledger.codec.properties import Checkpoint, encode_checkpoint
from sim.oracles.base import Violation
from sim.oracles.noting import INSTALL, Noting

TICK_MS = 50
LATE = 42
"""Ticks after which what was delivered is noted: the interval, and a second."""


class Disk:
    """A disk with a checkpoint."""

    def __init__(self, noted):
        self.data = None if noted is None else encode_checkpoint(Checkpoint(noted, noted))
        self.is_watched, self.writes_refused = False, 0
        self.is_disturbed, self.disturbances = False, 0

    def read(self, path):
        return self.data

    def has_failed_syncs(self):
        return False


def replica(noted, first=0):
    return SimpleNamespace(
        name="n0", disk=Disk(noted), is_corrupt=False, checkpoint_path="c", tick_ms=TICK_MS,
        state=SimpleNamespace(tick=0, delivered_index=-1),
        node=SimpleNamespace(
            config=SimpleNamespace(checkpoint_interval_ms=1_000),
            _driver=SimpleNamespace(synced_index=100),
            _store=SimpleNamespace(
                first_index=first, snapshots=SimpleNamespace(replaces_log=False, meta=None)
            ),
        ),
    )  # fmt: skip


def killed(noted, ticks, first=0, **faults):
    """Return whether a kill is a finding, so many ticks after entry 5 was delivered."""
    one, oracle = replica(noted, first), Noting()
    oracle.on_boot(one)
    for tick, index in ((10, 5), (10 + ticks, 9)):
        one.state.tick, one.state.delivered_index = tick, index
        oracle.on_change(one, None)
    for name, value in faults.items():
        setattr(one if hasattr(one, name) else one.disk, name, value)
    try:
        oracle.on_kill(one)
    except Violation as found:
        return found.oracle == Noting.name
    return False


@pytest.mark.parametrize(
    ("noted", "ticks", "faults", "is_found"),
    [
        (5, LATE, {}, False),
        (9, LATE, {}, False),
        (4, LATE, {}, True),
        (None, LATE, {}, True),
        (4, LATE - 2, {}, False),
        (4, LATE, {"first": 6}, False),
        (4, LATE, {"is_watched": True}, False),
        (4, LATE, {"is_corrupt": True}, False),
        (4, LATE, {"writes_refused": 1}, False),
        (4, LATE, {"disturbances": 1}, False),
    ],
)
def test_what_was_delivered_long_ago_is_noted(noted, ticks, faults, is_found):
    assert killed(noted, ticks, **faults) is is_found


def test_another_life_begins_anew():
    one, oracle = replica(None), Noting()
    oracle.on_kill(one)
    one.state.delivered_index = 5
    oracle.on_boot(one)
    oracle.on_change(one, None)
    oracle.on_boot(one)
    one.state.tick = 2 * LATE
    oracle.on_kill(one)


@pytest.mark.parametrize(
    ("begun", "last", "is_found"), [(True, 99, True), (True, 100, False), (False, 99, False)]
)
def test_an_install_that_is_over_is_noted_no_more(begun, last, is_found):
    one, oracle = replica(5), Noting()
    one.node._store.snapshots = SimpleNamespace(
        replaces_log=begun, meta=SimpleNamespace(id=SimpleNamespace(last_index=last))
    )
    if is_found:
        with pytest.raises(Violation, match=INSTALL):
            oracle.on_kill(one)
    else:
        oracle.on_kill(one)
