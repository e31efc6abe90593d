"""Every limit on what comes from outside stands in docs/security.md, with its value.

``GOLDEN_REWRITE=1`` writes the table anew.
"""

import importlib
import os
import re
from pathlib import Path

import pytest

from ledgermq.remoting.protocol.limits import Limit

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
MODULES = (
    "ledgermq.remoting.protocol.limits",
    "ledgermq.remoting.transport.limits",
    "ledgermq.client.limits",
    "dledger.limits",
    "store.limits",
    "broker.limits",
    "broker.serving_limits",
    "namesrv.limits",
    "namesrv.controller.limits",
)


def rows():
    """Return what the page must show, a row a limit."""
    found = [limit for name in MODULES for limit in importlib.import_module(name).LIMITS]
    return [
        f"| {one.name} | {int(one):,} | {one.unit} | {one.scope} | {one.beyond} |" for one in found
    ]


def test_the_page_shows_every_limit_and_no_other():
    table = PAGE.read_text().split("## Limits")[1].split("\n## ")[0]
    if os.environ.get("GOLDEN_REWRITE"):
        head = table[: table.index("|---|---|---|---|---|\n")] + "|---|---|---|---|---|\n"
        new = head + "\n".join(rows()) + "\n"
        PAGE.write_text(PAGE.read_text().replace(table, new))
        table = new
    shown = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert shown == rows(), "\n".join(rows())


@pytest.mark.parametrize("name", MODULES)
def test_every_limit_of_a_module_is_in_its_list(name):
    module = importlib.import_module(name)
    defined = {value.name for value in vars(module).values() if isinstance(value, Limit)}
    assert defined == {limit.name for limit in module.LIMITS}


def test_no_two_limits_have_one_name():
    names = [re.split(r" \| ", row)[0] for row in rows()]
    assert len(names) == len(set(names))
