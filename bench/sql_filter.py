"""What one evaluation of a SQL92 expression of three terms costs a broker.

``python -m bench.sql_filter``: the expression over properties that were read already, and the whole
of what a pull does for a record: properties read from the record, then the expression. Processor
time, the best of several runs.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence

from bench.store_append import BODY, HOST
from broker.pulls.filters import Filters
from broker.pulls.sql92 import compile_sql92
from ledgermq.remoting.protocol.message import MessageExt, encode_record

EXPRESSIONS = {
    "numbers": "price > 10 AND price < 200 AND amount >= 3",
    "texts": "colour = 'red' AND size IN ('L', 'XL') AND region IS NOT NULL",
    "mixed": "price BETWEEN 10 AND 200 AND colour = 'red' AND (name CONTAINS 'lamp')",
}
PROPERTIES = {
    "UNIQ_KEY": "7F000001438C803BAB6E714B953A0000", "WAIT": "true", "price": "117", "amount": "4",
    "colour": "red", "size": "XL", "region": "north", "name": "a lamp of brass",
}  # fmt: skip


def measure(rounds: int, evaluations: int) -> dict[str, float]:
    """Return microseconds by expression."""
    text = b"\x02".join(f"{name}\x01{value}".encode() for name, value in PROPERTIES.items())
    record = memoryview(
        encode_record(MessageExt("bench", 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, BODY, text))
    )
    found: dict[str, float] = {}
    for name, expression in EXPRESSIONS.items():
        matches = compile_sql92(expression).matches
        assert matches(PROPERTIES), expression
        found[f"{name}_us"] = _best(matches, PROPERTIES, rounds, evaluations)
        test = Filters().by_sql(expression).matches
        found[f"{name}_of_a_record_us"] = _best(test, record, rounds, evaluations)
    found["worst_us"] = max(found[f"{name}_us"] for name in EXPRESSIONS)
    return found


def _best(test: Callable[..., object], value: object, rounds: int, evaluations: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(evaluations):
            test(value)
        best = min(best, time.process_time() - begin)
    return round(best / evaluations * 1e6, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.sql_filter", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--evaluations", type=int, default=20_000, help="of each round")
    options = parser.parse_args(argv)
    print(json.dumps(measure(options.rounds, options.evaluations)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
