"""``ledgermq bench --kinds``: transactions, delays, consumers, failover and filters, in one table.

See `bench.suite`; each part is a module of its own with options of its own
(``python -m bench.NAME --help``).
"""

import argparse
import sys
from collections.abc import Sequence

from bench.suite import Aim, Run, Suite

COMMANDS = {
    "transactions": ["bench.transactions"],
    "delays": ["bench.delays"],
    "waiting": ["bench.waiting"],
    "consuming": ["bench.consuming"],
    "rebalance": ["bench.rebalance"],
    "failover": ["bench.failover", "--kills", "50"],
    "sql": ["bench.sql_filter"],
}
AIMS = {
    "transactions": (
        Aim("transactions_per_s", 5_000),
        Aim("transactions_errors", 0, at_least=False),
    ),
    "delays": (
        Aim("steady_late_p99_ms", 50, at_least=False),
        Aim("steady_early", 0, at_least=False),
        Aim("send_meanwhile_p99_ms", 100, at_least=False),
    ),
    "waiting": (
        Aim("memory_mib", 100, at_least=False),
        Aim("clean_restart_s", 5, at_least=False),
        Aim("crash_restart_s", 5, at_least=False),
    ),
    "consuming": (
        Aim("plain_per_s", 40_000),
        Aim("sql_over_plain", 0.7),
        Aim("orderly_over_plain", 0.7),
    ),
    "rebalance": (Aim("slower_s", 2, at_least=False), Aim("twice", 0, at_least=False)),
    "failover": (
        Aim("p99_ms", 500, at_least=False),
        Aim("lost", 0, at_least=False),
        Aim("wrong", 0, at_least=False),
    ),
    "sql": (Aim("worst_us", 3, at_least=False),),
}
SUITE = Suite(title="every kind of message", aims=AIMS)


def main(argv: Sequence[str] | None = None, run: Run | None = None) -> int:
    """Measure, print the table and the JSON; 1 if an aim was missed."""
    return SUITE.run(COMMANDS, parser().parse_args(argv), run)


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    return SUITE.parser(
        prog="ledgermq bench --kinds",
        description="The figures of every kind of message: transactions, delays, consumers,"
        " rebalance, failover, filters. Six to ten minutes in all.",
        epilog="Example: ledgermq bench --kinds --part transactions --part sql",
    )


if __name__ == "__main__":
    sys.exit(main())
