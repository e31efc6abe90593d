"""``ledgermq bench --pairs``: a master and its slave, and a switch by controllers, in one table.

See `bench.suite`; each part is a module of its own with options of its own
(``python -m bench.NAME --help``). Sends to a pair beside those to real RocketMQ are rows of
``ledgermq bench --java``.
"""

import argparse
from collections.abc import Sequence

from bench.suite import Aim, Run, Suite

COMMANDS = {
    "lag": ["bench.slave_lag"],
    "catch-up": ["bench.catch_up"],
    "switch": ["bench.switch", "--kills", "10"],
    "large": ["bench.switch", "--kills", "5", "--mib", "1024", "--queues", "1000"],
}
AIMS = {
    "lag": (Aim("lag_p99_ms", 20, at_least=False), Aim("missing", 0, at_least=False)),
    "catch-up": (Aim("mb_per_s", 200), Aim("send_p99_ratio", 3, at_least=False)),
    "switch": (
        Aim("max_ms", 3_000, at_least=False),
        Aim("lost", 0, at_least=False),
        Aim("wrong", 0, at_least=False),
    ),
    "large": (
        Aim("max_ms", 3_000, at_least=False),
        Aim("lost", 0, at_least=False),
        Aim("wrong", 0, at_least=False),
    ),
}
SUITE = Suite(title="a master and its slave", aims=AIMS)


def main(argv: Sequence[str] | None = None, run: Run | None = None) -> int:
    """Measure, print the table and the JSON; 1 if an aim was missed."""
    return SUITE.run(COMMANDS, parser().parse_args(argv), run)


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    return SUITE.parser(
        prog="ledgermq bench --pairs",
        description="A master and its slave: lag, catching up, and how long a switch by"
        " controllers takes. About five minutes in all.",
        epilog="Example: ledgermq bench --pairs --part lag --part switch",
    )
