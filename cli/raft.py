"""``ledgermq admin raftStatus | transferLeader | raftEvents``: replicated logs, of groups mostly.

The first two ask running brokers; the last reads the files that a broker wrote, running or not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.admin import AdminError, AsJson, all_brokers, ask, print_table, run_job
from cli.membership import for_people
from cli.messages import NameServers, parse_addresses
from cli.say import say
from cli.signing import ask_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ledgermq.remoting.transport.client import RemotingClient

    Row = dict[str, Any]

FOLLOW_S: Final = 0.5
STATUS_COLUMNS: Final = (
    "address", "node", "role", "term", "leader", "commit", "applied", "first_index", "last_index",
    "voters", "learners", "rejoining", "fresh", "read_index", "transfer", "health", "error",
)  # fmt: skip
FOLLOWER_COLUMNS: Final = (
    "leader", "follower", "kind", "state", "match", "next", "behind", "contact_ms", "health",
)  # fmt: skip
SLAVE_COLUMNS: Final = ("master", "slave", "position", "behind", "confirms")
EVENT_COLUMNS: Final = (
    "node", "boot_id", "seq", "node_mono_ns", "kind", "term", "index", "prev_index", "peer",
    "hash", "extra",
)  # fmt: skip
FOLLOWING: Final = frozenset({"connected", "following"})
"""States of a slave with which nothing is wrong."""
Brokers = Annotated[
    str | None,
    typer.Option(
        "-b", "--broker", metavar="HOST:PORT", help="These brokers (`;` between) instead of all."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``, which is ``ledgermq admin``."""
    app.command("raftStatus")(raft_status)
    app.command("transferLeader")(transfer_leader)
    app.command("raftEvents")(raft_events)


def raft_status(
    broker: Brokers = None,
    namesrv: NameServers = "127.0.0.1:9876",
    linearizable: Annotated[
        bool,
        typer.Option(
            "--linearizable",
            help="Let the leader prove by a round of its majority that it still is one.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show role, term, log positions and progress of Raft members, masters and slaves.

    A member that its leader has not heard of for an election timeout is shown as dead. A master
    shows its slaves. The health of a slave that does not follow is what is wrong.

    Exit code 0 if all is well; 1 if a member does not answer or is dead, if no leader or master is
    known, if a slave does not follow, if a SYNC_MASTER has no slave that confirms, or if
    --linearizable finds no leader that a majority confirms.

    Example: ledgermq admin raftStatus -n 127.0.0.1:9876

    Example: ledgermq admin raftStatus -b "127.0.0.1:10911;127.0.0.1:10921" --linearizable
    """

    async def job(client: RemotingClient) -> int:
        rows = await _statuses(client, broker, namesrv)
        if linearizable:
            await _confirm(client, rows)
        followers = validator(rows)
        if as_json:
            say(json.dumps(rows, indent=2))
        else:
            print_table([for_people(row) for row in rows], STATUS_COLUMNS)
            for table, columns in (
                (followers, FOLLOWER_COLUMNS),
                (slaves_of(rows), SLAVE_COLUMNS),
            ):
                if table:
                    say("")
                    print_table(table, columns)
        well = rows and all(row["health"] == "ok" for row in [*rows, *followers])
        proven = not linearizable or any("read_index" in row for row in rows)
        return 0 if well and proven else 1

    run_job(job)


def transfer_leader(
    target: Annotated[str, typer.Argument(metavar="NODE", help="Who shall lead, as n1.")],
    broker: Brokers = None,
    namesrv: NameServers = "127.0.0.1:9876",
) -> None:
    """Hand leadership of a Raft group to NODE.

    Sends are refused for some milliseconds, none is lost or left unknown. Exit code 1, and why, if
    NODE is dead, behind or no voter; then the leader serves on.

    Example: ledgermq admin transferLeader n1 -n 127.0.0.1:9876
    """

    async def job(client: RemotingClient) -> int:
        from ledgermq.remoting.protocol.codes import RequestCode

        rows = await _statuses(client, broker, namesrv)
        groups = {
            row.get("group")
            for row in rows
            if target == row.get("node") or target in row.get("voters", ())
        }
        leaders = [
            row for row in rows
            if row.get("role") == "LEADER" and (row.get("group") in groups or not groups)
        ]  # fmt: skip
        if not leaders:
            raise AdminError("no leader answered; see: ledgermq admin raftStatus")
        if len(leaders) > 1:
            raise AdminError(f"{target} is ambiguous: name one group's brokers with -b")
        row = leaders[0]
        answer = await ask_signed(
            client, row["address"], RequestCode.TRANSFER_LEADER, {"target": target}
        )
        say(f"{answer['leader']} leads {row['group']} in term {answer['term']}")
        return 0

    run_job(job)


def raft_events(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A broker's store, or a directory raft_event below it."
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Only kinds that contain this, as vote or become."),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", min=0, help="Only the last so many of now; 0: all.")
    ] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print what a replica noted: roles, votes, appends, truncations, commits.

    Reads files, of a running broker too. Columns: docs/raft.md, Events.

    Example: ledgermq admin raftEvents store/n0 --kind vote

    Example: ledgermq admin raftEvents store/n0 --follow
    """
    import time

    directories = list(_event_directories(path))
    if not directories:
        raise typer.Exit(_no_events(path))
    seen: dict[Path, int] = {}
    most = last  # of what is there now; all that comes is shown
    while True:
        for directory in directories:
            rows = read_events(directory)
            news = [row for row in rows if row["seq"] > seen.get(directory, 0)]
            if news:
                seen[directory] = news[-1]["seq"]
            shown = [row for row in news if kind is None or kind in row["kind"]]
            _print_events(shown[-most:] if most else shown, as_json=as_json)
        if not follow:
            return
        most = 0
        time.sleep(FOLLOW_S)  # noqa: TID251  # a tool in the foreground, no part of a server


def validator(rows: list[Row]) -> list[Row]:
    """Set ``health`` of each row; return a row for each follower, as its leader sees it.

    A member that is known only because its leader misses it gets a row of its own.
    """
    followers: list[Row] = []
    answered = {(row.get("group"), row.get("node")) for row in rows}
    missing: list[Row] = []
    for row in rows:
        row["health"] = _health(row)
        learners = row.get("learners", ())
        for node, seen in row.get("followers", {}).items():
            health = "ok" if seen["alive"] else "dead"
            followers.append(
                {
                    "leader": row["node"],
                    "follower": node,
                    "kind": "learner" if node in learners else "voter",
                    **seen,
                    "behind": row["last_index"] - seen["match"],
                    "health": health,
                }
            )
            if not seen["alive"] and (row.get("group"), node) not in answered:
                missing.append({"node": node, "role": "DEAD", "health": "dead"})
    rows += missing
    return followers


def slaves_of(rows: list[Row]) -> list[Row]:
    """Return a row for each slave of a master, as its master sees it."""
    return [
        {"master": row["address"], "slave": slave.get("remote"), **slave}
        for row in rows
        for slave in row.get("slaves", ())
    ]


def _health(row: Row) -> str:
    """Return "ok", or what is wrong with a broker by its own word."""
    if "error" in row:
        return "no role" if "has no role" in row["error"] else "no answer"
    if "following" in row and row["following"]["state"] not in FOLLOWING:
        return str(row["following"]["state"])
    if not row.get("leader"):
        return "no leader"
    if row.get("mode") != "SYNC_MASTER" or any(
        one.get("confirms", True) for one in row.get("slaves", ())
    ):
        return "ok"
    return "no slave"


def read_events(directory: Path) -> list[Row]:
    """Return the events of one ``raft_event`` directory, in order.

    What is no file is left out. Errors: `FatalError` for one that is too large to be read.
    """
    from chaos.history.raft_event import decode_events, words
    from ledgermq.runtime.errors import FatalError
    from ledgermq.runtime.regular import READ_BYTES_MAX
    from store.offline.files import ReadError, read_small

    files = sorted(map(str, directory.iterdir()))
    try:
        rows = decode_events(read_small(file, READ_BYTES_MAX) or b"" for file in files)
    except ReadError as error:
        raise FatalError(f"no events can be read: {error}") from error
    node = next((words(r["extra"]).get("node") for r in rows if r["kind"] == "boot"), None)
    return [{"node": node, **row} for row in rows]


async def _statuses(client: RemotingClient, broker: str | None, namesrv: str) -> list[Row]:
    from ledgermq.remoting.protocol.codes import RequestCode

    addresses = (
        list(parse_addresses(broker, "--broker"))
        if broker
        else await all_brokers(client, parse_addresses(namesrv))
    )
    rows: list[Row] = []
    for address in addresses:
        try:
            rows.append({"address": address, **await ask(client, address, RequestCode.RAFT_STATUS)})
        except AdminError as error:
            rows.append({"address": address, "error": str(error)})
    return rows


async def _confirm(client: RemotingClient, rows: list[Row]) -> None:
    """Ask each leader for a read index, and show that instead of what it merely believes."""
    from ledgermq.remoting.protocol.codes import RequestCode

    for row in rows:
        if row.get("role") == "LEADER":
            try:
                answer = await ask(client, row["address"], RequestCode.READ_INDEX)
            except AdminError as error:
                row["error"] = str(error)
            else:
                row["read_index"], row["applied"] = answer["index"], answer["applied"]


def _event_directories(path: Path) -> Iterator[Path]:
    if path.name == "raft_event":
        yield path
    elif path.is_dir():
        yield from sorted(path.glob("**/raft_event"))


def _no_events(path: Path) -> int:
    say(f"ledgermq: no directory raft_event below {path}; is it a broker's store?", err=True)
    return 1


def _print_events(rows: Iterable[Row], *, as_json: bool) -> None:
    describe: Callable[[Row], str] = _json_line if as_json else _event_line
    for row in rows:
        say(describe(row))


def _json_line(row: Row) -> str:
    return json.dumps({column: row.get(column) for column in EVENT_COLUMNS})


def _event_line(row: Row) -> str:
    line = [f"{row['node_mono_ns'] / 1e9:.6f}", f"node={row['node']}", f"event={row['kind']}"]
    line += [f"term={row['term']}"]
    line += [f"{name}={row[name]}" for name in ("index", "prev_index") if row[name] >= 0]
    if row["peer"]:
        line.append(f"peer={row['peer']}")
    if row["hash"]:
        line.append(f"hash={row['hash']:08x}")
    return " ".join([*line, row["extra"] or ""]).rstrip()
