"""``ledgermq admin queryMsgByKey | queryMsgByUniqueKey | queryMsgById | queryMsgByOffset``.

Named as in mqadmin, with its options. Uses the client library as any program would; ``--json``
prints a line a message, with the names of a Java client's message, as ``ledgermq store dump``.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.account import config_of_run
from cli.admin import print_table
from cli.messages import NameServers, parse_addresses
from cli.say import say
from ledgermq.runtime.printable import json_line, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ledgermq.client import ClientConfig, MessageExt

GROUP: Final = "TOOLS_CONSUMER"
TIME_MAX: Final = (1 << 63) - 1
NONE_FOUND: Final = "no message found"
TopicOption = Annotated[str, typer.Option("-t", "--topic", help="Topic.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON line a message.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``, which is ``ledgermq admin``."""
    app.command("queryMsgByKey")(query_by_key)
    app.command("queryMsgByUniqueKey")(query_by_unique_key)
    app.command("queryMsgById")(query_by_id)
    app.command("queryMsgByOffset")(query_by_offset)


def query_by_key(
    topic: TopicOption,
    key: Annotated[str, typer.Option("-k", "--msgKey", help="One of the message's keys.")],
    namesrv: NameServers = "127.0.0.1:9876",
    max_num: Annotated[
        int, typer.Option("-c", "--maxNum", min=1, max=64, help="Messages of each broker.")
    ] = 64,
    begin: Annotated[
        int, typer.Option("-b", "--beginTimestamp", min=0, help="Stored then or later (ms).")
    ] = 0,
    end: Annotated[
        int, typer.Option("-e", "--endTimestamp", min=0, help="Stored then or before (ms).")
    ] = TIME_MAX,
    as_json: AsJson = False,
) -> None:
    """List the newest messages that have a key, oldest first.

    Exit code 1 if there is none.

    Example: ledgermq admin queryMsgByKey -t orders -k k4711
    """

    async def find(config: ClientConfig) -> list[MessageExt]:
        from ledgermq.client import MessageFinder

        async with MessageFinder(config) as finder:
            return await finder.by_key(topic, key, max_num, begin, end)

    _run(namesrv, find, _print_lines if as_json else _print_places)


def query_by_unique_key(
    topic: TopicOption,
    message_id: Annotated[
        str, typer.Option("-i", "--msgId", help="Id that the producer gave the message.")
    ],
    namesrv: NameServers = "127.0.0.1:9876",
    as_json: AsJson = False,
) -> None:
    """Print the messages that have an id of a producer: more than one if it was sent again.

    Exit code 1 if there is none.

    Example: ledgermq admin queryMsgByUniqueKey -t orders -i 7F0000017A7121EE88CB67C5CE330000
    """

    async def find(config: ClientConfig) -> list[MessageExt]:
        from ledgermq.client import MessageFinder

        async with MessageFinder(config) as finder:
            return await finder.by_unique_key(topic, message_id)

    _run(namesrv, find, _print_lines if as_json else _print_whole)


def query_by_id(
    message_id: Annotated[
        str,
        typer.Option("-i", "--msgId", help="Id that the broker gave the message (offsetMsgId)."),
    ],
    namesrv: NameServers = "127.0.0.1:9876",
    as_json: AsJson = False,
) -> None:
    """Print the message with a broker's id, which holds the broker's address and the offset.

    Exit code 1 if there is none.

    Example: ledgermq admin queryMsgById -i 7F00000100002AB3000000000000022A
    """

    async def find(config: ClientConfig) -> list[MessageExt]:
        from ledgermq.client import MessageFinder
        from ledgermq.remoting.protocol.errors import LocalProtocolError

        async with MessageFinder(config) as finder:
            try:
                found = await finder.by_id(message_id)
            except LocalProtocolError as error:
                raise typer.BadParameter(str(error), param_hint="--msgId") from error
        return [] if found is None else [found]

    _run(namesrv, find, _print_lines if as_json else _print_whole)


def query_by_offset(
    topic: TopicOption,
    broker_name: Annotated[
        str, typer.Option("-b", "--brokerName", help="Broker or group that holds the queue.")
    ],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, help="Queue.")],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, help="Offset in the queue.")],
    namesrv: NameServers = "127.0.0.1:9876",
    as_json: AsJson = False,
) -> None:
    """Print the message at an offset of a queue.

    Exit code 1 if there is none.

    Example: ledgermq admin queryMsgByOffset -t orders -b RaftGroup0 -i 1 -o 0
    """

    async def find(config: ClientConfig) -> list[MessageExt]:
        from ledgermq.client import AdminClient, MessageQueue

        async with AdminClient(config) as client:
            found = await client.message_at(MessageQueue(topic, broker_name, queue_id), offset)
        return [] if found is None else [found]

    _run(namesrv, find, _print_lines if as_json else _print_whole)


def _run(
    namesrv: str,
    find: Callable[[ClientConfig], Coroutine[None, None, list[MessageExt]]],
    show: Callable[[list[MessageExt]], None],
) -> None:
    from ledgermq.client import RemotingError

    config = config_of_run(parse_addresses(namesrv), GROUP)
    try:
        found = asyncio.run(find(config))
    except RemotingError as error:
        say(f"ledgermq: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from error
    show(found)
    if not found:
        say(f"ledgermq: {NONE_FOUND}", err=True)
        raise typer.Exit(1)


def _print_places(messages: list[MessageExt]) -> None:
    if messages:
        rows = [
            {"msgId": one.message_id(), "queueId": one.queue_id, "queueOffset": one.queue_offset}
            for one in messages
        ]
        print_table(rows, ("msgId", "queueId", "queueOffset"))


def _print_lines(messages: list[MessageExt]) -> None:
    from ledgermq.remoting.protocol.message_row import message_row

    for one in messages:
        say(json_line(message_row(one)))


def _print_whole(messages: list[MessageExt]) -> None:
    from ledgermq.remoting.protocol.message_row import message_row

    for one in messages:
        row = message_row(one)
        for name in ("bornTimestamp", "storeTimestamp"):
            row[name] = f"{row[name]} ({_time(row[name])})"
        row["properties"] = ", ".join(f"{k}={v}" for k, v in sorted(row["properties"].items()))
        row["body"] = one.body.decode("utf-8", "backslashreplace")
        del row["bodyBase64"]
        width = max(map(len, row))
        say(
            "\n".join(f"{name.ljust(width)}  {one_line(str(value))}" for name, value in row.items())
            + "\n"
        )


def _time(wall_ms: int) -> str:
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return "no date"
