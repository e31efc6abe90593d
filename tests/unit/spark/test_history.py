"""What of a run is looked at before there is a session."""

import pytest

from spark import check_history
from spark.check_history import main


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), ValueError("odd")])
def test_a_run_that_cannot_be_looked_at_is_not_invalid(error, tmp_path, monkeypatch, capsys):
    def denied(path):
        raise error

    monkeypatch.setattr(check_history, "open_history", denied)
    assert main([str(tmp_path)]) == 255
    assert type(error).__name__ in capsys.readouterr().err
