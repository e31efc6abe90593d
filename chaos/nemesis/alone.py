"""What one node alone has: the messages of its log that no other log holds.

Counted when a fault takes a disk of a master or a slave, by the harness's own decoder: what a
contract may allow to be lost is bounded by it. Of a Raft group it is not asked: there a majority
has what is acknowledged. Where controllers keep an in-sync set, all of the set has that: as long as
another node of it is there, none counts. Source: docs/replication.md (what is acknowledged).
"""

import asyncio
import tempfile
from pathlib import Path

from chaos.backends.base import Cluster, Overseen
from chaos.decisions import in_sync_nodes
from chaos.history.domains import PLAIN
from chaos.history.plain_segment import decode_plain
from chaos.history.segment import EntryRow

ARRIVES_S = 0.3
"""So long the others get for what was on its way to them."""


async def count_alone(cluster: Cluster, node: str) -> int | None:
    """Return how many messages only a node has that is down; None where the logs are of a group.

    Errors: ClusterFailed, OSError if a log cannot be copied.
    """
    if cluster.log_format != PLAIN:
        return None
    if isinstance(cluster, Overseen) and await in_sync_nodes(cluster) - {node}:
        return 0
    await asyncio.sleep(ARRIVES_S)
    with tempfile.TemporaryDirectory(prefix="ledgermq-alone-") as directory:
        logs = {}
        for one in cluster.nodes:
            target = Path(directory) / one
            await cluster.collect(one, target)
            logs[one] = await asyncio.to_thread(read_plain_log, target)
    mine = logs.pop(node)
    end = max((row.entry_index for rows in logs.values() for row in rows), default=-1)
    return sum(row.type != "noop" and row.entry_index > end for row in mine)


def read_plain_log(directory: Path) -> list[EntryRow]:
    """Return the sound entries in the files of a plain log, in order."""
    paths = sorted(directory.iterdir())
    rows = (row for path in paths for row in decode_plain(path.read_bytes(), int(path.name)))
    return [row for row in rows if row.crc_ok]
