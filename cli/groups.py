"""``ledgermq admin``: topics, groups and their offsets, brokers; named as in mqadmin.

Uses the admin client as any program would. ``--json`` prints a list with an object a row.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.account import config_of_run
from cli.admin import print_table
from cli.messages import NameServers, parse_addresses
from cli.say import say
from cli.signing import find_credentials

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgermq.client import AdminClient, MessageQueue

    Rows = list[dict[str, Any]]

GROUP: Final = "TOOLS_ADMIN"
TopicOption = Annotated[str, typer.Option("-t", "--topic", help="Topic.")]
GroupOption = Annotated[str, typer.Option("-g", "--group", help="Consumer group.")]
Broker = Annotated[
    str, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Address of the broker.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``, which is ``ledgermq admin``."""
    for name, command in (
        ("topicStatus", topic_status), ("updateTopic", update_topic),
        ("consumerProgress", consumer_progress), ("consumerConnection", consumer_connection),
        ("resetOffsetByTime", reset_offset), ("cloneGroupOffset", clone_offset),
        ("brokerStatus", broker_status), ("getBrokerConfig", broker_config),
        ("deleteTopic", delete_topic), ("deleteSubGroup", delete_group),
    ):  # fmt: skip
        app.command(name)(command)


def topic_status(
    topic: TopicOption, namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False
) -> None:
    """List the queues of a topic with their smallest and largest offset.

    Example: ledgermq admin topicStatus -t orders
    """

    async def ask(client: AdminClient) -> Rows:
        return [
            _place(one.queue)
            | {"minOffset": one.min_offset, "maxOffset": one.max_offset}
            | {"lastUpdated": one.last_update_ms}
            for one in await client.topic_stats(topic)
        ]

    _run(namesrv, ask, as_json=as_json)


def update_topic(
    topic: TopicOption,
    namesrv: NameServers = "127.0.0.1:9876",
    queues: Annotated[
        int, typer.Option("-w", "--writeQueueNums", min=1, max=65_536, help="Queues of a broker.")
    ] = 8,
    cluster: Annotated[
        str, typer.Option("-c", "--clusterName", help="Only on the masters of this cluster.")
    ] = "",
    broker: Annotated[
        str,
        typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Only on this broker."),
    ] = "",
) -> None:
    """Create a topic on every master and leader, or change how many queues it has.

    Prints which brokers did it. One that is down is not among them: do it again when it runs.

    Example: ledgermq admin updateTopic -t orders -w 8 -c DefaultCluster
    """
    if cluster and broker:
        raise typer.BadParameter("-c and -b: one of them is expected")

    async def ask(client: AdminClient) -> Rows:
        from ledgermq.client.validation import check_topic

        check_topic(topic)
        places = [one for one in await client.brokers() if one.broker_id == 0]
        await client.create_topic(topic, queues, cluster=cluster, broker=broker)
        if cluster or broker:
            names = frozenset(
                one.name for one in places
                if (one.cluster == cluster if cluster else one.address == broker)
            )  # fmt: skip
        else:
            route = await client.topic_route(topic)
            names = route.broker_names & {one.name for one in places}
        return [{"brokerName": name, "queues": queues} for name in sorted(names or {broker})]

    _run(namesrv, ask)


def delete_topic(topic: TopicOption, namesrv: NameServers = "127.0.0.1:9876") -> None:
    """Delete a topic on every broker that holds it, then on all name servers.

    Prints which brokers did it. A broker that is down is not among them: it keeps the topic, and
    brings it back when it starts. Messages cannot be read while the topic is gone; who makes it
    anew, an automatic creation by a send, too, finds those that retention has left. Groups keep
    their offsets in it. Signed with the options of `ledgermq admin`, if there are any.

    Example: ledgermq admin deleteTopic -t orders
    """

    async def ask(client: AdminClient) -> Rows:
        return [{"brokerName": name, "deleted": topic} for name in await client.delete_topic(topic)]

    _run(namesrv, ask)


def delete_group(
    group: GroupOption,
    namesrv: NameServers = "127.0.0.1:9876",
    offsets: Annotated[
        bool, typer.Option("-r", "--removeOffset", help="Delete its offsets, too.")
    ] = False,
) -> None:
    """Delete the settings of a consumer group on every broker. Exit code 1 if none knows it.

    Prints which brokers did it; one that is down keeps what it has. The group's topics of retries
    and dead letters stay, %RETRY%GROUP and %DLQ%GROUP. Signed as deleteTopic.

    Example: ledgermq admin deleteSubGroup -g billing --removeOffset
    """

    async def ask(client: AdminClient) -> Rows:
        from ledgermq.client.validation import check_group

        check_group(group)
        names = []
        if group in await client.groups() or offsets:  # of a group that was deleted before
            names = await client.delete_group(group, offsets=offsets)
        return [{"brokerName": name, "deleted": group, "withOffsets": offsets} for name in names]

    _run(namesrv, ask, none=f"no broker knows group {group}")


def consumer_progress(
    group: GroupOption,
    topic: Annotated[str, typer.Option("-t", "--topic", help="Only this topic.")] = "",
    namesrv: NameServers = "127.0.0.1:9876",
    as_json: AsJson = False,
) -> None:
    """List how far a group has come in each queue, and how much is left.

    Masters and leaders are asked. Brokers that have none at the moment are named on stderr. Exit
    code 1 for a group that nobody knows.

    Example: ledgermq admin consumerProgress -g billing
    """

    async def ask(client: AdminClient) -> Rows:
        found = await client.group_progress(group, topic)
        places = await client.brokers()
        left_out = {one.name for one in places} - {one.name for one in places if not one.broker_id}
        if left_out:
            names = ", ".join(sorted(left_out))
            say(f"ledgermq: no master and no leader at the moment: {names}", err=True)
        if not any(one.consumer_offset > 0 for one in found) and not await _is_known(client, group):
            return []
        return [
            {"topic": one.queue.topic}
            | _place(one.queue)
            | {"brokerOffset": one.broker_offset, "consumerOffset": one.consumer_offset}
            | {"diff": one.lag, "lastTime": one.last_ms}
            for one in found
        ]

    _run(
        namesrv,
        ask,
        as_json=as_json,
        none=f"no broker that leads knows group {group}, or it has no offsets",
    )


async def _is_known(client: AdminClient, group: str) -> bool:
    return group in await client.groups() or await client.group_connections(group) is not None


def consumer_connection(
    group: GroupOption, namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False
) -> None:
    """List the connected members of a group. Exit code 1 if there is none.

    Example: ledgermq admin consumerConnection -g billing
    """

    async def ask(client: AdminClient) -> Rows:
        found = await client.group_connections(group)
        if found is None:
            return []
        subscribed = ", ".join(f"{topic}: {one}" for topic, one in found.subscriptions.items())
        return [
            {"clientId": one.client_id, "clientAddr": one.address, "language": one.language}
            | {"version": one.version, "type": found.consume_type, "model": found.message_model}
            | {"subscriptions": subscribed}
            for one in found.members
        ]

    _run(namesrv, ask, as_json=as_json, none=f"nobody of group {group} is connected")


def reset_offset(
    group: GroupOption,
    topic: TopicOption,
    timestamp: Annotated[
        str, typer.Option("-s", "--timestamp", metavar="MS|now", help="Go on there; now: the end.")
    ],
    namesrv: NameServers = "127.0.0.1:9876",
    as_json: AsJson = False,
) -> None:
    """Have a group go on at a time, forwards or backwards; connected members do so at once.

    Example: ledgermq admin resetOffsetByTime -g billing -t orders -s 0
    """
    if timestamp != "now" and not re.fullmatch("[0-9]{1,15}", timestamp):
        said = f"{timestamp!r} is neither milliseconds nor now"
        raise typer.BadParameter(said, param_hint="--timestamp")
    when_ms = -1 if timestamp == "now" else int(timestamp)

    async def ask(client: AdminClient) -> Rows:
        found = await client.reset_offsets(group, topic, when_ms)
        return [_place(queue) | {"offset": offset} for queue, offset in found.items()]

    _run(namesrv, ask, as_json=as_json)


def clone_offset(
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="Group that has offsets.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="Group that gets them.")],
    topic: TopicOption,
    namesrv: NameServers = "127.0.0.1:9876",
    as_json: AsJson = False,
) -> None:
    """Give a group the offsets that another one has in a topic.

    Example: ledgermq admin cloneGroupOffset -s billing -d audit -t orders
    """

    async def ask(client: AdminClient) -> Rows:
        found = await client.clone_offsets(source, target, topic)
        return [_place(queue) | {"offset": offset} for queue, offset in found.items()]

    _run(namesrv, ask, as_json=as_json)


def broker_status(
    broker: Broker, namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False
) -> None:
    """List the figures of a broker.

    Example: ledgermq admin brokerStatus -b 127.0.0.1:10911
    """
    (address,) = parse_addresses(broker, "--brokerAddr")[:1]

    async def ask(client: AdminClient) -> Rows:
        return _pairs(await client.broker_status(address))

    _run(namesrv, ask, as_json=as_json)


def broker_config(
    broker: Broker, namesrv: NameServers = "127.0.0.1:9876", as_json: AsJson = False
) -> None:
    """List the settings of a broker, without keys and certificates.

    Example: ledgermq admin getBrokerConfig -b 127.0.0.1:10911
    """
    (address,) = parse_addresses(broker, "--brokerAddr")[:1]

    async def ask(client: AdminClient) -> Rows:
        return _pairs(await client.broker_config(address))

    _run(namesrv, ask, as_json=as_json)


def _place(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id}


def _pairs(table: dict[str, str]) -> Rows:
    return [{"key": key, "value": value} for key, value in sorted(table.items())]


def _run(
    namesrv: str,
    ask: Callable[[AdminClient], Awaitable[Rows]],
    *,
    as_json: bool = False,
    none: str = "nothing found",
) -> None:
    """Print what ``ask`` returns; exit code 1, and why, for nothing or a failure."""
    from ledgermq.client import AdminClient, InvalidMessage, RemotingError

    async def main() -> Rows:
        async with AdminClient(config, credentials=credentials) as client:
            return await ask(client)

    config = config_of_run(parse_addresses(namesrv), GROUP)
    credentials = find_credentials()
    try:
        rows = asyncio.run(main())
    except InvalidMessage as error:  # the options' fault
        raise typer.BadParameter(str(error)) from error
    except RemotingError as error:
        say(f"ledgermq: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        say(json.dumps(rows, indent=2))
    elif rows:
        print_table(rows, tuple(rows[0]))
    if not rows:
        say(f"ledgermq: {none}", err=True)
        raise typer.Exit(1)
