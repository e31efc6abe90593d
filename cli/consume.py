"""``ledgermq consume``: print messages as a member of a group.

Uses the client library as any program would; knows no protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.account import AccessKey, SecretKey, config_of_run, take_account
from cli.messages import PANEL, AsJson, NameServers, Progress, Tally, parse_addresses
from cli.say import say
from cli.times import TIME_FORMS, moment_ms
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.printable import json_line, one_line

if TYPE_CHECKING:
    from ledgermq.client import (
        ConsumeContext,
        ConsumeFrom,
        ConsumeStatus,
        MessageExt,
        PushConsumer,
        RemotingError,
    )

EXIT_INTERRUPTED: Final = 130
JOIN_S = 5.0
"""How long a group may take to be joined before the reason why not is an error."""
WATCH_S = 1.0
QUIET_S = 5.0
"""When a person who sees no message is told what is waited for."""


def register(app: typer.Typer) -> None:
    """Add the command of this module to ``app``."""
    app.command(rich_help_panel=PANEL)(consume)


def consume(
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic.")],
    namesrv: NameServers = "127.0.0.1:9876",
    group: Annotated[
        str, typer.Option("-g", "--group", help="Consumer group; members share the queues.")
    ] = "ledgermq-cli",
    expression: Annotated[
        str, typer.Option("--tag", "--tags", help="Tags to take, e.g. 'red || blue'; * takes all.")
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
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="first|last|TIME",
            help=f"Where a new group begins; a time is {TIME_FORMS}.",
        ),
    ] = "first",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    as_json: AsJson = False,
    progress: Progress = False,
) -> None:
    """Consume as a member of a group and print each message: queue, queue offset, body.

    A new group starts where --from says. Offsets are committed, so the next call goes on where
    this one stopped. Exit code 1, and why, if --count was not reached, if no name server answers,
    if none knows the topic, if the broker finds the expression wrong, or if a message cannot be
    printed: that one is left for the next call, as what comes behind --count. 130 after Ctrl-C,
    with the count.

    Example: ledgermq consume -t orders --count 10 --seconds 30
    """
    take_account(access_key, secret_key)
    if sql and expression != "*":
        raise typer.BadParameter("a group takes messages by --tags or by --sql", param_hint="--sql")
    check_expression(expression)
    wanted = Wanted(
        topic=topic, expression=expression, sql=sql, group=group, count=count, seconds=seconds,
        orderly=orderly, broadcast=broadcast, begin=parse_begin(begin), as_json=as_json,
        progress=progress,
    )  # fmt: skip
    printer = Printer(wanted)
    log = logging.getLogger("ledgermq.client.hindrances")
    log.addFilter(_is_news)
    try:
        code = asyncio.run(print_messages(parse_addresses(namesrv), wanted, printer))
    except KeyboardInterrupt as stop:
        say(f"ledgermq: interrupted: {printer.tally.words()}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from stop
    finally:
        log.removeFilter(_is_news)
    raise typer.Exit(code)


def parse_begin(text: str) -> int | None:
    """Return a time in ms, -1 for the first message, None for the last.

    Errors: ``typer.BadParameter``.
    """
    if text in {"first", "last"}:
        return -1 if text == "first" else None
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    if (found := moment_ms(text)) is not None:
        return found
    said = f"{text!r} is neither first, last, milliseconds nor a time as 2025-01-31T12:00"
    raise typer.BadParameter(said, param_hint="--from")


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
    begin: int | None = -1
    """See `parse_begin`."""
    as_json: bool = False
    progress: bool = False

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
        self._as_json = wanted.as_json
        self.tally = Tally("messages came")
        self.enough = asyncio.Event()
        self.failed: OSError | ValueError | None = None
        """Why nothing can be printed any more."""

    @property
    def seen(self) -> int:
        """How many came."""
        return self.tally.good

    async def listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """Take some messages, unless there were enough, or nobody reads what is printed.

        What is beyond is left unfinished, for the next call: the task that has it ends. To say
        RECONSUME_LATER would push it into the retry topic, or drop it where it is broadcast.
        """
        from ledgermq.client import ConsumeStatus

        if self.enough.is_set():
            await _leave_unfinished()
        for message in messages:
            try:
                say(self._line(message, context))
            except (OSError, ValueError) as error:  # a pipe that is closed, a disk that is full
                self.failed = error
                self.enough.set()
                await _leave_unfinished()
            self.tally.good += 1
        if self._wanted and self.seen >= self._wanted:
            self.enough.set()
        return ConsumeStatus.CONSUME_SUCCESS

    def _line(self, message: MessageExt, context: ConsumeContext) -> str:
        from ledgermq.remoting.protocol.message_row import message_row

        if self._as_json:
            row = {**message_row(message), "brokerName": context.queue.broker_name}
            return json_line(row)
        where = f"{context.queue.broker_name}/{context.queue.queue_id}"
        return f"{where} {message.queue_offset} {one_line(message.body.decode(errors='replace'))}"


async def _leave_unfinished() -> None:
    """End the task of a listener before it says anything of its messages."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether a log line says what this command does not print itself."""
    return "event=not_consumed" not in record.getMessage()


def _origin(begin: int | None) -> tuple[ConsumeFrom, int]:
    from ledgermq.client import ConsumeFrom

    if begin is None:
        return ConsumeFrom.LAST_OFFSET, 0
    return (ConsumeFrom.FIRST_OFFSET, 0) if begin < 0 else (ConsumeFrom.TIMESTAMP, begin)


async def print_messages(addresses: tuple[str, ...], wanted: Wanted, printer: Printer) -> int:
    """Consume until there is enough, and return the exit code."""
    from ledgermq.client import (
        ConsumeOptions,
        InvalidMessage,
        MessageModel,
        PushConsumer,
        RemotingError,
        Sql92,
    )

    origin, origin_ms = _origin(wanted.begin)
    options = ConsumeOptions(
        consume_from=origin,
        consume_timestamp_ms=origin_ms,
        model=MessageModel.BROADCASTING if wanted.broadcast else MessageModel.CLUSTERING,
        orderly=wanted.orderly,
    )
    try:
        config = config_of_run(addresses, wanted.group)
        consumer = PushConsumer(config, printer.listen, options=options)
        consumer.subscribe(wanted.topic, Sql92(wanted.sql) if wanted.sql else wanted.expression)
    except InvalidMessage as error:  # the options' fault
        raise typer.BadParameter(str(error)) from error
    async with consumer:
        try:
            await consumer.wait_joined(min(JOIN_S, wanted.seconds or JOIN_S))
        except RemotingError as error:
            say(f"ledgermq: {in_words(error, wanted.topic, addresses)}", err=True)
            return 1
        watches = [asyncio.create_task(_watch(consumer, printer, wanted))]
        if wanted.progress:
            watches.append(asyncio.create_task(printer.tally.show(sys.stderr)))
        with contextlib.suppress(TimeoutError):
            async with timeout(wanted.seconds or None):
                await printer.enough.wait()
        for watch in watches:
            watch.cancel()
    if isinstance(printer.failed, BrokenPipeError):
        # Who reads has had enough; the interpreter would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif printer.failed is not None:
        say(f"ledgermq: cannot print: {printer.failed}", err=True)
        return 1
    if printer.seen >= wanted.count:
        return 0
    short = f"{printer.seen} of {wanted.count} {wanted.what} came in {wanted.seconds:g} s"
    say(f"ledgermq: {short}", err=True)
    return 1


def in_words(error: RemotingError, topic: str, addresses: tuple[str, ...]) -> str:
    """Return why a topic can not be consumed, with what to do about it."""
    from ledgermq.client import NameServersUnreachable, NoRoute

    servers = ", ".join(addresses)
    if isinstance(error, NameServersUnreachable):
        return f"{error}; start a name server, or name another with --namesrv"
    if isinstance(error, NoRoute):
        return (
            f"topic {topic} can not be consumed: {error} ({servers}); send to it first, or wait:"
            " while its brokers have no leader it is not known either"
        )
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
            say(f"ledgermq: {hindrance}; trying again", err=True)
        told = hindrance
        if quiet == QUIET_S and not printer.seen:
            say(f"ledgermq: waiting for {wanted.what} (Ctrl-C ends)", err=True)
