"""``ledgermq bench``: acknowledged sends a second and latency, ours beside peers, in one run.

Rows: an echo of the same frames (ceiling), one node and three replicas with async and sync flush,
PySyncObj with three nodes; with ``--java`` the published Java client 4.9.7 against ours and against
real RocketMQ 4.9.7: three replicas, one node, a synchronous master and its slave. Our client has
its default settings, so concurrent sends share requests; the rows that say "auto_batch off" are
without that, as the echo is. A second table has the processor time of a message, by process. Ratios
are taken within the run; absolute figures depend on the machine and its neighbours, processor time
less so than rates.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import echo, java, kinds_suite, load, pairs_suite, pysyncobj_peer, store_suite
from bench.cluster import Cluster
from bench.loading import run_load
from bench.pair import Pair
from bench.processes import ServerProcesses
from bench.processor import ROLES
from bench.result import Measurement
from bench.slow_sync import slow_syncs
from chaos.shim.build import NotBuilt

Rows = dict[int, Measurement]
WINDOW_MAX = 10_000
WARMUP_S = 1.5
# JVMs need time to compile: the servers once, the client in every run; the same for both sides.
JAVA_SERVER_WARMUP_S = 20.0
JAVA_WARMUP_WINDOW = 64
JAVA_WARMUP_S = 6.0
LOAD_TIMEOUT_EXTRA_S = 90.0
REAL_SETTLE_S = 8.0
OURS = "three replicas, async flush"
OURS_SINGLY = f"{OURS}, auto_batch off"
ECHO = "echo of the same frames (ceiling)"
PEER = "PySyncObj, three nodes, best settings"
PEER_ROWS = {
    PEER: "client",
    "PySyncObj, three nodes, its defaults": "defaults",
    "PySyncObj, in memory, load inside the leader": "embedded",
}
AUTO_BATCH_KEYS = ("auto_batch", "auto_batch_messages_max", "auto_batch_bytes_max")
JAVA_OURS = "Java client, our three replicas"
JAVA_REAL = "Java client, real RocketMQ with three DLedger replicas"
JAVA_OURS_ALONE = "Java client, one node of ours"
JAVA_REAL_ALONE = "Java client, one node of real RocketMQ"
JAVA_OURS_SYNCED = f"{JAVA_OURS_ALONE}, sync flush"
JAVA_REAL_SYNCED = f"{JAVA_REAL_ALONE}, sync flush"
JAVA_OURS_PAIR = "Java client, our synchronous master and slave"
JAVA_REAL_PAIR = "Java client, real synchronous master and slave"


SUITES = {
    "--store": store_suite.main,
    "--kinds": kinds_suite.main,
    "--pairs": pairs_suite.main,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OurRow:
    """What is started for a row of ours."""

    replicas: int
    sync_flush: bool = False
    auto_batch: bool = True


OUR_ROWS = {
    "one node, async flush": OurRow(replicas=1),
    "one node, async flush, auto_batch off": OurRow(replicas=1, auto_batch=False),
    "one node, sync flush": OurRow(replicas=1, sync_flush=True),
    OURS: OurRow(replicas=3),
    OURS_SINGLY: OurRow(replicas=3, auto_batch=False),
    "three replicas, sync flush": OurRow(replicas=3, sync_flush=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRow:
    """What is started for a row of the Java client."""

    replicas: int
    real: bool
    sync_flush: bool = False

    def servers(self, tools: java.JavaTools, home: Path) -> ServerProcesses:
        """Return them, not started; two replicas are a synchronous master and its slave."""
        many: dict[str, Any] = {"replicas": self.replicas, "sync_flush": self.sync_flush}
        if self.replicas == 2:
            return java.RealPair(tools, home, **many) if self.real else Pair(home, is_sync=True)
        return java.RealRocketMQ(tools, home, **many) if self.real else Cluster(home, **many)


JAVA_ROWS = {
    JAVA_OURS: JavaRow(replicas=3, real=False),
    JAVA_REAL: JavaRow(replicas=3, real=True),
    JAVA_OURS_ALONE: JavaRow(replicas=1, real=False),
    JAVA_REAL_ALONE: JavaRow(replicas=1, real=True),
    JAVA_OURS_SYNCED: JavaRow(replicas=1, real=False, sync_flush=True),
    JAVA_REAL_SYNCED: JavaRow(replicas=1, real=True, sync_flush=True),
    JAVA_OURS_PAIR: JavaRow(replicas=2, real=False),
    JAVA_REAL_PAIR: JavaRow(replicas=2, real=True),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table and the JSON; 0, or 2 where there is nothing to measure."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for word, suite in SUITES.items():
        if word in arguments:
            arguments.remove(word)
            return suite(arguments)
    parser = _parser()
    if any(word.partition("=")[0] == "--part" for word in arguments):
        parser.error("--part needs --store, --kinds or --pairs")
    options = parser.parse_args(arguments)
    windows = options.windows
    console = Console()
    if options.list:
        _print_list(console)
        return 0
    results: dict[str, Rows] = {}
    plan = _plan(options, windows)
    if not plan:
        console.print(f"error: no row has a name that contains {options.only!r}", highlight=False)
        return 2
    try:
        with slow_syncs(options.sync_us):
            for name, run in plan:
                console.print(f"measuring: {name} ...", highlight=False)
                results[name] = run()
    except NotBuilt as error:
        console.print(f"error: --sync-us: {error}", highlight=False)
        return 2
    _print_table(console, results, windows)
    _print_processor_time(console, results)
    document = {
        "body_bytes": options.size,
        "seconds": options.seconds,
        "sync_us": options.sync_us,
        "settings": {name: settings for name, settings in _settings().items() if name in results},
        "rows": {name: [m.as_dict() for m in rows.values()] for name, rows in results.items()},
        "ratios": _ratios(results),
    }
    text = json.dumps(document, indent=1)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
        console.print(f"JSON: {options.json}")
    else:
        print(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ledgermq bench",
        description="Acknowledged sends a second and latency, ours beside peers, in one run.",
        epilog="Example: ledgermq bench --windows 1,64 --seconds 5 --json bench.json",
    )
    parser.add_argument(
        "--windows",
        type=_windows,
        default="1,16,64,256",
        help=f"outstanding sends, comma separated, each 1 to {WINDOW_MAX}",
    )
    parser.add_argument(
        "--size", type=_number(1, 4 << 20), default=1024, help="body bytes of a message"
    )
    parser.add_argument(
        "--seconds", type=_number(1, 3600), default=4, help="measured seconds of each window"
    )
    parser.add_argument(
        "--sync-us", type=_number(0, 1_000_000), default=0,
        help="have each sync of all servers take so much longer, as on a slower disk",
    )  # fmt: skip
    parser.add_argument(
        "--store", action="store_true", help="the figures of one broker's store; see --store --help"
    )
    parser.add_argument(
        "--kinds", action="store_true", help="transactions, delays, consumers; see --kinds --help"
    )
    parser.add_argument(
        "--pairs", action="store_true", help="a master and its slave; see --pairs --help"
    )
    parser.add_argument("--list", action="store_true", help="what there is, with aims; run nothing")
    parser.add_argument("--java", action="store_true", help="the Java client and real RocketMQ too")
    parser.add_argument("--only", default="", help="only rows whose name contains this text")
    parser.add_argument("--json", default="", help="write the JSON to this file, not to the screen")
    return parser


def _windows(text: str) -> list[int]:
    return [_number(1, WINDOW_MAX)(part) for part in text.split(",")]


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse


def _plan(options: argparse.Namespace, windows: list[int]) -> list[tuple[str, Callable[[], Rows]]]:
    size, seconds = options.size, options.seconds

    def ours(name: str) -> tuple[str, Callable[[], Rows]]:
        return name, lambda: _measure_ours(OUR_ROWS[name], windows, size, seconds)

    def peer(mode: str) -> Callable[[], Rows]:
        return lambda: pysyncobj_peer.measure(windows, size, seconds, mode=mode)

    rows: list[tuple[str, Callable[[], Rows]]] = [
        (ECHO, lambda: echo.measure(windows, size, seconds)),
        *map(ours, OUR_ROWS),
        *((name, peer(mode)) for name, mode in PEER_ROWS.items()),
    ]
    tools = _java_tools() if options.java else None
    if tools is not None:

        def java_row(name: str, row: JavaRow) -> tuple[str, Callable[[], Rows]]:
            return name, lambda: _measure_java(tools, row, windows, size, seconds)

        rows += [java_row(name, row) for name, row in JAVA_ROWS.items()]
    return [(name, run) for name, run in rows if options.only in name]


def _java_tools() -> java.JavaTools | None:
    try:
        return java.prepare()
    except java.JavaUnavailableError as reason:
        print(f"rows with the Java client are skipped: {reason}", file=sys.stderr)
        return None


def _measure_ours(row: OurRow, windows: list[int], size: int, seconds: float) -> Rows:
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as home,
        Cluster(Path(home), replicas=row.replicas, sync_flush=row.sync_flush) as cluster,
    ):
        command = [sys.executable, "-P", "-m", "bench.load", cluster.namesrv_addr, "bench"]
        more = () if row.auto_batch else (load.SINGLY,)
        return {w: _load(cluster, command, w, size, (WARMUP_S, seconds), more) for w in windows}


def _measure_java(
    tools: java.JavaTools, row: JavaRow, windows: list[int], size: int, seconds: float
) -> Rows:
    with (
        tempfile.TemporaryDirectory(prefix="ledgermq-bench-") as home,
        row.servers(tools, Path(home)) as cluster,
    ):
        if row.real:
            java.settle(REAL_SETTLE_S)
        command = tools.command("ledgermq.Load", [cluster.namesrv_addr, "bench"])
        warm_up = (JAVA_SERVER_WARMUP_S, 1.0)  # not counted
        _load(cluster, command, JAVA_WARMUP_WINDOW, size, warm_up)
        times_s = (JAVA_WARMUP_S, seconds)
        return {w: _load(cluster, command, w, size, times_s) for w in windows}


def _load(
    cluster: ServerProcesses,
    command: list[str],
    window: int,
    size: int,
    times_s: tuple[float, float],
    more: tuple[str, ...] = (),
) -> Measurement:
    full = [*command, str(window), str(size), *map(str, times_s), *more]
    timeout = sum(times_s) + LOAD_TIMEOUT_EXTRA_S
    brokers = {f"n{node}": broker.pid for node, broker in enumerate(cluster.brokers)}
    leader = None
    if isinstance(cluster, Cluster) and len(brokers) > 1:
        leader = f"n{cluster.leader()}"
    return run_load(full, times_s[1], timeout, brokers, leader)


def _settings() -> dict[str, dict[str, object]]:
    """Return what was measured with which settings, by the row's name."""
    settings: dict[str, dict[str, object]] = {
        name: {"modes": list(pysyncobj_peer.MODES[mode]), "kept": "the best rate of a window"}
        for name, mode in PEER_ROWS.items()
    }
    for name, row in OUR_ROWS.items():
        config = load.make_config("127.0.0.1:9876", auto_batch=row.auto_batch)
        client = {key: getattr(config, key) for key in AUTO_BATCH_KEYS}
        servers = {"replicas": row.replicas, "sync_flush": row.sync_flush}
        settings[name] = {**servers, "client": client}
    return settings


def _ratios(results: dict[str, Rows]) -> dict[str, dict[int, float]]:
    pairs = {
        "ours / PySyncObj best": (OURS, PEER),
        "ours / PySyncObj defaults": (OURS, "PySyncObj, three nodes, its defaults"),
        "ours / ours, auto_batch off": (OURS, OURS_SINGLY),
        "ours, auto_batch off / echo": (OURS_SINGLY, ECHO),
        "Java: ours / real RocketMQ": (JAVA_OURS, JAVA_REAL),
        "Java: one node, ours / real RocketMQ": (JAVA_OURS_ALONE, JAVA_REAL_ALONE),
        "Java: one node, sync flush, ours / real": (JAVA_OURS_SYNCED, JAVA_REAL_SYNCED),
        "Java: synchronous pair, ours / real": (JAVA_OURS_PAIR, JAVA_REAL_PAIR),
    }
    ratios = {}
    for label, (a, b) in pairs.items():
        if a in results and b in results:
            ratios[label] = {
                w: round(m.rate / results[b][w].rate, 2)
                for w, m in results[a].items()
                if results[b][w].rate
            }
    return ratios


def _print_list(console: Console) -> None:
    """Print what can be measured, each with the command that does."""
    table = Table(title="what can be measured")
    for title in ("command", "figure", "aim"):
        table.add_column(title)
    for name in (ECHO, *OUR_ROWS, *PEER_ROWS):
        table.add_row(f'ledgermq bench --only "{name}"', "sends/s", "")
    for name in JAVA_ROWS:
        table.add_row(f'ledgermq bench --java --only "{name}"', "sends/s", "")
    suites = {
        "--store": store_suite.AIMS, "--kinds": kinds_suite.AIMS, "--pairs": pairs_suite.AIMS,
    }  # fmt: skip
    for word, aims in suites.items():
        for part, rows in aims.items():
            for aim in rows:
                command = f"ledgermq bench {word} --part {part}"
                table.add_row(command, aim.figure.replace("_", " "), aim.describe())
    console.print(table)


def _print_table(console: Console, results: dict[str, Rows], windows: list[int]) -> None:
    table = Table(title="acknowledged sends/s (p50 / p99 ms)")
    table.add_column("what")
    for window in windows:
        table.add_column(f"window {window}", justify="right")
    for name, rows in results.items():
        cells = [
            f"{m.rate:,.0f} ({m.p50_ms:.2f} / {m.p99_ms:.1f})"
            + (f" !{m.errors}" if m.errors else "")
            for m in (rows[w] for w in windows)
        ]
        table.add_row(name, *cells)
    table.add_section()
    for label, ratios in _ratios(results).items():
        table.add_row(label, *(f"{ratios.get(w, 0):.2f}x" for w in windows))
    console.print(table)


def _print_processor_time(console: Console, results: dict[str, Rows]) -> None:
    """Print what a message cost each process, where that was measured."""
    table = Table(title="processor time of a message in microseconds, user and system")
    for title in ("what", "window", *ROLES):
        table.add_column(title, justify="left" if title == "what" else "right")
    for name, rows in results.items():
        for window, row in rows.items():
            if row.processor_us:
                cells = (f"{row.processor_us.get(role, '-')}" for role in ROLES)
                table.add_row(name, str(window), *cells)
    if table.row_count:
        console.print(table)


if __name__ == "__main__":
    sys.exit(main())
