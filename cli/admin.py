"""``ledgermq admin``: ask a running cluster; the names of the commands are those of mqadmin.

Speaks to name servers and brokers through the remoting client; decodes only what it prints. Answers
are asked one by one, each within ``TIMEOUT_MS``.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.account import TlsFiles, account_of_run, tls_of_run
from cli.messages import NameServers, parse_addresses
from cli.say import say
from ledgermq.runtime.printable import one_line

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Mapping

    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.client import RemotingClient

    Answer = Mapping[str, Any]
    Job = Callable[[RemotingClient], Coroutine[None, None, int]]

TIMEOUT_MS: Final = 3_000
RETRIABLE: Final = frozenset({2, 14})
"""Codes after which the same request may succeed: busy, does not lead."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    name="admin",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help=(
        "Ask a running cluster; commands are named as in RocketMQ's mqadmin.\n\n"
        "Example: ledgermq admin clusterList -n 127.0.0.1:9876"
    ),
)


@app.command("clusterList")
def cluster_list(namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False) -> None:
    """List clusters, broker names, broker ids and addresses as a name server knows them.

    Example: ledgermq admin clusterList -n 127.0.0.1:9876
    """

    async def job(client: RemotingClient) -> int:
        body = await _cluster(client, parse_addresses(namesrv))
        if as_json:
            say(json.dumps(body, indent=2))
            return 0
        rows = [
            {"cluster": data.get("cluster"), "broker": name, "id": broker_id, "address": address}
            for name, data in sorted(body["brokerAddrTable"].items())
            for broker_id, address in sorted(
                data["brokerAddrs"].items(), key=lambda item: int(item[0])
            )
        ]
        print_table(rows, ("cluster", "broker", "id", "address"))
        return 0

    run_job(job)


@app.command("topicList")
def topic_list(namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False) -> None:
    """List the topics that a name server knows.

    Example: ledgermq admin topicList -n 127.0.0.1:9876
    """

    async def job(client: RemotingClient) -> int:
        from ledgermq.remoting.protocol.codes import RequestCode

        addresses = parse_addresses(namesrv)
        body = await ask_any(client, addresses, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = sorted(body["topicList"])
        say(json.dumps(topics) if as_json else "\n".join(map(one_line, topics)))
        return 0

    run_job(job)


@app.command("topicRoute")
def topic_route(
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic.")],
    namesrv: NameServers = "127.0.0.1:9876",
) -> None:
    """Print the route of a topic as JSON: its queues and the brokers that hold them.

    Example: ledgermq admin topicRoute -n 127.0.0.1:9876 -t orders
    """

    async def job(client: RemotingClient) -> int:
        from ledgermq.remoting.protocol.codes import RequestCode

        addresses = parse_addresses(namesrv)
        body = await ask_any(
            client, addresses, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}
        )
        say(json.dumps(body, indent=2))
        return 0

    run_job(job)


class AdminError(Exception):
    """The server refused or could not be reached; the message names it and says what to do.

    ``may_retry``: whether the same request may succeed later.
    """

    def __init__(self, message: str, *, may_retry: bool = False) -> None:
        super().__init__(message)
        self.may_retry = may_retry


def run_job(job: Job) -> None:
    """Run a command's work with a client; end with its exit code, one line for an `AdminError`."""

    async def with_client() -> int:
        from ledgermq.remoting.transport.client import RemotingClient
        from ledgermq.remoting.transport.config import TransportConfig

        account, tls = account_of_run(), _tls_context(tls_of_run())
        sign = None if account is None else account.sign
        client = RemotingClient(config=TransportConfig(), sign=sign, tls=tls)
        try:
            return await job(client)
        finally:
            await client.close()

    try:
        code = asyncio.run(with_client())
    except AdminError as error:
        raise typer.Exit(_fail(error)) from error
    raise typer.Exit(code)


def _tls_context(files: TlsFiles) -> ssl.SSLContext | None:
    """Return what connections need for TLS, None where no CA is named. Errors: `AdminError`."""
    from ledgermq.remoting.transport.tls import client_context

    try:
        return client_context(*files) if files.ca else None
    except ValueError as error:
        raise AdminError(f"LEDGERMQ_TLS_CA={files.ca}: {error}") from error


def _fail(error: AdminError) -> int:
    say(f"ledgermq: {' '.join(str(error).split())}", err=True)
    return 1


async def ask(
    client: RemotingClient,
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
    timeout_ms: int = TIMEOUT_MS,
    seal: Callable[[RemotingCommand], RemotingCommand] | None = None,
) -> Answer:
    """Return the JSON body of the answer of ``address``; raises AdminError.

    ``seal`` has the last word on the request, see `cli.signing`.
    """
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.protocol.errors import RemotingError
    from ledgermq.remoting.protocol.tolerant_json import ANSWER, loads

    command = RemotingCommand(code=code, ext_fields=dict(fields or {}))
    if seal is not None:
        command = seal(command)
    try:
        answer = await client.request(address, command, timeout_ms)
    except RemotingError as error:
        raise AdminError(f"{address}: {error}; is it running? try: ledgermq doctor") from error
    if answer.code != 0:
        message = f"{address}: answered with code {answer.code}: {answer.remark}"
        raise AdminError(message, may_retry=answer.code in RETRIABLE)
    try:
        body = loads(answer.body, ANSWER)
    except RemotingError as error:
        raise AdminError(f"{address}: the answer cannot be read: {error}") from error
    if not isinstance(body, dict):
        raise AdminError(f"{address}: the body of the answer is not a JSON object")
    return body


async def ask_any(
    client: RemotingClient,
    addresses: tuple[str, ...],
    code: int,
    fields: Mapping[str, str] | None = None,
) -> Answer:
    """Return the JSON body of the first of ``addresses`` that answers; raises AdminError."""
    for address in addresses[:-1]:
        try:
            return await ask(client, address, code, fields)
        except AdminError:
            continue
    return await ask(client, addresses[-1], code, fields)


async def _cluster(client: RemotingClient, addresses: tuple[str, ...]) -> Answer:
    from ledgermq.remoting.protocol.codes import RequestCode

    return await ask_any(client, addresses, RequestCode.GET_BROKER_CLUSTER_INFO)


async def all_brokers(client: RemotingClient, addresses: tuple[str, ...]) -> list[str]:
    """Return the addresses of all brokers that a name server knows, sorted."""
    body = await _cluster(client, addresses)
    found = sorted(
        a for data in body["brokerAddrTable"].values() for a in data["brokerAddrs"].values()
    )
    if not found:
        raise AdminError("the name server knows no broker yet; try again in a moment")
    return found


def print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Print ``rows`` under those ``columns`` that any row has."""
    used = [column for column in columns if any(row.get(column) not in {None, ""} for row in rows)]
    cells = [used] + [
        ["" if (v := row.get(c)) is None else one_line(str(v)) for c in used] for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(used))]
    for line in cells:
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
