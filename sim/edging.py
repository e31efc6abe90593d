"""Has a run keep to the limits and times that its plan has drawn small: programs and oracles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from sim.disk_rules import CHANGING, Action, Latency, Rule
from sim.faults.edges import RENEWED, VALID
from sim.oracles.order import LEASE_MS
from sim.smallness import UNREAD

if TYPE_CHECKING:
    from broker.controller import BrokerController
    from ledgermq.client import PushConsumer
    from sim.disk import SimDisk
    from sim.faults.edges import Edges
    from sim.faults.plan import Plan, Workload
    from sim.layout import Layout
    from sim.oracles.clients import Clients
    from sim.oracles.watch import Watch

NS_PER_MS: Final = 1_000_000
SILENT_PART: Final = (3, 8)
"""Of the time after which members are forgotten, within which none is: clocks may run twice as fast
as they should, and an answer is under way."""


class World(Protocol):
    """What is edged; `sim.world.World`."""

    plan: Plan
    layout: Layout
    watch: Watch
    clients_oracle: Clients

    def disk(self, name: str) -> SimDisk:
        """Return the disk of a machine."""
        ...


def edges_of(plan: Plan) -> Edges | None:
    """Return what a plan has drawn small."""
    return plan.workload.edges


def lease_ms(plan: Plan) -> int:
    """Return how long a lock of a queue holds in a run."""
    workload = plan.workload
    drawn = (workload.edges, workload.seldom, workload.skilled)
    return next((one.lease_ms for one in drawn if one is not None and one.lease_ms), LEASE_MS)


def refused_p(plan: Plan) -> float:
    """Return how many of the puts are refused."""
    strain, edges = plan.workload.strain, edges_of(plan)
    return max(
        0.0 if strain is None else strain.refused_p, 0.0 if edges is None else edges.refused_p
    )


def not_taken_back_p(plan: Plan) -> float:
    """Return how many of the messages that are given back brokers do not take."""
    retrying, orderly = plan.workload.retrying, plan.workload.orderly
    return max(
        0.0 if retrying is None else retrying.refused_p,
        0.0 if orderly is None else orderly.refused_p,
    )


def due_at_once(workload: Workload) -> int:
    """Return how many messages are sent together to wait for the same moment; 0: one."""
    strain, edges = workload.strain, workload.edges
    return max(
        0 if strain is None else strain.due_at_once, 0 if edges is None else edges.due_at_once
    )


def tell_oracles(world: World) -> None:
    """Have what is judged go by the times of the plan."""
    world.watch.tables.lease_ms = lease_ms(world.plan)
    clients = world.clients_oracle
    clients.lease_ns = clients.lease_ns * lease_ms(world.plan) // LEASE_MS
    edges = edges_of(world.plan)
    if edges is not None and edges.silent_ms:
        part, of = SILENT_PART
        world.watch.brokers.silent_ns = edges.silent_ms * NS_PER_MS * part // of


def scale_broker(plan: Plan, controller: BrokerController) -> None:
    """Have a broker that is about to start go by them."""
    edges, tables = edges_of(plan), controller.tables
    tables.locks._lease_ms = lease_ms(plan)
    if edges is not None and edges.silent_ms:
        tables.consumers._members.expiry_ms = tables.producers._members.expiry_ms = edges.silent_ms
    worn, server = plan.workload.worn, controller.server
    if worn is not None and worn.socket_bytes:
        server._config = replace(server._config, write_pause_bytes=worn.socket_bytes // UNREAD)


def scale_member(plan: Plan, push: PushConsumer) -> None:
    """Have a consumer in order go by the lease of its locks."""
    locks = push.assignment._host.locks
    if locks is not None and lease_ms(plan) != LEASE_MS:
        locks.valid_ms, locks.renew_ms = lease_ms(plan) // VALID, lease_ms(plan) // RENEWED


def slow_files(world: World) -> None:
    """Have members take a while to write down how far they have come."""
    edges = edges_of(world.plan)
    if edges is None or not edges.slow_files_ms:
        return
    high_ns = edges.slow_files_ms * NS_PER_MS
    for name in world.layout.members["v"]:
        world.disk(name).add_rule(
            Rule(action=Action.SLOW, ops=CHANGING, latency=Latency(0, high_ns))
        )
