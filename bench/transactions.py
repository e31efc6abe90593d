"""Transactions a second, beside single sends of the same group, with processor time by process.

``python -m bench.transactions [--window 64] [--seconds 3] [--rounds 3]``: three replicas,
1 KiB, a listener that commits at once; a load of single sends and one of transactions in turn, the
medians are printed. A transaction is counted when its end was sent; at the end of a load the topic
must hold all copies (`bench.load`), what it lacks is an error.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench import load
from bench.cluster import Cluster
from bench.loading import run_load
from bench.processor import ROLES
from bench.result import Measurement

WARMUP_S = 1.0
TIMEOUT_EXTRA_S = 90.0
BODY_BYTES = 1024


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return the figures."""
    sends: list[Measurement] = []
    transactions: list[Measurement] = []
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-transactions-") as home,
        Cluster(Path(home), replicas=3, sync_flush=False) as cluster,
    ):
        for _ in range(options.rounds):
            sends.append(_load(cluster, options, load.SINGLY))
            transactions.append(_load(cluster, options, load.TRANSACTIONS))
        found = _figures("sends", sends) | _figures("transactions", transactions)
        found["transactions_over_sends"] = round(_rate(transactions) / _rate(sends), 3)
    return found


def _load(cluster: Cluster, options: argparse.Namespace, kind: str) -> Measurement:
    numbers = (options.window, BODY_BYTES, WARMUP_S, options.seconds)
    program = [sys.executable, "-P", "-m", "bench.load", cluster.namesrv_addr, "bench"]
    brokers = {f"n{node}": broker.pid for node, broker in enumerate(cluster.brokers)}
    timeout_s = WARMUP_S + options.seconds + TIMEOUT_EXTRA_S
    leader = f"n{cluster.leader()}"
    return run_load(
        [*program, *map(str, numbers), kind], options.seconds, timeout_s, brokers, leader
    )


def _rate(rows: Sequence[Measurement]) -> float:
    return median(row.rate for row in rows)


def _figures(name: str, rows: Sequence[Measurement]) -> dict[str, float]:
    figures = {
        f"{name}_per_s": _rate(rows),
        f"{name}_p50_ms": median(row.p50_ms for row in rows),
        f"{name}_p99_ms": median(row.p99_ms for row in rows),
        f"{name}_errors": sum(row.errors for row in rows),
    }
    for role in ROLES:
        used = [row.processor_us[role] for row in rows if role in row.processor_us]
        if used:
            figures[f"{name}_{role.replace(' ', '_')}_us"] = median(used)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description=__doc__)
    parser.add_argument("--window", type=int, default=64, help="transactions outstanding")
    parser.add_argument("--seconds", type=float, default=3, help="measured, of each load")
    parser.add_argument("--rounds", type=int, default=3)
    print(json.dumps(measure(parser.parse_args(argv))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
