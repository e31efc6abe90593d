"""``ledgermq admin`` commands for the controllers of master/slave groups, named as mqadmin's.

Each asks the given controllers who leads, and then that one. What changes something is signed, if
there is what to sign with (`cli.signing`).
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.admin import TIMEOUT_MS, AdminError, AsJson, print_table, run_job
from cli.messages import parse_addresses
from cli.say import say
from cli.signing import find_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.client import RemotingClient

LEADER_TRIES: Final = 20
RETRY_S: Final = 0.25
DECISION_MS: Final = 5_000
Addresses = Annotated[
    str,
    typer.Option(
        "-a", "--controllers", metavar="HOST:PORT;...", help="Controllers, or one of them."
    ),
]
Name = Annotated[str, typer.Option("-n", "--name", help="Name of the brokers (brokerName).")]
Cluster = Annotated[str, typer.Option("-c", "--cluster", help="Cluster of the brokers.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``ledgermq admin``."""
    app.command("getControllerMetaData")(get_metadata)
    app.command("getSyncStateSet")(get_in_sync)
    app.command("electMaster")(elect_master)
    app.command("cleanBrokerMetadata")(clean_broker)


def get_metadata(controllers: Addresses, as_json: AsJson = False) -> None:
    """Show which controller leads, as each of the given ones says.

    Exit code 1 if one of them does not answer.

    Example: ledgermq admin getControllerMetaData -a 127.0.0.1:9878
    """

    async def job(client: RemotingClient) -> int:
        rows: list[dict[str, Any]] = []
        for address in parse_addresses(controllers, "--controllers"):
            try:
                answer = await _request(client, address, 1005)
            except AdminError as error:
                rows.append({"address": address, "error": str(error)})
            else:
                rows.append({"address": address, **answer.ext_fields})
        if as_json:
            say(json.dumps(rows, indent=2))
        else:
            columns = ("address", "group", "isLeader", "controllerLeaderId")
            print_table(rows, (*columns, "controllerLeaderAddress", "peers", "error"))
        return 1 if any("error" in row for row in rows) else 0

    run_job(job)


def get_in_sync(controllers: Addresses, name: Name = "", as_json: AsJson = False) -> None:
    """Show the replicas of a group, or of all: who is master, in sync, alive.

    Example: ledgermq admin getSyncStateSet -a 127.0.0.1:9878
    """

    async def job(client: RemotingClient) -> int:
        leader, _ = await _leader(client, parse_addresses(controllers, "--controllers"))
        body = json.dumps([name] if name else []).encode()
        answer = await _request(client, leader, 1006, body=body)
        table = json.loads(answer.body)["replicasInfoTable"]
        if name and name not in table:
            raise AdminError(f"{leader}: no broker called {name} has ever registered")
        if as_json:
            say(json.dumps(table, indent=2))
        else:
            rows = [row for one in sorted(table) for row in _rows(one, table[one])]
            if not rows:
                say("no broker has registered with these controllers yet")
                return 0
            print_table(rows, ("name", "id", "role", "in_sync", "alive", "epoch", "address"))
        return 0

    run_job(job)


def elect_master(
    controllers: Addresses,
    name: Name,
    replica: Annotated[int, typer.Option("-b", "--id", min=1, help="Id of the next master.")],
    cluster: Cluster = "",
    *,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Also one not in sync: what it lacks is lost."),
    ] = False,
) -> None:
    """Make a replica the master; it must be in sync and alive, the present master may live.

    Example: ledgermq admin electMaster -a 127.0.0.1:9878 -n broker-a -b 2
    """
    fields = {"brokerName": name, "brokerId": str(replica), "designateElect": "true"}
    if accept_loss:
        fields["acceptLoss"] = "true"
    _change(controllers, 1002, {**fields, "clusterName": cluster})


def clean_broker(
    controllers: Addresses,
    name: Name,
    replicas: Annotated[str, typer.Option("-b", "--ids", help="Ids, such as 2;3.")],
    living: Annotated[bool, typer.Option("-l", "--living", help="Also one that is alive.")] = False,
    cluster: Cluster = "",
) -> None:
    """Remove replicas that do not come back: neither the master nor the last one in sync.

    Example: ledgermq admin cleanBrokerMetadata -a 127.0.0.1:9878 -n broker-a -b 3
    """
    if not re.fullmatch("[0-9]{1,15}(;[0-9]{1,15})*", replicas):
        raise typer.BadParameter(f"{replicas!r} is not ids, such as 2;3", param_hint="--ids")
    fields = {"brokerName": name, "brokerControllerIdsToClean": replicas, "clusterName": cluster}
    _change(controllers, 1011, {**fields, "isCleanLivingBroker": "true" if living else "false"})


def _rows(name: str, group: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for members, word in (("inSyncReplicas", "yes"), ("notInSyncReplicas", "no")):
        for one in group[members]:
            is_master = one["brokerId"] == group["masterBrokerId"]
            rows.append({
                "name": name, "id": one["brokerId"], "role": "master" if is_master else "slave",
                "in_sync": word, "alive": "yes" if one["alive"] else "no",
                "epoch": group["masterEpoch"], "address": one["brokerAddress"],
            })  # fmt: skip
    return sorted(rows, key=lambda row: int(row["id"]))


def _change(controllers: str, code: int, fields: Mapping[str, str]) -> None:
    async def job(client: RemotingClient) -> int:
        leader, name = await _leader(client, parse_addresses(controllers, "--controllers"))
        answer = await _request(client, leader, code, fields=fields, signed_for=name)
        found = answer.ext_fields
        say(
            f"master={found.get('masterBrokerId')} epoch={found.get('masterEpoch')}"
            f" address={found.get('masterAddress') or '-'}"
        )
        return 0

    run_job(job)


async def _leader(client: RemotingClient, addresses: tuple[str, ...]) -> tuple[str, str]:
    """Return the address of the controller that leads, and its own name for that.

    Waits for an election. Errors: AdminError.
    """
    error = "no controller is given"
    for _ in range(LEADER_TRIES):
        for address in addresses:
            try:
                found = (await _request(client, address, 1005)).ext_fields
            except AdminError as refused:
                error = str(refused)
                continue
            if found.get("isLeader") == "true":
                return address, found.get("controllerLeaderAddress", address)
            if found.get("controllerLeaderAddress"):
                addresses = (found["controllerLeaderAddress"], *addresses)
                addresses = tuple(dict.fromkeys(addresses))
            error = f"{address} does not lead"
        await asyncio.sleep(RETRY_S)
    raise AdminError(
        f"no controller of {';'.join(addresses)} leads ({error}); a majority of the name servers"
        " with enableControllerInNamesrv=true has to run"
    )


async def _request(
    client: RemotingClient,
    address: str,
    code: int,
    *,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    signed_for: str = "",
) -> RemotingCommand:
    """Return the answer of a controller, asked under its name ``signed_for`` where that counts.

    Errors: AdminError.
    """
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.protocol.errors import RemotingError
    from ledgermq.remoting.protocol.signing import CONTROLLER_AUDIENCE, sign
    from ledgermq.runtime.clock import SystemClock

    command = RemotingCommand(code=code, ext_fields=dict(fields or {}), body=body)
    credentials = find_credentials() if signed_for else None
    if credentials is not None:
        now_ms, nonce = SystemClock().wall_ms(), secrets.token_hex(16)
        audience = CONTROLLER_AUDIENCE + signed_for
        command = sign(command, credentials, now_ms=now_ms, nonce=nonce, audience=audience)
    try:
        answer = await client.request(address, command, DECISION_MS if signed_for else TIMEOUT_MS)
    except RemotingError as error:
        raise AdminError(f"{address}: {error}; does a controller run there?") from error
    if answer.code != 0:
        raise AdminError(f"{address}: answered with code {answer.code}: {answer.remark}")
    return answer
