"""Who has nothing to do does not ask the same again and again."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Findings
from sim.oracles.busy import MOST, NAME, WINDOW_NS, Busy

POLITE, ROUTE, SEND = "10.0.2.1", 105, 310


def found(*, asker=POLITE, code=ROUTE, count=MOST + 1, took_ns=WINDOW_NS, calm_since_ns=0):
    """What is found where a client asks so often."""
    findings = Findings()
    busy = Busy(findings, frozenset({POLITE}), lambda: calm_since_ns)
    for number in range(count):
        at_ns = 1 + number * took_ns // (count - 1)
        busy.on_request(None, SimpleNamespace(asker=asker, code=code, at_ns=at_ns))
    return None if findings.first is None else findings.first.oracle


@pytest.mark.parametrize(
    ("asked", "oracle"),
    [
        ({}, NAME),
        ({"count": MOST}, None),
        ({"took_ns": WINDOW_NS + MOST + 1}, None),
        ({"asker": "10.0.9.9"}, None),
        ({"code": SEND}, None),
        ({"calm_since_ns": None}, None),
        ({"calm_since_ns": 2}, None),
        ({"calm_since_ns": 1}, NAME),
    ],
)
def test_who_asks_all_the_time_while_nothing_happens_is_found(asked, oracle):
    assert found(**asked) == oracle
