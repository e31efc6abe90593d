"""``python -m mutants NAME -- broker -c FILE``: run one of our processes with a planted bug."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from ledgermq.runtime.errors import EXIT_BAD_INPUT
from mutants.patches import ALL
from mutants.planting import is_of_clients, is_of_name_servers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mutants.planting import Mutant

WORKERS = ("chaos.workload.producer", "chaos.workload.consumer")
"""Processes of a chaos run that use the client library."""
NAME_SERVER = "namesrv"
PROGRAMS = ("broker", "dledger", NAME_SERVER, *WORKERS)


def main(argv: Sequence[str] | None = None) -> int:
    """Plant the bug if the program is one that executes it, and run it; returns its exit code.

    A run starts its brokers and its workers alike with it: which of them have the bug is said here.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--list"]:
        for mutant in ALL.values():
            sys.stdout.write(f"{mutant.name}\n    {mutant.breaks}\n    {mutant.source}\n")
        return 0
    name = words[0] if words else ""
    rest = words[2:] if words[1:2] == ["--"] else words[1:]
    if name not in ALL or not rest or rest[0] not in PROGRAMS:
        sys.stderr.write(
            f"usage: python -m mutants --list | {{{','.join(ALL)}}}"
            f" -- {{{','.join(PROGRAMS)}}} ...\n"
        )
        return EXIT_BAD_INPUT
    is_worker, of = rest[0] in WORKERS, _executed_by(ALL[name])
    if of == _kind_of(rest[0]):
        ALL[name]()
        sys.stderr.write(f"mutant planted: {name}\n")
    else:
        sys.stderr.write(f"not planted here, since it is of {of}: {name}\n")
    if is_worker:
        worker = importlib.import_module(rest[0])
        sys.argv = rest
        return int(worker.run_worker(worker.main))
    program = importlib.import_module(f"{rest[0]}.__main__")
    return int(program.main(rest[1:]))


def _executed_by(mutant: Mutant) -> str:
    if is_of_name_servers(mutant):
        return "name servers"
    return "clients" if is_of_clients(mutant) else "brokers"


def _kind_of(program: str) -> str:
    """Return what a program is; dledger alone is a broker without its topics."""
    if program == NAME_SERVER:
        return "name servers"
    return "clients" if program in WORKERS else "brokers"


if __name__ == "__main__":
    sys.exit(main())
