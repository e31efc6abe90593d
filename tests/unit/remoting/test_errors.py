"""What each error says about the outcome of a request."""

import pytest

from ledgermq.remoting.protocol import errors
from ledgermq.remoting.protocol.codes import ResponseCode, name_of_response
from ledgermq.remoting.protocol.errors import Outcome, ResponseError, for_code


@pytest.mark.parametrize("code", [code for code in ResponseError.by_code if code != 1])
def test_each_code_has_one_class(code):
    error = for_code(code, "why")
    assert type(error) is ResponseError.by_code[code]
    assert (error.code, error.remark) == (code, "why")
    assert ResponseCode(code).name in str(error)


def test_an_unknown_code_keeps_its_number_and_an_unknown_outcome():
    error = for_code(9999, None)
    assert type(error) is ResponseError
    assert error.code == 9999
    assert error.outcome is Outcome.UNKNOWN
    assert str(error) == "code 9999 UNKNOWN: no remark"


def test_a_remark_can_make_the_outcome_unknown():
    assert for_code(2, "busy").outcome is Outcome.FAILED
    assert for_code(2, "[PC] outcome unknown").outcome is Outcome.UNKNOWN
    assert for_code(14, None).outcome is Outcome.FAILED
    assert for_code(1, "x").outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    "remark", ["request queueId[9] is illegal, TopicConfig", "queueId[-1] is illegal"]
)
def test_a_queue_that_there_is_not_is_a_certain_failure(remark):
    assert for_code(1, remark).outcome is Outcome.FAILED
    assert for_code(1, f"failed while {remark}").outcome is Outcome.UNKNOWN


def test_only_errors_before_sending_are_certain_among_those_of_the_connection():
    assert errors.ConnectFailed.outcome is Outcome.FAILED
    assert errors.ConnectionLost.outcome is Outcome.UNKNOWN
    assert errors.RequestTimeout.outcome is Outcome.UNKNOWN


def test_names_of_codes():
    assert name_of_response(17) == "TOPIC_NOT_EXIST"
    assert name_of_response(-5) == "UNKNOWN"
