"""Who is told of other members of its group looks at once."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Findings
from sim.oracles.wire import Said
from sim.oracles.woken import LOOKS_NS, MEMBERS, NAME, NOTIFY, PULL, SETTLED_NS, Woken

GROUP = "readers"
CLIENT = "10.0.3.1"
TOLD_NS = 2 * SETTLED_NS


def judged(*steps, touched_ns=0, asked_before=True):
    """Tell a consumer at ``TOLD_NS`` of other members; return what is found of what it asks then.

    ``steps``: codes of requests, and how long (ns) after that they leave.
    """
    findings = Findings()
    woken = Woken(findings, lambda: touched_ns)
    tap = SimpleNamespace(pushed={})

    def ask(code, at_ns):
        request = Said(code, {"consumerGroup": GROUP}, b"", at_ns, b"", asker=CLIENT)
        woken.on_request(tap, request)

    if asked_before:
        ask(MEMBERS, TOLD_NS - 1)
    tap.pushed[NOTIFY, GROUP] = TOLD_NS
    for code, after_ns in steps:
        ask(code, TOLD_NS + after_ns)
    return None if findings.first is None else findings.first.oracle


LATE = LOOKS_NS + 1


@pytest.mark.parametrize(
    ("steps", "oracle"),
    [
        ([(PULL, LATE)], NAME),
        ([(PULL, LOOKS_NS)], None),
        ([(MEMBERS, 1), (PULL, LATE)], None),
        ([(PULL, 1), (MEMBERS, 2), (PULL, LATE)], None),
        ([(MEMBERS, LATE + 1), (PULL, LATE + 2)], None),
        ([], None),
    ],
)
def test_a_consumer_that_was_told_looks_before_it_pulls_on(steps, oracle):
    assert judged(*steps) == oracle


@pytest.mark.parametrize(
    ("touched_ns", "oracle"),
    [(0, NAME), (1, NAME), (SETTLED_NS, None), (TOLD_NS + LATE, None)],
)
def test_it_is_judged_where_nothing_is_disturbed(touched_ns, oracle):
    assert judged((PULL, LATE), touched_ns=touched_ns) == oracle


def test_who_is_told_again_is_late_since_the_first_time():
    findings = Findings()
    woken = Woken(findings, lambda: 0)
    tap = SimpleNamespace(pushed={})
    for code, told_ns, at_ns in (
        (MEMBERS, None, TOLD_NS - 1),
        (PULL, TOLD_NS, TOLD_NS + 1),
        (PULL, TOLD_NS + LOOKS_NS, TOLD_NS + LATE),
    ):
        if told_ns is not None:
            tap.pushed[NOTIFY, GROUP] = told_ns
        request = Said(code, {"consumerGroup": GROUP}, b"", at_ns, b"", asker=CLIENT)
        woken.on_request(tap, request)
    assert findings.first is not None
    assert findings.first.oracle == NAME


def test_who_never_asks_for_members_broadcasts():
    assert judged((PULL, LATE), asked_before=False) is None
