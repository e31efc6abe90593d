"""Who did what, and where, in an export: Jepsen asks for the order of what one process does."""

import pytest

from chaos.exchange.edn import read_forms
from chaos.exchange.export import export_history
from tests.unit.chaos.histories import clean, delivery, send


def exported(path, sends, deliveries=()):
    """Return the operations of an export of these rows by type, f and process."""
    history = clean(sends=sends, deliveries=deliveries, replicas=[])
    export_history(history, "jepsen-edn", path, force=True)
    ops = [op for _, op in read_forms(path.read_text().splitlines())]
    return [op for op in ops if op["process"] != "nemesis"]


def test_each_generation_of_a_reader_is_a_process(tmp_path):
    """What was not committed comes again after a rebalance: no poll of a process goes back."""
    about = {"consumer": "c", "msg_key": 1, "queue_offset": 1}
    rows = [
        delivery(1, t_recv=1000 + 10 * n, t_fetch_inv=999 + 10 * n, generation=generation, **about)
        for n, generation in enumerate((1, 1, 2))
    ]
    polls = exported(tmp_path / "h.edn", [send(1)], rows)
    processes = [op["process"] for op in polls if op["f"] == "poll" and op["type"] == "ok"]
    assert processes[0] == processes[1] != processes[2]


def test_what_a_producer_sends_one_after_the_other_is_of_one_process(tmp_path):
    """Jepsen looks for sends that go back within a process."""
    told = [(1, 7, "ok"), (2, 8, "ok"), (3, 7, "ok"), (4, 8, "info"), (5, 8, "ok")]
    sends = [
        send(key, process=who, outcome=outcome, t_inv=key * 10, t_cmp=key * 10 + 5)
        for key, who, outcome in told
    ]
    ops = exported(tmp_path / "h.edn", sends)
    by_key = {op["value"][0][2]: op["process"] for op in ops if op["type"] == "invoke"}
    assert by_key[1] == by_key[3] != by_key[2] == by_key[4]
    # Nobody knows whether that one has ended: what it sends next is of a process of its own.
    assert by_key[5] not in {by_key[1], by_key[4]}
    # At one time one process has one operation.
    twice = [send(1, process=7, t_inv=10, t_cmp=30), send(2, process=7, t_inv=20, t_cmp=40)]
    assert len({op["process"] for op in exported(tmp_path / "h.edn", twice)}) == 2


def test_what_was_sent_nobody_knows_where_has_the_key_in_which_it_was_found(tmp_path):
    """To Jepsen nobody sent what lies in another key, and its checker ends with an exception."""
    sends = [send(1), send(2, outcome="info"), send(3, outcome="fail"), send(4, outcome="info")]
    rows = [delivery(1), delivery(2, queue_id=5, t_recv=70), delivery(3, queue_id=6)]
    later = delivery(2, queue_id=7, t_recv=90)
    ops = exported(tmp_path / "h.edn", sends, [*rows, later])
    told = [op["value"][0] for op in ops if op["f"] == "send" and op["type"] != "invoke"]
    assert told == [["send", "t/0", [1, 1]], *(["send", f"t/{q}", n] for q, n in ((5, 2), (6, 3))),
                    ["send", "t/", 4]]  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([(1, [0, 1]), (2, [2, 3])], [0, 1, 2, 3]),
        ([(1, [2, 3]), (2, [0, 1])], [0, 1, 2, 3]),
        ([(1, [0, 2]), (2, [1, 3])], [0, 1, 2, 3]),
        ([(1, [1, 0]), (2, [2, 3])], [1, 0, 2, 3]),
    ],
)
def test_calls_of_one_fetch_are_one_poll_in_the_order_of_their_queue(calls, told, tmp_path):
    """Between calls of one fetch no order is owed; each counts its places from 0."""
    rows = [
        delivery(offset, op_id=call, pos=pos, t_fetch_inv=500, t_recv=600)
        for call, offsets in calls
        for pos, offset in enumerate(offsets)
    ]
    ops = exported(tmp_path / "h.edn", [send(key) for key in range(4)], rows)
    (poll,) = [op for op in ops if op["f"] == "poll" and op["type"] == "ok"]
    assert [offset for offset, _ in poll["value"][0][1]["t/0"]] == told


@pytest.mark.parametrize(
    ("outcome", "attempts", "told"),
    [
        ("ok", 1, [("ok", "t/0")]),
        ("ok", 2, [("ok", "t/0"), ("info", "t/1")]),
        ("ok", 5, [("ok", "t/0"), ("info", "t/1"), ("info", "t/2")]),
        ("info", 2, [("info", "t/1"), ("info", "t/2")]),
        ("fail", 2, [("fail", "t/1")]),
    ],
)
def test_attempts_that_stored_a_message_in_another_queue_are_sends(
    outcome, attempts, told, tmp_path
):
    rows = [delivery(1, queue_id=queue_id, t_recv=70 + queue_id) for queue_id in (1, 2)]
    ops = exported(tmp_path / "h.edn", [send(1, outcome=outcome, attempts=attempts)], rows)
    sends = [op for op in ops if op["f"] == "send" and op["type"] != "invoke"]
    assert sorted((op["type"], op["value"][0][1]) for op in sends) == sorted(told)
    assert sum(op.get("attempts", 1) for op in sends) == attempts


def test_a_send_without_an_end_is_unknown_at_the_end_of_all(tmp_path):
    """Jepsen asks completions who sent what was read."""
    sends = [send(1, outcome="info", t_cmp=None, queue_id=0), send(2)]
    ops = exported(tmp_path / "h.edn", sends, [delivery(1), delivery(2)])
    told = [(op["type"], op["value"][0][2]) for op in ops if op["f"] == "send"]
    assert told == [("invoke", 1), ("invoke", 2), ("ok", [2, 2]), ("info", 1)]
    assert ops[-1]["type"] == "info"
