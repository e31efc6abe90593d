"""The files of the queues, read from the disk: no hole, and no message in two places.

Between its first and its last unit that names a message a queue names one at each offset, further
on in the log each time, and nothing in the log is named twice in all queues (A16). What is named
says itself that it lies there. Judged of a broker that is about to end, and of those that run at
the end: a start may find its files in any state. Source: spec/proof.md 3.4 (A16); spec/disk.md 5.3.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.disk import SimDisk
    from sim.oracles.alone_disk import LogFiles

HOLE: Final = "A16 hole in a queue"
TWICE: Final = "A16 a message at two places"
MISPLACED: Final = "A16 a place of another message"
ROOT: Final = "/store/consumequeue/"
NAME_DIGITS: Final = 20
UNIT_BYTES: Final = 20
NO_SIZE: Final = (0, 0x7FFFFFFF)
"""Sizes of units that name nothing."""
_unit: Final = Struct(">qi8x")
_place: Final = Struct(">i4xqq").unpack_from
"""Queue, queue offset and place in the log, from byte 12 of a record on."""
PLACE_END: Final = 36

Unit = tuple[int, int, int]
"""Offset in the queue, place in the log, size."""


def check_units(disk: SimDisk, log: LogFiles) -> int:
    """Judge the queue files of a disk; return how many units there are. Errors: `Violation`."""
    named: dict[int, tuple[str, int]] = {}
    begin = _begin(disk, log)
    for queue, paths in sorted(_queues(disk).items()):
        units = [one for path in sorted(paths) for one in _units(disk, path)]
        for (before, physical, _), (offset, further, _) in pairwise(units):
            if offset != before + 1:
                raise Violation(HOLE, f"{disk.host}: {queue} has {before}, and next {offset}")
            if further <= physical:
                text = f"{disk.host}: {queue}@{offset} is at {further}, the one before at"
                raise Violation(TWICE, f"{text} {physical}")
        for offset, physical, size in units:
            known = named.setdefault(physical, (queue, offset))
            if known != (queue, offset):
                text = f"{disk.host}: what lies at {physical} is {known} and {queue}@{offset}"
                raise Violation(TWICE, text)
            if physical >= begin:
                _check_record(disk, log, (queue, offset), (physical, size))
    return len(named)


def _queues(disk: SimDisk) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in disk.paths():
        if path.startswith(ROOT):
            queue, _, name = path.removeprefix(ROOT).rpartition("/")
            if len(name) == NAME_DIGITS and name.isdecimal():
                found[queue].append(path)
    return found


def _begin(disk: SimDisk, log: LogFiles) -> int:
    """Return where a log begins; what lies before was dropped."""
    start = f"{log.directory}/"
    names = (path.removeprefix(start) for path in disk.paths() if path.startswith(start))
    return min((int(name) for name in names if name.isdecimal()), default=0)


def _units(disk: SimDisk, path: str) -> Iterator[Unit]:
    """Yield what a file of a queue names."""
    first = int(path.rpartition("/")[2]) // UNIT_BYTES
    held = disk.look(path)
    whole = len(held) - len(held) % UNIT_BYTES
    for number, (physical, size) in enumerate(_unit.iter_unpack(held[:whole])):
        if size not in NO_SIZE:
            yield first + number, physical, size


def _check_record(
    disk: SimDisk, log: LogFiles, named: tuple[str, int], lies: tuple[int, int]
) -> None:
    """What a unit names, and the log has not dropped, is a record of that size and place."""
    (queue, offset), (physical, size) = named, lies
    at = physical % log.segment_bytes
    held = disk.look(f"{log.directory}/{physical - at:0{NAME_DIGITS}}")
    data = bytes(held[at : at + size]).ljust(PLACE_END, b"\0")
    queue_id, told, place = _place(data, 12)
    found = (int.from_bytes(data[:4], "big"), queue_id, told, place)
    if found != (size, int(queue.rpartition("/")[2]), offset, physical):
        text = f"{disk.host}: {queue}@{offset} is to lie at {physical}, {size} bytes; there is"
        raise Violation(MISPLACED, f"{text} {found}")
