"""A38: what is acknowledged while too few brokers get anything; A18: which commits stand."""

from typing import Any

import pytest

from chaos.checker import History, check_history
from tests.unit.chaos.histories import clean, fault, send

PAIR = {"durability": "pair"}
S = 1_000_000_000


def alone(faults: list[dict[str, Any]], **more: Any) -> tuple[str, list[int]]:
    """Return what A38 says of a message that was sent at 25 and acknowledged at 30."""
    parts: dict[str, Any] = {
        "sends": [send(1), send(2, t_inv=25, t_cmp=30), send(3, t_inv=60, t_cmp=65)],
        "faults": faults, "contract": PAIR, "named_nodes": ["n0", "n1"], "is_one_group": True,
        "promised": {"": 2},
        "replicas": [],
    }  # fmt: skip
    found = check_history(clean(**(parts | more))).results["A38"]
    return found.verdict, [row["msg_key"] for row in found.evidence]


@pytest.mark.parametrize(
    "one",
    [
        fault("f", "kill", targets=["n1"]),
        fault("f", "stop", targets=["n1"]),
        fault("f", "pause", targets=["n1"]),
        fault("f", "cut", targets=["n0", "n1"]),
        fault("f", "kill", targets=["n1"], t_off0=None, t_off1=None, status="active"),
    ],
)
def test_a_master_has_no_say_while_its_slave_gets_nothing(one):
    keys = [2] if one["t_off0"] else [2, 3]
    assert alone([one]) == ("invalid", keys)


@pytest.mark.parametrize(
    "one",
    [
        fault("f", "kill", targets=["n1"], t_on1=26),  # it may have got it before
        fault("f", "kill", targets=["n1"], t_off0=29),  # it may have got it in the end
        fault("f", "kill", targets=["n1"], witness={"effective": False}),
        fault("f", "kill", targets=["ns0"]),
        fault("f", "slow", targets=["n1"]),
        fault("f", "cut", targets=["n1"]),
        fault("f", "kill", targets=["n1"], t_off0=None, t_off1=None),  # it was lifted some time
        fault("f", "kill", targets=["n1"], t_off0=None),  # it may have run before that was over
    ],
)
def test_whoever_may_have_got_it_counts(one):
    assert alone([one])[1] == []


@pytest.mark.parametrize(
    "more",
    [
        {"contract": {"durability": "master"}, "promised": {"": 1}},
        {"contract": {"durability": "in-sync"}, "promised": {"": 1}},
        {"contract": {}},
        {"is_one_group": False},
        {"named_nodes": []},
        {"probes": [{"node": "n2", "t0": 1, "t1": 2, "ok": False}]},
    ],
)
def test_nothing_is_asked_where_nobody_promised_it_or_named_the_brokers(more):
    assert alone([fault("f", "kill", targets=["n1"])], **more) == ("not checked", [])


@pytest.mark.parametrize(
    ("other", "keys"),
    [
        (fault("g", "pause", targets=["n1"], t_on0=22, t_on1=23), []),  # killed while it stood
        (fault("g", "crash_loop", targets=["n0", "n1"], t_off1=29), []),
        (fault("g", "kill", targets=["n1"], witness=None, status=None), []),
        (fault("g", "of another kind", targets=["n1"]), []),
        (fault("g", "remove_member", targets=["n9"]), []),
        (fault("g", "kill", targets=["n1"], status="skipped"), [2]),
        (fault("g", "delay", targets=["n1"]), [2]),
        (fault("g", "wipe", targets=["n0"]), [2]),
        (fault("g", "wipe", targets=["n1"], t_on0=42, t_on1=43, t_off0=50, t_off1=51), [2]),
    ],
)
def test_a_broker_that_another_fault_may_have_started_is_not_away(other, keys):
    assert alone([fault("f", "kill", targets=["n1"]), other])[1] == keys


def test_a_fault_that_was_widened_for_clocks_that_differ_accuses_of_no_more():
    killed = fault("f", "kill", targets=["n1"], t_on0=20, t_on1=21)
    assert alone([killed], clock_tolerance_ns=4)[1] == [2]
    assert alone([killed], clock_tolerance_ns=5)[1] == []  # by its own clock it began at 26


def test_a_thousand_faults_of_five_brokers_are_laid_over_each_other_in_no_time():
    nodes = [f"n{number}" for number in range(5)]
    times = ({"t_on0": t, "t_on1": t, "t_off0": t + 2, "t_off1": t + 2} for t in range(0, 5000, 5))
    faults = [
        fault(f"f{number}", "kill", targets=[nodes[number % 5]], **time)
        for number, time in enumerate(times)
    ]
    said = alone(faults, contract={"durability": "quorum"}, named_nodes=nodes, promised={"": 3})
    assert said == ("not checked", [])


def test_fifty_brokers_are_no_matter_of_all_their_combinations():
    nodes = [f"n{number}" for number in range(50)]
    faults = [fault(f"f{number}", targets=[node]) for number, node in enumerate(nodes)]
    promised = {"contract": {"durability": "quorum"}, "named_nodes": nodes, "promised": {"": 26}}
    assert alone(faults[:25], **promised) == ("invalid", [2])
    assert alone(faults[:24], **promised)[1] == []


def test_a_majority_has_to_run_for_some_of_the_time():
    three = {
        "contract": {"durability": "quorum"}, "named_nodes": ["n0", "n1", "n2"],
    }  # fmt: skip
    one, other = fault("f", targets=["n1"]), fault("g", "pause", targets=["n2"])
    assert alone([one], **three)[1] == []
    assert alone([one, other], **three) == ("invalid", [2])
    assert alone([one, fault("g", "pause", targets=["n1"])], **three)[1] == []
    late = other | {"t_on1": 28}
    assert alone([one, late], **three)[1] == []
    link = fault("g", "cut", targets=["n0", "n2"])  # the others hear each of them
    assert alone([one, link], **three)[1] == []


def told(*acks: dict[str, Any], **more: Any) -> int:
    """Return how many fetches were told too little, in a group with a leader that was seen."""
    about = {"grp": "g", "topic": "t", "queue_id": 0, "outcome": "ok"}
    rows = [about | ack | {"t_inv": ack["t"], "t_cmp": ack["t"] + 1} for ack in acks]
    leads = {"node": "n2", "ok": True, "role": "leader", "term": 2}
    parts: dict[str, Any] = {
        "acks": rows,
        "probes": [leads | {"t0": at * S, "t1": at * S} for at in range(9, 60)],
        "contract": {"durability": "quorum"},
    }
    return check_history(History(**(vars_of(clean()) | parts | more))).results["A18"].count


def vars_of(history: History) -> dict[str, Any]:
    names = ("topic", "group", "run_ids", "sends", "deliveries", "drain", "replicas")
    return {name: getattr(history, name) for name in names}


KILLED = fault("f", t_on0=8 * S, t_on1=9 * S, t_off0=20 * S, t_off1=21 * S)


def commit(offset: int, at: float, consumer: str = "c0", **more: Any) -> dict[str, Any]:
    t = int(at * S)
    return {"kind": "commit", "value_offset": offset, "t": t, "consumer": consumer} | more


def fetch(offset: int, at: float, consumer: str = "c1") -> dict[str, Any]:
    return {"kind": "fetch", "value_offset": offset, "t": int(at * S), "consumer": consumer}


def test_what_is_committed_while_a_broker_is_down_stands():
    acks = commit(9, 13), fetch(5, 15)
    assert told(*acks, faults=[KILLED]) == 1
    assert told(*acks, faults=[KILLED | {"kind": "pause"}]) == 0  # it may still take commits
    assert told(*acks, faults=[KILLED], probes=[]) == 0  # nobody saw who leads
    assert told(*acks, faults=[KILLED], contract={}) == 0
    assert told(*acks, faults=[KILLED], contract={"durability": "pair"}) == 0
    assert told(commit(9, 8.5), fetch(5, 15), faults=[KILLED]) == 0  # to who was killed


def test_a_change_of_the_lead_while_a_broker_is_down_excuses_what_was_committed_before():
    leads = {"node": "n2", "ok": True, "role": "leader", "term": 2}
    probes = [leads | {"t0": at * S, "t1": at * S} for at in range(9, 14)]
    probes += [leads | {"t0": at * S, "t1": at * S, "term": 3} for at in range(16, 40)]
    assert told(commit(9, 13), fetch(5, 17), faults=[KILLED], probes=probes) == 0
    assert told(commit(9, 17), fetch(5, 18), faults=[KILLED], probes=probes) == 1


def test_who_was_told_less_carries_no_less_once_it_has_committed():
    acks = [fetch(0, 30, "c0"), commit(4, 31), commit(9, 32)]
    assert told(*acks, fetch(3, 33)) == 0  # a pull of c0 may have been on its way
    assert told(*acks, fetch(3, 35)) == 1
    assert told(*acks[:1], commit(9, 32, "c1"), fetch(3, 35, "c2")) == 0  # c0 committed nothing
    assert told(*acks, fetch(3, 35), fetch(3, 35.5)) == 1  # the second repeats what was told


def test_a_doubtful_commit_is_over_once_the_next_one_of_its_member_is_answered():
    paused = KILLED | {"kind": "pause", "t_off1": 30 * S}
    acks = commit(4, 29), commit(9, 31), fetch(5, 32)
    assert told(*acks, faults=[paused]) == 1
    info = commit(4, 29, outcome="info")
    assert told(info, commit(9, 31), fetch(5, 32), faults=[paused]) == 0
