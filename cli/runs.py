"""``ledgermq demo | check | chaos | fuzz | bench``: long jobs, each handed to its package.

Knows the options and their help; the packages get them as command-line arguments. Exit codes of
demo, check and chaos: 0 valid, 1 invalid, 2 unknown, 3 valid but the contract was exceeded, 254
usage, 255 harness failure.
"""

from __future__ import annotations

import contextlib
from argparse import ArgumentTypeError
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from chaos.hints import program
from chaos.needs import missing, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PANEL = "Faults and proof"
EXITS = (
    "Exit code: 0 valid, 1 invalid, 2 unknown, 3 valid but contract exceeded, 130 interrupted, "
    "254 usage, 255 harness failure."
)
_OF_A_WALK = frozenset({"cluster", "backend"})
"""Options of ``demo`` that mean something with ``--cluster``."""
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


class Backend(StrEnum):
    """Where the cluster of a run lives."""

    LOCAL = "local"
    DOCKER = "docker"


class Flush(StrEnum):
    """When a broker acknowledges."""

    ASYNC = "async"
    SYNC = "sync"


class Report(StrEnum):
    """Of which runs a report is drawn."""

    ALWAYS = "always"
    FOUND = "found"


class Mode(StrEnum):
    """How the brokers of a run replicate."""

    RAFT = "raft"
    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"
    CONTROLLER = "controller"


class Cluster(StrEnum):
    """A sample cluster of docker/samples."""

    TWO_ASYNC = "2m-2s-async"
    TWO_SYNC = "2m-2s-sync"
    NO_SLAVE = "2m-noslave"
    CONTROLLER = "controller"


class StopOn(StrEnum):
    """How grave an alarm is that ends a run early."""

    CRITICAL = "critical"
    MAJOR = "major"


class Workload(StrEnum):
    """Which kinds of messages a run produces."""

    PLAIN = "plain"
    ORDERLY = "orderly"
    DELAY = "delay"
    RETRY = "retry"
    BROADCAST = "broadcast"
    TXN = "txn"
    SQL = "sql"
    REQUEST = "request"
    EVERY = "every"


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command(rich_help_panel=PANEL, epilog=EXITS)(demo)
    app.command(rich_help_panel=PANEL, epilog=EXITS)(check)
    app.command(rich_help_panel=PANEL, context_settings=PASS_ON)(chaos)
    app.command(
        rich_help_panel=PANEL,
        epilog="Exit code: 0 nothing found, 1 something found, 2 usage, 255 harness failure.",
    )(fuzz)
    app.command(rich_help_panel=PANEL, context_settings=PASS_ON)(bench)


def demo(
    context: typer.Context,
    backend: Annotated[
        Backend, typer.Option(help="Processes on this machine, or containers.")
    ] = Backend.LOCAL,
    mutant: Annotated[
        str | None,
        typer.Option(
            "--break", metavar="BUG", help="Plant a bug in the brokers, e.g. ack-before-quorum."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the workload and of the choice of victims.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Length of the phase with faults.")] = None,
    rate: Annotated[float | None, typer.Option(help="Sends a second, all producers.")] = None,
    flush: Annotated[
        Flush | None, typer.Option(help="When brokers flush; by default the seed says.")
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(help="Three in a Raft group, a master and its slave, or with controllers."),
    ] = Mode.RAFT,
    cluster: Annotated[
        Cluster | None,
        typer.Option(help="With --backend docker: a sample cluster instead, without the checkers."),
    ] = None,
    workload: Annotated[
        Workload | None,
        typer.Option(help="Which kinds of messages (default every; plain for a master)."),
    ] = None,
    report: Annotated[
        Report, typer.Option(help="Draw a report of every run, or where something was found.")
    ] = Report.ALWAYS,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look for alarms while it runs, with Spark's streams.")
    ] = False,
    stop_on: Annotated[
        StopOn | None,
        typer.Option("--stop-on", help="End the run at the first alarm so grave (watches)."),
    ] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Only the other checker.")] = False,
    spark_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="How long the Spark job may take (default: by the history)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run goes (default runs/TIME).")
    ] = None,
) -> None:
    """Run brokers under faults and end with Spark's verdict on what happened.

    Two name servers and a Raft group of three; producers and consumers run while the leader is
    killed, a link is cut and a follower is paused. Then the histories and the logs of all replicas
    are checked for lost messages.

    Example: ledgermq demo

    Example: ledgermq demo --break ack-before-quorum     (must end INVALID)

    Example: ledgermq demo --mode sync-master

    Example: ledgermq demo --stop-on critical
    """
    is_watched = watch or stop_on is not None
    _need_for_a_run(spark=(not no_spark or is_watched) and cluster is None)
    if cluster is not None:
        _walk_through(context, cluster, backend)
    if mutant is not None:
        _refuse_unknown_bug(mutant)
    from chaos.demo import main

    given: dict[str, object] = {"--break": mutant, "--seed": seed, "--seconds": seconds}
    given |= {"--rate": rate, "--out": out}
    given |= {"--spark-limit": spark_limit, "--workload": workload}
    arguments = ["--backend", backend.value, "--mode", mode.value, "--report", report.value]
    arguments += ["--no-spark"] if no_spark else []
    arguments += ["--watch"] if watch else []
    arguments += ["--stop-on", stop_on.value] if stop_on is not None else []
    arguments += ["--flush", flush.value] if flush is not None else []
    for name, value in given.items():
        if value is not None:
            arguments += [name, str(value)]
    raise typer.Exit(main(arguments))


def _walk_through(context: typer.Context, cluster: Cluster, backend: Backend) -> NoReturn:
    """Start a sample cluster, show it, and exit. Errors: `typer.BadParameter`."""
    if backend is not Backend.DOCKER:
        raise typer.BadParameter("sample clusters need --backend docker", param_hint="--cluster")
    from chaos.samples import main

    _refuse_options_of_a_run(context)
    raise typer.Exit(main(cluster.value))


def _refuse_unknown_bug(name: str) -> None:
    """Refuse the name of a planted bug that there is not. Errors: `typer.BadParameter`."""
    from mutants.patches import ALL

    if name not in ALL:
        raise typer.BadParameter(
            f"{name} is no planted bug; there are {', '.join(sorted(ALL))}", param_hint="--break"
        )


def _refuse_options_of_a_run(context: typer.Context) -> None:
    """Refuse what a walk through a sample cluster would not do. Errors: `typer.BadParameter`."""
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name not in _OF_A_WALK
        and (source := context.get_parameter_source(option.name or "")) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise typer.BadParameter(
            f"a sample cluster is walked through without faults and checkers: leave out"
            f" {', '.join(given)}",
            param_hint="--cluster",
        )


def _need_for_a_run(*, spark: bool) -> None:
    """Refuse at once what would fail after a minute of faults."""
    if not spark:
        require("chaos")
    else:
        only_spark = not missing("chaos")
        require("chaos", "spark", instead="leave Spark out: --no-spark" if only_spark else "")


def check(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Directory of a run, e.g. runs/latest, or file:// it."),
    ],
    master: Annotated[
        str | None, typer.Option(help="Spark master (default local[*]), e.g. spark://host:7077.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="IDS", help="Only these checks, e.g. A1,A15.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    out: Annotated[
        str | None, typer.Option(help="Where to write results and anomalies; RUN/verdict.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Shuffle partitions; by the size of the run.")
    ] = None,
    driver_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Heap of the driver, e.g. 4g; by size.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark's own.")
    ] = None,
) -> None:
    """Check the recorded history of a run and its replicas' logs with Spark.

    On a cluster, workers need Spark, Python of this version with pyarrow, pandas and numpy
    (PYSPARK_PYTHON names it), and the run under the same path; the rest is sent to them.

    Example: ledgermq check runs/latest --only A1,A15

    Example: ledgermq check /shared/run --master spark://host:7077
    """
    if "://" not in run and not Path(run).is_dir():
        raise typer.BadParameter(
            f"{run} is not a directory; make a run first: {program()} demo", param_hint="RUN"
        )
    require("chaos", "spark")
    from chaos.record import DamagedRecording
    from chaos.run import convert_interrupted
    from spark.check_history import directory, main

    # The job says what is wrong with it.
    with contextlib.suppress(ArgumentTypeError, DamagedRecording, OSError):
        convert_interrupted(directory(run))

    arguments = [run]
    given = {"--master": master, "--only": only, "--out": out, "--partitions": partitions}
    for name, value in (given | {"--driver-memory": driver_memory}).items():
        if value is not None:
            arguments += [name, str(value)]
    for setting in conf or ():
        arguments += ["--conf", setting]
    raise typer.Exit(main([*arguments, "--json"] if as_json else arguments))


def chaos(context: typer.Context) -> None:
    """Parts of the chaos suite: start a cluster, inject faults, record, check.

    Example: ledgermq chaos --help
    """
    if context.args[:1] == ["doctor"] and set(context.args[1:]) <= {"--json"}:
        from cli.doctor import CHAOS_PROBES, examine

        examine(CHAOS_PROBES, as_json="--json" in context.args)
    if context.args[:1] == ["calibrate"]:
        require("chaos")
        from mutants.calibrate import main as calibrate

        raise typer.Exit(calibrate(context.args[1:]))
    if context.args[:1] == ["watch"]:
        require("chaos", "spark")
        from spark.stream.watch import main as watch

        raise typer.Exit(watch(context.args[1:]))
    for bug in _planted(context.args):
        _refuse_unknown_bug(bug)
    is_judged = bool(context.args) and context.args[0] in {"run", "replay"}
    is_watched = any(word.startswith(("--watch", "--stop-on")) for word in context.args)
    _need_for_a_run(spark=is_judged and ("--no-spark" not in context.args or is_watched))
    from chaos.__main__ import main

    raise typer.Exit(main(context.args))


def _planted(words: Sequence[str]) -> Iterator[str]:
    """Yield the names of the bugs that the words of a command plant."""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name == "--break":
            yield value if equals else following


def bench(context: typer.Context) -> None:
    """Measure throughput and latency, beside PySyncObj and a loopback echo.

    Example: ledgermq bench
    """
    from bench.__main__ import main

    raise typer.Exit(main(context.args))


def fuzz(
    minutes: Annotated[float, typer.Option(min=0.01, help="Length of the storm.")] = 3.0,
    frames: Annotated[
        int | None, typer.Option(min=1, help="End after so many frames, if that comes first.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every frame.")] = 0,
    flush: Annotated[Flush, typer.Option(help="When brokers acknowledge.")] = Flush.ASYNC,
    stall_ms: Annotated[
        float, typer.Option(min=1, help="Longest wait of an ordinary send that is no finding.")
    ] = 250.0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the run goes (default runs/fuzz-TIME)."),
    ] = None,
) -> None:
    """Send hostile frames to a real group and real name servers; an ordinary client runs beside.

    Every request code with every field mutated, garbage, strangers at the port between members.
    Nothing of it may end a process, stall the ordinary client, grow memory, or cost a message that
    was acknowledged.

    Example: ledgermq fuzz --minutes 10
    """
    require("chaos")
    from chaos.fuzz.__main__ import main

    arguments = ["--minutes", str(minutes), "--seed", str(seed), "--flush", flush.value]
    arguments += ["--stall-ms", str(stall_ms)]
    arguments += [] if frames is None else ["--frames", str(frames)]
    arguments += [] if out is None else ["--out", str(out)]
    raise typer.Exit(main(arguments))
