"""A checkpoint of the queues takes its place only when all that it says of them is on the disk.

A start believes it: what a loss of power took of a queue before it is not looked for in the log
again. That shows only if the power goes at the wrong moment, so it is judged when the file gets its
name: at that moment each file of a queue, up to the last unit that is named, must be synced, its
name as well. Read with code of its own from the bytes that were written.

It names an entry, too, and a start dispatches what lies behind that entry, and nothing before it.
So each queue must reach as far as the committed log up to that entry makes it, where the log is
known (`sim.oracles.truth`).

A store that ends in good order notes that behind its last checkpoint, and the next start believes
it once: while checkpoints are written there is no such note, or a start after a crash would trust
what nobody has looked at.
Source: spec/disk.md 5.5, 5.7; `store.recovery.checkpoint` (the layout).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sim.oracles.base import Findings, Violation, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sim.disk import SimDisk

    Ends = Callable[[int, int], Iterable[tuple[str, int, int]]]
    """``(index, term)`` of an entry: topic, queue id and end of each queue that is there then."""

NAME: Final = "A38 checkpoint of queues ahead of the disk"
BEHIND_NAME: Final = "A38 checkpoint of queues that lacks what it includes"
CLEAN_NAME: Final = "A38 noted as closed in good order, and open"
FILE: Final = "/consumequeue.checkpoint"
CLEAN_FILE: Final = "/consumequeue.clean"
UNIT_BYTES: Final = 20
HEAD_BYTES: Final = 12
SIZE_BYTES: Final = 4
NAME_DIGITS: Final = 20


def _unknown(_index: int, _term: int) -> Iterable[tuple[str, int, int]]:
    return ()


class QueueFiles:
    """Judges the checkpoints of one machine.

    ``ends``: tells how far its queues reach, as far as that is known.
    """

    def __init__(self, disk: SimDisk, findings: Findings, ends: Ends = _unknown) -> None:
        self._disk = disk
        self._ends = ends
        self.findings = findings
        disk.on_rename.append(self.on_rename)

    @guarded
    def on_rename(self, source: str, target: str) -> None:
        """A file is about to get its name."""
        if target.endswith(FILE) and not self._disk.has_failed_syncs():
            store = target.removesuffix(FILE)
            head, *parts = _parts(bytes(self._disk.look(source)))
            self._check(f"{store}/consumequeue", head, parts)
            self._check_ends(head, parts)
            if self._disk.look(store + CLEAN_FILE):
                text = f"{self._disk.host} writes a checkpoint, and {store}{CLEAN_FILE} is there"
                raise Violation(CLEAN_NAME, text, node=self._disk.host)

    def _check_ends(self, head: Any, parts: list[Any]) -> None:  # noqa: ANN401  # what msgpack holds
        index, term, _ = head[3][0]
        named = {(queue[0], queue[1]): queue[3] for part in parts for queue in part}
        for topic, queue_id, end in self._ends(index, term):
            if named.get((topic, queue_id), 0) < end:
                text = (
                    f"{self._disk.host}: it says that queues are written up to entry {index}, and"
                    f" {topic}/{queue_id} up to {named.get((topic, queue_id))}, not {end}"
                )
                raise Violation(BEHIND_NAME, text, node=self._disk.host)

    def _check(self, directory: str, head: Any, parts: list[Any]) -> None:  # noqa: ANN401  # likewise
        file_bytes = head[0]
        for topic, queue_id, low, high, first, *_ in (queue for part in parts for queue in part):
            end, begin = high * UNIT_BYTES, low * UNIT_BYTES
            for start in range(first, end, file_bytes):
                path = f"{directory}/{topic}/{queue_id}/{start:0{NAME_DIGITS}}"
                at = min(max(begin - start, 0), file_bytes)
                size = min(end - start, file_bytes) - at
                if size > 0 and not self._disk.is_durable(path, at, size):
                    raise Violation(
                        NAME,
                        f"{self._disk.host}: it says that {topic}/{queue_id} is from {low} to"
                        f" {high}, and {size} bytes of {path} from {at} on may be gone after a"
                        " loss of power now",
                        node=self._disk.host,
                    )


def _parts(content: bytes) -> Iterator[Any]:
    """Return what a checkpoint is made of: its head, then lists of queues."""
    at = HEAD_BYTES
    while at < len(content):
        begin = at + SIZE_BYTES
        at = begin + int.from_bytes(content[at:begin], "big")
        yield msgspec.msgpack.decode(content[begin:at])
