"""``ledgermq produce`` and ``ledgermq consume``: send lines, print messages.

Uses the client library as any program would; knows no protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ledgermq.runtime.cancel import timeout

if TYPE_CHECKING:
    from ledgermq.client import (
        ConsumeContext,
        ConsumeStatus,
        Message,
        MessageExt,
        PushConsumer,
        RemotingError,
    )

JOIN_S = 5.0
"""How long a group may take to be joined before the reason why not is an error."""
WATCH_S = 1.0
QUIET_S = 5.0
"""When a person who sees no message is told what is waited for."""
PANEL = "Messages"
NAMESRV_HELP = "Name servers, separated by ';'. Also from the environment variable NAMESRV_ADDR."
NameServers = Annotated[
    str,
    typer.Option("-n", "--namesrv", metavar="HOST:PORT", envvar="NAMESRV_ADDR", help=NAMESRV_HELP),
]
Topic = Annotated[
    str,
    typer.Option("-t", "--topic", help="Topic; created on the first send if the broker allows it."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command(rich_help_panel=PANEL)(produce)
    app.command(rich_help_panel=PANEL)(consume)


def parse_addresses(text: str, option: str = "--namesrv") -> tuple[str, ...]:
    """Return the ``host:port`` parts of ``text``; raises ``typer.BadParameter`` if one is none."""
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise typer.BadParameter(f"{address!r} is not HOST:PORT", param_hint=option)
    if not addresses:
        raise typer.BadParameter("no address given, e.g. 127.0.0.1:9876", param_hint=option)
    return addresses


def produce(
    topic: Topic,
    body: Annotated[
        str | None, typer.Argument(help="The message; without it, each line of standard input.")
    ] = None,
    namesrv: NameServers = "127.0.0.1:9876",
    tags: Annotated[str, typer.Option(help="Tag of the messages, for consumers that filter.")] = "",
    keys: Annotated[str, typer.Option(help="Business keys, separated by spaces.")] = "",
    count: Annotated[int, typer.Option(min=1, help="Send each message so many times.")] = 1,
    shard: Annotated[
        str, typer.Option(metavar="KEY", help="Send all to the queue of this key, in order.")
    ] = "",
    delay: Annotated[
        int,
        typer.Option(
            min=0, max=18, metavar="LEVEL", help="Deliver later: 1 is 1s, 2 5s, 3 10s, 4 30s, 5 1m."
        ),
    ] = 0,
) -> None:
    """Send messages and print where each was stored: queue id, queue offset, message id.

    Exit code 1 if any send failed or its outcome is unknown; the reason is printed.

    Example: ledgermq produce -t orders "hello"

    Example: ledgermq produce -t orders --delay 3 "in ten seconds"

    Example: seq 1000 | ledgermq produce -n "10.0.0.1:9876;10.0.0.2:9876" -t orders --tags demo
    """
    from ledgermq.client import Message

    addresses = parse_addresses(namesrv)
    bodies = [body] if body is not None else [line.rstrip("\n") for line in sys.stdin]
    wanted = [
        Message(topic, text.encode(), tags, keys, sharding_key=shard, delay_level=delay)
        for text in bodies
        for _ in range(count)
    ]
    raise typer.Exit(asyncio.run(_produce(addresses, wanted)))


async def _produce(addresses: tuple[str, ...], wanted: list[Message]) -> int:
    from ledgermq.client import ClientConfig, Producer, RemotingError

    failures = 0
    async with Producer(ClientConfig(namesrv_addrs=addresses, group="ledgermq-cli")) as producer:
        for message in wanted:
            try:
                result = await producer.send(message)
            except RemotingError as error:
                failures += 1
                typer.echo(
                    f"ledgermq: not acknowledged ({error.outcome.name.lower()}): {error}", err=True
                )
                continue
            where = f"{result.queue.broker_name}/{result.queue.queue_id}"
            typer.echo(f"{where} {result.queue_offset} {result.msg_id}")
    return 1 if failures else 0


def consume(
    topic: Topic,
    namesrv: NameServers = "127.0.0.1:9876",
    group: Annotated[
        str, typer.Option("-g", "--group", help="Consumer group; members share the queues.")
    ] = "ledgermq-cli",
    expression: Annotated[
        str, typer.Option("--tags", help="Tags to take, e.g. 'red || blue'; * takes all.")
    ] = "*",
    sql: Annotated[
        str,
        typer.Option(help="SQL92 over the properties, e.g. \"price > 10 AND region = 'eu'\"."),
    ] = "",
    count: Annotated[int, typer.Option(min=0, help="Stop after so many messages (0: go on).")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="Stop after so many seconds (0: go on until Ctrl-C).")
    ] = 0,
    orderly: Annotated[
        bool, typer.Option("--orderly", help="Lock each queue and take its messages in order.")
    ] = False,
    broadcast: Annotated[
        bool, typer.Option("--broadcast", help="Take all messages, whoever else is in the group.")
    ] = False,
) -> None:
    """Consume as a member of a group and print each message: queue, queue offset, body.

    A new group starts at the beginning. Offsets are committed, so the next call goes on where
    this one stopped. Exit code 1, and why, if --count was not reached, if no name server answers
    or if none knows the topic.

    Example: ledgermq consume -t orders --count 10 --seconds 30
    """
    if sql and expression != "*":
        raise typer.BadParameter("a group takes messages by --tags or by --sql", param_hint="--sql")
    check_expression(expression)
    wanted = Wanted(
        topic=topic, expression=expression, sql=sql, group=group, count=count, seconds=seconds,
        orderly=orderly, broadcast=broadcast,
    )  # fmt: skip
    raise typer.Exit(asyncio.run(_consume(parse_addresses(namesrv), wanted)))


def check_expression(text: str) -> None:
    """Raise ``typer.BadParameter`` unless ``text`` is * or tags separated by ||."""
    parts = [part.strip() for part in text.split("||")]
    if text.strip() and not all(parts):
        raise typer.BadParameter(f"{text!r} has an empty tag", param_hint="--tags")
    if wrong := next((part for part in parts if re.search(r"[|\x00-\x1f]|.\s.|^\*.", part)), None):
        said = f"{wrong!r} is no tag; tags are separated by ' || ', and * alone takes all"
        raise typer.BadParameter(said, param_hint="--tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What ``consume`` was asked for; 0 for ``count`` or ``seconds`` means no limit."""

    topic: str
    expression: str
    sql: str
    group: str
    count: int
    seconds: float
    orderly: bool = False
    broadcast: bool = False

    @property
    def what(self) -> str:
        """The messages that are waited for, in words."""
        chosen = "" if self.expression.strip() in {"", "*"} else f" with tags {self.expression}"
        chosen = f" where {self.sql}" if self.sql else chosen
        return f"messages of {self.topic}{chosen}"


class Printer:
    """Prints messages as they come, and knows when there are enough."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted.count
        self.seen = 0
        self.enough = asyncio.Event()

    def listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """Take some messages, unless there were enough."""
        from ledgermq.client import ConsumeStatus

        if self._wanted and self.seen >= self._wanted:
            return ConsumeStatus.RECONSUME_LATER
        for message in messages:
            self.seen += 1
            where = f"{context.queue.broker_name}/{context.queue.queue_id}"
            typer.echo(f"{where} {message.queue_offset} {message.body.decode(errors='replace')}")
        if self._wanted and self.seen >= self._wanted:
            self.enough.set()
        return ConsumeStatus.CONSUME_SUCCESS


async def _consume(addresses: tuple[str, ...], wanted: Wanted) -> int:
    from ledgermq.client import (
        ClientConfig,
        ConsumeFrom,
        ConsumeOptions,
        InvalidMessage,
        MessageModel,
        PushConsumer,
        RemotingError,
        Sql92,
    )

    printer = Printer(wanted)
    options = ConsumeOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET,
        model=MessageModel.BROADCASTING if wanted.broadcast else MessageModel.CLUSTERING,
        orderly=wanted.orderly,
    )
    try:
        config = ClientConfig(namesrv_addrs=addresses, group=wanted.group)
        consumer = PushConsumer(config, printer.listen, options=options)
        consumer.subscribe(wanted.topic, Sql92(wanted.sql) if wanted.sql else wanted.expression)
    except InvalidMessage as error:  # the options' fault
        raise typer.BadParameter(str(error)) from error
    async with consumer:
        try:
            await consumer.wait_joined(min(JOIN_S, wanted.seconds or JOIN_S))
        except RemotingError as error:
            typer.echo(f"ledgermq: {in_words(error, wanted.topic, addresses)}", err=True)
            return 1
        watch = asyncio.create_task(_watch(consumer, printer, wanted))
        with contextlib.suppress(TimeoutError):
            async with timeout(wanted.seconds or None):
                await printer.enough.wait()
        watch.cancel()
    if printer.seen >= wanted.count:
        return 0
    short = f"{printer.seen} of {wanted.count} {wanted.what} came in {wanted.seconds:g} s"
    typer.echo(f"ledgermq: {short}", err=True)
    return 1


def in_words(error: RemotingError, topic: str, addresses: tuple[str, ...]) -> str:
    """Return why a topic can not be consumed, with what to do about it."""
    from ledgermq.client import NameServersUnreachable, NoRoute

    servers = ", ".join(addresses)
    if isinstance(error, NameServersUnreachable):
        return f"no name server answers at {servers}; start one, or name another with --namesrv"
    if isinstance(error, NoRoute):
        return f"topic {topic} can not be consumed: {error} ({servers}); send to it first"
    return f"topic {topic} can not be consumed: {error}"


async def _watch(consumer: PushConsumer, printer: Printer, wanted: Wanted) -> None:
    """Tell a person who waits what blocks, once each, and that nothing has come yet."""
    told = ""
    quiet = 0.0
    while True:
        await asyncio.sleep(WATCH_S)
        quiet += WATCH_S
        hindrance = "; ".join(str(error) for _, error in sorted(consumer.problems.items()))
        if hindrance and hindrance != told:
            typer.echo(f"ledgermq: {hindrance}; trying again", err=True)
        told = hindrance
        if quiet == QUIET_S and not printer.seen:
            typer.echo(f"ledgermq: waiting for {wanted.what} (Ctrl-C ends)", err=True)
