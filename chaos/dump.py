"""The replicas after the run: each node's data segments, its events, what it last said of itself.

The status is asked before the node is stopped and its log is copied after, so that everything the
node called committed must be in the copy. Layout: RUN/replicas/<node>/{meta.json,data/*} and
raft_event/*, from which the table ``raft_event`` is made (RUN/tables/raft_event).
"""

import json
from collections.abc import Mapping
from pathlib import Path

from chaos.backends.base import Cluster
from chaos.convert import Row, write_table
from chaos.history.raft_event import decode_events
from chaos.probe import NodeStatus


async def dump_replicas(
    cluster: Cluster, run: Path, statuses: Mapping[str, NodeStatus], group: str
) -> None:
    """Copy the logs of all (stopped) nodes. Errors: ClusterFailed, OSError."""
    for node in cluster.nodes:
        directory = run / "replicas" / node
        await cluster.collect(node, directory / "data")
        status = statuses[node]
        meta = {
            "node": node,
            "group": group,
            "format": cluster.log_format,
            "boot_id": status.boot_id,
            "commit_index": status.commit,
            "first_index": status.first_index,
            "end_index": status.last_index,
        }
        (directory / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


async def dump_events(cluster: Cluster, run: Path, run_id: str) -> int:
    """Copy what all (stopped) nodes noted, write the table, return the number of its rows.

    Errors: ClusterFailed, OSError.
    """
    rows: list[Row] = []
    for node in cluster.nodes:
        directory = run / "replicas" / node / "raft_event"
        await cluster.collect_events(node, directory)
        about = {"run_id": run_id, "node": node, "group": 0}
        rows += [about | row for row in read_events(directory)]
    write_table(run, "raft_event", rows)
    return len(rows)


def read_events(directory: Path) -> list[Row]:
    """Return the events in the files of a directory, in order; [] if there is none."""
    if not directory.is_dir():
        return []
    return decode_events(file.read_bytes() for file in sorted(directory.iterdir()))
