"""What a leader counts of the pulls that it holds is what it holds, and none of them waits in vain.

A pull is held while nothing lies behind where it has looked to; what its filter refused it has
looked at. One that is held while its queue goes on gets what is there at the end of its time, or
with the next message, which may be much later than it came. Counts are taken for the table itself
where shares of it are given out. Source: `broker.pulls.long_polling`; spec/wire.md 7.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from broker.pulls.long_polling import HeldPull, HoldTable
    from sim.oracles.replica import Replica

WAITS: Final = "A22 held though there is more"
KEPT: Final = "A39 counted otherwise than held"
GONE: Final = "A41 pull held for a connection that is gone"
LOOKS: Final = 6
"""So often in a row a pull is seen behind the end of its queue before that is judged: pulls are
woken one after the other, with turns between them."""


class HeldTable:
    """Judges the pulls that leaders hold."""

    def __init__(self) -> None:
        self._behind: dict[str, dict[tuple[int, int, int], int]] = {}
        """By broker: how often each was seen behind, by connection, opaque and offset."""

        self._gone: dict[str, set[int]] = {}
        """By broker: pulls of closed connections at the last look."""

    def on_tick(self, replica: Replica) -> None:
        """Look at a leader, now and then. Errors: `Violation`."""
        controller = replica.controller
        table = controller.tables.held
        pulls = [pull for held in table._by_queue.values() for pull in held.values()]
        self._check_kept(replica.name, table, len(pulls))
        self._check_gone(replica.name, pulls)
        before, now = self._behind.get(replica.name, {}), {}
        if controller.store.readable and not replica.is_corrupt:
            reader = controller.store.reader
            for pull in pulls:
                end = reader.max_offset(pull.topic, pull.queue_id)
                if pull.offset < end:
                    key = (pull.connection.id, pull.opaque, pull.offset)
                    now[key] = before.get(key, 0) + 1
                    self._check_pull(replica.name, pull, end, now[key])
        self._behind[replica.name] = now

    def _check_pull(self, name: str, pull: HeldPull, end: int, times: int) -> None:
        if times < LOOKS:
            return
        raise Violation(
            WAITS,
            f"{name} holds a pull of {pull.group} of {pull.topic}/{pull.queue_id} at {pull.offset},"
            f" and the queue goes on to {end}",
            node=name,
        )

    def _check_gone(self, name: str, pulls: list[HeldPull]) -> None:
        """Nobody waits for the answer, and the place in the table is taken from others."""
        before, gone = self._gone.get(name, set()), {pull.token for pull in pulls if _is_over(pull)}
        self._gone[name] = gone
        for pull in pulls:
            if pull.token in before & gone:
                text = f"{name} holds a pull of {pull.group} of {pull.topic}/{pull.queue_id}"
                text = f"{text} for {pull.holder}, whose connection is closed"
                raise Violation(GONE, text, node=name)

    def _check_kept(self, name: str, table: HoldTable, pulls: int) -> None:
        counts = {
            "counted": len(table),
            "by connection": sum(map(len, table._by_connection.values())),
            "by deadline": sum(map(len, table._by_deadline.values())),
        }
        weights = sum(one.weight for one in table._filters.values())
        wrong = {what: count for what, count in counts.items() if count != pulls}
        if wrong or table.filters_bytes != weights:
            text = f"{name} holds {pulls} pulls, and {wrong}; filters of {weights} bytes"
            raise Violation(KEPT, f"{text}, and {table.filters_bytes}", node=name)


def _is_over(pull: HeldPull) -> bool:
    return bool(pull.connection.closed)
