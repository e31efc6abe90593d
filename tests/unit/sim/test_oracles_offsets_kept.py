"""An offset that waits while others are written was left out; parts of one record are one."""

from types import SimpleNamespace

import pytest

from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.offsets_kept import NAME, RECORDS, OffsetsKept

SMALL = {"T@other": {"0": 1}}
PART = {f"T@{'g' * 200}{number}": {"0": 1} for number in range(24)}
"""As large as a broker lets a record become."""


def judged(*contents):
    """Let a leader keep an offset waiting while these records of offsets are committed."""
    truth = SimpleNamespace(statements=[], committed={})
    oracle = OffsetsKept(truth)
    offsets = SimpleNamespace(_pending={"T@g": {0: 5}})
    leader = SimpleNamespace(
        name="n0",
        is_up=True,
        incarnation=1,
        state=SimpleNamespace(role=Role.LEADER, term=1),
        controller=SimpleNamespace(tables=SimpleNamespace(offsets=offsets)),
    )
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
