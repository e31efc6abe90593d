"""Runs say of rows what a look at each pair of them says, however the rows come in batches."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from spark import runs
from spark.runs import Runs


def batches(rows, size):
    columns = list(zip(*rows, strict=True))
    table = pa.table([pa.array(c, pa.int64()) for c in columns], list("abcde")[: len(columns)])
    return table.to_batches(max_chunksize=size)


def runs_of(rows, size):
    """Rows are (line, parent, place, early, late)."""
    found = [list(r.values()) for b in runs._fold_lines(batches(rows, size)) for r in b.to_pylist()]
    found.sort(key=lambda r: (r[0], r[2]))
    columns = list(zip(*found, strict=True))
    return Runs(*(np.array(c, np.int64) for c in columns[:-1]), np.array(columns[-1], bool))


def drawn(seed):
    """Some lines of two parents; most in order, some with a gap, a place twice, a late time."""
    draw, rows = random.Random(seed), []
    for line in range(4):
        places = [n for n in range(30) if draw.random() > 0.02]
        if draw.random() < 0.3:
            places.append(draw.choice(places))
        for place in places:
            early = place * 10 + (draw.choice((0, -40)) if draw.random() < 0.02 else 0)
            rows.append((line, line // 2, place + line % 2 * 100, early, place * 10 - 5))
    draw.shuffle(rows)
    return sorted(rows, key=lambda row: row[2] // 5)


def truth(rows):
    """Disorder, places of a line there twice, gaps, parents with a place twice: by definition."""
    disorder, double, gaps, shared = set(), set(), set(), set()
    for a in rows:
        for b in rows:
            if a[0] == b[0] and a[2] <= b[2] and b[3] < a[4]:
                disorder.add(a[0])
    for line in {row[0] for row in rows}:
        places = sorted(row[2] for row in rows if row[0] == line)
        double |= {line for a, b in pairwise(places) if a == b}
        gaps |= {line for a, b in pairwise(places) if b > a + 1}
    for parent in {row[1] for row in rows}:
        places = [row[2] for row in rows if row[1] == parent]
        shared |= {parent} if len(places) != len(set(places)) else set()
    return disorder, double, gaps, shared


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(40))
def test_runs_say_what_a_look_at_each_pair_says(seed, size):
    rows = drawn(seed)
    found = runs_of(rows, size)
    disorder, double, gaps, shared = truth(rows)
    assert set(found.line[found.overlapping()].tolist()) == double
    assert set(found.shared().tolist()) == shared
    if not double:
        assert set(found.line[found.disordered()].tolist()) == disorder
        assert set(found.line[found.gaps()].tolist()) == gaps


def test_what_is_recorded_in_order_is_one_run_a_batch():
    rows = [(1, 1, place, place, place) for place in range(1000)]
    assert len(runs_of(rows, 250).line) == 4


def test_times_far_apart_are_folded_line_by_line():
    """Lines cannot be lifted above each other where times fill a long."""
    rows = [(1, 1, 0, 0, 1 << 61), (1, 1, 1, 5, 0), (2, 2, 0, 0, -(1 << 61)), (2, 2, 1, 5, 0)]
    found = runs_of(rows, 10)
    assert found.broken.tolist() == [True, False]


@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize("seed", range(20))
def test_steps_count_each_fall_within_a_run_once(seed, size):
    draw = random.Random(seed)
    times = [n * 10 + draw.choice((0, 0, 0, -25)) for n in range(50)]
    rows = list(enumerate(times))
    draw.shuffle(rows[10:20])
    folded = [r for b in batches(rows, size) for r in runs._steps(b, 3).to_pylist()]
    folded.sort(key=lambda r: r["idx"])
    falls = sum(r["falls"] for r in folded)
    falls += sum(not b["joined"] and b["t"] < a["t"] - 3 for a, b in pairwise(folded))
    assert falls == sum(b < a - 3 for a, b in pairwise(times))
