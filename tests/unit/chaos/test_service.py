"""Service after faults and without them, commits that pass, lags: what is no anomaly."""

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.generate import MS, HistoryBuilder
from tests.spark.kinds import KIND_VIOLATIONS, reading
from tests.spark.leaders import elect, written_over
from tests.spark.minimal import write_minimal
from tests.spark.serving import (
    back_in_time,
    healed_too_late_to_tell,
    never_ended,
    never_ended_before_a_fault,
    not_back,
)


def results_of(spoil, path):
    return check_history(load_history(write_minimal(spoil, path))).results


def test_service_within_the_bound_is_no_anomaly_and_measured(tmp_path):
    found = results_of(back_in_time, tmp_path)["A60"]
    assert (found.verdict, found.count) == ("valid", 0)
    assert found.details == {"heals": 1, "worst_ms": 1_000.0}


def test_heal_that_another_fault_follows_too_soon_is_not_judged(tmp_path):
    found = results_of(healed_too_late_to_tell, tmp_path)["A60"]
    assert (found.verdict, found.count, found.details["heals"]) == ("valid", 0, 2)


def test_without_a_bound_recovery_is_only_told(tmp_path):
    def spoil(run, messages):
        not_back(run, messages)
        del run.run["contract"]["recovery_ms_max"]

    found = results_of(spoil, tmp_path)["A60"]
    assert (found.verdict, found.count) == ("valid", 0)
    assert found.details["worst_ms"] > 1_000


def test_without_faults_there_is_no_recovery_to_judge(tmp_path):
    assert results_of(None, tmp_path)["A60"].verdict == "not checked"


def test_sends_near_a_fault_do_not_count_against_the_floor(tmp_path):
    def spoil(run, messages):
        run.run["contract"]["availability_min"] = 1.0
        not_back(run, messages)

    found = results_of(spoil, tmp_path)["A61"]
    assert (found.verdict, found.details) == ("valid", {"quiet": 12, "acknowledged": 12})


def test_sends_that_never_ended_count_where_no_fault_came_after_them(tmp_path):
    found = results_of(never_ended, tmp_path / "quiet")["A61"]
    assert (found.verdict, found.details) == ("invalid", {"quiet": 52, "acknowledged": 12})
    found = results_of(never_ended_before_a_fault, tmp_path / "fault")["A61"]
    assert (found.verdict, found.details) == ("valid", {"quiet": 12, "acknowledged": 12})


def test_first_appends_that_were_written_over_excuse_a_leader(tmp_path):
    assert (results_of(written_over, tmp_path)["A37"].count) == 0


def test_leader_whom_nobody_else_voted_for_is_not_judged(tmp_path):
    def spoil(run, messages):
        run.event("n1", "become_leader", 2, peer="n1")

    found = results_of(spoil, tmp_path)["A36"]
    assert (found.verdict, found.details) == ("valid", {"leaders": 1})


def test_leader_with_all_that_was_committed_is_sound(tmp_path):
    found = results_of(lambda run, _: elect(run, "n1", 2, last=2), tmp_path)["A36"]
    assert (found.verdict, found.details) == ("valid", {"leaders": 2})


def test_what_a_group_never_got_of_an_undrained_queue_was_passed(tmp_path):
    """A1 cannot know whether it was still to come; the commit says that it was not."""

    def spoil(run, messages):
        kind = reading(run)
        run.tables["deliveries"].remove(kind.given[5])
        for queue_id, end in ((0, 8), (1, 0)):
            run.add("drain", grp=kind.grp, topic=kind.topic, queue_id=queue_id, min_off=0,
                    end_off=end, read_to=4, drained=False)  # fmt: skip

    found = results_of(spoil, tmp_path)
    assert found["A1"].verdict == "unknown"
    assert (found["A2"].verdict, found["A2"].count) == ("invalid", 1)
    assert "@5 before it had got it" in found["A2"].evidence[0]["explain"]


def test_queue_that_was_reset_is_not_judged_by_its_commits(tmp_path):
    spoil = KIND_VIOLATIONS["committed past"][2]

    def reset(run, messages):
        spoil(run, messages)
        grp, topic = next((g, t) for g, (t,) in run.consumes.items() if g.startswith("read"))
        run.add("acks", grp=grp, topic=topic, queue_id=0, kind="reset", t_inv=run.clock)

    assert results_of(reset, tmp_path)["A2"].count == 0


def test_lag_is_that_of_the_worst_second(tmp_path):
    """Five are acknowledged in one second, and the group gets the last of them in a later one."""
    run = HistoryBuilder(queues=1)
    messages = [run.send() for _ in range(5)]
    run.deliver(messages[0])
    run.clock += 3_000 * MS
    for message in messages[1:]:
        run.deliver(message)
    found = check_history(load_history(run.write(tmp_path))).results["A4"]
    assert (found.verdict, found.details) == ("valid", {"lag_max": 4, "queues": 1})
