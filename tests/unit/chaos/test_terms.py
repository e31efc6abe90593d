"""In which term a send was acknowledged: only what two answers of one leader enclose is claimed."""

import pytest

from chaos.convert import collect
from chaos.record import Recorder
from chaos.terms import Reigns

MS = 1_000_000


def answer(t: int, term: int = 3, role: str = "leader", **row):
    made = {"node": "n0", "t0": t, "t1": t + 1, "ok": True, "role": role, "term": term}
    return made | {"boot_id": "b"} | row


def test_what_lies_between_two_answers_of_one_leader_has_its_term():
    reigns = Reigns([answer(100), answer(200), answer(300)])
    assert reigns.term_at("n0", 101, 300) == 3
    assert reigns.term_at("n0", 150, 160) == 3
    assert reigns.term_at("n0", 100, 160) is None, "it may have been elected since"
    assert reigns.term_at("n0", 250, 301) is None, "it may have been replaced since"
    assert reigns.term_at("n1", 150, 160) is None
    assert reigns.term_at(None, 150, 160) is None


def test_silence_between_two_answers_changes_nothing():
    """Who is paused leads still, by its own lights: what it acknowledges it does in that term."""
    silence = {"node": "n0", "t0": 150, "t1": 151, "ok": False}
    reigns = Reigns([answer(100), silence, answer(200)])
    assert reigns.term_at("n0", 140, 190) == 3


@pytest.mark.parametrize(
    "between",
    [answer(150, role="follower"), answer(150, term=4), answer(150, boot_id="c")],
    ids=["follower", "term", "boot"],
)
def test_nothing_is_claimed_across_another_answer(between):
    reigns = Reigns([answer(100), between, answer(200, term=between["term"])])
    assert reigns.term_at("n0", 120, 140) is None
    assert reigns.term_at("n0", 130, 180) is None


def test_answers_without_a_term_prove_nothing():
    """Those of masters and slaves."""
    assert Reigns([answer(1, term=None), answer(9, term=None)]).term_at("n0", 3, 4) is None


def test_sends_of_a_run_get_the_term_of_who_acknowledged_them(tmp_path):
    def send(op_id, kind, t, **value):
        return {
            "op_id": op_id, "type": kind, "f": "send", "t_mono_ns": t, "process": 0,
            "value": {"topic": "t", "msg_key": op_id, "body_hash": 1, "body_len": 1, **value},
        }  # fmt: skip

    with Recorder(tmp_path / "raw" / "harness.jsonl") as recorder:
        for row in (answer(100), answer(900)):
            recorder.write("raft_probe", row)
        for op_id, end, node, outcome in (
            (1, 300, "n0", "ok"), (2, 300, "n1", "ok"), (3, 950, "n0", "ok"),
            (4, 300, "n0", "info"),
        ):  # fmt: skip
            recorder.write("events", send(op_id, "invoke", 200))
            recorder.write("events", send(op_id, outcome, end, node=node))
    sends = {row["op_id"]: row for row in collect(tmp_path, "a-run")["sends"]}
    assert {op_id: row.get("raft_term") for op_id, row in sends.items()} == {
        1: 3, 2: None, 3: None, 4: None,
    }  # fmt: skip
