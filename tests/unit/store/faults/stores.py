"""Stores to damage: built once, with every kind of file that a broker leaves behind."""

from functools import cache

from tests.unit.store.faults.damage import disk_of, image
from tests.unit.store.faults.world import Cluster

ROUNDS = 30
TAGS = b"TAGS\x01a%d\x02"
KEYS = b"KEYS\x01k%d\x02"
WORDS = TAGS + KEYS
KEY_COUNT = 10


def fill(cluster, *, rounds=ROUNDS, tag=b"", name="n0"):
    """Send some hundred messages of many sizes to several queues, batches and state records."""
    for number in range(rounds):
        cluster.put_many(
            [
                (f"t{k % 3}", k % 2, tag + b"%d.%d " % (number, k) * (3 + 2 * k), WORDS % (k, k))
                for k in range(KEY_COUNT)
            ],
            name=name,
        )
        if number % 10 == 0:
            propose_offset(cluster, name=name)
            bodies = [tag + b"batch %d.%d" % (number, k) for k in range(3)]
            cluster.put_batch("b", 0, bodies, name=name)
        cluster.run_for(50)


KEPT = b"OFFSET_MOVED_EVENT@TOOLS_CONSUMER"
"""A topic and a group that every broker has: offsets of others are removed after a while."""


def propose_offset(cluster, *, name="n0"):
    """Commit the next consumer offset: 0, 1, 2... `Sent.proposed` counts them."""
    payload = b'{"%s":{"0":%d}}' % (KEPT, cluster.sent.proposed)
    return cluster.propose(payload, "offset", name=name)


@cache
def built(*, raft=True, rounds=ROUNDS):
    """Return the files of a broker that was stopped cleanly, and what was sent to it."""
    cluster = Cluster({"n0": disk_of({})}, raft=raft)
    assert cluster.start() is None
    fill(cluster, rounds=rounds)
    cluster.run_for(6_000)
    assert cluster.stop() is None
    cluster.close()
    return image(cluster.disks["n0"]), cluster.sent
