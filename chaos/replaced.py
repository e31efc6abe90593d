"""The clients of a run as the nemesis sees them: who runs, whom to kill, who takes its place."""

from collections.abc import Mapping

import msgspec

from chaos.churn import note_crash
from chaos.interpreter import PROCESSES_PER_WORKER
from chaos.members import (
    FIRST_CONSUMER,
    FIRST_OTHER,
    FIRST_PRODUCER,
    HOSTILE,
    MEMBERS_MAX,
    member,
)
from chaos.parts import Parts
from chaos.scenario import MAIN_GROUP, TOPIC
from chaos.workload.worker import WorkerSpec

PRODUCER, CONSUMER, ORDERLY, BROADCAST = "producer", "consumer", "orderly", "broadcast"
OTHERS = (ORDERLY, BROADCAST)
"""Members of groups beside the main one, by how they consume."""
ROLES = (CONSUMER, PRODUCER, *OTHERS)


class Replaceable:
    """`chaos.nemesis.base.Clients` of one run.

    Producers of the main topic, the main group, the orderly and the broadcasting members.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._specs: dict[str, WorkerSpec] = {}
        load = parts.scenario.workload
        self._next = {
            PRODUCER: FIRST_PRODUCER + load.senders,
            # One is the successor of a consumer that dies by the scenario, one comes and goes.
            CONSUMER: FIRST_CONSUMER + load.consumers + 2,
            "other": FIRST_OTHER + len(load.groups) * MEMBERS_MAX,
        }

    def running(self, role: str) -> list[str]:
        """Return the names of those that run and may be killed."""
        return [spec.name for spec in self._living(role)]

    def pick(self, role: str) -> str | None:
        """Return whom to kill: the one that has been there for longest; None if nobody is left."""
        found = self._living(role)
        numbers = _numbers_of(role)
        if not found or self._next[numbers] > _LAST[numbers]:
            return None
        chosen = min(found, key=lambda spec: spec.worker)
        self._specs[chosen.name] = chosen
        return chosen.name

    async def crash(self, name: str) -> None:
        """Kill one; the record has that."""
        if await self._parts.workers.crash(name):
            note_crash(self._parts, self._specs[name], _program_of(_role_of(self._specs[name])))

    async def replace(self, name: str) -> None:
        """Start another one with the same work and a number of its own."""
        spec = self._specs[name]
        role = _role_of(spec)
        worker = self._take_number(_numbers_of(role))
        if role == CONSUMER:
            successor = member(self._parts.plan, worker - FIRST_CONSUMER)
        elif role == PRODUCER:
            successor = self._as(spec, f"producer-{worker - FIRST_PRODUCER}", worker)
        else:
            successor = self._as(spec, f"{spec.group}-{worker}", worker)
        if role == BROADCAST:  # it has its offsets on its disk, so the same member comes back
            successor = msgspec.structs.replace(successor, continues=spec.instance)
        await self._parts.workers.start(_program_of(role), [successor])

    async def join(self, role: str) -> str | None:
        """Let one more member of the main or of the orderly group come."""
        numbers = _numbers_of(role)
        if self._next[numbers] > _LAST[numbers]:
            return None
        worker = self._take_number(numbers)
        if role == CONSUMER:
            spec = member(self._parts.plan, worker - FIRST_CONSUMER)
        else:
            beside = self._living(role)[0]
            spec = self._as(beside, f"{beside.group}-{worker}", worker)
        await self._parts.workers.start(CONSUMER, [spec])
        return spec.name

    async def leave(self, name: str) -> int:
        """Let it leave; what it got is what it said last."""
        await self._parts.workers.leave(name)
        return self._parts.workers.counts_of(name)["delivered"]

    def _living(self, role: str) -> list[WorkerSpec]:
        living = self._parts.workers.living(_program_of(role))
        return [spec for spec in living if _role_of(spec) == role]

    def _take_number(self, numbers: str) -> int:
        self._next[numbers] += 1
        return self._next[numbers] - 1

    def _as(self, spec: WorkerSpec, name: str, worker: int) -> WorkerSpec:
        return msgspec.structs.replace(
            spec,
            name=name,
            worker=worker,
            first_process=worker * PROCESSES_PER_WORKER,
            raw=str(self._parts.options.run / "raw" / f"{name}.jsonl"),
        )


_LAST: Mapping[str, int] = {
    PRODUCER: FIRST_CONSUMER - 1,
    CONSUMER: FIRST_OTHER - 1,
    "other": HOSTILE - 1,
}
"""Numbers of workers end here."""


def _numbers_of(role: str) -> str:
    return "other" if role in OTHERS else role


def _program_of(role: str) -> str:
    return PRODUCER if role == PRODUCER else CONSUMER


def _role_of(spec: WorkerSpec) -> str:
    """Return the role of a worker; empty if it is none that may be killed."""
    if spec.name.startswith(PRODUCER):
        return PRODUCER if spec.topic == TOPIC else ""
    if spec.group == MAIN_GROUP:
        return CONSUMER
    return spec.mode if spec.mode in OTHERS else ""
