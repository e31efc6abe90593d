"""The table of the paper's rules in docs/concepts.md and the tests named for them agree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEADING = "## The Raft paper, sentence by sentence"
TEST = re.compile(r"`(test_\w+)`")
FILE = re.compile(r"`(tests/[\w./]+)`")
DEFINITION = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


def table():
    page = (ROOT / "docs/concepts.md").read_text()
    return page.split(HEADING)[1].split("\n## ")[0]


def rules():
    return [
        line
        for line in table().splitlines()
        if re.match(r"\| (?!(---|section|property|\| rule))", line)
    ]


def defined(pattern):
    return {
        name
        for path in (ROOT / "tests").rglob(pattern)
        for name in DEFINITION.findall(path.read_text())
    }


def test_every_rule_has_a_test_that_exists():
    known = defined("test_*.py")
    assert len(rules()) > 60
    for rule in rules():
        names = TEST.findall(rule)
        assert names or FILE.findall(rule), rule
        assert set(names) <= known, (rule, set(names) - known)


def test_every_test_of_the_paper_stands_for_a_rule():
    here = {
        "test_every_rule_has_a_test_that_exists",
        "test_every_test_of_the_paper_stands_for_a_rule",
    }
    assert defined("test_raft_paper*.py") - here - set(TEST.findall(table())) == set()
