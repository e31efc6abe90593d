"""Columns of other kinds than declared: both checkers refuse what nobody can understand.

And they take what tells the same: members of a struct by their names, longer lists, no value at
all. No JVM: the job opens a history in the driver.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.checker import check_history
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from spark.history import open_history
from tests.spark.kinds import every_kind
from tests.spark.minimal import write_minimal

WORDS = pa.list_(pa.string())


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory):
    return write_minimal(every_kind, tmp_path_factory.mktemp("history"))


def judged_with(run, table, name, change, kind=None):
    """Return the verdict and what both complain of, with a column changed; it is put back."""
    path = run / "tables" / table / "part-0.parquet"
    before = path.read_bytes()
    rows = pq.read_table(path)
    values = pa.array([change(one) for one in rows.column(name).to_pylist()], type=kind)
    try:
        pq.write_table(rows.set_column(rows.column_names.index(name), name, values), path)
        history = load_history(run)
        return check_history(history), (history.problems, open_history(run).problems)
    finally:
        path.write_bytes(before)


def micros(t):
    return None if t is None else t // 1_000


@pytest.mark.parametrize(
    ("table", "name", "change", "kind"),
    [
        ("deliveries", "t_recv", micros, pa.timestamp("us")),
        ("deliveries", "t_recv", micros, pa.timestamp("us", tz="Europe/Berlin")),
        ("deliveries", "t_proc_begin", micros, pa.duration("us")),
        ("deliveries", "queue_offset", lambda offset: offset > 0, None),
        ("sends", "tries", lambda _: {"first": "ok"}, None),
        ("sends", "tries", lambda _: [("first", "ok")], pa.map_(pa.string(), pa.string())),
        ("faults", "targets", lambda _: [None], WORDS),
        ("faults", "targets", lambda _: "n0", None),
        ("faults", "witness", lambda _: ["seen"], WORDS),
        ("faults", "witness", lambda _: {"effective": "perhaps"}, None),
    ],
)
def test_column_of_another_kind_is_refused_by_both(table, name, change, kind, run):
    verdict, problems = judged_with(run, table, name, change, kind)
    assert verdict.verdict == "unknown", verdict.reasons
    assert not any("the check failed" in reason for reason in verdict.reasons)
    for told in problems:
        assert any(name in line and table in line for line in told), told


@pytest.mark.parametrize(
    ("table", "name", "change", "kind"),
    [
        ("sends", "tries", lambda tries: tries, pa.large_list(pa.large_string())),
        ("sends", "tries", lambda _: None, pa.null()),
        ("faults", "witness", lambda told: {"effective": told["effective"]}, None),
        ("faults", "witness", lambda _: {"more": 1, "effective": "true"}, None),
    ],
)
def test_column_that_tells_the_same_is_taken_by_both(table, name, change, kind, run):
    verdict, problems = judged_with(run, table, name, change, kind)
    assert (verdict.exit_code, problems) == (0, ([], []))


def test_witness_that_saw_nothing_says_so_in_words_too(run):
    def unseen(told):
        return told | {"effective": "false"}

    found, _ = judged_with(run, "faults", "witness", unseen)
    assert found.verdict == "invalid", "what the faults excused is excused no more"
    with planted(HARNESS_BUGS["words-of-no-are-yes"]):
        assert judged_with(run, "faults", "witness", unseen)[0].exit_code == 0


def test_planted_numbers_of_moments_are_seen(run):
    arguments = ("sends", "delay_ms", micros, pa.duration("ms"))
    assert judged_with(run, *arguments)[0].verdict == "unknown"
    with planted(HARNESS_BUGS["moments-are-numbers"]):
        assert judged_with(run, *arguments)[0].results["A56"].verdict != "unknown"


@pytest.mark.parametrize("kind", [None, pa.null()])
def test_deliveries_that_name_no_message_are_refused_by_both(kind, run):
    """Each of them would be a body that nobody can read, and each acknowledged message lost."""
    path = run / "tables" / "deliveries" / "part-0.parquet"
    before = path.read_bytes()
    rows = pq.read_table(path)
    at = rows.column_names.index("msg_key")
    kept = rows.drop_columns(["msg_key"])
    if kind is not None:
        kept = rows.set_column(at, "msg_key", pa.nulls(rows.num_rows))
    try:
        pq.write_table(kept, path)
        assert check_history(load_history(run)).verdict == "unknown"
        assert any("msg_key" in line for line in open_history(run).problems)
    finally:
        path.write_bytes(before)


def test_empty_table_whose_columns_have_no_type_is_empty(run):
    path = run / "tables" / "txn" / "part-0.parquet"
    before = path.read_bytes()
    names = pq.read_schema(path).names
    try:
        pq.write_table(pa.table({name: pa.nulls(0) for name in names}), path)
        assert (load_history(run).problems, open_history(run).problems) == ([], [])
    finally:
        path.write_bytes(before)


def decoded(run, messages):
    """Somebody decoded the logs, which are the same."""
    run.with_replicas = False
    for node, log in run.logs.items():
        for entry in log:
            run.add("replica_log", node=node, group=0, index=entry.index, term=1, type="message",
                    topic=entry.topic, queue_id=entry.queue_id, queue_offset=entry.queue_offset,
                    msg_key=messages[entry.index].key, entry_crc=entry.index, crc_ok=True,
                    committed=True)  # fmt: skip


@pytest.mark.parametrize(("number", "verdict"), [(0, "valid"), (1, "unknown"), (36, "valid")])
def test_checksums_of_entries_are_in_all_rows_or_in_none(number, verdict, tmp_path):
    """What has none is told by other words, which differ from the checksum of the same entry."""
    run = write_minimal(decoded, tmp_path)
    path = run / "tables" / "replica_log" / "part-0.parquet"
    rows = pq.read_table(path)
    assert rows.num_rows == 36
    sums = [None if at < number else crc for at, crc in enumerate(rows["entry_crc"].to_pylist())]
    at = rows.column_names.index("entry_crc")
    pq.write_table(rows.set_column(at, "entry_crc", pa.array(sums, pa.int64())), path)
    results = check_history(load_history(run)).results
    assert {results[check].verdict for check in ("A34", "A35")} == {verdict}
    assert any("entry_crc" in line for line in open_history(run).problems) is (number == 1)


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        (lambda rows: rows, 0),
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), 1),
        (lambda rows: rows.set_column(0, "EPOCH", pa.array(["many"] * rows.num_rows)), 1),
        (lambda rows: rows.drop_columns(["OUTCOME"]), 1),
    ],
)
def test_names_of_columns_may_be_written_in_capitals(run, change, problems):
    path = run / "tables" / "sends" / "part-0.parquet"
    before = path.read_bytes()
    rows = pq.read_table(path)
    rows = rows.rename_columns([name.upper() for name in rows.column_names])
    rows = rows.drop_columns(["EPOCH"]) if "EPOCH" in rows.column_names else rows
    try:
        pq.write_table(change(rows), path)
        told = (load_history(run).problems, open_history(run).problems)
    finally:
        path.write_bytes(before)
    assert [len(lines) for lines in told] == [problems, problems], told
