"""What an error code proves."""

import pytest

from chaos.history import outcome
from chaos.history.outcome import Outcome


@pytest.mark.parametrize(
    ("code", "remark", "expected"),
    [
        (0, None, Outcome.OK),
        (None, None, Outcome.INFO),
        (outcome.NOT_CONNECTED, None, Outcome.FAIL),
        (outcome.TIMED_OUT, None, Outcome.INFO),
        (14, "service not available now", Outcome.FAIL),
        (14, "outcome unknown: stepped down", Outcome.INFO),
        (1, None, Outcome.INFO),
        (2, "[PC_SYNCHRONIZED]broker busy", Outcome.INFO),
        (2, "[TIMEOUT_CLEAN_QUEUE]broker busy", Outcome.FAIL),
        (10, None, Outcome.INFO),
        (98765, None, Outcome.INFO),
    ],
)
def test_only_a_refusal_before_the_append_is_fail(code, remark, expected):
    assert outcome.classify(code, remark) is expected


def test_one_unknown_attempt_makes_a_failed_operation_unknown():
    ok, fail, info = Outcome.OK, Outcome.FAIL, Outcome.INFO
    assert outcome.combine([fail, fail]) is fail
    assert outcome.combine([info, fail]) is info
    assert outcome.combine([info, ok]) is ok
    assert outcome.combine([fail, info]) is info
    assert outcome.combine([]) is info


def test_every_row_says_why():
    assert all(row.reason and row.code == code for code, row in outcome.CODES.items())
