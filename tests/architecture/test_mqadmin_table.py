"""The table of mqadmin's commands in docs/operations.md against what is declared to be served.

What each command prints is looked at by `tests/interop/test_mqadmin_all.py`, which needs Java; this
keeps the table from telling of requests that came or went.
"""

from __future__ import annotations

import pytest

from tests.mqadmin_table import ROWS, Row
from tests.served import broker_requests, controller_requests, namesrv_requests

SERVED = {
    int(code)
    for make in (lambda: broker_requests(in_group=True), namesrv_requests, controller_requests)
    for declared in make().declarations
    for code in declared.codes
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.commands[0])
def test_commands_ask_for_what_is_served_or_are_refused(row: Row) -> None:
    if row.works or row.refused not in {None, 3}:
        assert row.codes
        assert set(row.codes) <= SERVED
    else:
        assert not set(row.codes) & SERVED


def test_each_command_has_one_row() -> None:
    names = [name for row in ROWS for name in row.commands]
    assert len(names) == len(set(names))
    assert {row.since for row in ROWS} == {"", "4", "5"}
