"""Which checks ``--only`` takes, and what it says of the others."""

import pytest

from spark.check_history import main


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("A20", "A20 is asked of histories as A11, A12, A49"),
        ("a1,A24", "A24 is asked of histories as A18, A19, A50"),
        ("A99", "unknown check A99"),
        (",", "unknown check (none)"),
    ],
)
def test_what_no_history_is_asked_is_told(asked, words, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "--only", asked])
    assert ended.value.code == 254
    assert words in capsys.readouterr().err
