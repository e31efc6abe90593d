"""Files of others become a run that is judged; what cannot be understood is named or counted."""

import json
import signal
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.checker import check_history
from chaos.exchange import importer, sources, tables
from chaos.exchange.cells import key_of
from chaos.exchange.importer import BadRowsError, import_history
from chaos.exchange.mapping import parse_mapping
from chaos.exchange.sources import SourceError, rows_of
from chaos.exchange.tables import FullError
from chaos.load import load_history
from cli.main import run
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

EXAMPLES = Path(__file__).parents[4] / "examples" / "histories"
MAPPING = """
run_id = "theirs"
words = ["msg_key", "queue_id"]
time = "ms"
drained = true
[[table]]
name = "sends"
files = "sends*"
[table.columns]
msg_key = "key"
topic = { value = "orders" }
queue_id = "queue"
queue_offset = "offset"
t_inv = "begun"
t_cmp = "done"
outcome = "said"
[table.words.outcome]
ok = ["stored", "true"]
info = ["late", ""]
[[table]]
name = "deliveries"
files = "reads*"
[table.columns]
grp = "group"
topic = { value = "orders" }
queue_id = "queue"
queue_offset = "offset"
msg_key = "key"
t_recv = "at"
"""
SENDS = [
    {"key": "a", "queue": "left", "offset": 0, "begun": 1000, "done": 1001, "said": "stored"},
    {"key": "b", "queue": "right", "offset": 0, "begun": 1002, "done": 1003, "said": "stored"},
    {"key": "c", "queue": "left", "offset": 1, "begun": 1004, "done": 1005.25, "said": "stored"},
    {"key": "d", "queue": "left", "offset": None, "begun": 1006, "done": None, "said": "late"},
]
READS = [
    {"group": "g", "queue": s["queue"], "offset": s["offset"], "key": s["key"], "at": 1010 + n}
    for n, s in enumerate(SENDS[:3])
]


def csv_of(rows):
    cells = [list(rows[0]), *([v if v is not None else "" for v in row.values()] for row in rows)]
    return "\n".join(",".join(map(str, row)) for row in cells) + "\n"


def write(path, kind, sends=SENDS, reads=READS):
    for name, rows in (("sends", sends), ("reads", reads)):
        if kind == "csv":
            (path / f"{name}.csv").write_text(csv_of(rows))
        elif kind == "jsonl":
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (path / f"{name}.jsonl").write_text(text)
        else:
            pq.write_table(pa.Table.from_pylist(rows), path / f"{name}.parquet")


def bring(path, kind="csv", mapping=MAPPING, skip_bad=False):
    said = []
    made = importer.import_history(path, kind, parse_mapping(mapping, "m.toml"), path / "run",
                          skip_bad=skip_bad, progress=said.append)  # fmt: skip
    return made, check_history(load_history(path / "run")), said


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_same_history_in_each_form_is_the_same_run(kind, tmp_path):
    write(tmp_path, kind)
    made, found, said = bring(tmp_path, kind)
    assert (found.verdict, found.reasons) == ("valid", ())
    assert made.rows == {"sends": 4, "deliveries": 3, "drain": 2}
    assert found.counts["acknowledged"] == found.counts["delivered"] == 3
    assert found.counts["unknown"] == 1
    assert said[-1].endswith(f"reads.{kind}: 3 deliveries")
    sends = pq.read_table(tmp_path / "run" / "tables" / "sends").to_pylist()
    assert [s["msg_key"] for s in sends] == [key_of(one) for one in "abcd"]
    assert [s["queue_id"] for s in sends] == [0, 1, 0, 0]
    assert [s["t_cmp"] for s in sends] == [1_001_000_000, 1_003_000_000, 1_005_250_000, None]
    numbers = json.loads((tmp_path / "run" / "names" / "numbers.json").read_text())
    assert numbers == {"queue_id": {"orders": {"left": 0, "right": 1}}}
    keys = pq.read_table(tmp_path / "run" / "names" / "msg_key").to_pylist()
    assert keys == [{"msg_key": key_of(one), "name": one} for one in "abcd"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_lost_message_is_lost_in_each_form(kind, tmp_path):
    write(tmp_path, kind, reads=[READS[1], READS[2]])
    _, found, _ = bring(tmp_path, kind)
    assert (found.verdict, found.counts["lost"]) == ("invalid", 1)


def test_without_the_word_that_queues_were_read_loss_is_unknown(tmp_path):
    write(tmp_path, "csv", reads=READS[:2])
    _, found, _ = bring(tmp_path, mapping=MAPPING.replace("drained = true", ""))
    assert (found.verdict, found.results["A1"].verdict) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"said": "OK"}, "said is 'OK': say in [table.words.outcome] which of ok, fail, info"),
        ({"begun": "soon"}, "begun is 'soon'; write a number"),
        ({"begun": ""}, "begun is empty, and t_inv is required"),
        ({"begun": -5}, "begun is -5000000; it is 0 at the least, or empty"),
        ({"begun": "1e300"}, "begun is '1e300'; write a number"),
        ({"begun": "nan"}, "begun is 'nan'; write a number"),
        ({"offset": "1.5"}, "offset is '1.5'; write a whole number"),
        ({"offset": -1}, "offset is -1; it is 0 at the least, or empty"),
        ({"offset": 1 << 64}, "more than 64 bits"),
        ({"key": ""}, "key is empty, and msg_key is required"),
        ({"said": "stored,extra"}, "7 cells under 6 columns"),
        ({"key": '"a"b'}, "not CSV"),
    ],
)  # fmt: skip
def test_bad_row_is_named_by_file_and_line_and_refused(changes, said, tmp_path):
    rows = [SENDS[0], SENDS[1] | changes, *SENDS[2:]]
    write(tmp_path, "csv", sends=rows)
    with pytest.raises(BadRowsError) as caught:
        bring(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'sends.csv'}:3: ")
    assert said in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["reads.csv", "sends.csv"]


@pytest.mark.parametrize("text", ['{"key": "a"', "[1, 2]", "5", "[" * 100_000])
def test_line_that_is_no_json_object_is_named(text, tmp_path):
    write(tmp_path, "jsonl")
    with (tmp_path / "sends.jsonl").open("a") as out:
        out.write("\n" + text + "\n")
    with pytest.raises(BadRowsError, match=r"sends.jsonl:6: not (a )?JSON"):
        bring(tmp_path, "jsonl")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_line_without_end_is_not_read_to_its_end(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LINE_CHARS_MAX", 1_000)
    write(tmp_path, kind)
    with (tmp_path / f"sends.{kind}").open("a") as out:
        out.write("," * 5_000)
    with pytest.raises(SourceError, match=rf"sends\.{kind}:\d: the line is longer than 1000"):
        bring(tmp_path, kind)
    assert not (tmp_path / "run.partial").exists()


def test_text_that_is_not_utf8_is_named(tmp_path):
    write(tmp_path, "csv")
    file = tmp_path / "sends.csv"
    file.write_bytes(file.read_bytes().replace(b"\nb,", b"\n\xff,"))
    with pytest.raises(BadRowsError, match=r"sends.csv:3: key is not UTF-8"):
        bring(tmp_path)


def test_line_of_a_row_after_a_quoted_line_break_is_right(tmp_path):
    write(tmp_path, "csv", sends=[SENDS[0] | {"key": '"a\n\nz"'}, SENDS[1] | {"begun": "x"}])
    with pytest.raises(BadRowsError, match=r"sends.csv:5: begun"):
        bring(tmp_path)


LONG = "x" * 5_000


@pytest.mark.parametrize("changes", [
    {"said": LONG}, {"begun": LONG}, {"offset": LONG}, {"offset": "1" * 5_000},
    {"offset": [LONG, LONG]}, {"offset": -(10**1_000)}, {LONG: "\ud800"},
])  # fmt: skip
def test_long_cell_is_cut_where_it_is_told(changes, tmp_path):
    write(tmp_path, "jsonl", sends=[*SENDS, SENDS[0] | {"key": "z"} | changes])
    with pytest.raises(BadRowsError) as caught:
        bring(tmp_path, "jsonl")
    said = str(caught.value).partition("jsonl:5: ")[2]
    assert 0 < len(said) <= 400
    assert LONG in changes or len(max(said.split(), key=len).rstrip(";:")) == 80
    made, _, _ = bring(tmp_path, "jsonl", skip_bad=True)
    assert [said in problem for problem in made.problems] == [True]
    problems = json.loads((tmp_path / "run" / "run.json").read_text())["problems"]
    assert problems == list(made.problems)


def test_many_bad_rows_end_it_after_twenty(tmp_path):
    write(tmp_path, "csv", sends=[SENDS[0] | {"said": f"no-{n}"} for n in range(100)])
    with pytest.raises(BadRowsError) as caught:
        bring(tmp_path)
    assert len(str(caught.value).splitlines()) == 20


SKIPPED = [*SENDS, SENDS[0] | {"said": "?"}, SENDS[0] | {"said": "!"}]


def test_skipped_rows_leave_nothing_proved(tmp_path):
    write(tmp_path, "csv", sends=SKIPPED)
    made, found, _ = bring(tmp_path, skip_bad=True)
    assert (made.skipped, made.rows["sends"]) == (2, 4)
    assert found.verdict == "unknown"
    reason = next(r for r in found.reasons if "left out" in r)
    assert f"2 rows of {tmp_path / 'sends.csv'} were left out, the first: " in reason
    assert "sends.csv:6: said is '?'" in reason


def test_import_that_forgets_what_it_skipped_would_be_seen(tmp_path):
    write(tmp_path, "csv", sends=SKIPPED)
    with planted(HARNESS_BUGS["import-forgets-skipped-rows"]):
        _, found, _ = bring(tmp_path, skip_bad=True)
    assert found.verdict == "valid", "this is what the test above refuses"


def test_import_that_guesses_outcomes_would_be_seen(tmp_path):
    write(tmp_path, "csv", sends=[*SENDS, SENDS[0] | {"key": "z", "said": "ACKED"}])
    with pytest.raises(BadRowsError):
        bring(tmp_path)
    with planted(HARNESS_BUGS["import-guesses-outcomes"]):
        _, found, _ = bring(tmp_path)
    assert (found.verdict, found.counts["lost"]) == ("valid", 0), "an acknowledged loss is hidden"


def test_absent_column_is_named_with_those_that_there_are(tmp_path):
    write(tmp_path, "csv")
    with pytest.raises(BadRowsError, match=r"no column key2; there are key, queue, offset"):
        bring(tmp_path, mapping=MAPPING.replace('"key"', '"key2"', 1))


@pytest.mark.parametrize(("kind", "said"), [("parquet", "no file sends"), ("csv", "no file")])
def test_no_file_is_said(kind, said, tmp_path):
    with pytest.raises(SourceError, match=said):
        bring(tmp_path, kind)


@pytest.mark.parametrize(("kind", "text", "said"), [
    ("parquet", "no parquet", "cannot be read as parquet"),
    ("csv", "a,a\n1,2\n", "write a header"),
    ("csv", "", "write a header"),
])  # fmt: skip
def test_file_that_is_something_else_is_said(kind, text, said, tmp_path):
    write(tmp_path, kind)
    (tmp_path / f"sends.{kind}").write_text(text)
    with pytest.raises(SourceError, match=said):
        bring(tmp_path, kind)


@pytest.mark.parametrize(
    ("cell", "unit", "ns"),
    [
        ("2026-03-01T12:00:00.123456789Z", "iso8601", 123_456_789),
        ("2026-03-01T20:00:00.5+08:00", "iso8601", 500_000_000),
        ("1772366400.000000001", "s", 1),
        ("1772366400000001", "us", 1_000),
        (datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC), "ms", 250_000),
    ],
)
def test_times_are_exact_in_every_unit(cell, unit, ns, tmp_path):
    mapping = MAPPING.replace('t_cmp = "done"\n', "").replace(
        't_inv = "begun"', f't_inv = {{ column = "begun", unit = "{unit}" }}'
    )
    rows = [row | {"begun": cell} for row in SENDS]
    kind = "csv" if isinstance(cell, str) else "parquet"
    write(tmp_path, kind, sends=rows)
    bring(tmp_path, kind, mapping=mapping)
    sends = pq.read_table(tmp_path / "run" / "tables" / "sends").to_pylist()
    assert {s["t_inv"] - 1_772_366_400_000_000_000 for s in sends} == {ns}


def test_time_without_a_zone_is_refused(tmp_path):
    write(tmp_path, "csv", sends=[SENDS[0] | {"begun": "2026-03-01 12:00:00"}])
    with pytest.raises(BadRowsError, match="write its zone too"):
        bring(tmp_path, mapping=MAPPING.replace('"ms"', '"iso8601"'))


def test_rows_are_written_in_pieces_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(tables, "ROWS_PER_FILE", 40)
    most = 0
    add = tables.TableWriter.add

    def watched(self, row):
        nonlocal most
        add(self, row)
        most = max(most, len(self._rows))

    monkeypatch.setattr(tables.TableWriter, "add", watched)
    sends = [SENDS[0] | {"key": f"k{n}", "offset": n, "begun": 1000 + n, "done": 1001 + n}
             for n in range(95)]  # fmt: skip
    reads = [READS[0] | {"key": f"k{n}", "offset": n, "at": 2000} for n in range(95)]
    write(tmp_path, "jsonl", sends=sends, reads=reads)
    made, found, _ = bring(tmp_path, "jsonl")
    assert (made.rows["sends"], found.verdict, most < 10) == (95, "valid", True)
    files = sorted((tmp_path / "run" / "tables" / "sends").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [40, 40, 15]


def test_queues_without_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "QUEUES_MAX", 2)
    sends = [SENDS[0] | {"queue": f"q{n}", "key": n} for n in range(3)]
    write(tmp_path, "jsonl", sends=sends)
    with pytest.raises(FullError, match="more than 2 queues"):
        bring(tmp_path, "jsonl")
    assert not (tmp_path / "run").exists()


def test_run_that_is_there_already_is_kept(tmp_path):
    write(tmp_path, "csv")
    bring(tmp_path)
    with pytest.raises(FileExistsError, match="is there already"):
        bring(tmp_path)
    assert (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(("name", "kind", "code"), [("kafka", "csv", 1), ("rocketmq", "jsonl", 0)])
def test_examples_are_imported_and_judged_by_their_commands(name, kind, code, tmp_path, capsys):
    source = EXAMPLES / name
    mapping = source / "mapping.toml"
    told = mapping.read_text()
    assert f"ledgermq import --from {kind} examples/histories/{name}" in told
    out = tmp_path / name
    arguments = ["--from", kind, str(source), "--mapping", str(mapping), "--out", str(out)]
    assert run(["import", *arguments]) == 0
    assert "chaos check" in capsys.readouterr().out
    assert run(["chaos", "check", str(out)]) == code
    said = capsys.readouterr().out
    assert ("Verdict: INVALID" in said) == (name == "kafka")
    if name == "kafka":
        found = check_history(load_history(out))
        bad = {check for check, r in found.results.items() if r.verdict == "invalid"}
        assert bad == {"A1", "A15"}


def test_clock_of_the_consumer_is_why_the_rocketmq_example_declares_a_tolerance(tmp_path):
    source = EXAMPLES / "rocketmq"
    told = (source / "mapping.toml").read_text().replace("clock_tolerance_ms = 10", "")
    import_history(source, "jsonl", parse_mapping(told, "m"), tmp_path / "run", skip_bad=False,
                   progress=lambda _line: None)  # fmt: skip
    found = check_history(load_history(tmp_path / "run"))
    assert (found.verdict, found.results["A45"].verdict) == ("unknown", "unknown")


@pytest.mark.parametrize(("arguments", "said"), [
    (["nowhere"], "nowhere: no such file or directory"),
    (["."], "--mapping FILE"),
    (["--mapping", "no.toml", "."], "no.toml"),
])  # fmt: skip
def test_command_says_what_is_wrong_and_ends_with_two(
    arguments, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MAPPING)
    more = ["--mapping", "m.toml"] if arguments == ["nowhere"] else []
    assert run(["import", "--from", "csv", "--out", "run", *more, *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no.toml", "no.toml: No such file or directory"),
        (".", ".: Is a directory"),
        ("bad.toml", "bad.toml: not UTF-8: "),
    ],
)
def test_mapping_that_cannot_be_read_is_what_is_blamed(name, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "csv")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    assert run(["import", "--from", "csv", "sends.csv", "--mapping", name, "--out", "run"]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_place_that_cannot_be_written_is_what_is_blamed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "csv")
    (tmp_path / "m.toml").write_text(MAPPING)
    given = ["import", "--from", "csv", ".", "--mapping", "m.toml", "--out", "sends.csv/run"]
    assert run(given) == 2
    assert capsys.readouterr().err == "sends.csv/run.partial: Not a directory\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_leaves_nothing_behind(number, code, tmp_path, monkeypatch):
    class OtherError(Exception):
        """The handler that was there before, and not that of the command, was called."""

    def before(*_given):
        raise OtherError

    def interrupted(*given):
        assert (tmp_path / "run.partial").is_dir()
        signal.raise_signal(number)
        return rows_of(*given)

    write(tmp_path, "csv")
    (tmp_path / "m.toml").write_text(MAPPING)
    monkeypatch.setattr(importer, "rows_of", interrupted)
    given = ["import", "--from", "csv", str(tmp_path), "--mapping", str(tmp_path / "m.toml")]
    kept = signal.signal(signal.SIGTERM, before)
    try:
        assert run([*given, "--out", str(tmp_path / "run")]) == code
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.toml", "reads.csv", "sends.csv"]


def test_help_names_the_page_of_imports(capsys):
    assert run(["import", "--help"]) == 0
    said = capsys.readouterr().out
    assert "docs/import.md" in said
    assert "docs/checking.md" not in said


NESTED = """
words = ["msg_key"]
drained = true
[[table]]
name = "sends"
only = { "meta.event" = "send", "error.code" = ["", 0] }
[table.columns]
msg_key = "key"
topic = "topic"
t_inv = "at"
t_cmp = "end"
outcome = "said"
queue_id = "meta.queue"
queue_offset = "offset"
[[table]]
name = "deliveries"
only = { "meta.event" = "read" }
[table.columns]
msg_key = "key"
topic = "topic"
t_recv = "at"
grp = "group"
queue_id = "meta.queue"
queue_offset = "offset"
"""


def test_rows_are_chosen_by_what_lies_in_objects(tmp_path):
    """They were all left out without a word: no column was called so."""
    place = {"key": "a", "topic": "t", "offset": 0}
    rows = [
        place | {"meta": {"event": "send", "queue": 0}, "at": 1, "end": 2, "said": "ok",
                 "error": None},
        place | {"meta": {"event": "read", "queue": 0}, "at": 3, "group": "g"},
        place | {"meta": {"event": "send", "queue": 0}, "at": 4, "end": 5, "said": "ok",
                 "error": {"code": 9}},
    ]  # fmt: skip
    file = tmp_path / "h.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = import_history(file, "jsonl", parse_mapping(NESTED, "m"), tmp_path / "run",
                          skip_bad=False, progress=lambda _line: None)  # fmt: skip
    assert (made.rows["sends"], made.rows["deliveries"]) == (1, 1)
    assert check_history(load_history(tmp_path / "run")).verdict == "valid"


def test_keys_of_parquet_may_be_bytes(tmp_path):
    raw = [row | {"key": row["key"].encode()} for row in READS]
    for name, rows in (("sends", SENDS), ("reads", raw)):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    import_history(tmp_path, "parquet", parse_mapping(MAPPING, "m"), tmp_path / "run",
                   skip_bad=False, progress=lambda _line: None)  # fmt: skip
    assert check_history(load_history(tmp_path / "run")).verdict == "valid"


@pytest.mark.parametrize("out", [".", "..", "/"])
def test_place_beside_which_nothing_can_be_made_is_refused(out, tmp_path, monkeypatch, capsys):
    for name, rows in (("sends", SENDS), ("reads", READS)):
        (tmp_path / f"{name}.csv").write_text(csv_of(rows))
    (tmp_path / "mapping.toml").write_text(MAPPING)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    command = ["import", "--from", "csv", "..", "--mapping", "../mapping.toml", "--out", out]
    assert run(command) == 2
    assert f"{out} is there already" in capsys.readouterr().err


def test_run_below_its_source_is_not_read_itself(tmp_path, monkeypatch):
    """Its pieces are Parquet, too; those of one table were read for the next."""
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 1)
    rows = [row | {"what": "send"} for row in SENDS] + [row | {"what": "read"} for row in READS]
    names = sorted({name for row in rows for name in row})
    table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    pq.write_table(table, tmp_path / "all.parquet")
    chosen = MAPPING.replace('files = "sends*"', 'only = { what = "send" }')
    chosen = chosen.replace('files = "reads*"', 'only = { what = "read" }')
    made = import_history(tmp_path, "parquet", parse_mapping(chosen, "m"), tmp_path / "run",
                          skip_bad=False, progress=lambda _line: None)  # fmt: skip
    assert (made.rows["sends"], made.rows["deliveries"]) == (4, 3)


def test_name_that_no_object_has_is_told(tmp_path):
    """Of CSV it is refused; an object may leave out what is unknown, and a typing error is so."""
    (tmp_path / "h.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SENDS))
    (tmp_path / "reads.jsonl").write_text("".join(json.dumps(row) + "\n" for row in READS))
    mapping = MAPPING.replace('files = "sends*"', 'files = "h*"').replace('"done"', '"doen"')
    said = []
    import_history(tmp_path, "jsonl", parse_mapping(mapping, "m"), tmp_path / "run",
                   skip_bad=False, progress=said.append)  # fmt: skip
    assert said[1] == f"{tmp_path / 'h.jsonl'}: no row has doen, which the mapping names"
    assert len(said) == 3
