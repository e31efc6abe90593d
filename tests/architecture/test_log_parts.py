"""The log is asked through small parts, as ADR 16 lists them."""

import re
from pathlib import Path

import pytest

from store import ports

PAGE = Path(__file__).resolve().parents[2] / "docs/adr/0016-log-protocol.md"
ROWS = re.findall(r"^\| `(Log\w+)` \| (.+?) \|", PAGE.read_text(), re.MULTILINE)
LOG_MEMBERS_MAX = 12
PART_MEMBERS_MAX = 7


def members(part: type) -> set[str]:
    """The members of a protocol, with what it inherits."""
    return {name for one in part.__mro__ for name in vars(one) if re.match("[a-z]", name)}


@pytest.mark.parametrize(("name", "listed"), ROWS)
def test_a_part_of_the_log_has_the_members_that_the_page_lists(name: str, listed: str) -> None:
    found = members(getattr(ports, name))
    assert found == set(re.findall(r"`(\w+)`", listed))
    assert len(found) <= PART_MEMBERS_MAX


def test_the_page_lists_every_part_and_no_member_twice_but_the_size_of_a_header() -> None:
    parts = {name for name in vars(ports) if re.fullmatch("Log[A-Z][a-z]+", name)}
    assert parts - {"LogParts"} == {name for name, _ in ROWS}
    of_all = [member for name in parts - {"LogParts"} for member in members(getattr(ports, name))]
    assert {one for one in of_all if of_all.count(one) > 1} == {"header_bytes"}


def test_a_log_is_asked_for_a_dozen_things() -> None:
    assert len(members(ports.Log)) <= LOG_MEMBERS_MAX
    assert members(ports.Log) == members(ports.LogReader) | members(ports.LogWriter)
