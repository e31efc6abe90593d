"""What waits, by the address that it comes from: one address has its turn after the other.

However much of one address waits, the first of another one comes next. Pure.
Source: stochastic fair queueing (McKenney), with addresses for flows.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

W = TypeVar("W")


class Flows(Generic[W]):
    """Who waits, in order within an address."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[W]] = {}
        """By address, in the order of their turns; no address without anybody."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of_address(self, address: str) -> int:
        """Return how many of an address wait."""
        return len(self._waiting.get(address, ()))

    def add(self, address: str, one: W) -> None:
        """Have one more wait, behind those of its address."""
        self._waiting.setdefault(address, deque()).append(one)
        self._count += 1

    def pop(self) -> W:
        """Take the first of the address whose turn it is; the address goes last.

        Raises `StopIteration` where nobody waits.
        """
        address = next(iter(self._waiting))
        theirs = self._waiting.pop(address)
        one = theirs.popleft()
        if theirs:
            self._waiting[address] = theirs
        self._count -= 1
        return one

    def put_back(self, taken: Iterable[tuple[str, W]]) -> None:
        """Take back what `pop` gave in vain, in that order: it comes first, and its addresses do.

        So who got nothing has its turn before an address that did, however much waits of that one.
        """
        first: dict[str, deque[W]] = {}
        for address, one in taken:
            first.setdefault(address, deque()).append(one)
            self._count += 1
        for address, theirs in first.items():
            others = self._waiting.pop(address, None)
            if others is not None:
                others.extendleft(reversed(theirs))
                first[address] = others
        self._waiting = {**first, **self._waiting}

    def take_last(self, address: str, is_meant: Callable[[W], bool]) -> W | None:
        """Take the last one of an address that is meant, None if there is none."""
        theirs = self._waiting.get(address, deque())
        for at in range(len(theirs) - 1, -1, -1):
            if is_meant(theirs[at]):
                one = theirs[at]
                del theirs[at]
                if not theirs:
                    del self._waiting[address]
                self._count -= 1
                return one
        return None

    def remove(self, is_over: Callable[[W], bool], most: int) -> list[W]:
        """Take those that are over, so many at most; the others keep their turns. Looks at each."""
        over: list[W] = []
        for address, theirs in list(self._waiting.items()):
            left: deque[W] = deque()
            for one in theirs:
                (over if len(over) < most and is_over(one) else left).append(one)
            if left:
                self._waiting[address] = left
            else:
                del self._waiting[address]
        self._count -= len(over)
        return over
