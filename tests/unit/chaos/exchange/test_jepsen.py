"""Jepsen's histories are judged as Jepsen judges them; ours go out and come in with one verdict."""

import os
import signal
from pathlib import Path

import pytest

from chaos.checker import check_history
from chaos.exchange import export, sources
from chaos.exchange.edn import read_forms, write_form
from chaos.exchange.export import export_history
from chaos.exchange.importer import BadRowsError
from chaos.exchange.jepsen import message_key
from chaos.exchange.jepsen_import import import_jepsen
from chaos.exchange.mapping import HistoryMapping, parse_mapping
from chaos.exchange.sources import SourceError
from chaos.load import load_history
from cli.main import run
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.clocks import all_within, declared
from tests.spark.generate import MS
from tests.spark.kinds import every_kind
from tests.spark.minimal import VIOLATIONS, write_minimal


def history_of(lines):
    """Return EDN of (process, type, f, value) lines, a millisecond apart."""
    ops = (
        f"{{:index {n}, :process {process}, :type :{kind}, :f :{f}, :value {value}, "
        f":time {n * 1_000_000}}}\n"
        for n, (process, kind, f, value) in enumerate(lines)
    )
    return "".join(ops)


def judged(path, text, mapping=None, **options):
    (path / "history.edn").write_text(text)
    told = HistoryMapping(tables=()) if mapping is None else mapping
    said = []
    options = {"skip_bad": False, "progress": said.append} | options
    made = import_jepsen(path, told, path / "run", **options)
    return check_history(load_history(path / "run")), made, said


def both(process, f, asked, told=None, kind="ok"):
    return [(process, "invoke", f, asked), (process, kind, f, asked if told is None else told)]


def told(found):
    quiet = {"valid", "not checked"}
    return {n: r.verdict for n, r in found.results.items() if r.verdict not in quiet or r.count}


QUEUE = [
    *both(0, "enqueue", 1), *both(0, "enqueue", 2), *both(1, "dequeue", "nil", 1),
    *both(2, "enqueue", 3, kind="info"), *both(0, "enqueue", 4, kind="fail"),
    *both(1, "dequeue", "nil", "nil", kind="fail"),
    *both(0, "drain", "nil", "[2 3]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "verdict", "checks"),
    [
        ([], "valid", {}),
        (both(0, "enqueue", 9), "unknown", {"A1": "unknown"}),
        (both(0, "enqueue", 9) + both(1, "drain", "nil", "[]"), "invalid", {"A1": "invalid"}),
        (both(0, "drain", "nil", "[77]"), "invalid", {"A5": "invalid"}),
        (both(1, "dequeue", "nil", 4), "invalid", {"A7": "invalid"}),
        (both(1, "dequeue", "nil", 2), "valid", {}),
        ([(5, "invoke", "enqueue", 9)], "valid", {}),
        ([(":nemesis", "info", "start", ":n1")], "valid", {}),
    ],
)  # fmt: skip
def test_queue_workload(more, verdict, checks, tmp_path):
    found, _, _ = judged(tmp_path, history_of([*QUEUE, *more]))
    assert (found.verdict, told(found)) == (verdict, checks), found.reasons
    assert found.counts["unknown"] == 1 + (more[:1] == [(5, "invoke", "enqueue", 9)])


def send(process, k, v, offset, kind="ok"):
    back = f"[[:send {k} [{offset} {v}]]]" if kind == "ok" else f"[[:send {k} {v}]]"
    return both(process, "send", f"[[:send {k} {v}]]", back, kind)


def poll(process, found):
    return both(process, "poll", "[[:poll]]", f"[[:poll {found}]]")


KAFKA = [
    *both(0, "assign", "[0 1]"), *both(9, "assign", "[0 1]"),
    *send(1, 0, 1, 0), *send(1, 1, 1, 0), *send(2, 0, 2, 1), *send(2, 0, 3, 0, "info"),
    *both(1, "txn", "[[:poll] [:send 0 4]]", "[[:poll {}] [:send 0 [3 4]]]"),
    *send(2, 1, 7, 0, "fail"),
    *poll(0, "{0 [[0 1] [1 2]], 1 [[0 1]]}"), *poll(0, "{0 [[2 3] [3 4]]}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "verdict", "checks"),
    [
        ([], "valid", {}),
        (send(1, 0, 5, 4), "unknown", {"A1": "unknown"}),
        (send(1, 0, 5, 4) + send(3, 0, 6, 5) + poll(0, "{0 [[5 6]]}"), "invalid",
         {"A1": "invalid"}),
        (send(1, 0, 5, 4) + send(1, 0, 6, 5) + poll(0, "{0 [[4 6]]}"), "invalid",
         {"A1": "unknown", "A15": "invalid"}),
        (poll(0, "{1 [[1 7]]}"), "invalid", {"A7": "invalid"}),
        (poll(0, "{1 [[1 99]]}"), "invalid", {"A5": "invalid"}),
        (send(1, 0, 5, 4) + send(1, 0, 6, 2) + poll(0, "{0 [[4 5]]}"), "invalid",
         {"A1": "invalid", "A11": "invalid", "A15": "invalid"}),
        (send(1, 0, 5, 4) + send(1, 0, 6, 5) + poll(0, "{0 [[5 6]]}") + poll(0, "{0 [[4 5]]}"),
         "invalid", {"A13": "invalid"}),
        (send(1, 0, 5, 4) + send(1, 0, 6, 5) + poll(0, "{0 [[5 6]]}")
         + both(0, "assign", "[1]") + both(0, "assign", "[0]") + poll(0, "{0 [[4 5]]}"),
         "valid", {}),
        (poll(0, "{0 [[5 1]]}"), "valid", {"A8": "valid"}),
        ([*both(4, "debug-topic-partitions", "[0]")], "valid", {}),
    ],
)  # fmt: skip
def test_kafka_workload(more, verdict, checks, tmp_path):
    found, _, said = judged(tmp_path, history_of([*KAFKA, *more]))
    assert (found.verdict, told(found)) == (verdict, checks), found.reasons
    assert any("debug-topic" in line for line in said) == ("debug-topic" in str(more))


def test_keys_may_be_vectors(tmp_path):
    """What was sent to one, and what was polled of it, were of two queues."""
    key = '["t" [0]]'
    ops = both(0, "assign", f"[{key}]") + send(1, key, 1, 0) + poll(0, f"{{{key} [[0 1]]}}")
    found, made, _ = judged(tmp_path, history_of(ops))
    assert (found.verdict, found.counts["delivered"]) == ("valid", 1), found.reasons
    assert made.rows["drain"] == 1


def test_word_that_all_was_read_makes_a_missing_end_a_loss(tmp_path):
    text = history_of([*KAFKA, *send(1, 0, 5, 4)])
    mapping = parse_mapping("drained = true", "m", has_tables=False)
    found, _, _ = judged(tmp_path, text, mapping)
    assert (found.verdict, found.counts["lost"]) == ("invalid", 1)


def test_history_in_a_vector_of_tagged_maps_is_the_same(tmp_path):
    text = history_of(KAFKA).replace("{:index", "#jepsen.history.Op{:index")
    found, made, _ = judged(tmp_path, f"[{text}]")
    assert (found.verdict, made.rows["sends"]) == ("valid", 6)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("5", "no operation: it needs :type, :f and :process"),
        ("{:type :done :f :send :process 0}", ":type is done"),
        ("{:type :ok :f :send :process 8 :time 5}", "process 8 ends a send that it did not begin"),
        ("{:type :invoke :f :send :process 8}", ":time is None"),
        ("{:type :invoke :f :send :process 8 :time -1}", ":time is -1"),
    ],
)
def test_what_is_no_operation_is_named_by_its_line(line, said, tmp_path):
    text = history_of(QUEUE) + line + "\n"
    with pytest.raises(BadRowsError) as caught:
        judged(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'history.edn'}:{len(QUEUE) + 1}: ")
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()
    found, _, _ = judged(tmp_path, text, skip_bad=True)
    assert found.verdict == "unknown"


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        (both(3, "send", "[[:sned 0 1]]"), "is neither"),
        (both(3, "send", "7"), "write [[:send k v]]"),
        (both(3, "send", "[[:send 0]]"), "is not of the form [:send k v]"),
        (send(3, 0, 1, -4), "-4 is not an offset"),
        (both(3, "poll", "[[:poll]]", "[[:poll 5]]"), "is not a map"),
        (both(3, "poll", "[[:poll]]", "[[:poll {0 5}]]"), "is not a list of"),
        (both(3, "poll", "[[:poll]]", "[[:poll {0 [[1]]}]]"), "is not of the form [offset value]"),
        (both(3, "enqueue", "nil"), ":value is nil"),
        (both(3, "drain", "nil", "7"), "write what it took"),
        ([(3, "invoke", "send", "nil"), (3, "invoke", "send", "nil")], "has an operation already"),
    ],
)
def test_what_a_workload_does_not_say_is_named(ops, said, tmp_path):
    with pytest.raises(BadRowsError, match=r"history\.edn:") as caught:
        judged(tmp_path, history_of(ops))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (":value 5", ":value of queues is 5"),
        (":value nil", ":value of queues is None"),
        (":value {0 5}", "the queues of 0 are 5"),
        (":value {0 {0 5}}", "0 was read as 5"),
        (":value {0 {0 [1 2]}}", "0 was read as [1, 2]"),
        (":value {0 {0 [1 2 3]}}", "0 was read as [1, 2, 3]"),
        (":value {0 {0 [-1 2 true]}}", "0 was read as [-1, 2, True]"),
        (":value {} :clock-tolerance-ns :much", ":clock-tolerance-ns is 'much'"),
        (":value {} :clock-tolerance-ns -1", ":clock-tolerance-ns is -1"),
        (":value {} :subscriptions 7", ":subscriptions is 7"),
        (":value {} :contract {:flush #{1}}", ":contract is {'flush': frozenset({1})}"),
        (":value {} :modes {:g {[1] 2}}", ":modes is {'g': {(1,): 2}}"),
        (":value {} :problems 7", ":problems is 7"),
        (":value {} :problems [7]", ":problems is [7]"),
    ],
)
def test_end_of_a_wrong_shape_is_named_and_ends_the_import_with_two(
    members, said, tmp_path, capsys
):
    line = "{:type :info :f :queues :process :nemesis :time 9 " + members + "}"
    history = tmp_path / "history.edn"
    history.write_text(history_of(QUEUE) + line + "\n")
    out = tmp_path / "run"
    command = ["import", "--from", "jepsen-edn", str(history), "--out", str(out)]
    assert run(command) == 2
    told = capsys.readouterr().err
    assert f"history.edn:{len(QUEUE) + 1}: " in told
    assert said in told
    assert not out.exists()


@pytest.mark.parametrize(("text", "said"), [("{:a", "no EDN: line 1"), ("\xff", "not UTF-8")])
def test_what_is_no_edn_is_refused(text, said, tmp_path):
    (tmp_path / "history.edn").write_bytes(text.encode("latin-1"))
    with pytest.raises(SourceError, match=said):
        import_jepsen(tmp_path, HistoryMapping(tables=()), tmp_path / "run", skip_bad=True,
                      progress=lambda _line: None)  # fmt: skip


def test_keys_stay_to_be_seen_and_no_two_are_one():
    values = [0, 1, -1, "1", 1 << 62, [1], 1.0, True]
    numbers = {message_key(value, key) for value in values for key in (0, 1, "a")}
    assert len(numbers) == 3 * len(values)
    assert len({message_key(value) for value in values}) == len(values)
    assert message_key(7, 3) == 3 << 40 | 7
    assert message_key(7) == 7
    assert all(0 <= number < 1 << 63 for number in numbers)


def round_trip(path, spoil):
    ours = write_minimal(spoil, path / "ours")
    history = load_history(ours)
    (path / "theirs").mkdir()
    export_history(history, "jepsen-edn", path / "theirs" / "history.edn")
    found, _, _ = judged(path / "theirs", (path / "theirs" / "history.edn").read_text())
    return check_history(history), found


def tagged(run, messages):
    """One message is of the tag that a second group subscribed to, and comes to it."""
    run.run["subscriptions"] = {"tagged": {"orders": ["red"]}}
    for message in messages:
        message.send["tag"] = "red" if message is messages[3] else "blue"
    run.deliver(messages[3], grp="tagged", consumer="c9")


@pytest.mark.parametrize(
    "spoil", [None, tagged, declared(all_within)], ids=["sound", "tags", "several clocks"]
)
def test_sound_run_goes_out_and_comes_in_valid(spoil, tmp_path):
    ours, theirs = round_trip(tmp_path, spoil)
    assert (ours.verdict, theirs.verdict, theirs.reasons) == ("valid", "valid", ())
    names = (
        "sent",
        "delivered",
        *(() if spoil not in {None, tagged} else ("acknowledged", "unknown", "failed")),
    )
    for name in names:  # a half message is neither stored nor refused
        assert ours.counts[name] == theirs.counts[name]


def named_and_silent(run, messages):
    run.run["modes"] = {"quiet": "concurrent"}


def with_a_problem(run, messages):
    run.run["problems"] = ["the proxy of n1 ended"]


def never_drained(run, messages):
    VIOLATIONS["lost"][2](run, messages)
    run.drained = False
    run.tables["acks"].clear()  # nor does anybody say that the group went past it


@pytest.mark.parametrize("spoil", [named_and_silent, with_a_problem, never_drained])
def test_what_leaves_nothing_proved_goes_out_and_comes_in(spoil, tmp_path):
    """The record of a run that was interrupted, or was damaged, came in VALID."""
    ours, theirs = round_trip(tmp_path, spoil)
    assert (ours.verdict, theirs.verdict) == ("unknown", "unknown")
    assert told(theirs) == told(ours)


def test_export_that_forgets_what_was_wrong_would_be_seen(tmp_path):
    with planted(HARNESS_BUGS["export-forgets-problems"]):
        ours, theirs = round_trip(tmp_path, with_a_problem)
    assert (ours.verdict, theirs.verdict) == ("unknown", "valid")


def overtaken_by_more_than_clocks(run, messages):
    run.run["clock_tolerance_ns"] = MS
    one, other = messages[4].send, messages[6].send
    one.update(t_inv=other["t_cmp"] + 3 * MS, t_cmp=other["t_cmp"] + 5 * MS)


def test_room_for_clocks_is_made_once(tmp_path):
    """An export had its times moved already, and the import moved them again: it was VALID."""
    ours, theirs = round_trip(tmp_path, overtaken_by_more_than_clocks)
    assert told(ours) == told(theirs) == {"A11": "invalid"}


SAID = (
    "lost", "phantom", "aborted", "overtaken", "two at one place", "poll back", "passed over",
    "two holes", "beyond the end", "call turned", "committed past", "committed beyond",
    "durably committed",
)  # fmt: skip
"""What clients saw and stated goes out and comes in; logs, votes, refusals and bodies do not."""


@pytest.mark.parametrize("name", SAID)
def test_violation_goes_out_and_comes_in(name, tmp_path):
    check, verdict, spoil = VIOLATIONS[name]
    ours, theirs = round_trip(tmp_path, spoil)
    assert (ours.verdict, theirs.verdict) == ("invalid", "invalid")
    assert told(theirs) == {check: verdict}, theirs.reasons
    assert ours.results[check].count == theirs.results[check].count


def test_faults_go_out_with_their_witnesses_and_come_in(tmp_path):
    ours, theirs = round_trip(tmp_path, VIOLATIONS["no effect"][2])
    assert told(ours) == told(theirs) == {"A47": "unknown"}
    (tmp_path / "seen").mkdir()
    ours, theirs = round_trip(tmp_path / "seen", cut_for_a_while)
    assert theirs.results["A47"].summary == ours.results["A47"].summary == "1 cut"
    assert theirs.results["A60"].details == ours.results["A60"].details


def cut_for_a_while(run, messages):
    run.fault("cut", ["n0", "n1"], messages[2].t, messages[6].t)
    run.run["coverage"] = {"cut": 1}


@pytest.mark.parametrize(
    "value",
    ["{:fault_id 7}", '{:fault_id "f", :kind "cut", :effective 1}',
     '{:fault_id "f", :kind "cut", :effective true, :targets "n0"}'],
)  # fmt: skip
def test_a_fault_that_is_none_is_named_by_its_line(value, tmp_path):
    ops = [*QUEUE, (":nemesis", "info", "fault", value)]
    with pytest.raises(BadRowsError, match=rf"history.edn:{len(ops)}: "):
        judged(tmp_path, history_of(ops))


@pytest.mark.parametrize("name", ["failed, said the client", "delayed and lost"])
def test_what_clients_do_not_say_stays_behind(name, tmp_path):
    ours, theirs = round_trip(tmp_path, VIOLATIONS[name][2])
    assert (ours.verdict, theirs.verdict) == ("invalid", "valid")


def test_export_is_what_jepsen_demands(tmp_path):
    """Indexes are dense, times do not fall, a process has one operation at a time."""
    history = load_history(write_minimal(every_kind, tmp_path))
    made = export_history(history, "jepsen-edn", tmp_path / "h.edn")
    ops = [op for _, op in read_forms((tmp_path / "h.edn").read_text().splitlines())]
    assert [op["index"] for op in ops] == list(range(made.operations))
    clients = [op for op in ops if op["process"] != "nemesis"]
    assert [op["time"] for op in clients] == sorted(op["time"] for op in clients)
    busy = set()
    for op in clients:
        assert (op["process"] in busy) == (op["type"] != "invoke"), op
        (busy.add if op["type"] == "invoke" else busy.discard)(op["process"])
    assert {op["f"] for op in clients} == {"send", "poll"}
    assert made.left_out > 0  # retries and dead letters


def test_elle_gets_appends_and_one_read_of_each_queue(tmp_path):
    history = load_history(write_minimal(None, tmp_path))
    export_history(history, "elle", tmp_path / "e.edn")
    ops = [op for _, op in read_forms((tmp_path / "e.edn").read_text().splitlines())]
    done = [op["value"] for op in ops if op["type"] == "ok"]
    appends = [value[0] for value in done if value[0][0] == "append"]
    reads = {value[0][1]: value[0][2] for value in done if value[0][0] == "r"}
    assert len(appends) == len(history.ok_sends)
    for key, values in reads.items():
        assert values == [value for _, k, value in appends if k == key]
    assert len(reads) == 2


def test_commands_bring_a_run_out_and_in(tmp_path, capsys):
    ours = write_minimal(VIOLATIONS["lost"][2], tmp_path)
    assert run(["export", str(ours), "--format", "jepsen-edn"]) == 0
    assert f"wrote {ours / 'history.edn'}" in capsys.readouterr().out
    assert run(["import", "--from", "jepsen-edn", str(ours), "--out", str(tmp_path / "in")]) == 0
    assert run(["chaos", "check", str(tmp_path / "in")]) == 1
    assert "Verdict: INVALID" in capsys.readouterr().out
    assert run(["export", str(tmp_path), "--format", "elle"]) == 2
    assert "no sends that can be read" in capsys.readouterr().err
    assert run(["export", str(tmp_path / "none"), "--format", "elle"]) == 2


@pytest.mark.parametrize("text", ['"', "{:a ", ";", "a"])
def test_line_without_end_is_not_read_to_its_end(text, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LINE_CHARS_MAX", 1_000)
    with pytest.raises(SourceError, match=r"history\.edn:2: the line is longer than 1000"):
        judged(tmp_path, "{:a 1}\n" + text + " " * 1_000)
    assert [path.name for path in tmp_path.iterdir()] == ["history.edn"]


@pytest.mark.parametrize(
    "text",
    ["", "; nothing\n", "[]", history_of([(":nemesis", "info", "start", ":n1")]),
     history_of(both(0, "assign", "[0]")), history_of(both(0, "dequeue", "nil", kind="fail"))],
)  # fmt: skip
def test_history_in_which_nothing_is_sent_or_received_is_refused(text, tmp_path):
    with pytest.raises(SourceError, match=r"history\.edn: no operation found"):
        judged(tmp_path, text)
    assert [path.name for path in tmp_path.iterdir()] == ["history.edn"]


@pytest.mark.parametrize("ops", [
    both(3, "send", f'"{"x" * 5_000}"'),
    both(3, "poll", "[[:poll]]", f"[[:poll {{0 [[1 {'7 ' * 5_000}]]}}]]"),
    [(3, "ok", "f" * 5_000, "nil")],
    [(3, "t" * 5_000, "send", "nil")],
])  # fmt: skip
def test_long_value_is_cut_where_it_is_told(ops, tmp_path):
    with pytest.raises(BadRowsError, match=r"history\.edn:") as caught:
        judged(tmp_path, history_of(ops))
    assert "..." in str(caught.value)
    assert len(str(caught.value).partition("edn:")[2]) < 200


def test_long_names_of_other_operations_are_cut(tmp_path):
    names = [f"{chr(97 + n)}{'z' * 5_000}" for n in range(20)]
    more = [(":nemesis", "info", name, "nil") for name in names]
    _, _, said = judged(tmp_path, history_of([*QUEUE, *more]))
    (line,) = [line for line in said if "not looked at" in line]
    assert "1 azzz" in line
    assert len(line.partition("not looked at: ")[2]) <= 400


def exported(ours, *more):
    return run(["export", str(ours), "--format", "elle", *map(str, more)])


def files_below(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("none/h.edn", "none is not a directory: make it first"),
        ("file/h.edn", "file is not a directory: make it first"),
        ("there", "there is a directory: name a file in it"),
        (".", ". is a directory: name a file in it"),
        ("file", "file is there already: name another file, or write over it: --force"),
        ("dead", "dead is there already: name another file, or write over it: --force"),
        ("n" * 300, "n: File name too long"),
    ],
)
def test_place_where_no_export_can_be_is_said_in_a_line(out, said, tmp_path, capsys, monkeypatch):
    ours = write_minimal(None, tmp_path)
    (tmp_path / "at" / "there").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "at")
    Path("file").write_text("mine")
    Path("dead").symlink_to("nowhere")
    before = files_below(tmp_path)
    assert exported(ours, "--out", out) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(said)
    assert files_below(tmp_path) == before
    assert Path("file").read_text() == "mine"


def test_export_writes_over_a_file_only_if_told(tmp_path, capsys):
    ours = write_minimal(None, tmp_path)
    assert exported(ours) == 0
    whole = (ours / "elle.edn").read_text()
    (ours / "elle.edn").write_text("mine")
    assert exported(ours) == 2
    assert "elle.edn is there already" in capsys.readouterr().err
    assert (ours / "elle.edn").read_text() == "mine"
    assert exported(ours, "--force") == 0
    assert (ours / "elle.edn").read_text() == whole


def test_export_puts_no_file_in_the_place_of_a_device_or_pipe(tmp_path, capsys):
    ours = write_minimal(None, tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert exported(ours, "--out", pipe, "--force") == 2
    assert "pipe is no file: name one" in capsys.readouterr().err
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        (lambda: signal.raise_signal(signal.SIGTERM), 143, ""),
        (lambda: signal.raise_signal(signal.SIGINT), 130, ""),
        (lambda: os.write(os.open("/dev/full", os.O_WRONLY), b"1"), 2, "No space left on device"),
    ],
    ids=["SIGTERM", "Ctrl-C", "full"],
)
def test_export_that_ends_early_leaves_nothing_behind(
    ends, code, said, tmp_path, capsys, monkeypatch
):
    ours = write_minimal(None, tmp_path)
    before = files_below(tmp_path)
    calls = 0

    def written(value):
        nonlocal calls
        calls += 1
        if calls == 5:
            assert (ours / "elle.edn.partial").exists()
            ends()
        return write_form(value)

    def other(*_given):
        raise AssertionError("the command has no handler of its own")

    monkeypatch.setattr(export, "write_form", written)
    kept = signal.signal(signal.SIGTERM, other)
    try:
        assert exported(ours) == code
        assert signal.getsignal(signal.SIGTERM) is other
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert said in capsys.readouterr().err
    assert files_below(tmp_path) == before
