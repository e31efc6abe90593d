"""The names of all topics, or of those of one cluster, as the body of an answer (206, 224).

There may be hundreds of thousands: they are collected and encoded in slices, and whoever asks
meanwhile shares the next list. A list has each topic that was there from before it was asked for
until it is answered.
"""

import asyncio
from collections.abc import Generator
from typing import Final

from msgspec.json import encode

from namesrv.route_table import RouteTable
from namesrv.rows import Group

NAMES_PER_TURN: Final = 5_000


class Listing:
    """Makes the lists of one name server."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table
        self._making: dict[str | None, asyncio.Future[bytes]] = {}
        self._one = asyncio.Lock()
        """Slices of several lists would make long turns."""

    def small(self, cluster: str | None) -> bytes | None:
        """Return a list that takes one turn of the loop, None if it takes more."""
        groups = self._table.groups(cluster)
        if sum(len(group.topics) for group in groups) > NAMES_PER_TURN:
            return None
        steps = names_in_steps(groups)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bytes(end.value)

    async def large(self, cluster: str | None) -> bytes:
        """Return a list that was begun after this call."""
        making = self._making.get(cluster)
        if making is not None:
            await asyncio.shield(making)
        making = self._making.get(cluster)  # somebody else waited and has begun the next one
        if making is None:
            making = asyncio.ensure_future(self._make(cluster))
            self._making[cluster] = making
            making.add_done_callback(lambda _: self._making.pop(cluster))
        return await asyncio.shield(making)

    async def _make(self, cluster: str | None) -> bytes:
        async with self._one:
            steps = names_in_steps(self._table.groups(cluster))
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return bytes(end.value)
                await asyncio.sleep(0)


def names_in_steps(groups: list[Group]) -> Generator[None, None, bytes]:
    """Collect the names of the topics of some groups, each once, and return the list as JSON."""
    found: dict[str, None] = {}
    seen = 0
    for group in groups:
        theirs = list(group.topics)
        for start in range(0, len(theirs), NAMES_PER_TURN):
            part = theirs[start : start + NAMES_PER_TURN]
            found.update(dict.fromkeys(part))
            seen += len(part)
            if seen >= NAMES_PER_TURN:
                seen = 0
                yield
    names, parts = list(found), []
    for start in range(0, len(names), NAMES_PER_TURN):
        parts.append(encode(names[start : start + NAMES_PER_TURN])[1:-1])
        yield
    return b'{"topicList":[' + b",".join(parts) + b"]}"
