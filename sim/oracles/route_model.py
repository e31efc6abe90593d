"""A name server's table, made once more from the registrations that it has taken, on the wire.

Routes that are told are compared with what brokers have said of themselves: addresses by id, and
the queues and permissions of each topic in the last registration of a master. Knows only what
brokers say: a group of which a registration is under way, or a connection has just ended, is passed
over, and so is all once somebody deletes topics or permissions.
Source: spec/wire.md 3.2; RocketMQ RouteInfoManager.registerBroker, unregisterBroker.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.oracles.wire import Said, Tap

REGISTER, UNREGISTER = 103, 104
CHANGES: Final = frozenset({205, 216, 327})
"""Requests of operators that change the table otherwise."""
MASTER_ID: Final = "0"
EXPIRY_NS: Final = 50_000_000_000
"""Who was silent for so long may have expired: two minutes, by a clock that is twice as fast."""
GONE_NS: Final = 1_000_000_000
"""So long after a connection has ended, a name server has taken its brokers out."""

Row = tuple[int, int, int]


@dataclass
class Group:
    """What the brokers of one name have said."""

    addrs: dict[str, str] = field(default_factory=dict)
    topics: dict[str, Row] = field(default_factory=dict)


@dataclass
class Live:
    """The last registration of one address."""

    name: str
    tap: Tap
    heard_ns: int
    gone_ns: int = -1
    """When its connection was first seen to be closed."""


class RouteModel:
    """The table of one life of a name server."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._live: dict[str, Live] = {}
        self._under_way: dict[int, tuple[Tap, str]] = {}
        """By identity of a request: registrations without an answer."""
        self._unknown: set[str] = set()
        """Groups of which something could not be read."""
        self._torn: set[str] = set()
        """Groups of which a connection ended while a registration was looked at: whether they were
        taken out before, and their topics with them, nobody can tell."""
        self._is_blind = False

    def on_request(self, tap: Tap, request: Said) -> None:
        """A name server hears a request."""
        self._look(request.at_ns)
        if request.code in CHANGES:
            self._is_blind = True
        elif request.code in {REGISTER, UNREGISTER}:
            self._under_way[id(request)] = (tap, request.text("brokerName"))

    def on_answer(self, tap: Tap, request: Said, now_ns: int, *, is_success: bool) -> None:
        """It has answered."""
        self._look(now_ns)
        self._under_way.pop(id(request), None)
        if not is_success:
            return
        name, addr = request.text("brokerName"), request.text("brokerAddr")
        if request.code == UNREGISTER:
            self._remove(addr)
        elif request.code == REGISTER:
            self._register(tap, request, name, addr)

    def _register(self, tap: Tap, request: Said, name: str, addr: str) -> None:
        self._leave_closed(name, request.at_ns)
        known = self._live.get(addr)
        if known is not None and known.name != name:
            self._remove(addr)
        group = self._groups.setdefault(name, Group())
        group.addrs = {key: its for key, its in group.addrs.items() if its != addr}
        group.addrs[request.text("brokerId")] = addr
        self._live[addr] = Live(name, tap, request.at_ns)
        if request.text("brokerId") != MASTER_ID:
            return
        try:
            group.topics |= _topics_of(request)
            self._unknown.discard(name)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error):
            self._unknown.add(name)

    def _remove(self, addr: str) -> None:
        live = self._live.pop(addr, None)
        group = None if live is None else self._groups.get(live.name)
        if live is None or group is None:
            return
        group.addrs = {key: its for key, its in group.addrs.items() if its != addr}
        if not group.addrs:
            del self._groups[live.name]

    def find_wrong(
        self, topic: str, told: tuple[Mapping[str, Mapping[str, str]], Mapping[str, Row]],
        now_ns: int,
    ) -> str:  # fmt: skip
        """Return what is wrong with a route that is told; empty for nothing."""
        if self._is_blind:
            return ""
        unclear = self._unclear(now_ns)
        addrs, rows = told
        for name in sorted({*self._groups, *addrs} - unclear):
            group = self._groups.get(name)
            row = None if group is None else group.topics.get(topic)
            if rows.get(name) != row:
                return f"{topic} is told to have {rows.get(name)} at {name}, registered is {row}"
            if group is not None and row is not None and addrs.get(name) != group.addrs:
                return f"{name} is told to be at {addrs.get(name)}, registered is {group.addrs}"
        return ""

    def _look(self, now_ns: int) -> None:
        """Note which connections have closed since the last look."""
        for live in self._live.values():
            if live.gone_ns < 0 and live.tap.is_closed:
                live.gone_ns = now_ns

    def _leave_closed(self, name: str, asked_ns: int) -> None:
        """Take out brokers of a group whose connections had closed before a registration came."""
        for addr, live in list(self._live.items()):
            if live.name == name and live.gone_ns >= 0:
                self._remove(addr)
                if live.gone_ns >= asked_ns:
                    self._torn.add(name)

    def _unclear(self, now_ns: int) -> set[str]:
        """Return the groups of which it is not known at this moment what the table has."""
        self._under_way = {key: one for key, one in self._under_way.items() if not one[0].is_closed}
        self._look(now_ns)
        unclear = self._unknown | self._torn | {name for _, name in self._under_way.values()}
        for addr, live in list(self._live.items()):
            if 0 <= live.gone_ns < now_ns - GONE_NS:
                self._remove(addr)
            elif live.gone_ns >= 0 or now_ns - live.heard_ns > EXPIRY_NS:
                unclear.add(live.name)
        return unclear


def _topics_of(request: Said) -> dict[str, Row]:
    """Return the topics of a registration. Errors: `ValueError` and others: none can be read."""
    body = request.body
    if request.text("compressed").lower() == "true":
        body = zlib.decompress(body)
    table: dict[str, Any] = json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    return {
        name: (one["readQueueNums"], one["writeQueueNums"], one["perm"])
        for name, one in table.items()
    }
