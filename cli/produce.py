"""``ledgermq produce``: send a message, or each line of standard input.

Uses the client library as any program would; knows no protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.account import AccessKey, SecretKey, config_of_run, take_account
from cli.messages import PANEL, AsJson, NameServers, Progress, Tally, parse_addresses
from cli.say import say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledgermq.client import HalfMessage, MessageExt, Producer, SendResult, TransactionState

EXIT_INTERRUPTED: Final = 130
ENDINGS: Final = ("commit", "rollback", "unknown")
"""How a transaction may end."""
Topic = Annotated[
    str,
    typer.Option("-t", "--topic", help="Topic; created on the first send if the broker allows it."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What ``produce`` was asked for; ``rate`` 0 means as fast as answers come."""

    topic: str
    tags: str = ""
    keys: str = ""
    shard: str = ""
    delay: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    count: int = 1
    rate: float = 0
    transaction: str = ""
    as_json: bool = False
    progress: bool = False


def register(app: typer.Typer) -> None:
    """Add the command of this module to ``app``."""
    app.command(rich_help_panel=PANEL)(produce)


Delay = Annotated[
    int,
    typer.Option(
        min=0, max=18, metavar="LEVEL", help="Deliver later: 1 is 1s, 2 5s, 3 10s, 4 30s, 5 1m."
    ),
]
Ending = Annotated[
    str,
    typer.Option(
        metavar="commit|rollback|unknown", help="Send each in a transaction that ends so."
    ),
]


def produce(
    topic: Topic,
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="BODY", help="The message; without it, each line of standard input."
        ),
    ] = None,
    namesrv: NameServers = "127.0.0.1:9876",
    tags: Annotated[
        str, typer.Option("--tag", "--tags", help="Tag of the messages, for consumers that filter.")
    ] = "",
    keys: Annotated[
        str, typer.Option("--key", "--keys", help="Business keys, separated by spaces.")
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Send each message so many times.")] = 1,
    rate: Annotated[
        float, typer.Option(min=0, metavar="PER_SECOND", help="At most so many (0: no limit).")
    ] = 0,
    shard: Annotated[
        str, typer.Option(metavar="KEY", help="Send all to the queue of this key, in order.")
    ] = "",
    delay: Delay = 0,
    transaction: Ending = "",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    as_json: AsJson = False,
    progress: Progress = False,
) -> None:
    """Send messages and print where each was stored: BROKER/QUEUE, queue offset, message id.

    A message that is stored, but on fewer disks than it should be, has the status behind that, as
    SLAVE_NOT_AVAILABLE. Exit code 1 if any send failed or its outcome is unknown; the reason is
    printed. 130 after Ctrl-C, with the count.

    Example: ledgermq produce -t orders "hello"

    Example: ledgermq produce -t orders --delay 3 --property region=eu "in ten seconds"

    Example: seq 1000 | ledgermq produce -n "10.0.0.1:9876;10.0.0.2:9876" -t orders --rate 100
    """
    take_account(access_key, secret_key)
    if transaction not in {"", *ENDINGS}:
        said = f"{transaction!r} is not one of {', '.join(ENDINGS)}"
        raise typer.BadParameter(said, param_hint="--transaction")
    sending = Sending(
        topic=topic, tags=tags, keys=keys, shard=shard, delay=delay, count=count, rate=rate,
        properties=parse_properties(properties or []), transaction=transaction,
        as_json=as_json, progress=progress,
    )  # fmt: skip
    tally = Tally("sent", "failed")
    bodies = _one(body) if body is not None else _lines()
    try:
        code = asyncio.run(send_all(parse_addresses(namesrv), bodies, sending, tally))
    except KeyboardInterrupt as stop:
        say(f"ledgermq: interrupted: {tally.words()}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from stop
    raise typer.Exit(code)


def parse_properties(texts: list[str]) -> dict[str, str]:
    """Return properties by name. Errors: ``typer.BadParameter`` for what is no NAME=VALUE."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
        found[name.strip()] = value
    return found


async def send_all(
    addresses: tuple[str, ...], bodies: AsyncIterator[bytes], sending: Sending, tally: Tally
) -> int:
    """Send each body ``count`` times and print where it went; returns the exit code."""
    from ledgermq.client import InvalidMessage, Message, RemotingError

    tally.begin()
    shown = asyncio.create_task(tally.show(sys.stderr)) if sending.progress else None
    try:
        async with _producer(addresses, sending) as producer:
            async for body in bodies:
                message = Message(
                    sending.topic, body, sending.tags, sending.keys, sending.properties,
                    sharding_key=sending.shard, delay_level=sending.delay,
                )  # fmt: skip
                for _ in range(sending.count):
                    if sending.rate:
                        await tally.pace(sending.rate)
                    try:
                        result = await _send(producer, message)
                    except InvalidMessage as error:
                        if body:  # It is the options' fault.
                            raise typer.BadParameter(str(error)) from error
                        _complain(error, tally)
                    except RemotingError as error:
                        _complain(error, tally)
                    else:
                        tally.good += 1
                        say(_row(result, as_json=sending.as_json))
    finally:
        if shown is not None:
            shown.cancel()
    if sending.progress:
        say(f"ledgermq: {tally.words()}", err=True)
    return 1 if tally.bad else 0


class _Ending:
    """Ends each transaction as the option says; a broker that asks later is told nothing."""

    def __init__(self, word: str) -> None:
        from ledgermq.client import TransactionState

        self._state = TransactionState[word.upper()]
        self._unknown = TransactionState.UNKNOWN

    async def execute(self, _message: HalfMessage, _arg: object) -> TransactionState:
        return self._state

    async def check(self, _message: MessageExt) -> TransactionState:
        return self._unknown


def _producer(addresses: tuple[str, ...], sending: Sending) -> Producer:
    from ledgermq.client import Producer, TransactionProducer

    config = config_of_run(addresses, "ledgermq-cli")
    if sending.transaction:
        return TransactionProducer(config, _Ending(sending.transaction))
    return Producer(config)


async def _send(producer: Producer, message: object) -> SendResult:
    from ledgermq.client import Message, TransactionProducer

    assert isinstance(message, Message)
    if isinstance(producer, TransactionProducer):
        return await producer.send_in_transaction(message)
    return await producer.send(message)


def _complain(error: Exception, tally: Tally) -> None:
    tally.bad += 1
    outcome = getattr(error, "outcome", None)
    known = "" if outcome is None else f" ({outcome.name.lower()})"
    say(f"ledgermq: not acknowledged{known}: {error}", err=True)


def _row(result: SendResult, *, as_json: bool) -> str:
    state = getattr(result, "state", None)
    if not as_json:
        where = f"{result.queue.broker_name}/{result.queue.queue_id}"
        ended = "" if state is None else f" {state.name.lower()}"
        stored = f" {result.status.name}" if result.status else ""  # SEND_OK is 0
        return f"{where} {result.queue_offset} {result.msg_id}{ended}{stored}"
    row: dict[str, object] = {
        "topic": result.queue.topic,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
        "msgId": result.msg_id,
        "offsetMsgId": result.offset_msg_id,
        "sendStatus": result.status.name,
    }
    if state is not None:
        row["transaction"] = state.name.lower()
    return json.dumps(row)


async def _one(text: str) -> AsyncIterator[bytes]:
    yield os.fsencode(text)


async def _lines() -> AsyncIterator[bytes]:
    """Return the lines of standard input as they come, whatever bytes they are of.

    Reading does not hold up Ctrl-C.
    """
    from ledgermq.client.off_loop import OffLoop

    threads = OffLoop(1)
    read = sys.stdin.buffer.readline
    while isinstance(line := await threads.submit(read, lambda: None), bytes) and line:
        yield line.removesuffix(b"\n").removesuffix(b"\r")
