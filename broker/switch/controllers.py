"""What a broker asks the controllers: requests 904 and 1001 to 1013 of RocketMQ 5.

The controller that leads is found by asking each (1005), and kept until it answers no more.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import ConnectFailed, RemotingError
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledgermq.remoting.transport.client import RemotingClient

ASK_MS: Final = 1_000
DECISION_MS: Final = 4_000
"""Longer than a controller waits for its majority."""

_NO_DECISION: Final = frozenset({
    ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY,
})  # fmt: skip
"""Answers that say nothing of what the controllers have decided."""
_NUMBER_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10
_MEMBERS_MAX: Final = 64

Fields = dict[str, str]


class View(NamedTuple):
    """What the controller that leads says of a group."""

    master: int
    """Id of the master, 0 for none."""
    epoch: int
    address: str
    """``host:port`` where the master takes requests."""
    ha_address: str
    in_sync: frozenset[int]
    set_epoch: int
    older: int = 0
    """Who has a log from before there were controllers, where the master has none; 0: nobody."""


class Answer(NamedTuple):
    """How a question to the controller that leads ended."""

    code: int
    remark: str
    view: View | None
    fields: Mapping[str, str]


class Unanswered(Exception):  # noqa: N818  # says what is
    """Nobody answered. ``is_certain``: and nothing was asked."""

    def __init__(self, reason: str, *, is_certain: bool) -> None:
        super().__init__(reason)
        self.is_certain = is_certain


class _Set(msgspec.Struct, rename="camel"):
    sync_state_set: list[int] = []
    sync_state_set_epoch: int = 0


class Controllers:
    """The controllers of a cluster.

    Args:
        addresses: of all of them.
        client: the connections to them.
        base: fields of every request: cluster and name.
        sign: signs a request to an address, if there is anything to sign with.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        client: RemotingClient,
        base: Fields,
        sign: Callable[[RemotingCommand, str], RemotingCommand],
    ) -> None:
        self._addresses = tuple(addresses)
        self._client = client
        self._base = base
        self._sign = sign
        self._leader = ""
        self.found = 0
        """How often it was found anew which one leads."""

    async def ask(
        self, code: RequestCode, fields: Fields, body: bytes = b"", timeout_ms: int = ASK_MS
    ) -> Answer:
        """Ask the controller that leads, once. Errors: `Unanswered`."""
        address = self._leader or await self._find_leader()
        try:
            response = await self._send(address, code, fields, body, timeout_ms)
        except RemotingError as error:
            self._leader = ""
            is_certain = isinstance(error, ConnectFailed)
            raise Unanswered(f"{address}: {error}", is_certain=is_certain) from error
        if response.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = ""
        if response.code in _NO_DECISION:
            raise Unanswered(f"{address}: {response.remark}", is_certain=False)
        self._leader = address
        found = response.ext_fields
        return Answer(response.code, response.remark or "", _view(found, response.body), found)

    async def beat(self, fields: Fields, timeout_ms: int = ASK_MS) -> None:
        """Tell all controllers that this broker lives, also one that only another one has named."""
        await asyncio.gather(
            *(
                self._send(address, RequestCode.BROKER_HEARTBEAT, fields, b"", timeout_ms)
                for address in dict.fromkeys((*self._addresses, self._leader))
                if address
            ),
            return_exceptions=True,
        )

    async def _find_leader(self) -> str:
        """Return the address of the controller that leads. Errors: `Unanswered`."""
        reason = "no controller is known"
        addresses = list(self._addresses)
        for address in addresses:
            try:
                found = (
                    await self._send(
                        address, RequestCode.CONTROLLER_GET_METADATA_INFO, {}, b"", ASK_MS
                    )
                ).ext_fields
            except RemotingError as error:
                reason = f"{address}: {error}"
                continue
            if found.get("isLeader") == "true":
                self.found += 1
                return address
            told = found.get("controllerLeaderAddress", "")
            if told and told not in addresses and len(addresses) < 2 * len(self._addresses):
                addresses.append(told)
            reason = f"{address} knows no controller that leads: does a majority of them run?"
        raise Unanswered(reason, is_certain=True)

    async def _send(
        self, address: str, code: RequestCode, fields: Fields, body: bytes, timeout_ms: int
    ) -> RemotingCommand:
        command = RemotingCommand(code, ext_fields=self._base | fields, body=body)
        return await self._client.request(address, self._sign(command, address), timeout_ms)


def _view(fields: Mapping[str, str], body: bytes | bytearray | memoryview) -> View | None:
    """Return what an answer says of the group; None if it says nothing, or nonsense."""
    try:
        members = msgspec.json.decode(bytes(body) or b"{}", type=_Set)
        view = View(
            number_of(fields["masterBrokerId"]),
            number_of(fields["masterEpoch"]),
            fields.get("masterAddress", ""),
            fields.get("masterHaAddress", ""),
            frozenset(members.sync_state_set),
            members.sync_state_set_epoch,
            number_of(fields.get("olderLog", "0")),
        )
    except (*NOT_DECODED, KeyError, ValueError):
        return None
    numbers = (view.set_epoch, *view.in_sync)
    is_possible = len(view.in_sync) <= _MEMBERS_MAX and min(numbers) >= 0
    return view if is_possible and max(numbers) <= _NUMBER_MAX else None


def number_of(text: str) -> int:
    """Return the id or epoch that a controller has written. Errors: `ValueError`."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not is_number or int(text) > _NUMBER_MAX:
        raise ValueError(f"{text[:20]!r} is neither an id nor an epoch")
    return int(text)


def set_body(members: frozenset[int], set_epoch: int) -> bytes:
    """Return the body of 1001."""
    body: dict[str, Any] = {
        "syncStateSet": sorted(members), "syncStateSetEpoch": set_epoch,
    }  # fmt: skip
    return json.dumps(body).encode()
