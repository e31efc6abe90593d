"""What a run holds gives no orders to the terminal on which its verdict is shown."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from chaos.catalogue.console import PlainConsole
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

FORGED = "id\x1b[1A\x9b2K\r\u202eDILAV"


def printed(*what, **settings) -> str:
    screen = io.StringIO()
    console = PlainConsole(file=screen, width=200, **settings)
    for one in what:
        console.print(one, soft_wrap=True)
    return screen.getvalue()


def table() -> Table:
    made = Table(title=FORGED)
    made.add_column(Text(FORGED))
    made.add_row(Text(FORGED, style="bold red"))
    return made


def test_no_order_of_a_text_reaches_the_terminal():
    text = printed(FORGED, Text(FORGED), table())
    assert not set("\x1b\x9b\r\u202e") & set(text)
    assert "id\\x1b[1A\\x9b2K\\x202eDILAV" in text


def test_colours_of_ours_do():
    text = printed(Text("valid", style="green"), force_terminal=True, color_system="standard")
    assert text == "\x1b[32mvalid\x1b[0m\n"


def test_the_rule_is_needed():
    with planted(HARNESS_BUGS["verdict-written-over"]), pytest.raises(AssertionError):
        test_no_order_of_a_text_reaches_the_terminal()
