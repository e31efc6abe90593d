"""What the oracles about brokers with copies of one log have in common, whoever names the master.

A broker loses its disk or its power, hands out records and says where a queue ends: what that means
does not depend on who decides which of them is the master. Source: docs/replication.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sim.oracles.base import Findings
    from sim.oracles.copies import Copy


class Holder(Protocol):
    """A broker that has a copy."""

    copy: Copy
    is_wiped: bool


_Holder = TypeVar("_Holder", bound=Holder)


class Holders(Generic[_Holder]):
    """Oracles about brokers, by name, each of which has a copy of the log."""

    lost_name: ClassVar[str]
    served_name: ClassVar[str]

    def __init__(
        self,
        brokers: dict[str, _Holder],
        findings: Findings,
        now_ns: Callable[[], int],
        count: Callable[[str], None],
    ) -> None:
        self.brokers = brokers
        self.findings = findings
        self._now_ns = now_ns
        self._count = count

    def on_wipe(self, name: str) -> None:
        """A broker that has been killed loses all."""
        broker = self.brokers[name]
        broker.is_wiped = broker.copy.is_damaged = True

    def lose_unsynced(self, name: str) -> None:
        """A broker with ASYNC_FLUSH loses what its disk has not synced."""
        copy = self.brokers[name].copy
        changes, names = copy.files.disk.unsynced()
        if changes or names:
            copy.is_damaged = True

    def handed_out(
        self, name: str, records: bytes, has: Callable[[Copy, int, bytes], bool]
    ) -> Iterator[tuple[int, int]]:
        """Yield where the records lie that a broker hands out, and their bytes.

        Errors: `Violation` for one that its copy does not have.
        """
        copy, at = self.brokers[name].copy, 0
        while at < len(records):
            size = int.from_bytes(records[at : at + 4], "big")
            data = records[at : at + size]
            position = int.from_bytes(data[28:36], "big")
            if size <= 0 or not has(copy, position, data):
                raise Violation(
                    self.served_name, f"{name} hands out what its log does not have at {position}"
                )
            yield position, size
            at += size

    def check_end_of_queue(self, name: str, queue: tuple[str, int], told: int) -> None:
        """A broker says where a queue ends: not behind what it has. Errors: `Violation`."""
        copy = self.brokers[name].copy
        end = copy.queue_ends.get(queue, 0)
        if copy.base == 0 and told > end:
            text = f"{name} says that {queue} ends at {told}; by its log it does at {end}"
            raise Violation(self.served_name, text)
