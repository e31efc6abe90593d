"""The undo journal: how to lift every fault, on disk before the fault is applied.

Entries are appended, never changed: ``{"id", "undo": {...}}`` and later ``{"id", "done": true}``.
What has no ``done`` is lifted by `heal_all`, also by another process after the harness died.
Healing is idempotent, so doing it twice is harmless. Source: spec/proof.md 4.4.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.backends.base import Cluster, Machine, Served
from chaos.nemesis.limits import lift_limit
from chaos.nemesis.membership import add_again
from chaos.nemesis.servers import lift_servers


class UndoJournal:
    """Appends to one file; each entry reaches the kernel before the call returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def will_apply(self, fault_id: str, undo: Mapping[str, Any]) -> None:
        """Record how to lift a fault that is about to be applied."""
        self._append({"id": fault_id, "undo": dict(undo)})

    def undone(self, fault_id: str) -> None:
        """Record that a fault was lifted."""
        self._append({"id": fault_id, "done": True})

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _append(self, entry: Mapping[str, Any]) -> None:
        os.write(self._fd, json.dumps(entry).encode() + b"\n")


def pending(path: Path) -> dict[str, dict[str, Any]]:
    """Return the undo entries of faults that are not known to be lifted, by fault id."""
    found: dict[str, dict[str, Any]] = {}
    if not path.exists():
        return found
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry.get("done"):
            found.pop(entry["id"], None)
        else:
            found[entry["id"]] = entry["undo"]
    return found


async def heal_all(cluster: Cluster, path: Path) -> list[str]:
    """Lift every fault that the journal has open; return a line for each that could not be."""
    failures = []
    for fault_id, undo in reversed(pending(path).items()):
        try:
            await lift(cluster, undo)
        except Exception as error:  # noqa: BLE001 - the others are lifted all the same
            failures.append(f"{fault_id}: {error}")
    return failures


async def lift(cluster: Cluster, undo: Mapping[str, Any]) -> None:
    """Perform one undo entry. Errors: `ClusterFailed`, ValueError for an unknown one."""
    match undo["do"]:
        case "restart":
            for node in undo.get("nodes") or [undo["node"]]:
                await cluster.restart(node)
        case "resume":
            await cluster.resume(undo["node"])
        case "heal":
            await cluster.links.heal(undo["links"])
        case "unlimit" if isinstance(cluster, Machine):
            lift_limit(cluster.pid(undo["node"]))
        case "unshim" if isinstance(cluster, Machine):
            cluster.shim(undo["node"]).lift()
            await cluster.restart(undo["node"])
        case "name_servers" if isinstance(cluster, Served):
            await lift_servers(cluster, tuple(undo["nodes"]))
        case "member":
            await add_again(cluster, undo["node"])
        case "nothing":
            pass  # what was killed is a part of the harness, and ends with it
        case other:
            raise ValueError(f"the journal asks for {other!r}")
