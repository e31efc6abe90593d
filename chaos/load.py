"""Reads a finished run from disk into the history that the in-process checker takes.

Source: chaos.md 6.3; layout of RUN as docs/chaos.md draws it.
"""

import json
from pathlib import Path
from typing import Any

from chaos.checker.model import History, Replica
from chaos.convert import read_table
from chaos.history.payload import run_tag
from chaos.history.segment import decode_segment


def load_history(run: Path) -> History:
    """Return the history of a run. Errors: OSError, KeyError for a run that is not complete."""
    about: dict[str, Any] = json.loads((run / "run.json").read_text())
    return History(
        topic=about["topic"],
        group=about["group"],
        run_tag=run_tag(about["run_id"]),
        quorum=about["quorum"],
        sends=read_table(run, "sends"),
        deliveries=read_table(run, "deliveries"),
        acks=read_table(run, "acks"),
        events=read_table(run, "events"),
        faults=read_table(run, "faults"),
        drain=read_table(run, "drain"),
        raft_events=read_table(run, "raft_event"),
        probes=read_table(run, "raft_probe"),
        replicas=[load_replica(path) for path in sorted((run / "replicas").glob("*"))],
        coverage=about["coverage"],
        problems=about["problems"],
    )


def load_replica(directory: Path) -> Replica:
    """Return one replica's log from its copied segments."""
    meta = json.loads((directory / "meta.json").read_text())
    rows = [
        row
        for path in sorted((directory / "data").iterdir())
        for row in decode_segment(path.read_bytes(), int(path.name), meta["end_index"])
    ]
    return Replica(
        node=meta["node"],
        rows=[row for row in rows if row.entry_index <= meta["end_index"]],
        commit_index=meta["commit_index"],
        first_index=meta["first_index"],
        end_index=meta["end_index"],
    )
