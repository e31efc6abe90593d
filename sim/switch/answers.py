"""What brokers that controllers switch answer on their connections, read from the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation, guarded
from sim.oracles.brokers import COMMIT_OFFSET, MAX_OFFSET, PULL, QUERY_OFFSET, SENDS, SUCCESS
from sim.oracles.pair import OFFSET_DIGITS, STORED
from sim.oracles.pair_answers import offset_of

if TYPE_CHECKING:
    from sim.oracles.wire import Said, Tap
    from sim.switch.replicas import Replicas
    from sim.switch.tables import SwitchTables

COMMITS: Final = 1
"""Flag of a pull: it brings an offset."""
UNKNOWN_OFFSET: Final = 22


class ReplicaEnd:
    """Listens at a broker's end of its connections; a `wire.Listener`."""

    def __init__(self, replicas: Replicas, tables: SwitchTables, name: str) -> None:
        self.findings = replicas.findings
        self._replicas = replicas
        self._tables = tables
        self._name = name

    def on_request(self, tap: Tap, request: Said) -> None:
        """Somebody has an offset kept, by itself or with a pull."""
        if request.code == COMMIT_OFFSET:
            key, offset = offset_of(request), request.number("commitOffset")
            self._tables.on_offered(self._name, key, offset)
            self._tables.on_asked(self._name, key, offset)
        elif request.code == PULL and request.number("sysFlag", 0) & COMMITS:
            offset = request.number("commitOffset")
            self._tables.on_asked(self._name, offset_of(request), offset)

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """An answer that nobody waits for."""

    @guarded
    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A broker answers."""
        del tap
        replicas, name = self._replicas, self._name
        if not replicas.brokers[name].is_up:
            return
        if request.code in SENDS and answer.code in STORED:
            self._on_stored(answer)
        elif request.code == PULL:
            if answer.code == SUCCESS:
                replicas.on_served(name, answer.body)
            if "maxOffset" in answer.fields:
                replicas.check_end_of_queue(name, _queue_of(request), answer.number("maxOffset"))
        elif request.code == COMMIT_OFFSET and answer.code == SUCCESS:
            key, offset = offset_of(request), request.number("commitOffset")
            self._tables.on_taken(name, key, offset)
        elif request.code == QUERY_OFFSET and answer.code in {SUCCESS, UNKNOWN_OFFSET}:
            told = answer.number("offset") if answer.code == SUCCESS else None
            self._tables.on_told(name, offset_of(request), told)
        elif request.code == MAX_OFFSET and answer.code == SUCCESS:
            replicas.check_end_of_queue(name, _queue_of(request), answer.number("offset"))

    def _on_stored(self, answer: Said) -> None:
        replicas, name = self._replicas, self._name
        if not replicas.brokers[name].is_master:
            raise Violation(replicas.served_name, f"{name} takes a message and is no master")
        for text in answer.text("msgId").split(","):
            replicas.on_stored(name, answer.code, int(text[-OFFSET_DIGITS:], 16))


def _queue_of(request: Said) -> tuple[str, int]:
    return request.text("topic"), request.number("queueId")
