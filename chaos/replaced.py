"""The clients of a run as the nemesis sees them: who runs, whom to kill, who takes its place."""

from collections.abc import Mapping

import msgspec

from chaos.churn import note_crash
from chaos.members import FIRST_CONSUMER, FIRST_OTHER, FIRST_PRODUCER, PROCESSES_PER_WORKER, member
from chaos.parts import Parts
from chaos.scenario import MAIN_GROUP, TOPIC
from chaos.workload.worker import WorkerSpec

ROLES = ("consumer", "producer")
_LAST: Mapping[str, int] = {"producer": FIRST_CONSUMER - 1, "consumer": FIRST_OTHER - 1}
"""Numbers of workers end here, by role."""


class Replaceable:
    """`chaos.nemesis.base.Clients` of one run: producers of the main topic, the main group."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._specs: dict[str, WorkerSpec] = {}
        load = parts.scenario.workload
        self._next = {
            "producer": FIRST_PRODUCER + load.producers + load.ordered + load.transactional,
            # One is the successor of a consumer that dies by the scenario, one comes and goes.
            "consumer": FIRST_CONSUMER + load.consumers + 2,
        }

    def running(self, role: str) -> list[str]:
        """Return the names of those that run and may be killed."""
        return [spec.name for spec in self._parts.workers.living(role) if _may_die(spec, role)]

    def pick(self, role: str) -> str | None:
        """Return whom to kill: the one that has been there for longest; None if nobody is left."""
        found = [spec for spec in self._parts.workers.living(role) if _may_die(spec, role)]
        if not found or self._next[role] > _LAST[role]:
            return None
        chosen = min(found, key=lambda spec: spec.worker)
        self._specs[chosen.name] = chosen
        return chosen.name

    async def crash(self, name: str) -> None:
        """Kill one; the record has that."""
        if await self._parts.workers.crash(name):
            note_crash(self._parts, self._specs[name], _role_of(name))

    async def replace(self, name: str) -> None:
        """Start another one with the same work and a number of its own."""
        role, spec = _role_of(name), self._specs[name]
        worker = self._next[role]
        self._next[role] += 1
        if role == "consumer":
            successor = member(self._parts.plan, worker - FIRST_CONSUMER)
        else:
            fresh = f"producer-{worker - FIRST_PRODUCER}"
            successor = msgspec.structs.replace(
                spec,
                name=fresh,
                worker=worker,
                first_process=worker * PROCESSES_PER_WORKER,
                raw=str(self._parts.options.run / "raw" / f"{fresh}.jsonl"),
            )
        await self._parts.workers.start(role, [successor])

    async def join(self) -> str | None:
        """Let one more member of the main group come."""
        worker = self._next["consumer"]
        if worker > _LAST["consumer"]:
            return None
        self._next["consumer"] += 1
        spec = member(self._parts.plan, worker - FIRST_CONSUMER)
        await self._parts.workers.start("consumer", [spec])
        return spec.name

    async def leave(self, name: str) -> int:
        """Let it leave; what it got is what it said last."""
        await self._parts.workers.leave(name)
        return self._parts.workers.counts_of(name)["delivered"]


def _role_of(name: str) -> str:
    return "producer" if name.startswith("producer") else "consumer"


def _may_die(spec: WorkerSpec, role: str) -> bool:
    if role == "producer":
        return spec.topic == TOPIC and not spec.transactional
    return spec.group == MAIN_GROUP
