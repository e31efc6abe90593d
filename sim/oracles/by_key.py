"""What a broker finds by a key: all messages that have it, of the time that was asked for.

Times are compared in whole seconds from the first message of an index file. What a broker has found
once it finds again, as long as its log has it, it runs, and fewer are found than were asked for.
Source: spec/wire.md 3.8; spec/disk.md 5.4; RocketMQ IndexFile.selectPhyOffset.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.history.segment import EntryRow
    from sim.oracles.replica import Replica
    from sim.oracles.truth import Truth
    from sim.oracles.wire import Said

NAME: Final = "A44 answer that is not what the log says"
WHOLE_MS: Final = 1_000
"""What the index does not tell apart."""
UNIQUE_MAX: Final = 32
"""Of a key that producers make, whatever number is asked for."""

Asked = tuple[str, int, str, str]
"""A replica, its life, topic and key."""


class ByKey:
    """Judges answers to polite clients."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._known: dict[Asked, dict[tuple[int, int], EntryRow]] = defaultdict(dict)
        """What was found, by entry and term."""

    def check(self, replica: Replica, request: Said, rows: Sequence[EntryRow]) -> None:
        """Judge what was found. Errors: `Violation`."""
        topic, key = request.text("topic"), request.text("key")
        begin, end = request.number("beginTimestamp"), request.number("endTimestamp")
        known = self._known[replica.name, replica.incarnation, topic, key]
        is_unique = request.text("_UNIQUE_KEY_QUERY") == "true"
        limit = UNIQUE_MAX if is_unique else request.number("maxNum")
        if len(rows) > limit:
            _fail(replica, f"finds {len(rows)} messages of {key}, {limit} were asked for")
        found = set()
        for row in rows:
            place = (row.entry_index, row.term)
            found.add(place)
            known[place] = row
            stored = self._truth.times[place]
            if not begin - WHOLE_MS <= stored <= end + WHOLE_MS:
                span = f"{begin} to {end}"
                _fail(replica, f"finds {row} for {key}, stored at {stored} and not from {span}")
        if len(rows) == limit:
            return
        for place, row in known.items():
            stored = self._truth.times[place]
            is_within = begin + WHOLE_MS <= stored <= end - WHOLE_MS
            if is_within and place not in found and row.entry_index >= replica.store.first_index:
                _fail(replica, f"does not find {row} for {key}, stored at {stored}, any more")


def _fail(replica: Replica, text: str) -> None:
    raise Violation(NAME, f"{replica.name} {text}", node=replica.name)
