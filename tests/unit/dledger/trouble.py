"""A seeded run of a cluster through random trouble; the same seed gives the same run."""

import random

from dledger.config import FlushDiskType
from tests.unit.dledger.cluster import Cluster

FAST = {"heartbeat_ticks": 2, "election_ticks_min": 5, "election_ticks_max": 10}


def deliver(cluster, node, chance):
    for _ in range(chance.randint(1, 8)):
        if cluster.network:
            late = chance.random() < 0.2
            cluster.deliver(chance.randrange(len(cluster.network)) if late else 0)


def propose(cluster, node, chance):
    if node in cluster.up:
        cluster.propose(node)


def duplicate(cluster, node, chance):
    if cluster.network:
        cluster.network.append(chance.choice(cluster.network))


def drop(cluster, node, chance):
    if cluster.network:
        del cluster.network[chance.randrange(len(cluster.network))]


def crash(cluster, node, chance):
    power = cluster.flush_disk_type is FlushDiskType.SYNC_FLUSH and chance.random() < 0.5
    cluster.crash(node, power=power)


def restart_all(cluster, node, chance):
    for down in cluster.ids:
        cluster.restart(down)


ACTIONS = {
    deliver: 55,
    lambda cluster, node, chance: cluster.tick_all(chance.randint(1, 4)): 15,
    propose: 10,
    lambda cluster, node, chance: cluster.sync(node): 4,
    duplicate: 3,
    drop: 2,
    lambda cluster, node, chance: cluster.cut.add((node, chance.choice(cluster.ids))): 2,
    lambda cluster, node, chance: cluster.heal(): 2,
    crash: 2,
    restart_all: 3,
    lambda cluster, node, chance: cluster.campaign(node): 2,
}


def trim(cluster, node, chance):
    if node in cluster.up:
        last = cluster[node].state.delivered_index
        first = cluster.replicas[node].store.first_index
        if last >= first:
            cluster.trim(node, chance.randint(first, last) + 1)


TRIMMING = {**ACTIONS, trim: 8}
"""With it, many a replica comes too late for the entries it lacks."""


def run_trouble(seed: int, steps: int = 500, actions: dict = ACTIONS, **settings: int) -> Cluster:
    """Raises AssertionError as soon as a property of Figure 3 or an invariant fails."""
    chance = random.Random(seed)
    mode = FlushDiskType.SYNC_FLUSH if seed % 2 else FlushDiskType.ASYNC_FLUSH
    cluster = Cluster(chance.choice((3, 5)), seed=seed, flush_disk_type=mode, **FAST, **settings)
    actions, weights = list(actions), list(actions.values())
    for action in chance.choices(actions, weights, k=steps):
        action(cluster, chance.choice(cluster.ids), chance)
    return cluster
