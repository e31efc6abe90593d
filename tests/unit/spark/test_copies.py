"""The copies of a segment on several nodes: each has its own rows, the same bytes are read once."""

import json
from dataclasses import replace

import pytest

from spark import copies
from spark.commit_log import find_replicas
from spark.copies import cut, decode_copies, find_cuts, segment_tasks
from tests.spark.generate import HistoryBuilder


def build(path, **more):
    run = HistoryBuilder(**more)
    run.traffic(12)
    return run, run.write(path / "run")


def rows_by_node(run, *nodes, part_bytes=0):
    """All rows of some nodes, in the order of their logs; segments are cut if there are bytes."""
    replicas = [r for r in find_replicas(run) if not nodes or r.node in nodes]
    tasks = segment_tasks(replicas)
    if part_bytes:
        tasks = [part for task in tasks for part in cut(task, list(find_cuts(task, part_bytes)))]
    rows = [row for task in tasks for batch in decode_copies(task) for row in batch.to_pylist()]
    found = {replica.node: [] for replica in replicas}
    for row in rows:
        holders, committers, base = (row.pop(name) for name in ("holders", "committers", "base"))
        for replica in replicas:
            bit = 1 << replica.number
            if holders & bit:
                file = next(f for f in replica.segments if int(f[-20:]) == base)
                mine = {"file": file, "committed": bool(committers & bit)}
                found[replica.node].append(row | mine)
    return {node: sorted(rows, key=lambda row: row["pos"]) for node, rows in found.items()}


@pytest.fixture
def decoded(monkeypatch):
    """How many entries were decoded, stretch by stretch."""
    counts = []
    form = copies.FORMS["dledger"]

    def count(data, base, starts):
        counts.append(len(starts))
        return form.decode(data, base, starts)

    monkeypatch.setitem(copies.FORMS, "dledger", replace(form, decode=count))
    return counts


def alone(run):
    return {node: rows_by_node(run, node)[node] for node in ("n0", "n1", "n2")}


@pytest.mark.parametrize("rows_per_batch", [5, 100])
def test_what_is_the_same_on_all_nodes_is_decoded_once(
    tmp_path, monkeypatch, decoded, rows_per_batch
):
    monkeypatch.setattr(copies, "ROWS_PER_BATCH", rows_per_batch)
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
    assert sum(decoded) == 12 * 2
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


def walked(monkeypatch):
    """How many segments were followed from entry to entry."""
    calls = []
    form = copies.FORMS["dledger"]

    def count(*arguments):
        calls.append(arguments)
        return form.walk(*arguments)

    monkeypatch.setitem(copies.FORMS, "dledger", replace(form, walk=count))
    return calls


@pytest.mark.parametrize("part_bytes", [1, 300, 600, 1500, 1 << 20])
@pytest.mark.parametrize("change", ["none", "byte", "size", "short", "lags", "empty"])
def test_segments_that_are_cut_have_the_same_rows(tmp_path, monkeypatch, part_bytes, change):
    builder, run = build(tmp_path, entries_per_segment=9)
    segment = run / "replicas" / "n1" / "data" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    if change == "byte":
        data[len(data) // 2] ^= 1
    elif change == "size":
        data[data.index(b"orders") - 140 :] = b"\xff" * 900
    elif change == "short":
        del data[700:]
    elif change == "empty":
        data.clear()
    segment.write_bytes(data)
    if change == "lags":
        del builder.logs["n1"][5:]
        builder.commits["n1"] = 3
        run = builder.write(tmp_path / "lagging")
    assert rows_by_node(run, part_bytes=part_bytes) == rows_by_node(run)


def test_entries_are_divided_among_parts_and_none_is_read_twice(tmp_path, decoded):
    _, run = build(tmp_path)
    (task,) = segment_tasks(find_replicas(run))
    parts = cut(task, list(find_cuts(task, 600)))
    assert len(parts) > 3
    batches = [batch for part in parts for batch in decode_copies(part)]
    assert sum(decoded) == 12
    assert [n for batch in batches for n in batch.column("index").to_pylist()] == list(range(12))


def test_copies_of_the_same_bytes_are_followed_once(tmp_path, monkeypatch):
    _, run = build(tmp_path)
    calls = walked(monkeypatch)
    together = rows_by_node(run)
    assert len(calls) == 1
    assert together == alone(run)


@pytest.mark.parametrize("ends", [(3, 11, None), (11, 3, 3), (-1, 2, 11), (None, 40, 11)])
def test_each_copy_ends_where_its_node_says(tmp_path, ends):
    _, run = build(tmp_path)
    for number, end in enumerate(ends):
        meta = run / "replicas" / f"n{number}" / "meta.json"
        meta.write_text(json.dumps(json.loads(meta.read_text()) | {"end_index": end}))
    together = rows_by_node(run)
    assert together == alone(run)
    assert [len(together[f"n{number}"]) for number in range(3)] == [
        12 if end is None else min(12, end + 1) for end in ends
    ]
