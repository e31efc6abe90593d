"""The ``ledgermq`` command: its subcommands; every failure becomes one line and an exit code.

Knows no protocol and no cluster; each subcommand imports what it needs when it is called, so that
``--help`` is quick. Exit codes: 0 done, 1 a verdict or an operation is negative, 2 wrong usage or
input, 130 interrupted. For the commands that end with a verdict (demo, check, chaos, sim) 2 says
that the verdict is unknown, so they use 254 for wrong usage; they and fuzz use 255 for a failure
of the harness. Source: the exit codes of Jepsen-like harnesses as the design of the chaos suite
fixes them.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.exceptions import TyperException

from cli import (
    admin,
    certs,
    compact,
    consume,
    controller,
    doctor,
    exchange,
    groups,
    membership,
    produce,
    query,
    raft,
    runs,
    servers,
    signing,
    sim,
    store,
)
from cli.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_USAGE: Final = 2
EXIT_FAILED: Final = 1
EXIT_VERDICT_USAGE: Final = 254
EXIT_HARNESS: Final = 255
EXIT_INTERRUPTED: Final = 130
VERDICT_COMMANDS: Final = frozenset({"demo", "check", "chaos", "sim"})
"""What they end with is a verdict, and 2 says that it is unknown."""
HARNESS_COMMANDS: Final = VERDICT_COMMANDS | {"fuzz"}

app = typer.Typer(
    name="ledgermq",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "A Raft-replicated message broker that speaks RocketMQ's protocol, "
        "and the harness that proves it.\n\n"
        "Start here: **ledgermq demo** runs a cluster under faults and ends with a verdict; "
        "**ledgermq doctor** says what works on this machine."
    ),
)
servers.register(app)
produce.register(app)
consume.register(app)
admin.app.callback()(signing.take_options)
raft.register(admin.app)
membership.register(admin.app)
controller.register(admin.app)
compact.register(admin.app)
query.register(admin.app)
groups.register(admin.app)
app.add_typer(admin.app)
runs.register(app)
exchange.register(app)
sim.register(app)
app.add_typer(store.app)
app.add_typer(certs.app)
doctor.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    # The help of the program itself is that of `app`.
    pass


@app.command(rich_help_panel="About")
def version() -> None:
    """Print the version of LedgerMQ, of the protocol it speaks and of Python.

    Example: ledgermq version
    """
    from importlib.metadata import version as installed

    python = ".".join(str(part) for part in sys.version_info[:3])
    typer.echo(
        f"ledgermq {installed('ledgermq')} (RocketMQ remoting protocol 4.9.7, Python {python})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(given))


def run(arguments: list[str]) -> int:
    """Run the command line ``arguments`` (without the program's name); return the exit code."""
    command = arguments[0] if arguments else ""
    verdict = command in VERDICT_COMMANDS
    try:
        result = app(arguments, prog_name="ledgermq", standalone_mode=False)
    except TyperException as error:
        return _refused(error, verdict=verdict)
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        return EXIT_INTERRUPTED
    except SystemExit as stop:  # argparse of a package, which says why by itself
        if isinstance(stop.__context__, BrokenPipeError):  # nobody reads on: that is no verdict
            return EXIT_HARNESS if command in HARNESS_COMMANDS else EXIT_FAILED
        return EXIT_VERDICT_USAGE if verdict and stop.code == EXIT_USAGE else _exit_code(stop)
    except Exception as error:  # noqa: BLE001  # outermost: anything unforeseen becomes one line
        return _unforeseen(error, harness=command in HARNESS_COMMANDS)
    return result if isinstance(result, int) else 0


def _refused(error: TyperException, *, verdict: bool) -> int:
    """Say why; a group without a subcommand has printed its help already."""
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    if message:
        context = getattr(error, "ctx", None)
        path = "ledgermq" if context is None else context.command_path
        _complain(f"{message}; see: {path} --help")
    return EXIT_VERDICT_USAGE if verdict else EXIT_USAGE


def _unforeseen(error: Exception, *, harness: bool) -> int:
    from chaos.needs import MissingExtra, explain
    from ledgermq.runtime.errors import FatalError

    if os.environ.get("LEDGERMQ_TRACE"):
        traceback.print_exception(error)
    if isinstance(error, FatalError):
        _complain(error.message)
        return EXIT_HARNESS if harness else error.exit_code
    lacking = explain(error) if isinstance(error, ModuleNotFoundError) else None
    if isinstance(error, MissingExtra):
        lacking = str(error)
    _complain(lacking or f"{type(error).__name__}: {error} (LEDGERMQ_TRACE=1 shows where)")
    return EXIT_HARNESS if harness else EXIT_FAILED


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    _complain(str(stop.code))
    return EXIT_FAILED


def _complain(message: str) -> None:
    say(f"ledgermq: {' '.join(message.split())}", err=True)


if __name__ == "__main__":
    main()
