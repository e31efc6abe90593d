"""SQL92 filters say what RocketMQ 5.3.3's own filter says.

``sql92_answers.jsonl`` has an expression, the properties of a message and what rocketmq-filter
5.3.3 answered (true, false, null, error, refused), written down by tests/interop/java's
`Evaluate`: cases chosen by hand, then random ones. RocketMQ reads an expression as far as it
understands it and drops the rest (``a = 1 b``); those are not among them, since ours refuses them.
"""

import json
from pathlib import Path

import pytest

from broker.pulls.sql92 import Sql92Error, compile_sql92

LINES = Path(__file__).with_name("sql92_answers.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("number", range(len(LINES)))
def test_an_expression_says_what_rocketmq_says(number):
    expression, properties, answer = json.loads(LINES[number])
    if answer == "refused":
        with pytest.raises(Sql92Error):
            compile_sql92(expression)
        return
    assert compile_sql92(expression).matches(properties) is (answer == "true")
    # null is no opposite: what is neither true nor false matches neither way
    opposite = compile_sql92(f"NOT ({expression})").matches(properties)
    assert opposite is (answer == "false")
