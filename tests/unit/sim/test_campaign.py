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

    def report(_totals, _case, result):
        if result.seed == 6:
            raise KeyboardInterrupt

    totals = campaign(range(2, 100), report=report)
    assert totals.interrupted
    assert (totals.runs, totals.valid) == (5, 3)


def test_a_campaign_is_quoted_in_one_line_that_does_not_hang_on_the_order_of_its_runs(monkeypatch):
    monkeypatch.setattr(module, "run_seed", ran)
    up, down = campaign(range(2, 6)), campaign(range(5, 1, -1))
    assert up.digest == down.digest != campaign(range(2, 7)).digest
    quote = up.quote("build 1", 2)
    assert quote.startswith("build 1, seeds 2..5: 2 valid, 2 failed, 0 beyond the contract; ")
    assert quote.endswith(f"with --jobs 2; digest {up.digest}")
    assert "\n" not in quote


def test_failures_of_the_harness_are_never_valid_and_end_a_campaign(monkeypatch):
    monkeypatch.setattr(module, "run_seed", ran)
    totals = campaign(range(1, 100))
    assert len(totals.failures) == module.FAILURES_MAX
    assert totals.exit_code == 255
    assert totals.valid + len(totals.failures) == totals.runs
