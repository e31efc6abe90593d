"""``ledgermq admin`` commands that change the members of a Raft group.

Each finds the leader of the group through the name servers, asks it, and asks again as long as it
says that the change may succeed later (a learner is behind, another change is under way, leadership
moves), within ``--timeout``. A replacement is three changes, each safe by itself; what is done is
not undone when the next one fails, and the same command goes on from there.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.admin import AdminError, AsJson, all_brokers, ask, run_job
from cli.messages import NameServers, parse_addresses
from cli.say import say
from cli.signing import ask_signed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgermq.remoting.transport.client import RemotingClient

RETRY_S: Final = 0.25
CHANGE_TIMEOUT_MS: Final = 15_000
Node = Annotated[str, typer.Option("--id", help="Id of the replica (dLegerSelfId), such as n3.")]
Address = Annotated[
    str,
    typer.Option(
        "--address", metavar="HOST:PORT", help="Where peers find it: its entry of dLegerPeers."
    ),
]
Group = Annotated[
    str, typer.Option("-g", "--group", help="Raft group (dLegerGroup), if there are several.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to go on trying.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``ledgermq admin``."""
    app.command("addLearner")(add_learner)
    app.command("promote")(promote)
    app.command("remove")(remove)
    app.command("replace")(replace)


def add_learner(
    node: Node,
    address: Address,
    namesrv: NameServers = "127.0.0.1:9876",
    group: Group = "",
    timeout: Timeout = 60,
    as_json: AsJson = False,
) -> None:
    """Add a replica to a Raft group as a learner: it gets the log and is counted nowhere.

    Start the replica first, with dLegerJoin=true and itself among its dLegerPeers.

    Example: ledgermq admin addLearner --id n3 --address 127.0.0.1:40914
    """
    _check(node, address)
    fields = {"op": "add_learner", "node": node, "address": address}
    _change(namesrv, group, timeout, [fields], as_json=as_json)


def promote(
    node: Node,
    namesrv: NameServers = "127.0.0.1:9876",
    group: Group = "",
    timeout: Timeout = 60,
    as_json: AsJson = False,
) -> None:
    """Make a voter of a learner, once it has caught up.

    Example: ledgermq admin promote --id n3
    """
    _change(namesrv, group, timeout, [{"op": "promote", "node": node}], as_json=as_json)


def remove(
    node: Node,
    namesrv: NameServers = "127.0.0.1:9876",
    group: Group = "",
    timeout: Timeout = 60,
    as_json: AsJson = False,
) -> None:
    """Remove a member of a Raft group (the leader, too); stop its process afterwards.

    Example: ledgermq admin remove --id n0
    """
    _change(namesrv, group, timeout, [{"op": "remove", "node": node}], as_json=as_json)


def replace(
    node: Node,
    address: Address,
    old: Annotated[str, typer.Option("--old", help="Id of the member that goes.")],
    namesrv: NameServers = "127.0.0.1:9876",
    group: Group = "",
    timeout: Timeout = 60,
    as_json: AsJson = False,
) -> None:
    """Put a new replica in the place of a member: add it, promote it, remove the old one.

    Example: ledgermq admin replace --old n0 --id n3 --address 127.0.0.1:40914
    """
    steps = [
        {"op": "add_learner", "node": node, "address": address},
        {"op": "promote", "node": node},
        {"op": "remove", "node": old},
    ]
    if node == old:
        raise typer.BadParameter(f"{old} cannot replace itself", param_hint="--id")
    _check(node, address)
    _change(namesrv, group, timeout, steps, as_json=as_json)


def _check(node: str, address: str) -> None:
    """Refuse a new member that no group would take. Errors: `typer.BadParameter`."""
    from dledger.limits import NODE_ID

    if not NODE_ID.match(node):
        said = f"{node!r} is not at most 64 letters, digits and _, the last one a digit (n3)"
        raise typer.BadParameter(said, param_hint="--id")
    if len(parse_addresses(address, "--address")) != 1:
        raise typer.BadParameter("one HOST:PORT is expected", param_hint="--address")


def _change(
    namesrv: str, group: str, timeout: float, steps: list[dict[str, str]], *, as_json: bool
) -> None:
    async def job(client: RemotingClient) -> int:
        from ledgermq.runtime.clock import SystemClock

        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + timeout * 1000
        addresses = parse_addresses(namesrv)

        def may_go_on() -> bool:
            return clock.monotonic_ms() < deadline_ms

        answer: dict[str, Any] = {}

        async def look() -> dict[str, Any]:
            return await find_leader(client, addresses, group)

        check_old(steps, await insist(look, may_go_on))
        for fields in steps:
            status = await insist(look, may_go_on)
            if not is_done(fields, status):
                answer = await insist(partial(_ask_leader, client, look, fields), may_go_on)
                if not as_json:
                    say(f"{fields['op']} {fields['node']}: {describe(answer)}")
            elif not as_json:
                say(f"{fields['op']} {fields['node']}: is so already")
        if as_json:
            say(json.dumps(answer))
        return 0

    run_job(job)


def check_old(steps: list[dict[str, str]], status: dict[str, Any]) -> None:
    """Refuse a replacement for who is no member, unless it is the end of one that was begun.

    Errors: `AdminError`.
    """
    first, last = steps[0], steps[-1]
    if len(steps) > 1 and is_done(last, status) and first["node"] not in status["voters"]:
        raise AdminError(f"{last['node']} is not a member; see: ledgermq admin raftStatus")


def is_done(fields: dict[str, str], status: dict[str, Any]) -> bool:
    """Tell whether a group of that status is as the change would make it."""
    node, voters, learners = fields["node"], status["voters"], status["learners"]
    if fields["op"] == "add_learner":
        return node in (*voters, *learners) and status["addresses"][node] == fields["address"]
    if fields["op"] == "promote":
        return node in voters
    return node not in voters and node not in learners


def for_people(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of raftStatus with its members as words."""
    lists = ("voters", "learners", "rejoining")
    words = {key: ",".join(row[key]) for key in lists if key in row}
    return {**row, **words, "fresh": "yes" if row.get("fresh") else ""}


def describe(answer: dict[str, Any]) -> str:
    """Render the group after a change."""
    learners = ",".join(answer["learners"])
    words = f"entry {answer['index']}, voters {','.join(answer['voters'])}"
    return f"{words}, learners {learners}" if learners else words


async def insist(
    ask_once: Callable[[], Awaitable[dict[str, Any]]], may_go_on: Callable[[], bool]
) -> dict[str, Any]:
    """Ask until there is an answer. Errors: `AdminError` that lasts, or when it takes too long."""
    while True:
        try:
            return await ask_once()
        except AdminError as error:
            if not error.may_retry or not may_go_on():
                raise
        await asyncio.sleep(RETRY_S)


async def _ask_leader(
    client: RemotingClient,
    look: Callable[[], Awaitable[dict[str, Any]]],
    fields: dict[str, str],
) -> dict[str, Any]:
    """Ask the leader, whoever it is now, for a change. Errors: `AdminError`."""
    from ledgermq.remoting.protocol.codes import RequestCode

    address, code = (await look())["address"], RequestCode.CHANGE_MEMBERSHIP
    return dict(await ask_signed(client, address, code, fields, CHANGE_TIMEOUT_MS))


async def find_leader(
    client: RemotingClient, addresses: tuple[str, ...], group: str
) -> dict[str, Any]:
    """Return the Raft status, with the address, of the leader of ``group``, or of the only group.

    Errors: `AdminError`.
    """
    from ledgermq.remoting.protocol.codes import RequestCode

    rows, outside = [], ""
    for address in await all_brokers(client, addresses):
        try:
            answer = await ask(client, address, RequestCode.RAFT_STATUS)
        except AdminError:
            continue
        if "group" in answer:  # a broker on its own, a master and a slave are in none
            rows.append({**answer, "address": address})
        else:
            outside = address
    if outside and not rows:
        raise AdminError(f"{outside}: it is in no Raft group, and no other broker that answers is")
    groups = sorted({str(row["group"]) for row in rows})
    if not group and len(groups) > 1:
        raise AdminError(f"there are several groups, choose one: -g {' or '.join(groups)}")
    leaders = [row for row in rows if row.get("role") == "LEADER" and group in {"", row["group"]}]
    if not leaders:
        of = f" of {group}" if group else ""
        raise AdminError(f"no leader{of} is known; see: ledgermq admin raftStatus", may_retry=True)
    return max(leaders, key=lambda row: int(row["term"]))
