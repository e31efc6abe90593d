"""The smallest history that shows each anomaly, and a clean one that shows none."""

from dataclasses import replace

import pytest

from chaos.catalogue.checks import REFUSED
from chaos.catalogue.contracts import copies
from chaos.checker import Verdict, check_history
from chaos.checker.compose import CHECKS, decide
from chaos.checker.model import History, Result
from chaos.nemesis.base import FaultRecord
from chaos.nemesis.kinds import FAULTS
from chaos.verdict import COMPARED_COUNTS
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.histories import (
    audited,
    clean,
    delivery,
    drain,
    entry,
    fault,
    replica,
    send,
)
from tests.unit.chaos.world import World, setting_of


def verdict_of(history: History, check: str) -> Result:
    found: Verdict = check_history(history)
    bad = [name for name, r in found.results.items() if r.verdict == "invalid" and name != check]
    assert not bad, f"only {check} was expected, also {bad}"
    return found.results[check]


def test_clean_history_is_valid_and_counted():
    found = check_history(clean())
    assert found.verdict == "valid"
    assert found.reasons == ()
    assert found.counts["sent"] == found.counts["acknowledged"] == found.counts["delivered"] == 3
    assert found.counts["lost"] == found.counts["redelivered"] == 0


def test_what_rests_on_a_refused_table_is_no_number():
    whole = check_history(clean()).counts
    without_sends = check_history(replace(clean(), unusable={"sends": REFUSED})).counts
    without_given = check_history(replace(clean(), unusable={"deliveries": REFUSED})).counts
    assert whole.keys() - without_given.keys() == {"delivered", "redelivered"}
    assert whole.keys() - without_sends.keys() == set(COMPARED_COUNTS)


def lost(*, on: list[str], was_audited: bool) -> History:
    keys = {n: [None, 1, 2, 3] if n in on else [None, 1, 3] for n in ("n0", "n1", "n2")}
    auditor = [audited(k) for k in ([1, 2, 3] if was_audited else [1, 3])]
    return clean(
        deliveries=[delivery(1), delivery(3), *auditor],
        replicas=[replica(node, held, commit=0) for node, held in keys.items()],
    )


@pytest.mark.parametrize(
    ("on", "was_audited", "where"),
    [
        ([], False, "vanished"),
        (["n1"], False, "stranded"),
        (["n0", "n1"], False, "index-side"),
        (["n0", "n1", "n2"], True, "delivery-side"),
    ],
)
def test_acknowledged_and_not_delivered_is_lost_and_names_the_layer(on, was_audited, where):
    found = check_history(lost(on=on, was_audited=was_audited)).results["A1"]
    assert (found.verdict, found.count) == ("invalid", 1)
    assert found.evidence[0]["where"] == where
    assert found.evidence[0]["kind"] == "hole"
    assert found.evidence[0]["held_by"] == on


def test_lost_at_the_end_is_a_suffix():
    history = clean(deliveries=[delivery(1), delivery(2)])
    assert verdict_of(history, "A1").evidence[0]["kind"] == "suffix"


@pytest.mark.parametrize("facts", [[], [drain(drained=False)]])
def test_absence_from_an_undrained_queue_is_unknown_not_lost(facts):
    found = verdict_of(clean(deliveries=[delivery(1)], drain=facts), "A1")
    assert (found.verdict, found.count) == ("unknown", 0)


def test_message_removed_by_retention_is_not_lost():
    history = clean(deliveries=[delivery(2), delivery(3)], drain=[drain(min_off=2)])
    found = verdict_of(history, "A1")
    assert (found.verdict, found.details["removed_by_retention"]) == ("valid", 1)
    assert found.details["not_owed_by_a_late_group"] == 0


def test_what_lies_before_the_beginning_of_a_late_group_is_not_owed():
    facts = [drain(min_off=2), drain(grp="auditor", min_off=1, end_off=4)]
    got = [delivery(2), delivery(3), *(audited(key) for key in (1, 2, 3))]
    found = verdict_of(clean(deliveries=got, drain=facts), "A1")
    assert found.verdict == "valid"
    assert found.details["not_owed_by_a_late_group"] == 1
    assert found.details["removed_by_retention"] == 0
    assert "1 not owed by a group that began later" in found.summary


@pytest.mark.parametrize("outcome", ["info", "fail"])
def test_only_acknowledged_messages_can_be_lost(outcome):
    history = clean(sends=[send(1), send(2), send(3), send(4, outcome=outcome)])
    assert verdict_of(history, "A1").verdict == "valid"


def test_delivered_without_a_send_is_a_phantom():
    history = clean(deliveries=[*clean().deliveries, delivery(4)])
    assert verdict_of(history, "A5").count == 1


def test_delivery_of_another_run_is_foreign_not_phantom():
    history = clean(deliveries=[*clean().deliveries, delivery(4, payload_run_id="ff" * 16)])
    found = verdict_of(history, "A5")
    assert (found.verdict, found.details["foreign_deliveries"]) == ("valid", 1)


def test_other_bytes_than_sent_are_corrupt():
    spoiled = delivery(2, body_hash=5)
    history = clean(deliveries=[delivery(1), spoiled, delivery(3)], replicas=[])
    assert check_history(history).results["A6"].count == 1


def test_unreadable_body_where_something_was_sent_is_corrupt_not_phantom():
    spoiled = delivery(None, offset=2, body_hash=5, payload_run_id=None)
    found = check_history(clean(deliveries=[*clean().deliveries, spoiled]))
    assert (found.results["A6"].count, found.results["A5"].count) == (1, 0)


def test_refused_send_that_is_delivered_is_an_aborted_read():
    sends = [send(1), send(2), send(3), send(4, outcome="fail", err_code=14)]
    history = clean(sends=sends, deliveries=[*clean().deliveries, delivery(4)])
    found = verdict_of(history, "A7")
    assert (found.verdict, found.count) == ("invalid", 1)


def test_unknown_send_may_be_delivered():
    sends = [send(1), send(2), send(3), send(4, outcome="info")]
    history = clean(sends=sends, deliveries=[*clean().deliveries, delivery(4)])
    assert check_history(history).verdict == "valid"


@pytest.mark.parametrize(("attempts", "count"), [(1, 1), (2, 0)])
def test_copies_beyond_the_attempts_are_duplicates(attempts, count):
    sends = [send(1), send(2, attempts=attempts), send(3)]
    read = [*clean().deliveries, audited(2, offset=9)]
    found = verdict_of(clean(sends=sends, deliveries=read, replicas=[]), "A8")
    assert (found.count, found.verdict) == (count, "valid")


@pytest.mark.parametrize(("disputes", "count"), [([], 1), (["message"], 0), (["noop"], 0)])
def test_what_replicas_committed_differently_is_no_place_of_a_message(disputes, count):
    copy = entry(4, 2, queue_offset=9)
    logs = [replace(one, rows=[*one.rows, copy], commit_index=4) for one in clean().replicas]
    for kind in disputes:
        other = copy._replace(type=kind, msg_key=None, entry_crc=1)
        logs[1] = replace(logs[1], rows=[*clean().replicas[1].rows, other])
    found = check_history(clean(replicas=logs)).results
    assert found["A8"].count == count
    assert (found["A35"].verdict == "invalid") is bool(disputes)


@pytest.mark.parametrize(("groups", "verdict"), [(1, "invalid"), (2, "valid")])
def test_queues_of_a_node_are_judged_by_its_one_log(groups, verdict):
    """Of a node with logs of two groups no row says to which a queue belongs."""
    rows = [
        {"node": "n0", "topic": "t", "queue_id": 0, "queue_offset": at, "index": at, "msg_key": at}
        for at in (1, 2)
    ]
    more = [replace(clean().replicas[0], group="h", rows=[entry(0, None)], commit_index=0)]
    history = clean(queue_index=rows, replicas=[*clean().replicas, *more[: groups - 1]])
    assert check_history(history).results["A39"].verdict == verdict


def test_second_delivery_without_a_cause_is_counted():
    history = clean(deliveries=[*clean().deliveries, delivery(2, t_recv=5000)])
    found = verdict_of(history, "A9")
    assert (found.count, found.details["redelivered"]) == (1, 1)


def test_second_delivery_after_a_rebalance_is_explained():
    rebalance = {"role": "consumer", "f": "rebalance", "type": "info", "t_mono_ns": 4000}
    history = clean(deliveries=[*clean().deliveries, delivery(2, t_recv=5000)], events=[rebalance])
    found = verdict_of(history, "A9")
    assert (found.count, found.details["redelivered"]) == (0, 1)


def test_one_place_with_two_messages_is_inconsistent():
    moved = send(3, offset=2)
    found = check_history(clean(sends=[send(1), send(2), moved]))
    assert found.results["A15"].verdict == "invalid"
    assert found.results["A15"].evidence[0]["place"] == "t/0@2"


def with_entry(history: History, node: str, index: int, **changes: object) -> History:
    replicas = [
        replace(r, rows=[e._replace(**changes) if e.entry_index == index else e for e in r.rows])
        if r.node == node
        else r
        for r in history.replicas
    ]
    return replace(history, replicas=replicas)


def test_equal_index_and_term_with_other_content_breaks_log_matching():
    history = with_entry(clean(), "n1", 3, entry_crc=1)
    assert check_history(history).results["A34"].count == 1


def test_damaged_committed_entry_breaks_log_matching():
    history = with_entry(clean(), "n1", 3, crc_ok=False)
    assert verdict_of(history, "A34").count == 1


def test_committed_entries_of_other_terms_diverge():
    history = with_entry(clean(), "n1", 3, term=2, entry_crc=1)
    found = verdict_of(history, "A35")
    assert (found.count, found.details["divergent"]) == (1, 1)


def test_committed_entry_that_is_absent_diverges():
    history = clean()
    short = replace(history.replicas[2], rows=history.replicas[2].rows[:-1])
    found = verdict_of(replace(history, replicas=[*history.replicas[:2], short]), "A35")
    assert found.count == 1


def test_uncommitted_tails_may_differ():
    history = clean()
    tail = entry(4, 9, term=1)
    odd = replace(history.replicas[0], rows=[*history.replicas[0].rows, tail], end_index=4)
    other = replace(
        history.replicas[1], rows=[*history.replicas[1].rows, entry(4, 8, term=2)], end_index=4
    )
    found = check_history(replace(history, replicas=[odd, other, history.replicas[2]]))
    assert found.verdict == "valid"


def test_acknowledged_entry_replaced_by_another_is_committed_then_lost():
    sends = [send(1), send(2), send(3), send(4)]
    history = clean(sends=sends, deliveries=[*clean().deliveries, delivery(4), audited(4)])
    stale = replace(history.replicas[0], rows=[*history.replicas[0].rows, entry(4, 4)])
    fresh = [replica(n, [None, 1, 2, 3, None]) for n in ("n1", "n2")]
    changed = replace(history, replicas=[stale, *fresh])
    for node in ("n1", "n2"):
        changed = with_entry(changed, node, 4, term=2)
    found = verdict_of(changed, "A35")
    assert found.count == 1


def test_failover_is_the_longest_gap_between_acknowledgements_from_the_kill_on():
    ms = 1_000_000
    history = clean(
        sends=[
            send(1, t_inv=0, t_cmp=1),
            send(2, t_inv=30 * ms, t_cmp=50 * ms),
            send(3, t_inv=50 * ms, t_cmp=51 * ms),
        ],
        faults=[fault("1-kill", t_on0=9 * ms, t_on1=10 * ms, t_off0=99 * ms, t_off1=99 * ms)],
    )
    assert verdict_of(history, "A41").evidence[0]["ms"] == 41


def test_failover_without_a_majority_counts_from_the_heal():
    ms = 1_000_000
    cut = fault("2-cut", "cut", t_on0=ms, t_on1=ms, t_off0=20 * ms, t_off1=20 * ms)
    kill = fault("2-kill", t_on0=10 * ms, t_on1=10 * ms, t_off0=90 * ms, t_off1=90 * ms)
    sends = [send(1, t_inv=0, t_cmp=1), send(2, t_inv=30 * ms, t_cmp=50 * ms)]
    sends.append(send(3, t_inv=50 * ms, t_cmp=51 * ms))
    row = verdict_of(clean(sends=sends, faults=[cut, kill]), "A41").evidence[0]
    assert (row["ms"], row["since_heal_ms"]) == (40, 30)


def test_fault_without_effect_does_not_cover():
    weak = fault("1-kill", witness={"effective": False, "during": 0.0})
    found = verdict_of(clean(faults=[weak], coverage={"kill": 1}), "A47")
    assert found.verdict == "unknown"


def test_fault_that_no_send_overlaps_does_not_cover():
    early = fault("1-kill", t_on1=1, t_off0=2)
    assert verdict_of(clean(faults=[early], coverage={"kill": 1}), "A47").verdict == "unknown"


def test_effective_fault_with_sends_in_flight_covers():
    found = verdict_of(clean(faults=[fault("1-kill")], coverage={"kill": 1}), "A47")
    assert found.verdict == "valid"


@pytest.mark.parametrize(("effective", "verdict"), [(True, "valid"), (False, "unknown")])
def test_any_in_a_coverage_is_faults_of_all_kinds_together(effective, verdict):
    weak = {"effective": effective, "during": 1.0}
    faults = [fault("1-kill"), fault("2-cut", "cut", witness=weak)]
    assert verdict_of(clean(faults=faults, coverage={"any": 2}), "A47").verdict == verdict


def test_phase_without_an_acknowledgement_is_unknown():
    dead = [send(key, outcome="info", phase="dark") for key in range(10, 20)]
    found = verdict_of(clean(sends=[send(1), send(2), send(3), *dead]), "A45")
    assert found.verdict == "unknown"


def test_empty_history_is_unknown():
    assert check_history(clean(sends=[], deliveries=[], replicas=[])).verdict == "unknown"


def test_problem_of_the_harness_and_a_fault_not_lifted_are_unknown():
    stuck = fault("1-cut", "cut", status="heal_failed")
    found = verdict_of(clean(faults=[stuck], problems=["producer-0 died"]), "A48")
    assert (found.verdict, found.count) == ("unknown", 2)


def test_crash_of_a_check_is_unknown_and_named():
    found = check_history(clean(sends=[{"outcome": "ok"}]))
    assert found.verdict == "unknown"
    assert any("the check failed: KeyError" in reason for reason in found.reasons)


def test_worst_verdict_wins():
    def said(verdict: str) -> Result:
        return Result(check="A1", verdict=verdict, severity="CRIT")

    assert decide([said("valid")])[0] == "valid"
    assert decide([said("valid"), said("unknown")])[0] == "unknown"
    assert decide([said("unknown"), said("invalid"), said("valid")])[0] == "invalid"
    assert decide([said("not checked")])[0] == "valid"


def test_every_check_is_run_on_every_history():
    assert list(check_history(clean()).results) == list(CHECKS)


def disk_faults(kind: str, count: int) -> list[dict[str, object]]:
    return [fault(f"f{at}", kind, targets=[f"n{at}"]) for at in range(count)]


@pytest.mark.parametrize(
    ("kind", "count", "flush", "code"),
    [
        ("proc.powerloss", 2, "ASYNC_FLUSH", 3),
        ("proc.powerloss", 1, "ASYNC_FLUSH", 1),
        ("proc.powerloss", 2, "SYNC_FLUSH", 1),
        ("disk.wipe", 2, "SYNC_FLUSH", 3),
    ],
)
def test_loss_that_the_faults_permit_exceeds_the_contract(kind, count, flush, code):
    history = clean(
        deliveries=[delivery(1), delivery(3)],
        replicas=[],
        faults=disk_faults(kind, count),
        contract={"durability": "quorum", "flush": flush},
    )
    found = check_history(history)
    assert (found.results["A1"].count, found.exit_code) == (1, code)


@pytest.mark.parametrize(
    ("lost_power", "at", "code"),
    [
        ("power_loss", 20, 3),
        ("power_loss", 12, 3),  # what is noted for it began before
        ("kill", 20, 1),
        ("power_loss", 32, 1),
        ("power_loss", 1, 1),
    ],
)
def test_syncs_that_lied_take_nothing_from_who_keeps_its_power(lost_power, at, code):
    lies = [
        fault(f"l{n}", "lie", targets=[n], t_on0=15, t_on1=16, t_off0=30, t_off1=31)
        for n in ("n0", "n1")
    ]
    ends = [
        fault(
            "p" + n, lost_power, targets=[n], t_on0=at, t_on1=at + 5, t_off0=at + 8, t_off1=at + 9
        )
        for n in ("n0", "n1")
    ]
    history = clean(
        deliveries=[delivery(1), delivery(3)],
        replicas=[],
        faults=[*lies, *ends],
        contract={"durability": "quorum", "flush": "SYNC_FLUSH"},
    )
    found = check_history(history)
    assert (found.results["A1"].count, found.exit_code) == (1, code)


def test_a_checker_that_excuses_all_lies_is_found_out():
    bug = HARNESS_BUGS["lies-excuse-without-a-power-loss"]
    with planted(bug), pytest.raises(AssertionError):
        test_syncs_that_lied_take_nothing_from_who_keeps_its_power("kill", 20, 1)


@pytest.mark.parametrize(
    ("durability", "wiped", "lost", "code"),
    [
        ("master", {"n0": 1}, (2,), 3),
        ("master", {"n0": 1}, (2, 3), 1),
        ("master", {"n1": 0}, (2,), 1),
        ("master", {"n0": None}, (2, 3), 3),
        ("pair", {"n0": 1}, (2,), 1),
        ("pair", {"n0": 1, "n1": 0}, (2, 3), 1),  # one after the other
        ("pair", {"n0": None, "n1": None}, (2, 3), 3),
    ],
)
def test_loss_is_bounded_by_what_the_lost_disk_alone_had(durability, wiped, lost, code):
    kept = [delivery(key) for key in (1, 2, 3) if key not in lost]
    history = clean(
        deliveries=kept,
        quorum=copies(durability, 2),
        replicas=[],
        faults=[fault(n, "wipe", targets=[n], only_there=alone) for n, alone in wiped.items()],
        contract={"durability": durability, "flush": "SYNC_FLUSH"},
    )
    found = check_history(history)
    assert (found.results["A1"].count, found.exit_code) == (len(lost), code)
    if code == 3:
        assert "expected loss" in found.reasons[0]


def refused_calls(of, root):
    """Return the row of a fault by which a disk refuses calls."""
    kind = FAULTS["eio"]
    eio = kind.make(setting_of(World(root=root)), "n0", **kind.complete({"of": of}))
    return FaultRecord(fault_id="1", kind="eio", targets=("n0",), witness=eio.witness).row()


@pytest.mark.parametrize(("durability", "of"), [("master", "sync"), ("in-sync", "write")])
def test_what_a_master_loses_beside_calls_that_failed_is_not_excused(durability, of, tmp_path):
    """The library refuses calls and takes nothing: what was written is in the page cache."""
    row = refused_calls(of, tmp_path)
    with planted(HARNESS_BUGS["excused-by-a-refusal"]):
        assert refused_calls(of, tmp_path)["only_there"] is None
    codes = []
    for alone in (row["only_there"], None):  # None: nobody counted, so that all is excused
        history = clean(
            deliveries=[delivery(1)],
            quorum=copies(durability, 2),
            replicas=[],
            faults=[fault("1", "eio", only_there=alone)],
            contract={"durability": durability, "flush": "ASYNC_FLUSH"},
        )
        codes.append(check_history(history).exit_code)
    assert codes == [1, 3]


def test_a_majority_is_one_of_the_group_that_has_the_message():
    other = [replica(node, [None, 1]) for node in ("m0", "m1", "m2")]
    mine = [*clean().replicas, *(replace(one, group="h") for one in other)]
    history = clean(replicas=mine, promised={"": 2, "h": 2})
    assert check_history(history).verdict == "valid"
    few = [one for one in history.replicas if one.node not in {"n0", "n1"}]
    found = check_history(clean(replicas=few, promised={"": 2, "h": 2}))
    assert found.results["A35"].count == 2  # the first lies on three logs of the other group
    assert "on fewer than 2" in found.results["A35"].evidence[0]["explain"]


@pytest.mark.parametrize(("promise", "code"), [("at-least-once", 3), ("exactly-once", 1)])
def test_copies_that_nobody_sent_go_beyond_the_contract(promise, code):
    read = [*clean().deliveries, audited(2, offset=9)]
    history = clean(deliveries=read, replicas=[], contract={"duplicates": promise})
    assert check_history(history).exit_code == code


def test_damage_on_a_disk_that_was_damaged_on_purpose_is_excused():
    history = with_entry(clean(faults=disk_faults("disk.flip", 1)), "n0", 3, crc_ok=False)
    assert check_history(history).verdict == "valid"


def test_topic_that_was_recreated_owes_nothing_of_its_earlier_life():
    sends = [send(1, epoch=1), send(2, epoch=2), send(3, epoch=2)]
    rows = [delivery(2, epoch=2), delivery(3, epoch=2)]
    assert check_history(clean(sends=sends, deliveries=rows, replicas=[])).verdict == "valid"


def test_logs_hold_nothing_of_the_earlier_life_of_a_topic():
    sends = [send(1, epoch=1), send(2, epoch=2), send(3, epoch=2)]
    rows = [delivery(1, epoch=1), delivery(2, epoch=2), delivery(3, epoch=2)]
    history = clean(sends=sends, deliveries=rows)
    for one in history.replicas:
        one.rows[:] = [row._replace(msg_key=9) if row.msg_key == 1 else row for row in one.rows]
    assert check_history(history).results["A35"].count == 0
    for row in (*sends, *rows):
        row["epoch"] = 2
    once = clean(sends=sends, deliveries=rows, replicas=history.replicas)
    assert check_history(once).results["A35"].count == 1
