"""Work that is done in steps: each in a turn of the loop, or all of them at once.

A step is some milliseconds of work, whatever there is of it altogether.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

DROPPED_PER_STEP: Final = 1_000


def at_once(steps: Generator[None, None, T]) -> T:
    """Return what is made in steps, made in one."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Return what is made in steps, each in a turn of the loop, the first in this one."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
        await asyncio.sleep(0)


def drop_steps(rows: dict[Any, Any]) -> Generator[None, None, None]:
    """Empty a dictionary that nobody uses any more: to free a table takes long as well."""
    while len(rows) > DROPPED_PER_STEP:
        for _ in range(DROPPED_PER_STEP):
            rows.popitem()
        yield
