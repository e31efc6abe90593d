"""Which lines of a log matter, in the words of our own logs."""

import logging

import pytest

from chaos.history.log_lines import KIND_ROWS_MAX, LINE_CHARACTERS_MAX, LogRows
from ledgermq.runtime.log_format import KeyValueFormatter
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

STAMP = "2026-11-30T01:34:11.375Z"
TRACE = [
    "Traceback (most recent call last):",
    '  File "/x/broker/processor/pull.py", line 7, in pull',
    "    offset = table[key]",
    "             ~~~~~^^^^^",
    "KeyError: 'orders'",
]


def rows_of(*lines, role="broker", moment=lambda stamp: 7):
    found = LogRows("n0", role, moment)
    for line in lines:
        found.take(line)
    return list(found.end())


def line(level, text, stamp=STAMP):
    return f"{stamp} {level} node=n0 some.module {text}"


def brief(rows):
    return [(r["kind"], r.get("event"), r.get("exception"), r["count"]) for r in rows]


@pytest.mark.parametrize(
    ("level", "text", "kind"),
    [
        ("ERROR", "event=bug node=n0", "error"),
        ("ERROR", "event=leader_of_term_is_another term=4", "error"),
        ("CRITICAL", "event=fatal exit_code=2 the port is taken", "error"),
        ("CRITICAL", "event=fatal exit_code=3 the log cannot sync: [Errno 5] Input/output error",
         "resource"),
        ("ERROR", "event=disk_full node=n0 index=1721", "resource"),
        ("ERROR", "event=slow_write node=n0 took_ms=4566", "slow"),
        ("ERROR", "event=disk_hung node=n0 waiting_ms=900 limit_ms=800", "slow"),
        ("ERROR", "event=delayed_messages_removed level=18 from=0 to=1", "removed"),
        ("ERROR", "event=corruption index=4 file=data/0 offset=8 size=90", "corrupt"),
        ("ERROR", "event=record_quarantined position=8 kind=3 reason='no JSON'", "corrupt"),
        ("WARNING", "event=corruption_not_replaced index=4 reason=other_entry", "corrupt"),
        ("CRITICAL", "event=fatal exit_code=3 error='invariant broken: (3, 4)'", "assertion"),
    ],
)  # fmt: skip
def test_lines_are_sorted_by_level_and_what_they_say(level, text, kind):
    (row,) = rows_of(line(level, text))
    assert (row["kind"], row["level"], row["line"]) == (
        kind, level, f"node=n0 some.module {text}",
    )  # fmt: skip
    assert (row["node"], row["role"], row["t"], row["t_last"]) == ("n0", "broker", 7, 7)


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("INFO", "event=role_changed reason='ERROR of a peer'"),
        ("WARNING", "event=register_refused addr=x reason=crc"),
        ("WARNING", "event=index_file_damaged reason=torn"),
        ("DEBUG", "event=corruption index=4"),
    ],
)
def test_what_is_no_error_does_not_matter(level, text):
    assert rows_of(line(level, text)) == []


def test_a_traceback_is_one_row_with_its_exception_and_its_place():
    (row,) = rows_of(line("ERROR", "event=uncaught what='x'"), *TRACE, line("INFO", "event=on"))
    assert (row["kind"], row["event"], row["exception"]) == ("traceback", "uncaught", "KeyError")
    assert row["line"].startswith("node=n0 some.module event=uncaught what='x' | ")
    assert row["line"].endswith("offset = table[key] | ~~~~~^^^^^ | KeyError: 'orders'")


def test_of_a_chain_the_last_exception_counts():
    chain = [*TRACE, "", "The above exception was the direct cause of the following exception:",
             "", TRACE[0], '  File "y.py", line 1, in f',
             "dledger.errors.NotLeader: n2"]  # fmt: skip
    (row,) = rows_of(line("WARNING", "event=odd"), *chain)
    assert (row["kind"], row["exception"]) == ("traceback", "dledger.errors.NotLeader")
    assert row["line"].endswith('File "y.py", line 1, in f | dledger.errors.NotLeader: n2')


def test_a_group_of_exceptions_is_a_traceback():
    group = ["  + Exception Group Traceback (most recent call last):",
             '  |   File "x.py", line 1, in f', "  |     raise group",
             "  | ExceptionGroup: two (2 sub-exceptions)",
             "  +-+---------------- 1 ----------------",
             "    | Traceback (most recent call last):", '    |   File "y.py", line 3, in g',
             "    |     raise", "    | ValueError: 3",
             "    +------------------------------------"]  # fmt: skip
    assert brief(rows_of(line("ERROR", "event=bug"), *group)) == [
        ("traceback", "bug", "ValueError", 1)
    ]


def test_an_assertion_is_told_apart():
    lines = [line("CRITICAL", "event=invariant_broken"), *TRACE[:4], "AssertionError: (3, 4)"]
    assert brief(rows_of(*lines)) == [("assertion", "invariant_broken", "AssertionError", 1)]


def test_a_process_that_ends_by_an_exception_has_no_line_of_its_own():
    assert brief(rows_of(*TRACE)) == [("traceback", None, "KeyError", 1)]
    assert brief(rows_of(line("INFO", "event=opened"), *TRACE)) == [
        ("traceback", None, "KeyError", 1)
    ]


def test_an_error_before_what_python_writes_counts_by_itself():
    rows = rows_of(line("ERROR", "event=bug"), "a word", *TRACE)
    assert brief(rows) == [("traceback", None, "KeyError", 1), ("error", "bug", None, 1)]


def test_a_torn_traceback_counts():
    (row,) = rows_of(line("ERROR", "event=bug"), *TRACE[:2], line("INFO", "event=opened"))
    assert (row["kind"], row["exception"]) == ("traceback", None)


def test_a_torn_line_hides_nothing_of_the_next_process():
    torn = line("INFO", "event=half")[:40] + line("ERROR", "event=bug")
    assert brief(rows_of(torn)) == [("error", "bug", None, 1)]
    with planted(HARNESS_BUGS["torn-line-hides-the-next"]):
        assert rows_of(torn) == []
    torn = line("ERROR", "event=bug")[:-1] + line("INFO", "event=opened")
    assert brief(rows_of(torn)) == [("error", "bu", None, 1)]


def test_clients_tell_of_what_was_logged_or_ended_a_thread():
    assert rows_of(*TRACE, role="client") == []
    assert rows_of(line("WARNING", "event=listener_failed"), *TRACE, role="client") == []
    lines = [line("ERROR", "event=client_raised op=send"), *TRACE]
    assert brief(rows_of(*lines, role="client")) == [("traceback", "client_raised", "KeyError", 1)]
    lines = ["Exception in thread Thread-1 (work):", *TRACE]
    (row,) = rows_of(*lines, role="client")
    assert row["line"].startswith("Exception in thread Thread-1 (work): | ")


def test_a_panic_needs_no_level():
    lines = [line("INFO", "event=opened"), "Fatal Python error: Segmentation fault", "", "Thread 0"]
    (row,) = rows_of(*lines)
    assert (row["kind"], row["line"]) == ("panic", "Fatal Python error: Segmentation fault")


def test_lines_that_differ_in_time_and_numbers_are_one():
    times = {"a": 5, "b": 9, "c": 7}
    lines = [
        line("ERROR", f"event=disk_full node=n0 index={at}").replace(STAMP, f"{STAMP[:-4]}00{at}Z")
        for at in (1, 2, 3)
    ]
    moments = iter(times.values())
    (row,) = rows_of(*lines, moment=lambda stamp: next(moments))
    assert (row["count"], row["t"], row["t_last"]) == (3, 5, 9)
    assert row["line"].endswith("index=1")


def test_what_a_disk_refuses_long_afterwards_is_a_row_of_its_own():
    seconds = {f"2026-11-30T01:34:{n:02}.000Z": n for n in (1, 10, 40, 45)}
    found = rows_of(
        *(line("ERROR", "event=disk_full node=n0 index=1", stamp) for stamp in seconds),
        moment=lambda stamp: seconds[stamp] * 1_000_000_000,
    )
    times = [(row["t"] // 10**9, row["t_last"] // 10**9, row["count"]) for row in found]
    assert sorted(times) == [(1, 10, 2), (40, 45, 2)]


def test_text_of_somebody_else_is_no_line_of_its_own():
    text = f"event=bad_request reason=\"brokerName 'x {STAMP} ERROR y event=uncaught' is no name\""
    assert rows_of(line("WARNING", text)) == []
    torn = line("INFO", "event=started reason='half a li") + line("ERROR", "event=bug said='x'")
    assert brief(rows_of(torn)) == [("error", "bug", None, 1)]


def test_lines_that_were_held_back_count():
    (row,) = rows_of(line("ERROR", "event=bug"), line("ERROR", "event=bug held_back=30"))
    assert row["count"] == 32
    again = line("ERROR", "event=bug held_back=30")
    (row,) = rows_of(line("ERROR", "event=bug"), *TRACE, again, *TRACE)
    assert row["count"] == 32


def test_rows_are_bounded_by_kind_and_what_is_more_is_counted():
    found = LogRows("n0", "broker", lambda stamp: None)
    for at in range(KIND_ROWS_MAX + 5):
        found.take(line("ERROR", f"event=corruption file={chr(at + 9_000)} {'x' * 3_000}"))
    found.take(line("ERROR", "event=bug"))
    rows = list(found.end())
    assert len(rows) == KIND_ROWS_MAX + 1
    assert found.dropped == 5
    assert rows[-1]["kind"] == "error"
    assert max(len(row["line"]) for row in rows) == LINE_CHARACTERS_MAX
    assert rows[0]["t"] is None


def test_what_our_processes_write_is_understood():
    try:
        int("no\nnumber")
    except ValueError as error:
        told = (type(error), error, error.__traceback__)
    record = logging.LogRecord("broker.x", logging.ERROR, "x.py", 1, "event=bug", (), told)
    text = KeyValueFormatter("n0").format(record)
    assert brief(rows_of(*text.splitlines())) == [("traceback", "bug", "ValueError", 1)]
