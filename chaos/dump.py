"""The replicas' logs after the run: each node's data segments and what it last said of itself.

The status is asked before the node is stopped and its log is copied after, so that everything the
node called committed must be in the copy. Layout: RUN/replicas/<node>/{meta.json,data/*}.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from chaos.backends.base import Cluster
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
            "boot_id": status.boot_id,
            "commit_index": status.commit,
            "first_index": status.first_index,
            "end_index": status.last_index,
        }
        (directory / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
