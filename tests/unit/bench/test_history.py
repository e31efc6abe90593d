"""The generator of large histories: sound as it is, and spoiled only as it was asked."""

import pytest

from bench import history
from chaos.checker import check_history
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
