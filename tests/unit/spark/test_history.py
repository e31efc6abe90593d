"""What of a run is looked at before there is a session."""

import json

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
