"""What checks note of messages and places, in some ten bytes each where a dict takes a hundred.

A message has a number, that of its first send; offsets of a queue and indexes of a log lie close
to each other. So both say where in an array something stands. What is of no send, and what lies far
apart, costs what a dict does.

Pure. Source: docs/checking.md, memory.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from chaos.history.columns import Row

T = TypeVar("T")
Place = tuple[str, int, int, int]
"""Topic, epoch, queue, offset."""
NOTHING: Final = -(1 << 63)
"""What stands where nothing was noted."""
_SHIFT: Final = 6
_LAST: Final = (1 << _SHIFT) - 1
_EMPTY: Final = array("q", [NOTHING]) * (1 << _SHIFT)


class Spots:
    """A number for each offset of a queue, or index of a log; 64 bits, and never `NOTHING`."""

    __slots__ = ("_blocks", "_known")

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}
        self._known = 0

    def __len__(self) -> int:
        """Return of how many something was noted."""
        return self._known

    def __contains__(self, at: int) -> bool:
        """Tell whether something was noted."""
        return self.get(at) != NOTHING

    def __iter__(self) -> Iterator[int]:
        """Yield those of which something was noted, in their order."""
        for number in sorted(self._blocks):
            for at, value in enumerate(self._blocks[number], number << _SHIFT):
                if value != NOTHING:
                    yield at

    def get(self, at: int) -> int:
        """Return what was noted, else `NOTHING`."""
        block = self._blocks.get(at >> _SHIFT)
        return NOTHING if block is None else block[at & _LAST]

    def first(self, at: int, value: int) -> int:
        """Note something where nothing was, and return what stands there now."""
        number = at >> _SHIFT
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _EMPTY[:]
        known = block[at & _LAST]
        if known != NOTHING:
            return known
        block[at & _LAST] = value
        self._known += 1
        return value

    def put(self, at: int, value: int) -> None:
        """Note something, in place of what was noted before."""
        if self.first(at, value) != value:
            self._blocks[at >> _SHIFT][at & _LAST] = value


class Places:
    """A number for each place, as `Spots` has it."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int, int], Spots] = {}

    def __len__(self) -> int:
        """Return of how many something was noted."""
        return sum(map(len, self._queues.values()))

    def __contains__(self, place: Place) -> bool:
        """Tell whether something was noted."""
        return self.get(place) != NOTHING

    def get(self, place: Place) -> int:
        """Return what was noted, else `NOTHING`."""
        spots = self._queues.get(place[:3])
        return NOTHING if spots is None else spots.get(place[3])

    def first(self, place: Place, value: int) -> int:
        """Note something where nothing was, and return what stands there now."""
        return self._at(place).first(place[3], value)

    def put(self, place: Place, value: int) -> None:
        """Note something, in place of what was noted before."""
        self._at(place).put(place[3], value)

    def _at(self, place: Place) -> Spots:
        queue = place[:3]
        spots = self._queues.get(queue)
        if spots is None:
            spots = self._queues[queue] = Spots()
        return spots


class SendsAt:
    """The send of each place, as a mapping has it; of two the later one."""

    __slots__ = ("_at", "_sends")

    def __init__(self, sends: Sequence[Row], at: Places) -> None:
        self._sends = sends
        self._at = at

    def __contains__(self, place: Place | None) -> bool:
        """Tell whether there is one."""
        return self.get(place) is not None

    def get(self, place: Place | None) -> Row | None:
        """Return the send of a place, None if there is none."""
        number = NOTHING if place is None else self._at.get(place)
        return None if number == NOTHING else self._sends[number]


class SendsOf(Mapping[int, Sequence[Row]]):
    """The sends of each message; more than one where each attempt has a row."""

    def __init__(self, sends: Sequence[Row]) -> None:
        self.number: dict[int, int] = {}
        """Which of the sends is the first of a message."""
        self.size = len(sends)
        """So many numbers there may be."""
        self._sends = sends
        self._again: dict[int, list[Row]] = {}
        for at, send in enumerate(sends):
            first = self.number.setdefault(send["msg_key"], at)
            if first != at:
                self._again.setdefault(send["msg_key"], [sends[first]]).append(send)

    def __getitem__(self, key: int) -> Sequence[Row]:
        """Return the sends of a message. Errors: KeyError."""
        again = self._again.get(key)
        return [self._sends[self.number[key]]] if again is None else again

    def __contains__(self, key: object) -> bool:
        """Tell whether a message was sent."""
        return key in self.number

    def __iter__(self) -> Iterator[int]:
        """Yield the messages, in the order of their first sends."""
        return iter(self.number)

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self.number)


class Given:
    """Groups and messages: who was given which."""

    __slots__ = ("_groups", "_known", "_number", "_others", "_size")

    def __init__(self, sends: SendsOf) -> None:
        self._number, self._size = sends.number, sends.size
        self._groups: dict[str, bytearray] = {}
        self._others: set[tuple[str, int | None]] = set()
        self._known = 0

    def add(self, group: str, key: int | None) -> bool:
        """Note a pair; tell whether it was not known before."""
        number = None if key is None else self._number.get(key)
        if number is None:
            is_new = (group, key) not in self._others
            self._others.add((group, key))
        else:
            marks = self._groups.get(group)
            if marks is None:
                marks = self._groups[group] = bytearray(self._size)
            is_new = not marks[number]
            marks[number] = 1
        self._known += is_new
        return is_new

    def __contains__(self, pair: tuple[str, int | None]) -> bool:
        """Tell whether a pair is known."""
        group, key = pair
        number = None if key is None else self._number.get(key)
        if number is None:
            return pair in self._others
        marks = self._groups.get(group)
        return marks is not None and bool(marks[number])

    def __len__(self) -> int:
        """Return how many pairs are known."""
        return self._known


class Firsts:
    """When each group was first given each message that was sent."""

    __slots__ = ("_groups", "_number", "_size")

    def __init__(self, sends: SendsOf) -> None:
        self._number, self._size = sends.number, sends.size
        self._groups: dict[str, array[int]] = {}

    def put(self, group: str, key: int | None, t: int) -> None:
        """Note a time; of a message that nobody sent nothing is noted."""
        number = None if key is None else self._number.get(key)
        if number is not None:
            times = self._groups.get(group)
            if times is None:
                times = self._groups[group] = array("q", [NOTHING]) * self._size
            if times[number] == NOTHING or t < times[number]:
                times[number] = t

    def of(self, group: str, key: int) -> int:
        """Return when a group was first given a message. Errors: KeyError if it never was."""
        t = self._groups[group][self._number[key]]
        if t == NOTHING:
            raise KeyError((group, key))
        return t
