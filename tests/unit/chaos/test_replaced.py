"""Who of a run may be killed, by role, and as whom a successor goes on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from chaos import replaced
from chaos.history.payload import SEQUENCE_BITS
from chaos.interpreter import PROCESSES_PER_WORKER
from chaos.members import (
    FIRST_CONSUMER,
    FIRST_OTHER,
    HOSTILE,
    Plan,
    consumer_specs,
    producer_specs,
)
from chaos.replaced import ROLES, Replaceable
from chaos.scenario import CAST, ORDERLY, Scenario, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.workload.worker import WorkerSpec


class Workers:
    """Workers that are only named."""

    def __init__(self) -> None:
        self.there: dict[str, list[WorkerSpec]] = {"producer": [], "consumer": []}

    def living(self, role: str) -> list[WorkerSpec]:
        return self.there[role]

    async def start(self, role: str, specs: list[WorkerSpec]) -> None:
        self.there[role] += specs

    async def crash(self, name: str) -> bool:
        for specs in self.there.values():
            specs[:] = [spec for spec in specs if spec.name != name]
        return True


class Run:
    """What is needed of the parts of a run."""

    def __init__(self, path: Path) -> None:
        cluster: Any = SimpleNamespace(
            name_server_addrs=lambda: ["127.0.0.1:9876"],
            nodes=("n0",),
            client_addr=lambda _: ("", 1),
        )
        workload = Workload(ordered=1, transactional=1, groups=(ORDERLY, CAST))
        self.scenario = Scenario(name="one", workload=workload, timeline=())
        self.plan = Plan(
            scenario=self.scenario, run=path, run_id="r", seed=1, cluster=cluster, broker_name="b"
        )
        self.options = SimpleNamespace(run=path)
        self.workers = Workers()
        self.workers.there["producer"] = producer_specs(self.plan)
        self.workers.there["consumer"] = consumer_specs(self.plan)
        self.events: list[dict[str, Any]] = []
        self.recorder = SimpleNamespace(write=lambda _, row: self.events.append(row))
        self.clock = SimpleNamespace(monotonic_ns=lambda: 1)


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def kill(run: Run, people: Replaceable, role: str) -> tuple[WorkerSpec, WorkerSpec]:
    """Kill one of a role; return it and its successor."""
    name = people.pick(role)
    everybody = [spec for specs in run.workers.there.values() for spec in specs]
    victim = next(spec for spec in everybody if spec.name == name)
    asyncio.run(people.crash(victim.name))
    asyncio.run(people.replace(victim.name))
    program = "producer" if role == "producer" else "consumer"
    return victim, run.workers.there[program][-1]


@pytest.mark.parametrize("role", ROLES)
def test_successor_does_the_work_of_its_role_under_a_number_of_its_own(run, role):
    people = Replaceable(run)
    before = people.running(role)
    numbers = {spec.worker for specs in run.workers.there.values() for spec in specs}
    victim, successor = kill(run, people, role)
    assert victim.name in before
    assert successor.name in people.running(role)
    assert victim.name not in people.running(role)
    assert successor.worker not in numbers
    assert successor.worker < HOSTILE
    assert (successor.group, successor.mode, successor.topic) == (
        victim.group,
        victim.mode,
        victim.topic,
    )
    assert str(successor.raw).endswith(f"{successor.name}.jsonl")


def test_broadcasting_member_comes_back_as_itself_again_and_again(run):
    people = Replaceable(run)
    victim, successor = kill(run, people, "broadcast")
    assert successor.instance == victim.name
    assert successor.history_group == victim.history_group
    assert run.events[-1]["value"] == {"consumer": victim.name, "grp": victim.history_group}
    asyncio.run(people.crash(people.pick("broadcast")))  # the other member
    again, third = kill(run, people, "broadcast")
    assert again.name == successor.name
    assert third.instance == victim.name


def test_orderly_member_is_followed_by_another_one(run):
    people = Replaceable(run)
    victim, successor = kill(run, people, "orderly")
    assert successor.instance == successor.name != victim.name
    assert successor.history_group == victim.history_group == "chaos-orderly"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numbers end soon."""
    last = {"producer": 50, "consumer": FIRST_CONSUMER + 49, "other": FIRST_OTHER + 49}
    monkeypatch.setattr(replaced, "_LAST", last)


@pytest.mark.parametrize("role", ["consumer", "orderly"])
@pytest.mark.usefixtures("few")
def test_newcomers_join_the_group_of_their_role_until_numbers_are_used_up(run, role):
    people = Replaceable(run)
    beside, come = people.running(role), []
    while name := asyncio.run(people.join(role)):
        come.append(name)
    assert people.running(role) == [*beside, *come]
    assert len(set(come)) == len(come) > 10
    workers = [spec.worker for spec in run.workers.there["consumer"]]
    assert len(set(workers)) == len(workers)
    assert max(workers) < HOSTILE


def test_numbers_last_for_long_campaigns_and_keys_have_room_for_all_producers():
    """A storm of a campaign with twelve rounds ran out of them, and was without effect."""
    assert FIRST_CONSUMER * PROCESSES_PER_WORKER <= 1 << 63 - SEQUENCE_BITS
    assert FIRST_OTHER - FIRST_CONSUMER >= 12 * 60 * 20, "twelve hours of storms"
    assert HOSTILE * PROCESSES_PER_WORKER < 1 << 31


@pytest.mark.usefixtures("few")
def test_nobody_is_chosen_when_numbers_are_used_up(run):
    people = Replaceable(run)
    while people.pick("orderly"):
        kill(run, people, "orderly")
    assert people.running("orderly")
    assert max(spec.worker for spec in run.workers.there["consumer"]) < HOSTILE
