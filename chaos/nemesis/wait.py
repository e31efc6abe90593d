"""Waiting for a condition of the outside world, with a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ledgermq.runtime.cancel import timeout

POLL_S = 0.05


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


async def every(parts: Iterable[Awaitable[None]]) -> None:
    """Wait for the ends of all. Errors: the first of theirs, once none is under way any more."""
    for end in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end
