"""Who works in a run, with which settings.

Every dimension that the workload has is set here by the number of a worker, not by chance: the
same scenario has the same members.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from chaos.backends.base import Cluster
from chaos.interpreter import PROCESSES_PER_WORKER
from chaos.scenario import (
    ASK_TOPIC,
    DECIDED_S,
    DELAY_LEVELS,
    DELAYS_MS,
    MAIN_GROUP,
    ORDERED_TOPIC,
    TOPIC,
    TXN_TOPIC,
    Group,
    Scenario,
)
from chaos.workload.worker import TAG_NUMBER, WorkerSpec

FIRST_PRODUCER, FIRST_CONSUMER, FIRST_OTHER, HOSTILE = 1, 801, 20_001, 40_001
"""Numbers of workers by role. A producer's is in the keys of its messages, which have room for 838;
a storm takes twenty of a consumer's a minute."""
MEMBERS_MAX = 3
"""Of a group beside the main one."""
SPARE_S = 120.0
"""So much longer than the phases of a run may take a worker waits for the word that ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What settings are made of."""

    scenario: Scenario
    run: Path
    run_id: str
    seed: int
    cluster: Cluster
    broker_name: str

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are sent to."""
        load = self.scenario.workload
        wanted = {TOPIC: 1, ORDERED_TOPIC: load.ordered, TXN_TOPIC: load.transactional}
        wanted[ASK_TOPIC] = load.askers
        return tuple(topic for topic, producers in wanted.items() if producers)

    @property
    def consumed(self) -> dict[str, tuple[str, ...]]:
        """The topics that are owed to each group, as the history names groups."""
        found = {MAIN_GROUP: self.topics}
        for at, group in enumerate(self.scenario.workload.groups):
            topics = tuple(topic for topic in group.topics if topic in self.topics)
            for number in range(len(group.joins_s)):
                found[other(self, at, number).history_group] = topics
        return found

    @property
    def delays_s(self) -> tuple[float, ...]:
        """How long messages wait that are sent to wait."""
        return tuple(DELAYS_MS[level - 1] / 1000 for level in DELAY_LEVELS)

    @property
    def modes(self) -> dict[str, str]:
        """How each group consumes, as the history names groups."""
        found = {MAIN_GROUP: "concurrent"}
        for at, group in enumerate(self.scenario.workload.groups):
            for number in range(len(group.joins_s)):
                found[other(self, at, number).history_group] = group.mode
        return found

    @property
    def reconsume_max(self) -> dict[str, int]:
        """How often groups get a message again before it is a dead letter, where that is set."""
        return {
            group.name: group.reconsume_max
            for group in self.scenario.workload.groups
            if group.reconsume_max is not None
        }

    @property
    def subscriptions(self) -> dict[str, dict[str, list[str]]]:
        """The tags that groups want, by group and topic."""
        return {
            group.name: {topic: list(tags) for topic, tags in group.tags.items()}
            for group in self.scenario.workload.groups
            if group.tags
        }

    def spec(self, name: str, worker: int, **settings: Any) -> WorkerSpec:  # noqa: ANN401 - fields of a spec
        """Return the settings of a worker: what all have, and its own."""
        cluster = self.cluster
        base = WorkerSpec(
            run_id=self.run_id,
            name=name,
            worker=worker,
            raw=str(self.run / "raw" / f"{name}.jsonl"),
            namesrv_addrs=cluster.name_server_addrs(),
            node_by_addr={":".join(map(str, cluster.client_addr(n))): n for n in cluster.nodes},
            topic=TOPIC,
            group=MAIN_GROUP,
            seed=self.seed,
            seconds_max=self.scenario.seconds_max + SPARE_S,
            first_process=worker * PROCESSES_PER_WORKER,
            broker_name=self.broker_name,
            delays_ms=DELAYS_MS,
        )
        return msgspec.structs.replace(base, **settings)


def producer_specs(plan: Plan) -> list[WorkerSpec]:
    """Return the producers: plain ones, hurried ones, batches; then those that choose a queue.

    Then those that send in transactions, and those that want replies.
    """
    load = plan.scenario.workload
    plain, chosen = load.producers, load.producers + load.ordered
    decided = chosen + load.transactional
    count = decided + load.askers
    topics = ((plain, TOPIC), (chosen, ORDERED_TOPIC), (decided, TXN_TOPIC), (count, ASK_TOPIC))
    found = []
    for at in range(count):
        batch = load.batches[at % len(load.batches)] if at < plain else 1
        found.append(
            plan.spec(
                f"producer-{at}",
                FIRST_PRODUCER + at,
                topic=next(topic for end, topic in topics if at < end),
                chosen_queues=load.queues if plain <= at < chosen else 0,
                transactional=chosen <= at < decided,
                asks=at >= decided,
                linger_s=DECIDED_S if chosen <= at < decided else 0.0,
                processes=load.processes_each,
                rate=load.rate / max(1, count) / batch,
                batch=batch,
                sizes=load.sizes,
                tags=load.tags,
                cancel_every=load.cancel_every if at == 1 else 0,
                large_every=load.large_every,
                delay_every=load.delay_every if at == 0 else 0,
                delay_levels=DELAY_LEVELS,
                send_timeout_ms=load.send_timeouts_ms[at % len(load.send_timeouts_ms)],
            )
        )
    return found


def consumer_specs(plan: Plan) -> list[WorkerSpec]:
    """Return the consumers that are there from the beginning."""
    load = plan.scenario.workload
    early = [
        other(plan, at, number)
        for at, group in enumerate(load.groups)
        for number, joins_s in enumerate(group.joins_s)
        if not joins_s
    ]
    return [member(plan, at) for at in range(load.consumers)] + early


def hostile_spec(plan: Plan) -> WorkerSpec:
    """Return the settings of whoever sends odd frames."""
    return plan.spec("hostile-0", HOSTILE)


def member(plan: Plan, at: int) -> WorkerSpec:
    """Return the settings of a member of the main group."""
    return plan.spec(
        f"consumer-{at}",
        FIRST_CONSUMER + at,
        expressions=dict.fromkeys(plan.topics, "*"),
        fail_every=plan.scenario.workload.fail_every,
        suspend_ms=(15_000, 3_000, 700)[at % 3],
    )


def other(plan: Plan, at: int, number: int) -> WorkerSpec:
    """Return the settings of a member of another group."""
    group: Group = plan.scenario.workload.groups[at]
    return plan.spec(
        f"{group.name}-{number}",
        FIRST_OTHER + at * MEMBERS_MAX + number,
        group=group.name,
        expressions={
            topic: _expression(group, topic, plan.scenario.workload.tags)
            for topic in group.topics
            if topic in plan.topics
        },
        sql=group.sql,
        replies=group.replies,
        from_last=group.from_last,
        suspend_ms=group.suspend_ms,
        mode=group.mode,
        fail_every=group.fail_every,
        refuse_every=group.refuse_every,
        reconsume_max=group.reconsume_max,
        offsets_dir=str(plan.run / "offsets"),
    )


def _expression(group: Group, topic: str, sent: Sequence[str]) -> str:
    """Return what a member subscribes to; in SQL92 it denies the numbers of other tags.

    A message without a tag has no number: what is denied of it is unknown, so it does not match.
    """
    wanted = group.tags.get(topic, ())
    if not group.sql:
        return " || ".join(wanted) or "*"
    others = [number for number, tag in enumerate(sent) if tag and tag not in wanted]
    return f"NOT ({' OR '.join(f'{TAG_NUMBER} BETWEEN {n} AND {n}' for n in others)})"
