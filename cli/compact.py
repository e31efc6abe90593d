"""``ledgermq admin`` commands that drop the beginning of the log: what is old, or all that may go.

Those named as in mqadmin ask a broker for a round of its retention; ``compact`` is ours.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.admin import AdminError, AsJson, all_brokers, print_table, run_job
from cli.messages import NameServers, parse_addresses
from cli.say import say
from cli.signing import ask_signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgermq.remoting.transport.client import RemotingClient


REPORT: Final = {"report": "true"}
"""Asked for, the answer tells what was done; mqadmin does not ask."""
Broker = Annotated[
    str | None,
    typer.Option("-b", "--broker", metavar="HOST:PORT", help="One broker instead of all of them."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``, which is ``ledgermq admin``."""
    app.command("compact")(compact)
    app.command("deleteExpiredCommitLog")(delete_expired_commit_log)
    app.command("cleanExpiredCQ")(clean_expired_queues)
    app.command("cleanUnusedTopic")(clean_unused_topics)


def compact(
    broker: Broker = None,
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
    from ledgermq.remoting.protocol.codes import RequestCode

    fields = {} if upto is None else {"upto": str(upto)}
    columns = (
        "address", "node", "first_index", "dropped_entries", "dropped_bytes", "limit_index",
        "reason", "error",
    )  # fmt: skip
    _ask_each((broker, namesrv), RequestCode.COMPACT, fields, columns, as_json=as_json)


def delete_expired_commit_log(
    broker: Broker = None, namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False
) -> None:
    """Drop the log files that are older than fileReservedTime now, at any hour.

    Every broker drops its own, at most deleteFileBatchMax in this round, and looks again in its
    next 20 rounds. The answer says what went and what keeps the rest.

    Exit code 1 if a broker does not answer.

    Example: ledgermq admin deleteExpiredCommitLog -b 127.0.0.1:10911
    """
    from ledgermq.remoting.protocol.codes import RequestCode

    columns = ("address", "dropped_bytes", "reason", "disk_used", "disk_level", "error")
    _ask_each(
        (broker, namesrv), RequestCode.DELETE_EXPIRED_COMMITLOG, REPORT, columns, as_json=as_json
    )


def clean_expired_queues(
    broker: Broker = None, namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False
) -> None:
    """Remove the consume queue files that lie before the beginning of the log.

    They go by themselves soon after the log files. A queue whose messages are all gone keeps
    counting.

    Exit code 1 if a broker does not answer.

    Example: ledgermq admin cleanExpiredCQ -b 127.0.0.1:10911
    """
    from ledgermq.remoting.protocol.codes import RequestCode

    columns = ("address", "dropped_files", "error")
    _ask_each(
        (broker, namesrv), RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, REPORT, columns, as_json=as_json
    )


def clean_unused_topics(
    broker: Broker = None, namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False
) -> None:
    """Ask for the removal of queues of topics that were deleted: none, retention takes them.

    Exit code 1 if a broker does not answer.

    Example: ledgermq admin cleanUnusedTopic -b 127.0.0.1:10911
    """
    from ledgermq.remoting.protocol.codes import RequestCode

    columns = ("address", "dropped_files", "error")
    _ask_each((broker, namesrv), RequestCode.CLEAN_UNUSED_TOPIC, REPORT, columns, as_json=as_json)


def _ask_each(
    whom: tuple[str | None, str],
    code: int,
    fields: Mapping[str, str],
    columns: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Ask one broker, or all that the name server knows; ``whom`` is (broker, name servers)."""
    broker, namesrv = whom

    async def job(client: RemotingClient) -> int:
        brokers = (
            list(parse_addresses(broker, "--broker"))
            if broker
            else await all_brokers(client, parse_addresses(namesrv))
        )
        rows = []
        for address in brokers:
            try:
                answer = await ask_signed(client, address, code, fields)
                rows.append({"address": address, **answer})
            except AdminError as error:
                rows.append({"address": address, "error": str(error)})
        if as_json:
            say(json.dumps(rows, indent=2))
        else:
            print_table(rows, columns)
        return 1 if not rows or any("error" in row for row in rows) else 0

    run_job(job)
