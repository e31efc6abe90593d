"""No column that is required may be null, lack, or hold another word, and the history be valid.

Tried of every column of every table that a run writes, in a history with every kind of message.
Only ``run_id``, which names the run to whoever joins histories of many, may be away.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.catalogue.checks import REFUSED, without
from chaos.checker import check_history
from chaos.history.domains import WORDS
from chaos.history.tables import TABLES
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from spark import validation
from tests.spark.kinds import every_kind
from tests.spark.minimal import write_minimal

UNREAD = "run_id"
STRANGE = "acknowledged"
WRITTEN = (
    "acks", "deliveries", "drain", "events", "faults", "masters", "node_log", "raft_event",
    "raft_probe", "sends", "txn", "queue_index",
)  # fmt: skip


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory):
    return write_minimal(every_kind, tmp_path_factory.mktemp("history"))


def exit_code_with(run, table, change):
    """Return how the check of a run ends, with a table changed; it is put back."""
    path = run / "tables" / table / "part-0.parquet"
    before = path.read_bytes()
    try:
        pq.write_table(change(pq.read_table(path)), path)
        return check_history(load_history(run)).exit_code
    finally:
        path.write_bytes(before)


def with_first(table, name, value):
    """Return a table whose first row has another value in a column."""
    at = table.column_names.index(name)
    kind = table.schema.field(name).type
    values = pa.array([value, *table.column(name).to_pylist()[1:]], type=kind)
    return table.set_column(at, pa.field(name, kind), values)


def columns(table):
    return [one for one in TABLES[table] if not one.nullable]


def test_the_history_is_sound_and_has_these_tables(run):
    assert check_history(load_history(run)).exit_code == 0
    assert {path.name for path in (run / "tables").iterdir()} == set(WRITTEN)


@pytest.mark.parametrize("table", WRITTEN)
def test_a_required_column_is_neither_null_nor_away(table, run):
    required = columns(table)
    assert required
    for column in required:
        name = column.name
        null = exit_code_with(run, table, lambda rows, name=name: with_first(rows, name, None))
        away = exit_code_with(run, table, lambda rows, name=name: rows.drop_columns([name]))
        assert null != 0, name
        assert away != 0 or name == UNREAD


@pytest.mark.parametrize("place", [place for place in WORDS if place[0] in WRITTEN])
def test_a_word_that_nobody_knows_is_never_valid(place, run):
    table, name = place
    code = exit_code_with(run, table, lambda rows: with_first(rows, name, STRANGE))
    assert code != 0


def refused(run, table, name, value):
    """Tell whether both who judge a history refuse it, and say where and what to do."""
    path = run / "tables" / table / "part-0.parquet"
    before = path.read_bytes()
    try:
        pq.write_table(with_first(pq.read_table(path), name, value), path)
        code = check_history(load_history(run)).exit_code
        told = [problem for problem in load_history(run).problems if name in problem]
        lines = validation.look_through(path, table, pq.read_schema(path)).complaints
    finally:
        path.write_bytes(before)
    complete = [line for line in told if str(path) in line and "row 0" in line]
    return code != 0 and bool(complete) and any(name in line and "row 0" in line for line in lines)


@pytest.mark.parametrize(
    ("table", "name", "value"), [("sends", "run_id", None), ("raft_probe", "role", "")]
)
def test_what_no_check_reads_is_refused_as_well(table, name, value, run):
    assert refused(run, table, name, value)
    with planted(HARNESS_BUGS["unread-columns-unchecked"]):
        assert not refused(run, table, name, value)


@pytest.mark.parametrize("table", WRITTEN)
def test_what_was_refused_makes_nothing_an_anomaly(table, run):
    """Topics that were made anew, or that were sent to at all, are known by sends alone."""
    path = run / "tables" / table / "part-0.parquet"
    before = path.read_bytes()
    try:
        path.write_bytes(b"no Parquet")
        results = check_history(load_history(run)).results
    finally:
        path.write_bytes(before)
    assert {name: one.summary for name, one in results.items() if one.verdict == "invalid"} == {}
    silent = [name for name, one in results.items() if one.verdict != "unknown"]
    rest_on_sends = {"A2", "A9", "A13", "A14", "A16", "A17", "A18", "A19", "A26", "A27", "A28"}
    rest_on_sends |= {"A29", "A39", "A46", "A52", "A53", "A54", "A55", "A57"}
    assert table != "sends" or rest_on_sends.isdisjoint(silent)


@pytest.mark.parametrize("check", ["A26", "A38"])
def test_what_an_answer_of_a_broker_would_excuse_is_unknown_without_answers(check):
    assert "raft_probe" in without(check, {"raft_probe": REFUSED})
