"""`trouble` for a group whose members change, and lose their directories, meanwhile.

A directory is lost only while no other replica is fresh: that is what the rule covers.
"""

import random

from dledger.config import FlushDiskType
from dledger.core.configuration import ChangeKind
from dledger.core.model import Role
from tests.unit.dledger.cluster import Cluster
from tests.unit.dledger.trouble import ACTIONS, FAST

NODES_MAX = 6


def change(cluster, node, chance):
    for leader in cluster.up:
        if cluster[leader].state.role is Role.LEADER:
            cluster.change(leader, chance.choice(list(ChangeKind)), chance.choice(cluster.ids))


def join(cluster, node, chance):
    if len(cluster.ids) < NODES_MAX:
        cluster.join(f"n{len(cluster.ids)}")


def wipe(cluster, node, chance):
    if cluster.may_wipe(node):
        cluster.wipe(node)


MEMBERSHIP_ACTIONS = {**ACTIONS, change: 4, join: 1, wipe: 1}


def run_membership_trouble(seed: int, steps: int = 800) -> Cluster:
    """Raises AssertionError as soon as a property of Figure 3 or an invariant fails."""
    chance = random.Random(seed)
    mode = FlushDiskType.SYNC_FLUSH if seed % 2 else FlushDiskType.ASYNC_FLUSH
    size = chance.choice((3, 3, 4, 5))
    cluster = Cluster(size, seed=seed, flush_disk_type=mode, is_new=True, **FAST)
    actions, weights = list(MEMBERSHIP_ACTIONS), list(MEMBERSHIP_ACTIONS.values())
    for action in chance.choices(actions, weights, k=steps):
        action(cluster, chance.choice(cluster.ids), chance)
    return cluster
