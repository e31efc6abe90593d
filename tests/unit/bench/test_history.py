"""The generator of large histories: sound as it is, and spoiled only as it was asked."""

import numpy as np
import pytest

from bench import history
from chaos.checker import check_history
from chaos.history import payload
from chaos.load import load_history


@pytest.mark.parametrize("skew", ["", "queue"])
def test_history_of_several_chunks_and_segments_is_sound(tmp_path, monkeypatch, skew):
    monkeypatch.setattr(history, "CHUNK", 100)
    monkeypatch.setattr(history, "SEGMENT_BYTES", 20_000)
    out = tmp_path / "run"
    assert history.main([str(out), "--rows", "1500", "--skew", skew]) == 0
    verdict = check_history(load_history(out))
    assert (verdict.verdict, verdict.reasons) == ("valid", ())
    assert (verdict.counts["sent"], verdict.counts["delivered"]) == (300, 300)
    assert verdict.counts["log_entries"] == 900
    assert len(list((out / "replicas" / "n2" / "data").iterdir())) == 4
    assert len(list((out / "tables" / "sends").iterdir())) == 3


def test_what_is_left_out_is_lost_and_a_repeated_message_is_redelivered(tmp_path):
    out = tmp_path / "run"
    history.main([str(out), "--rows", "500", "--lost", "7"])
    assert check_history(load_history(out)).counts["lost"] == 7
    again = tmp_path / "again"
    history.main([str(again), "--rows", "500", "--skew", "key"])
    counts = check_history(load_history(again)).counts
    assert (counts["redelivered"], counts["lost"]) == (9, 9)


def test_whole_history_has_all_that_the_harness_records_and_is_sound(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "CHUNK", 300)
    out = tmp_path / "run"
    assert history.main([str(out), "--rows", "8000", "--whole"]) == 0
    verdict = check_history(load_history(out))
    assert (verdict.verdict, verdict.reasons) == ("valid", ())
    assert (verdict.counts["sent"], verdict.counts["delivered"]) == (800, 2400)
    checked = {name for name, one in verdict.results.items() if one.verdict == "valid"}
    assert checked >= {"A2", "A4", "A13", "A14", "A16", "A18", "A19", "A45"}


def test_bodies_are_those_of_the_harness():
    numbers = np.arange(5, 9)
    tag = bytes.fromhex(payload.run_tag(history.RUN_ID))
    for number, entry in zip(numbers.tolist(), history._entries(numbers, 8), strict=True):
        body = payload.encode_body(tag, payload.make_key(1, number), history.BODY_BYTES)
        assert entry["record"]["body"].tobytes() == body
