"""Errors that production or an oracle swallows are found, and told apart from the harness's own."""

import pytest

from ledgermq.client import pull
from sim import audit
from sim.campaign import run_seed
from sim.faults.plan import Options, Plan, Workload
from sim.loop import SimLoop
from sim.oracles.base import Findings, Violation, guarded
from sim.oracles.clients import Clients
from sim.oracles.tasks import check_tasks
from sim.oracles.watch import Watch
from sim.run import BROKEN, VALID, VIOLATED, run_plan

SHORT = Plan(seed=1, options=Options(safety_ms=3_000), workload=Workload(rate_per_s=5))


def broken(*_args, **_named):
    raise KeyError("mistake")


async def nothing():
    pass


@pytest.fixture
def loop():
    loop = SimLoop(1)
    yield loop
    loop.close()


def ended_with(loop, error):
    async def fail():
        raise error

    process = loop.boot(loop.add_host("n0", "10.0.0.1"))
    loop.spawn(process, fail())
    loop.run_for(1)
    return process


def test_answers_of_the_surroundings_are_no_mistakes(loop):
    ended_with(loop, ConnectionResetError("gone"))
    check_tasks(loop)


def test_a_mistake_that_nobody_asks_for_is_kept_until_the_end(loop):
    process = ended_with(loop, KeyError("mistake"))
    for _ in range(200):
        loop.spawn(process, nothing())
        loop.run_for(1)
    assert len(process.tasks) < 100
    with pytest.raises(Violation, match="KeyError"):
        check_tasks(loop)


def test_a_mistake_of_production_is_a_violation(monkeypatch):
    monkeypatch.setattr(pull.PullConsumer, "fetch_subscribe_queues", broken)
    result = run_plan(SHORT)
    assert (result.verdict, result.oracle) == (VIOLATED, "process error")


def test_a_mistake_of_the_auditor_is_no_verdict(monkeypatch):
    monkeypatch.delattr(audit, "RETRY_S")
    monkeypatch.setattr(audit.Auditor, "_is_level", lambda _self: False)
    with pytest.raises(NameError):
        run_plan(SHORT)


@pytest.mark.parametrize(
    ("oracle", "method"),
    [(Clients, "_row"), (Watch, "_look")],
)
def test_an_error_of_an_oracle_is_a_failure_of_the_harness(monkeypatch, oracle, method):
    monkeypatch.setattr(oracle, method, broken)
    with pytest.raises(KeyError):
        run_plan(SHORT)
    assert run_seed(1).verdict == BROKEN


def test_an_error_of_an_oracle_that_judges_messages_is_a_failure_of_the_harness():
    class Judge:
        findings = Findings()

        @guarded
        def on_message(self):
            broken()

    validator = Judge()
    validator.on_message()
    assert isinstance(validator.findings.first, KeyError)


def test_a_sound_run_has_none():
    assert run_plan(SHORT).verdict == VALID
