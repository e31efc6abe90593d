"""No text from outside gives orders to a terminal, or passes for a line of something else."""

import json
from types import SimpleNamespace

import pytest

from cli.admin import print_table
from cli.consume import Printer, Wanted
from cli.main import run
from cli.query import _print_lines, _print_whole
from cli.say import say
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.printable import json_line, one_line, shown, visible
from mutants.patches import BY_TESTS
from mutants.planting import planted

ORDERS = "\x1b\x07\x08\r\x7f\x9b\u202e\u2066\u2028"
FORGED = f"paid{ORDERS}\nb/0 8 refunded"


def message(body: str = FORGED, properties: str = f"KEYS\x01k\nbody  none{ORDERS}\x02"):
    return MessageExt(
        topic="t", queue_id=0, queue_offset=7, physical_offset=0, size=100, flag=0, sys_flag=0,
        body=body.encode(), body_crc=0, born_timestamp=1, born_host=b"\x7f\0\0\1\0\0\0\1",
        store_timestamp=2, store_host=b"\x7f\0\0\1\0\0\0\1", reconsume_times=0,
        prepared_offset=0, properties=properties.encode(),
    )  # fmt: skip


def orders_in(text: str) -> str:
    return "".join(c for c in text if c in ORDERS)


def consumed(as_json: bool) -> str:
    wanted = Wanted(
        topic="t", expression="*", sql="", group="g", count=0, seconds=0, as_json=as_json
    )
    context = SimpleNamespace(queue=SimpleNamespace(broker_name="b", queue_id=0))
    return Printer(wanted)._line(message(), context)


def test_a_message_that_is_consumed_is_one_line_without_orders():
    for as_json in (False, True):
        line = consumed(as_json)
        assert "\n" not in line
        assert not orders_in(line)
    assert consumed(False).startswith("b/0 7 paid\\x1b\\x07")


def test_the_lines_of_a_message_that_is_asked_for_are_its_own(capsys):
    _print_whole([message()])
    lines = capsys.readouterr().out.splitlines()
    assert not orders_in("".join(lines))
    assert [line.split()[0] for line in lines if line][-1] == "body"
    assert sum(line.startswith("body ") for line in lines) == 1


def test_json_says_the_same_and_shows_nothing_that_a_terminal_obeys(capsys):
    _print_lines([message()])
    line = capsys.readouterr().out
    assert not orders_in(line)
    assert json.loads(line)["properties"]["KEYS"] == f"k\nbody  none{ORDERS}"
    assert json.loads(json_line({"\u202e\ud800": "\x9b \u00e9"})) == {"\u202e\ud800": "\x9b \u00e9"}
    assert "\u00e9" in json_line("\u00e9")


def test_cells_of_a_table_and_other_lines(capsys):
    print_table([{"topic": FORGED, "queue": "\ud800"}], ("topic", "queue"))
    say(f"answered with {ORDERS}\tno\n", err=True)
    out, err = capsys.readouterr()
    assert not orders_in(out + err)
    assert len(out.splitlines()) == 2
    assert err.endswith("\tno\n\n")


def test_ordinary_text_stays():
    text = "Grüße, 你好, \U0001f468\u200d\U0001f4bb, a\u200cb\u00a0c"
    assert visible(text) == one_line(text) == text
    assert shown("a\u00e9") == "a\u00e9"


@pytest.mark.parametrize(
    "bug", [BY_TESTS["orders-for-a-terminal"], BY_TESTS["consumed-lines-forged"]]
)
def test_the_rules_are_needed(bug):
    with planted(bug), pytest.raises(AssertionError):
        test_a_message_that_is_consumed_is_one_line_without_orders()


def test_what_cannot_be_done_is_told_without_orders(capsys):
    assert run(["admin", "topicList", "-n", ORDERS]) == 2
    assert not orders_in(capsys.readouterr().err.replace("\r", ""))
