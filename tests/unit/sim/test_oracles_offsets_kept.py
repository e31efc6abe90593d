"""An offset that waits while others are written was left out; parts of one record are one."""

from types import SimpleNamespace

import pytest

from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.offsets_kept import IDLE, IDLE_MS, NAME, RECORDS, OffsetsKept

SMALL = {"T@other": {"0": 1}}
PART = {f"T@{'g' * 200}{number}": {"0": 1} for number in range(24)}
"""As large as a broker lets a record become."""


def waiting():
    """Return a leader that keeps an offset waiting."""
    offsets = SimpleNamespace(_pending={"T@g": {0: 5}})
    return SimpleNamespace(
        name="n0",
        is_up=True,
        incarnation=1,
        state=SimpleNamespace(
            role=Role.LEADER,
            term=1,
            tick=0,
            blocked=None,
            transfer=None,
            log=SimpleNamespace(commit_index=3, last_index=3, term_at=lambda _index: 1),
        ),
        disk=SimpleNamespace(is_watched=False),
        hangs=lambda: False,
        is_leaving=False,
        tick_ms=50,
        controller=SimpleNamespace(tables=SimpleNamespace(offsets=offsets)),
    )


def judged(*contents):
    """Let a leader keep an offset waiting while these records of offsets are committed."""
    truth = SimpleNamespace(statements=[], committed={})
    oracle, leader = OffsetsKept(truth), waiting()
    oracle.on_tick(leader)
    for entry, content in enumerate(contents):
        truth.committed[entry] = SimpleNamespace(term=1)
        truth.statements.append(SimpleNamespace(kind="offset", entry=entry, content=content))
    try:
        oracle.on_tick(leader)
    except Violation as found:
        return found.oracle
    return None


@pytest.mark.parametrize(
    ("contents", "oracle"),
    [
        ([SMALL] * (RECORDS - 1), None),
        ([SMALL] * RECORDS, NAME),
        ([PART] * (2 * RECORDS) + [SMALL], None),
        ([PART, SMALL] * RECORDS, NAME),
    ],
)
def test_what_waits_comes_with_the_next_records(contents, oracle):
    assert judged(*contents) == oracle


@pytest.mark.parametrize(
    ("hinder", "ticks", "oracle"),
    [
        (lambda _leader: None, IDLE_MS // 50 + 1, IDLE),
        (lambda _leader: None, IDLE_MS // 50, None),
        (lambda leader: setattr(leader.state, "transfer", object()), 900, None),
        (lambda leader: setattr(leader.disk, "is_watched", True), 900, None),
        (lambda leader: setattr(leader.state.log, "last_index", 9), 900, None),
    ],
)
def test_what_waits_comes_into_the_log_of_a_leader_that_nothing_hinders(hinder, ticks, oracle):
    kept, leader, found = OffsetsKept(SimpleNamespace(statements=[], committed={})), waiting(), None
    hinder(leader)
    kept.on_tick(leader)
    leader.state.tick = ticks
    try:
        kept.on_tick(leader)
    except Violation as violation:
        found = violation.oracle
    assert found == oracle
