"""CHECK_CLIENT_CONFIG: what a Java consumer is told before it joins with an expression."""

import json

import pytest

from broker.processor.filter import FilterProcessor
from ledgermq.remoting.protocol.command import RemotingCommand


def answer(enabled=True, body=None, **subscription):
    wanted = {"topic": "T", "subString": "n > 3", "expressionType": "SQL92", "subVersion": 1}
    if body is None:
        body = {"clientId": "c", "group": "g", "subscriptionData": wanted | subscription}
    request = RemotingCommand(code=46, body=json.dumps(body).encode())
    response = FilterProcessor(enabled=enabled).handle_check(None, request)
    return response.code, response.remark


@pytest.mark.parametrize("kind", ["SQL92", "TAG", "", None])
def test_what_is_served_is_accepted(kind):
    assert answer(expressionType=kind) == (0, None)
    assert answer(body={"clientId": "c"}) == (0, None)


def test_a_bad_expression_is_refused_with_its_place():
    assert answer(subString="n > > 3") == (
        23, "SQL92 expression: not understood at line 1, column 5"
    )  # fmt: skip


def test_what_is_not_served_is_refused():
    unknown = "The broker does not support consumer to filter message by"
    assert answer(expressionType="CLASS") == (1, f"{unknown} CLASS")
    assert answer(enabled=False) == (1, f"{unknown} SQL92")
