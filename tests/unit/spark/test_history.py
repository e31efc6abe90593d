"""What of a run is looked at before there is a session."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark import check_history
from spark.check_history import main
from spark.history import open_history
from spark.validation import odd_members


def test_null_in_run_json_says_as_much_as_nothing(tmp_path):
    members = ("contract", "coverage", "modes", "nodes", "quorum", "subscriptions", "tables")
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "r"} | dict.fromkeys(members)))
    history = open_history(tmp_path)
    assert not history.problems
    assert history.run == {"run_id": "r"}
    assert not odd_members(history.run)


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), ValueError("odd")])
def test_a_run_that_cannot_be_looked_at_is_not_invalid(error, tmp_path, monkeypatch, capsys):
    def denied(path):
        raise error

    monkeypatch.setattr(check_history, "open_history", denied)
    assert main([str(tmp_path)]) == 255
    assert type(error).__name__ in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("msg_key", pa.array(["5", "0x1F"]), "'0x1F' is no decimal number"),
        ("msg_key", pa.array(["5", "0x1F"]).dictionary_encode(), "'0x1F' is no decimal number"),
        ("t_cmp", pa.array([1, 2], pa.timestamp("us")), "has to be int64"),
        ("t_cmp", pa.array([1, 2], pa.timestamp("ns")), "has to be int64"),
    ],
)
def test_what_spark_would_read_as_null_is_refused(column, values, words, tmp_path):
    sent = {"run_id": ["r"] * 2, "op_id": [1, 2], "msg_key": [5, 6], "topic": ["t"] * 2,
            "t_inv": [1, 2], "outcome": ["ok"] * 2}  # fmt: skip
    (tmp_path / "tables").mkdir()
    pq.write_table(pa.table(sent | {column: values}), tmp_path / "tables" / "sends.parquet")
    history = open_history(tmp_path)
    assert f"column {column} is {values.type}" in history.problems[0]
    assert words in history.problems[0]
    assert "sends" in history.unusable
