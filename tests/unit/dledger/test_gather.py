"""Work that many share waits for a pass or two of the loop, and never for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.segments.gather import PASSES_MAX, Gather

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """Passes of an event loop, one at a time."""

    def __init__(self) -> None:
        """Make one with nothing to do."""
        self.due: list[Callable[[], None]] = []
        self.written = 0
        self.begun: list[int] = []
        self.gather = Gather(self.due.append, lambda: self.written, self.begin)

    def begin(self) -> None:
        """Note what the work covers."""
        self.begun.append(self.written)

    def turn(self, *, written: int = 0) -> None:
        """Write something, and call what was due."""
        self.written += written
        due, self.due[:] = list(self.due), []
        for call in due:
            call()


def test_what_comes_in_the_passes_after_shares_the_work() -> None:
    loop = Loop()
    loop.turn(written=1)
    loop.gather.start()
    loop.turn(written=1)
    loop.turn(written=1)
    assert loop.begun == []
    loop.turn()
    assert loop.begun == [3]


def test_one_message_alone_waits_for_two_passes() -> None:
    loop = Loop()
    loop.turn(written=1)
    loop.gather.start()
    loop.turn()
    loop.turn()
    assert loop.begun == [1]
    assert loop.due == []


def test_a_stream_without_end_holds_it_up_for_a_few_passes_only() -> None:
    loop = Loop()
    loop.gather.start()
    for _ in range(PASSES_MAX):
        assert loop.begun == []
        loop.turn(written=1)
    assert loop.begun == [PASSES_MAX]


def test_it_begins_once_however_often_it_is_asked_and_again_when_asked_later() -> None:
    loop = Loop()
    for _ in range(3):
        loop.gather.start()
    loop.turn()
    loop.gather.start()
    loop.turn()
    assert loop.begun == [0]
    assert loop.due == []
    loop.gather.start()
    loop.turn()
    loop.turn()
    assert loop.begun == [0, 0]
