"""Waiting for a condition of the outside world, with a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ledgermq.runtime.cancel import timeout

POLL_S = 0.05
T = TypeVar("T")


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
    """Ask until the condition holds; False if it does not within ``timeout_s``."""
    try:
        async with timeout(timeout_s):
            while True:
                if await condition():
                    return True
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return False


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Return what is done in a thread. Whoever is cancelled meanwhile waits for its end first.

    Files are not changed any more, then, under a broker that is started again.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def every(parts: Iterable[Awaitable[None]]) -> None:
    """Wait for the ends of all. Errors: the first of theirs, once none is under way any more."""
    for end in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end
