"""``ledgermq admin compact``: drop the beginning of the log, as far as a snapshot stands for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cli.admin import AdminError, AsJson, all_brokers, ask, print_table, run_job
from cli.messages import NameServers, parse_addresses

if TYPE_CHECKING:
    from remoting.transport.client import RemotingClient


def register(app: typer.Typer) -> None:
    """Add the command of this module to ``app``, which is ``ledgermq admin``."""
    app.command("compact")(compact)


def compact(
    broker: Annotated[
        str | None,
        typer.Option(
            "-b", "--broker", metavar="HOST:PORT", help="One broker instead of all of them."
        ),
    ] = None,
    namesrv: NameServers = "127.0.0.1:9876",
    upto: Annotated[
        int | None,
        typer.Option("--upto", min=0, help="The last entry that may go; default: all may."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Drop whole segments of the log, messages included, and say what forbids more.

    Every replica trims its own log. What is not committed, what a living follower still lacks and
    what the state on disk does not cover stays. A replica that comes back later and needs what went
    is sent a snapshot. There is no way back: the messages are gone.

    Exit code 1 if a broker does not answer.

    Example: ledgermq admin compact -b 127.0.0.1:10911 --upto 100000
    """

    async def job(client: RemotingClient) -> int:
        from broker.processor.compact import COMPACT

        brokers = (
            list(parse_addresses(broker, "--broker"))
            if broker
            else await all_brokers(client, parse_addresses(namesrv))
        )
        fields = {} if upto is None else {"upto": str(upto)}
        rows = []
        for address in brokers:
            try:
                rows.append({"address": address, **await ask(client, address, COMPACT, fields)})
            except AdminError as error:
                rows.append({"address": address, "error": str(error)})
        if as_json:
            typer.echo(json.dumps(rows, indent=2))
        else:
            print_table(
                rows,
                (
                    "address", "node", "first_index", "dropped_entries", "dropped_bytes",
                    "limit_index", "reason", "error",
                ),
            )  # fmt: skip
        return 1 if not rows or any("error" in row for row in rows) else 0

    run_job(job)
