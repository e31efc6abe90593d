"""A campaign counts what has run, however it ends."""

from sim import campaign as module
from sim.campaign import campaign
from sim.run import BROKEN, VALID, Result


def ran(seed: int, *, overkill: bool = False, **_named: object) -> Result:
    del overkill
    return Result(
        seed=seed, verdict=BROKEN if seed % 2 else VALID, digest="", events=1, virtual_ms=1,
        wall_s=0.1, counters={"ok": 1}, faults={},
    )  # fmt: skip


def test_interrupted_campaign_keeps_its_result(monkeypatch):
    monkeypatch.setattr(module, "run_seed", ran)

    def report(_totals, result):
        if result.seed == 6:
            raise KeyboardInterrupt

    totals = campaign(range(2, 100), report=report)
    assert totals.interrupted
    assert (totals.runs, totals.valid) == (5, 3)


def test_failures_of_the_harness_are_never_valid_and_end_a_campaign(monkeypatch):
    monkeypatch.setattr(module, "run_seed", ran)
    totals = campaign(range(1, 100))
    assert len(totals.failures) == module.FAILURES_MAX
    assert totals.exit_code == 255
    assert totals.valid + len(totals.failures) == totals.runs
