"""The tables of docs/protocol.md are what brokers and name servers declare that they serve.

``GOLDEN_REWRITE=1`` writes them anew. The last column is written by hand and stays: what is
answered besides success, and what else a client should know.
"""

import os
from pathlib import Path

import msgspec
import pytest

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.transport.requests import Permission, Request
from tests.architecture.test_limits import MODULES, ROOT
from tests.architecture.test_limits import rows as limit_rows
from tests.served import broker_requests, controller_requests, namesrv_requests

PAGE = Path(ROOT) / "docs" / "protocol.md"
HEAD = "| code | request | fields | bounds | {by} | answers, and more |\n|%s\n" % ("---|" * 6)
TABLES = {
    "## What a broker serves": (lambda: broker_requests(in_group=True), "served by"),
    "## What a name server serves": (namesrv_requests, "asked for"),
    "## What a controller serves": (controller_requests, "asked for"),
}


def fields(request: Request) -> str:
    """Return the names of the fields that are read; optional ones in brackets."""
    found = [] if request.header is None else list(msgspec.structs.fields(request.header))
    names = [f"`{one.encode_name}`" if one.required else f"[`{one.encode_name}`]" for one in found]
    return " ".join([*names, *(f"[`{name}`]" for name in request.fields)])


def served_by(request: Request) -> str:
    """Return who answers, and whom."""
    who = request.served_by.value.removesuffix(", by the handler")
    group = ", of a group" if request.needs_group else ""
    return f"{who}{group}" + (f"; {request.permission}" if request.permission else "")


def cells(request: Request, by: str) -> list[str]:
    """Return all cells of a row but the last."""
    served = request.permission.value if by == "asked for" else served_by(request)
    return [
        ", ".join(str(int(code)) for code in request.codes),
        request.what,
        fields(request),
        "; ".join(limit.name for limit in request.limits),
        served,
    ]


def section(heading: str) -> tuple[str, str, str]:
    """Return the page before, in and after the first table below a heading."""
    before, _, rest = PAGE.read_text().partition(f"{heading}\n")
    text, bar, table = rest.partition("\n| ")
    table, end, after = (bar[1:] + table).partition("\n\n")
    return f"{before}{heading}\n{text}\n", table, end + after


def split(row: str) -> list[str]:
    return [cell.strip() for cell in row.removeprefix("|").removesuffix("|").split(" |")]


@pytest.mark.parametrize("heading", TABLES)
def test_the_table_shows_what_is_served_and_nothing_else(heading: str) -> None:
    make, by = TABLES[heading]
    requests = sorted(make().declarations, key=lambda request: int(request.codes[0]))
    before, table, after = section(heading)
    shown = [split(row) for row in table.splitlines()[2:]]
    notes = {code: row[-1] for row in shown for code in row[0].split(", ")}
    due = [[*cells(one, by), notes.get(str(int(one.codes[0])), "")] for one in requests]
    if os.environ.get("GOLDEN_REWRITE"):
        rows = "\n".join(f"| {' | '.join(row)} |" for row in due)
        PAGE.write_text(before + HEAD.format(by=by) + rows + after)
        shown = due
    lines = "\n".join(f"| {' | '.join(row)} |" for row in due if row not in shown)
    assert shown == due, f"rows of {heading} in docs/protocol.md that are due:\n{lines}"


def test_brokers_with_and_without_a_group_serve_the_same() -> None:
    """Who asks a broker of the other mode is told that there is no group, not that it errs."""
    with_group, alone = (broker_requests(in_group=in_group) for in_group in (True, False))
    assert set(with_group.hot) == set(alone.hot)
    assert set(with_group.commands) == set(alone.commands)
    rules = [
        {
            code: (one.permission, one.of_the_log, one.hot, one.needs_group)
            for one in requests.declarations
            for code in one.codes
        }
        for requests in (with_group, alone)
    ]
    assert rules[0] == rules[1]


def test_what_changes_a_group_is_guarded() -> None:
    declared = broker_requests(in_group=True).declarations
    guarded = {code for one in declared if one.permission for code in one.codes}
    assert guarded == {
        RequestCode.CHANGE_MEMBERSHIP, RequestCode.TRANSFER_LEADER, RequestCode.COMPACT,
        RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
    }  # fmt: skip
    assert {one.permission for one in declared} == {
        Permission.ANYBODY, Permission.ADMINISTRATION, Permission.SETTINGS,
        Permission.SETTINGS_BY_ITSELF,
    }  # fmt: skip


def test_bounds_of_requests_are_limits_of_the_handbook() -> None:
    shown = {row.split(" | ")[0].removeprefix("| ") for row in limit_rows()}
    declared = [
        *broker_requests(in_group=True).declarations, *namesrv_requests().declarations,
        *controller_requests().declarations,
    ]  # fmt: skip
    assert {limit.name for one in declared for limit in one.limits} <= shown, MODULES
