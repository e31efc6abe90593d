"""Consumers come, go and die while a run lasts, at the times of its scenario."""

import asyncio
from collections.abc import Awaitable, Iterator

from chaos.members import member, other
from chaos.parts import Parts
from chaos.workload.worker import WorkerSpec

CONSUMER_BACK_S = 1.0


async def change_members(parts: Parts) -> None:
    """Let consumers come, go and die at their times in the main phase."""
    await asyncio.gather(*_changes(parts))


def _changes(parts: Parts) -> Iterator[Awaitable[None]]:
    scenario = parts.scenario
    load = scenario.workload
    if scenario.crash_consumer_s is not None:
        yield _crash_consumer(parts, scenario.crash_consumer_s)
    if scenario.crash_consumer_s is not None and load.transactional > 1:
        first = load.producers + load.ordered
        yield _crash_producer(parts, f"producer-{first}", scenario.crash_consumer_s)
    if load.joiner_s is not None and scenario.crash_consumer_s is not None:
        yield _join_and_leave(parts, *load.joiner_s)
    for at, group in enumerate(load.groups):
        for number, joins_s in enumerate(group.joins_s):
            if joins_s:
                yield _join(parts, other(parts.plan, at, number), joins_s)


async def _join(parts: Parts, spec: WorkerSpec, after_s: float) -> None:
    await asyncio.sleep(after_s)
    parts.view.notice(f"{spec.name} joins")
    await parts.workers.start("consumer", [spec])


async def _join_and_leave(parts: Parts, joins_s: float, leaves_s: float) -> None:
    """One more member of the main group comes, and leaves as it should."""
    spec = member(parts.plan, parts.scenario.workload.consumers + 1)
    await _join(parts, spec, joins_s)
    await asyncio.sleep(leaves_s - joins_s)
    parts.view.notice(f"{spec.name} leaves")
    await parts.workers.leave(spec.name)


async def _crash_producer(parts: Parts, name: str, after_s: float) -> None:
    """Kill a producer amid its transactions: another one of its group is asked about them."""
    await asyncio.sleep(after_s)
    if await parts.workers.crash(name):
        parts.view.notice(f"kill {name}; others know how its transactions end")


async def _crash_consumer(parts: Parts, after_s: float) -> None:
    """Kill the first consumer and start another, which goes on from the group's offsets."""
    await asyncio.sleep(after_s)
    first = member(parts.plan, 0)
    if not await parts.workers.crash(first.name):
        return
    note_crash(parts, first, "consumer")
    parts.view.notice(f"kill {first.name}; another takes its place")
    await asyncio.sleep(CONSUMER_BACK_S)
    successor = member(parts.plan, parts.scenario.workload.consumers)
    await parts.workers.start("consumer", [successor])


def note_crash(parts: Parts, spec: WorkerSpec, role: str) -> None:
    """Record that a client was killed: what it had at hand may come again."""
    row = {"worker": spec.worker, "process": spec.first_process, "role": role}
    row |= {"type": "info", "f": "crash", "t_mono_ns": parts.clock.monotonic_ns()}
    value = {"consumer": spec.name, "grp": spec.history_group}
    parts.recorder.write("events", row | {"node": spec.name, "value": value})
