"""Which runs of a campaign are under way: one after the other, or the next while one is judged.

The Spark job over a small history is mostly the planning of its queries, on one core, while no
broker runs any more. So the next run may begin then. There are never two with brokers, and never
more than two.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from chaos.campaign.plan import Job

AT_ONCE: Final = 2
LOOK_S: Final = 0.2
"""How often is looked whether the next may begin."""


async def make_all(
    following: Callable[[Collection[int]], Job | None],
    make: Callable[[Job], Coroutine[Any, Any, None]],
    is_quiet: Callable[[Job], bool],
) -> None:
    """Make runs until ``following`` has none.

    Args:
        following: returns the next run; it is given the numbers of those under way.
        make: makes one; what it raises ends all, and the others are cancelled.
        is_quiet: whether the next run may begin beside one, which is only judged by now.
    """
    going: dict[asyncio.Task[None], Job] = {}
    try:
        while job := following({one.number for one in going.values()}):
            going[asyncio.create_task(make(job), name=job.name)] = job
            await asyncio.sleep(0)  # what is left of an earlier try is gone once it has begun
            while len(going) == AT_ONCE or not all(map(is_quiet, going.values())):
                await _look(going)
        while going:
            await _look(going)
    finally:
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)


async def _look(going: dict[asyncio.Task[None], Job]) -> None:
    ended, _ = await asyncio.wait(going, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        del going[task]
        task.result()
