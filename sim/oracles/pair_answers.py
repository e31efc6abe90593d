"""What master and slaves answer on their connections, and what they ask each other.

A slave takes no message, and tells of nothing that its log does not have. What it gives its master
back moves no group backward, nor past the end of a queue. Source: docs/replication.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation, guarded
from sim.oracles.brokers import (
    COMMIT_OFFSET,
    MAX_OFFSET,
    NOT_FOUND,
    PULL,
    QUERY_OFFSET,
    SENDS,
    SUCCESS,
)
from sim.oracles.pair import OFFSET_DIGITS, STORED

if TYPE_CHECKING:
    from collections.abc import Collection

    from sim.oracles.pair import Pair
    from sim.oracles.pair_tables import PairTables
    from sim.oracles.wire import Said, Tap

PULL_OFFSET_MOVED: Final = 21


class PairEnd:
    """Listens at a broker's end of its connections; a `wire.Listener`.

    Args:
        addresses: of the brokers of this name.
    """

    def __init__(
        self, pair: Pair, tables: PairTables, name: str, addresses: Collection[str]
    ) -> None:
        self.findings = pair.findings
        self._pair = pair
        self._tables = tables
        self._name = name
        self._addresses = addresses
        self._told: dict[tuple[str, str, int], int] = {}
        """What a slave was told last of an offset."""
        self._asked: set[tuple[str, tuple[str, str, int]]] = set()
        """Who has been answered what it asked of an offset, and has given none back since."""

    @guarded
    def on_request(self, tap: Tap, request: Said) -> None:
        """Somebody commits an offset; a slave gives one back."""
        if request.code != COMMIT_OFFSET:
            return
        key, offset = offset_of(request), request.number("commitOffset")
        self._tables.on_offered(self._name, key, offset)
        if tap.other not in self._addresses:
            return
        if (tap.other, key) not in self._asked:
            raise Violation(
                "A24 offset given back unasked",
                f"{tap.other} gives {offset} of {key} back, and has not asked what there is now",
            )
        self._asked.discard((tap.other, key))
        end = self._pair.brokers[self._name].copy.queue_ends.get(key[1:], 0)
        told = self._told.get(key)
        if (told is not None and offset < told) or offset > end:
            if any(place[:2] == key[1:] for place in self._pair.replaced):
                return
            raise Violation(
                "A24 offset given back",
                f"{tap.other} gives {offset} of {key} back, which was {told}; the queue ends at "
                f"{end}",
            )

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """An answer that nobody waits for."""

    @guarded
    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A broker answers."""
        if request.code == QUERY_OFFSET and tap.other in self._addresses:
            self._asked.add((tap.other, offset_of(request)))
        if not self._pair.brokers[self._name].is_up:
            return
        if request.code in SENDS and answer.code in STORED:
            self._on_stored(answer)
        elif request.code == PULL:
            self._on_pulled(request, answer)
        elif answer.code != SUCCESS:
            return
        elif request.code == COMMIT_OFFSET:
            offset = request.number("commitOffset")
            self._tables.on_taken(self._name, offset_of(request), offset)
        elif request.code == MAX_OFFSET:
            self._pair.check_end_of_queue(self._name, _queue_of(request), answer.number("offset"))
        elif request.code == QUERY_OFFSET and tap.other in self._addresses:
            self._told[offset_of(request)] = answer.number("offset")

    def _on_stored(self, answer: Said) -> None:
        pair, name = self._pair, self._name
        if not pair.brokers[name].is_master:
            raise Violation(pair.served_name, f"{name} takes a message as a slave")
        for text in answer.text("msgId").split(","):
            pair.on_stored(name, answer.code, int(text[-OFFSET_DIGITS:], 16))

    def _on_pulled(self, request: Said, answer: Said) -> None:
        if answer.code == SUCCESS:
            self._pair.on_served(self._name, answer.body)
        elif not self._pair.brokers[self._name].is_master:
            asked, told = request.number("queueOffset"), answer.number("nextBeginOffset", -1)
            if answer.code == PULL_OFFSET_MOVED or (answer.code == NOT_FOUND and told != asked):
                text = f"{self._name} answers {answer.code} to a pull at {asked}, and says {told}"
                raise Violation("A40 slave that corrects an offset", text)
        if "maxOffset" in answer.fields:
            told = answer.number("maxOffset")
            self._pair.check_end_of_queue(self._name, _queue_of(request), told)


def _queue_of(request: Said) -> tuple[str, int]:
    return request.text("topic"), request.number("queueId")


def offset_of(request: Said) -> tuple[str, str, int]:
    """Return the group, topic and queue that a request is about."""
    return (request.text("consumerGroup"), request.text("topic"), request.number("queueId"))
