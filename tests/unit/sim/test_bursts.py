"""Bursts of sends reach the brokers as groups, and each message ends with its own result."""

from ledgermq.client.grouping import Group
from sim.campaign import run_seed
from sim.faults.plan import Options, Plan, Workload
from sim.run import VALID, run_plan


def count_groups(monkeypatch):
    """Return the sizes of the groups that leave from now on."""
    leave, sizes = Group.leave, []

    def counted(self, unique_ids):
        leave(self, unique_ids)
        sizes.append(len(self.ids))

    monkeypatch.setattr(Group, "leave", counted)
    return sizes


def test_bursts_leave_as_groups_and_each_message_is_answered(monkeypatch):
    sizes = count_groups(monkeypatch)
    workload = Workload(batch_p=0.0, burst_p=0.5, ordered_queues=0)
    result = run_plan(Plan(seed=1, options=Options(safety_ms=4_000), workload=workload))
    assert result.verdict == VALID
    assert sum(size > 1 for size in sizes) >= 5
    assert result.counters["ok"] >= sum(sizes)


def test_default_plans_have_bursts_that_faults_hit(monkeypatch):
    sizes = count_groups(monkeypatch)
    results = [run_seed(seed) for seed in range(3, 9)]
    assert {result.verdict for result in results} == {VALID}
    assert sum(size > 1 for size in sizes) >= 20
    assert sum(result.counters.get("info", 0) for result in results) > 0
