"""What a report says of steps that failed when the checks had answered. No session is needed."""

from types import SimpleNamespace

import pytest

from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from spark import job
from spark.job import LaidOut, _Steps
from spark.result import INVALID, VALID, CheckResult, Contract


def left_undecided(context, contract, results, entries):
    raise RuntimeError("the worker is gone")


@pytest.fixture
def laid(monkeypatch):
    """A run that lost what its faults took, or more: nobody could look which."""
    results = [CheckResult(check="A35", verdict=INVALID, count=1), CheckResult(check="A48")]
    contract = Contract(stated={}, exceeded=True, reasons=("faults took the disks",))
    monkeypatch.setattr(job, "_check", lambda *_: results)
    monkeypatch.setattr(job, "_promises", lambda *_: [])
    monkeypatch.setattr(job, "evaluate_contract", lambda *_: contract)
    history = SimpleNamespace(run={}, problems=[])
    context = SimpleNamespace(taking=[], history=history)
    return LaidOut(history=history, steps=_Steps(lambda line: None), context=context)


def test_loss_is_not_excused_where_nobody_could_ask_what_faults_explain(laid, monkeypatch):
    monkeypatch.setattr(job, "excuse_less", left_undecided)
    report = job.judge(laid, ("A35", "A48"))
    assert (report.verdict.verdict, report.verdict.exit_code) == ("unknown", 2)
    assert "excuses: RuntimeError: the worker is gone" in report.verdict.reasons
    with planted(HARNESS_BUGS["excuses-cut-short"]):
        assert job.judge(laid, ("A35", "A48")).verdict.exit_code == 3


def test_loss_that_faults_explain_is_excused(laid, monkeypatch):
    monkeypatch.setattr(job, "excuse_less", lambda *_: None)
    report = job.judge(laid, ("A35", "A48"))
    assert (report.verdict.verdict, report.verdict.exit_code) == (VALID, 3)
