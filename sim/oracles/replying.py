"""A reply goes over the connection on which the client that waits for it has come last.

A client that has lost a connection makes another one at once; its broker may hold the former one
for a while, of which nobody reads the other end. What is said there is lost, and whoever asked
waits in vain. Known from the wire alone, in one life of a broker: heartbeats of producers that it
has taken, on which connections, and over which one it sends a reply. Of two connections of which
each may have come first nothing is said. Source: docs/client.md; spec/wire.md 3.3 (326); RocketMQ
ProducerManager.clientChannelTable.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said, Tap

PUSH_REPLY: Final = 326
TO_CLIENT: Final = "REPLY_TO_CLIENT\x01"
NAME: Final = "A46 reply over a former connection"


class Coming(msgspec.Struct, gc=False):
    """A client has come over a connection, as a producer of one group."""

    first_ns: int
    """When a broker heard of it."""
    heard_ns: int
    """When it heard of it last."""
    taken_ns: int | None = None
    """When it had answered with success, for the first time."""


class Replying:
    """Judges over which connections one life of a broker sends replies."""

    def __init__(self, replica: Replica, silent_ns: int) -> None:
        self._replica = replica
        self._silent_ns = silent_ns
        self._clients: dict[str, dict[tuple[str, Tap], Coming]] = defaultdict(dict)

    def on_heartbeat(self, tap: Tap, client: str, groups: Iterable[str], at_ns: int) -> None:
        """A client says in which groups it produces."""
        comings = self._clients[client]
        for key in [key for key in comings if key[1].is_closed]:
            del comings[key]
        for group in groups:
            known = comings.get((group, tap))
            if known is None or at_ns - known.heard_ns >= self._silent_ns:
                comings[group, tap] = Coming(at_ns, at_ns)
            else:
                known.heard_ns = at_ns

    def on_taken(
        self, tap: Tap, client: str, groups: Iterable[str], request: Said, at_ns: int
    ) -> None:  # fmt: skip
        """It was answered with success."""
        for group in groups:
            known = self._clients[client].get((group, tap))
            if known is not None and known.taken_ns is None and known.first_ns <= request.at_ns:
                known.taken_ns = at_ns

    def on_left(self, tap: Tap, group: str) -> None:
        """A client leaves a group."""
        for comings in self._clients.values():
            comings.pop((group, tap), None)

    def on_pushed(self, tap: Tap, said: Said) -> None:
        """A broker asks a client something. Errors: `Violation`."""
        if said.code != PUSH_REPLY:
            return
        items = said.text("properties").split("\x02")
        client = next((one.partition("\x01")[2] for one in items if one.startswith(TO_CLIENT)), "")
        comings = self._clients.get(client, {})
        mine = [one for (_, at), one in comings.items() if at is tap]
        if not mine or any(one.taken_ns is None for one in mine):
            return
        mine_ns = max(one.taken_ns for one in mine if one.taken_ns is not None)
        for (_, other), one in comings.items():
            is_there = one.taken_ns is not None and not other.is_closed
            is_heard = said.at_ns - one.heard_ns < self._silent_ns
            if other is not tap and is_there and is_heard and one.first_ns > mine_ns:
                ports = f"{tap.end.remote}, it has come again over {other.end.remote}"
                text = f"{self._replica.name} sends a reply for {client} to {ports}"
                raise Violation(NAME, text, node=self._replica.name)
