"""Files of others that lie: each is refused with a line that says why, and none ends in a trace."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.exchange import tables
from chaos.exchange.importer import BadRowsError, import_history
from chaos.exchange.jepsen_import import import_jepsen
from chaos.exchange.mapping import HistoryMapping, MappingError, parse_mapping
from chaos.exchange.sources import SourceError
from chaos.exchange.tables import RunWriter
from chaos.history.tables import TABLES
from cli import exchange
from cli.main import run
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

MAPPING = """
drained = true
[[table]]
name = "sends"
files = "s*"
[table.columns]
msg_key = "k"
topic = "topic.name"
queue_id = { value = 0 }
queue_offset = "o"
outcome = { value = "ok" }
t_inv = "t"
[[table]]
name = "deliveries"
files = "d*"
[table.columns]
msg_key = "k"
grp = { value = "g" }
topic = { value = "T" }
queue_id = { value = 0 }
queue_offset = "o"
t_recv = "t"
"""
READ = '{"k": 1, "t": 2, "o": 0}'
SENT = '{"k": 1, "t": 2, "o": %s, "topic": {"name": %s}}'
WHOLE = [
    "{:process 0 :type :invoke :f :send :time 1 :value [[:send 0 7]]}",
    "{:process 0 :type :ok :f :send :time 2 :value [[:send 0 [0 7]]]}",
    "{:process 1 :type :invoke :f :poll :time 3}",
    "{:process 1 :type :ok :f :poll :time 4 :value [[:poll {0 [[0 7]]}]]}",
    '{:process :n :type :info :f :queues :value {"g" {"jepsen/0" [0 1 true]}}}',
]


def imported(path, kind, mapping=MAPPING):
    told = parse_mapping(mapping, "m.toml")
    out = path / "run"
    return import_history(path, kind, told, out, skip_bad=False, progress=lambda _line: None)


def of_jepsen(path, *lines):
    (path / "history.edn").write_text("\n".join(lines))
    told = HistoryMapping(tables=())
    return import_jepsen(path, told, path / "run", skip_bad=False, progress=lambda _line: None)


@pytest.mark.parametrize(
    ("offset", "topic", "said"),
    [
        (str((1 << 63) - 1), '"T"', "o is 9223372036854775807; it is less than"),
        ("0", '"\\ud800"', "is not UTF-8"),
        ("1e999999999", '"T"', "write a number"),
        ("NaN", '"T"', "write a number"),
        ("9" * 5_000, '"T"', "not JSON"),
    ],
)
def test_odd_cells_are_named(tmp_path, offset, topic, said):
    (tmp_path / "s.jsonl").write_text(SENT % (offset, topic))
    (tmp_path / "d.jsonl").write_text(READ)
    with pytest.raises(BadRowsError, match=said):
        imported(tmp_path, "jsonl")


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path / "s.parquet")
    pq.write_table(pa.table({"k": [1], "t": [1], "o": [0]}), path / "d.parquet")


NAMED = pa.array([{"name": "T"}])


@pytest.mark.parametrize(
    "odd",
    [
        {"t": pa.array([1 << 62], type=pa.duration("s"))},
        {"t": pa.array([2**31 - 1], type=pa.int32()).cast(pa.date32())},
        {"topic": pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
        )},
    ],
)  # fmt: skip
def test_cells_of_parquet_that_no_python_has_refuse_the_file(tmp_path, odd):
    parquet(tmp_path, **({"k": [1], "t": [1], "o": [0], "topic": NAMED} | odd))
    with pytest.raises(SourceError, match="cannot be read as parquet"):
        imported(tmp_path, "parquet")


def test_a_column_of_parquet_that_is_there_twice_refuses_the_file(tmp_path):
    parquet(tmp_path)
    both = pa.table([pa.array([1]), pa.array([2])], names=["k", "k"])
    pq.write_table(both, tmp_path / "s.parquet")
    with pytest.raises(SourceError, match="a column is there twice"):
        imported(tmp_path, "parquet")


def test_what_is_no_file_is_passed_over(tmp_path):
    """Nobody may ever write into a pipe that is among them."""
    (tmp_path / "s.jsonl").write_text(SENT % (0, '"T"'))
    (tmp_path / "d.jsonl").write_text(READ)
    os.mkfifo(tmp_path / "s2.jsonl")
    (tmp_path / "d2.jsonl").mkdir()
    assert imported(tmp_path, "jsonl").rows["sends"] == 1


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('time = ["ns"]', "time is in"),
        ("run = { contract = { since = 2020-01-01 } }", "cannot be written to run.json"),
        ("x = " + "[" * 3_000 + "]" * 3_000, "not TOML"),
        ("x = " + "9" * 5_000, "not TOML"),
    ],
)
def test_odd_mappings_are_refused(told, said):
    with pytest.raises(MappingError, match=said):
        parse_mapping(told + MAPPING, "m.toml")


def test_planted_trust_in_settings_of_a_run_is_found():
    with planted(HARNESS_BUGS["run-settings-of-any-type"]):
        parse_mapping("run = { contract = { since = 2020-01-01 } }" + MAPPING, "m.toml")


def test_a_mapping_has_an_end(tmp_path, capsys):
    mapping = tmp_path / "m.toml"
    with mapping.open("wb") as file:
        file.truncate(1 << 40)
    words = ["import", str(tmp_path), "--from", "csv", "--mapping", str(mapping)]
    assert run([*words, "--out", str(tmp_path / "run")]) == exchange.EXIT_INPUT
    assert "no mapping" in capsys.readouterr().err


def test_the_whole_history_is_taken(tmp_path):
    assert of_jepsen(tmp_path, *WHOLE).rows == {"sends": 1, "deliveries": 1, "drain": 1}


ODD = [
    (1, "[0 7]]]", "[99999999999999999999 7]]]", "queue_offset cannot be"),
    (1, "]]}", "]] :attempts :x}", "attempts cannot be"),
    (1, "]]}", "]] :attempts 2147483648}", "attempts cannot be"),
    (1, "]]}", "]] :tag [1]}", "tag cannot be"),
    (1, ":type :ok", ":type [1]", ":type is"),
    (0, "[[:send 0 7]]", "[[[1] 0 7]]", "is neither"),
    (3, "[[0 7]]", "[[-99999999999999999999 7]]", "queue_offset cannot be"),
    (3, "]]}", "]] :generation 1.5}", "generation cannot be"),
    (4, ":value", ':subscriptions {"g" {"t" #{1}}} :value', "subscriptions is"),
    (4, ":value", ":subscriptions {1 {[1] 2}} :value", "subscriptions is"),
]


@pytest.mark.parametrize(("line", "sound", "odd", "said"), ODD)
def test_odd_operations_are_named(tmp_path, line, sound, odd, said):
    lines = list(WHOLE)
    lines[line] = lines[line].replace(sound, odd)
    assert lines[line] != WHOLE[line]
    with pytest.raises(BadRowsError, match=said):
        of_jepsen(tmp_path, *lines)


def test_planted_trust_in_values_of_jepsen_is_found(tmp_path):
    sound = WHOLE[1].replace("[0 7]]]", "[99999999999999999999 7]]]")
    with planted(HARNESS_BUGS["jepsen-values-unseen"]), pytest.raises(OverflowError):
        of_jepsen(tmp_path, WHOLE[0], sound)


def test_half_a_character_is_no_edn(tmp_path):
    with pytest.raises(SourceError, match="half a character"):
        of_jepsen(tmp_path, WHOLE[0], WHOLE[1].replace(":value", ':tag "\\ud800" :value'))
    pair = WHOLE[1].replace(":value", ':tag "\\ud83d\\ude00" :value')
    assert of_jepsen(tmp_path, WHOLE[0], pair).rows["sends"] == 1


SOME = {"string": "n" * 150, "long": 1, "int": 1, "boolean": True, "double": 1.0}


def largest_piece(path, monkeypatch):
    monkeypatch.setattr(tables, "CHARS_AT_ONCE", 1_000)
    pieces = []
    flush = tables.TableWriter._flush

    def noted(writer):
        pieces.append(len(writer._rows))
        flush(writer)

    monkeypatch.setattr(tables.TableWriter, "_flush", noted)
    event = {column.name: SOME[column.type] for column in TABLES["events"] if not column.nullable}
    with RunWriter(path / "run", "r") as writer:
        for number in range(50):
            writer.add("events", event | {"idx": number})
        writer.finish({})
    return max(pieces)


def test_rows_with_long_texts_wait_for_few_others(tmp_path, monkeypatch):
    assert largest_piece(tmp_path, monkeypatch) <= 4
    (tmp_path / "again").mkdir()
    with planted(HARNESS_BUGS["pieces-by-rows-alone"]):
        assert largest_piece(tmp_path / "again", monkeypatch) == 50
