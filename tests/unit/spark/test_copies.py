"""The copies of a segment on several nodes: each has its own rows, the same bytes are read once."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from chaos.history.arrow import arrow_schema
from spark import commit_log
from spark.commit_log import _decode_copies, _tasks, find_replicas
from tests.spark.generate import HistoryBuilder

SCHEMA = pa.schema(list(arrow_schema("replica_log")))


def build(path, **more):
    run = HistoryBuilder(**more)
    run.traffic(12)
    return run, run.write(path / "run")


def rows_by_node(run, *nodes):
    """All rows of some nodes, in the order of their logs."""
    replicas = [r for r in find_replicas(run) if not nodes or r.node in nodes]
    tasks = _tasks("a-run", replicas)
    rows = [row for task in tasks for batch in _decode_copies(task, SCHEMA)
            for row in batch.to_pylist()]  # fmt: skip
    found = {replica.node: [] for replica in replicas}
    for row in rows:
        found[row["node"]].append(row)
    return found


@pytest.fixture
def decoded(monkeypatch):
    """How many entries were decoded, stretch by stretch."""
    counts = []
    form = commit_log.FORMS["dledger"]

    def count(data, base, starts):
        counts.append(len(starts))
        return form.decode(data, base, starts)

    monkeypatch.setitem(commit_log.FORMS, "dledger", replace(form, decode=count))
    return counts


def alone(run):
    return {node: rows_by_node(run, node)[node] for node in ("n0", "n1", "n2")}


@pytest.mark.parametrize("rows_per_batch", [5, 100])
def test_what_is_the_same_on_all_nodes_is_decoded_once(
    tmp_path, monkeypatch, decoded, rows_per_batch
):
    monkeypatch.setattr(commit_log, "ROWS_PER_BATCH", rows_per_batch)
    _, run = build(tmp_path, entries_per_segment=7)
    together = rows_by_node(run)
    assert sum(decoded) == 12
    assert together == alone(run)
    assert [row["index"] for row in together["n2"]] == list(range(12))
    assert {row["file"] for row in together["n1"]} == {
        str(file) for file in (run / "replicas" / "n1" / "data").iterdir()
    }


def test_replica_that_lags_has_the_beginning_and_its_own_commit_index(tmp_path, decoded):
    builder, _ = build(tmp_path)
    del builder.logs["n1"][8:]
    builder.commits["n1"] = 5
    run = builder.write(tmp_path / "lagging")
    together = rows_by_node(run)
    assert decoded == [12]
    assert together == alone(run)
    assert [row["committed"] for row in together["n1"]] == [True] * 6 + [False] * 2


@pytest.mark.parametrize("node", ["n0", "n1"])
def test_one_changed_byte_is_seen_on_its_node_only(tmp_path, decoded, node):
    builder, run = build(tmp_path)
    segment = run / "replicas" / node / "data" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[data.index(b"orders") - 3] ^= 1
    segment.write_bytes(data)
    together = rows_by_node(run)
    assert sum(decoded) == 12 * (3 if node == "n0" else 2)
    assert together == alone(run)
    broken = {
        n: [row["index"] for row in rows if not row["crc_ok"]] for n, rows in together.items()
    }
    assert broken == {n: [0] if n == node else [] for n in builder.nodes}


def test_groups_share_nothing(tmp_path, decoded):
    _, run = build(tmp_path)
    for node in ("n1", "n2"):
        meta = run / "replicas" / node / "meta.json"
        meta.write_text(json.dumps(json.loads(meta.read_text()) | {"group": "other"}))
    together = rows_by_node(run)
    assert sum(decoded) == 24
    assert [row["group"] for row in together["n0"]] == [0] * 12
    assert [row["group"] for row in together["n2"]] == [1] * 12


def test_empty_segment_and_one_that_ends_in_the_middle(tmp_path):
    _, run = build(tmp_path)
    data = run / "replicas" / "n0" / "data" / f"{0:020d}"
    data.write_bytes(b"")
    other = run / "replicas" / "n2" / "data" / f"{0:020d}"
    other.write_bytes(other.read_bytes()[:700])
    together = rows_by_node(run)
    assert together == alone(run)
    assert together["n0"] == []
    assert together["n2"][-1]["type"] == "unreadable"
