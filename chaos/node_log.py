"""The logs of a run's processes, read once all have ended: the table ``node_log``.

Of brokers, name servers (with their controllers) and clients: each has one file, whatever was
started how often. Not of the proxy and of the hostile client, which are parts of the harness.

Source: spec/proof.md A62.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from chaos.convert import Row, write_table
from chaos.history.log_lines import LogRows

LINE_BYTES_MAX: Final = 16_384
"""Of a line; what is longer is cut."""
SET_NS: Final = 1_000_000_000
"""A wall clock that was set by more than that during a run tells no times of it."""


Ahead = dict[str, int | None]
"""By role, how much the run's clock shows more than a wall clock; None: nobody knows."""


def roles_of(nodes: tuple[str, ...], name_servers: int, clients: list[str]) -> dict[str, str]:
    """Return by process whose log is read, and what it is."""
    servers = [f"ns{at}" for at in range(name_servers)]
    return {
        **dict.fromkeys(nodes, "broker"),
        **dict.fromkeys(servers, "namesrv"),
        **dict.fromkeys(clients, "client"),
    }


def read_logs(
    logs: Path, roles: Mapping[str, str], ahead_ns: Ahead
) -> tuple[list[Row], dict[str, int]]:
    """Return the rows of all logs, and by process how many lines are in none of them.

    Errors: OSError for a log that is not there.
    """
    rows: list[Row] = []
    dropped: dict[str, int] = {}
    for name, role in roles.items():
        found = LogRows(name, role, _moments(ahead_ns.get(role)))
        for line in _lines(logs / f"{name}.log"):
            found.take(line)
        rows += found.end()
        if found.dropped:
            dropped[name] = found.dropped
    return rows, dropped


def write_node_log(run: Path, run_id: str, rows: list[Row]) -> None:
    """Write the table."""
    write_table(run, "node_log", [{"run_id": run_id} | row for row in rows])


def ahead_of_wall_ns(monotonic_ns: int, wall_ms: int, before_ns: int) -> int | None:
    """Return how much a clock shows more than the wall clock.

    ``before_ns``: what that was at the begin of the run; None if the wall clock was set since.
    """
    ahead_ns = monotonic_ns - wall_ms * 1_000_000
    return ahead_ns if abs(ahead_ns - before_ns) <= SET_NS else None


def _moments(ahead_ns: int | None) -> Callable[[str], int | None]:
    def moment(stamp: str) -> int | None:
        if ahead_ns is None:
            return None
        try:
            wall_ms = round(datetime.fromisoformat(stamp).timestamp() * 1000)
        except ValueError:
            return None
        t = wall_ms * 1_000_000 + ahead_ns
        return t if t >= 0 else None

    return moment


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log, each cut; what is no text is shown as such."""
    with path.open("rb") as file:
        while piece := file.readline(LINE_BYTES_MAX):
            yield piece.rstrip(b"\r\n").decode(errors="replace")
            while piece and not piece.endswith(b"\n"):
                piece = file.readline(LINE_BYTES_MAX)
