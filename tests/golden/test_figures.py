"""The golden stories of Figures 7 and 8 draw the paper's pictures: digit by digit, these.

One digit is one entry, its term. In Figure 8 our leaders open each term with an entry of their own;
it is the entry that the paper's client sends in (a), (b), (c) and (e), and the 5 behind (d).
"""

import pytest

from tests.golden.datadriven import parse_file
from tests.golden.test_raft import TESTDATA

FIGURE_7 = {
    "n0": "1 1 1 4 4 5 5 6 6 6",
    "n1": "1 1 1 4 4 5 5 6 6",  # (a)
    "n2": "1 1 1 4",  # (b)
    "n3": "1 1 1 4 4 5 5 6 6 6 6",  # (c)
    "n4": "1 1 1 4 4 5 5 6 6 6 7 7",  # (d)
    "n5": "1 1 1 4 4 4 4",  # (e)
    "n6": "1 1 1 2 2 2 3 3 3 3 3",  # (f)
}
FIGURE_8 = {
    "a": ("1 2", "1 2", "1", "1", "1"),
    "b": ("1 2", "1 2", "1", "1", "1 3"),
    "c": ("1 2 4", "1 2", "1 2", "1", "1 3"),
    "d": ("1 3 5", "1 3 5", "1 3 5", "1 3 5", "1 3 5"),
    "e": ("1 2 4", "1 2 4", "1 2 4", "1", "1 3"),
}


def blocks(name):
    return parse_file((TESTDATA / name).read_text())


def terms(line):
    """The entries of one line of `log`: behind the node and its commit index."""
    return line.split(None, 2)[2]


def pictures(name):
    """What each `log` of a story shows."""
    return [
        tuple(terms(line) for line in block.expected.splitlines())
        for block in blocks(name)
        if block.line == "log"
    ]


def test_figure_7_begins_with_the_papers_logs():
    drawn = {
        block.line.split()[1]: terms(block.expected)
        for block in blocks("figure_7.txt")
        if block.line.startswith("set-log")
    }
    assert drawn == FIGURE_7


def test_figure_7_ends_with_the_leaders_log_everywhere():
    assert pictures("figure_7.txt")[-1] == (FIGURE_7["n0"] + " 8",) * 7


@pytest.mark.parametrize("part", "abcd")
def test_figure_8_passes_through_each_of_the_papers_pictures(part):
    expected = [FIGURE_8[name] for name in "abcd" if name <= part]
    drawn = iter(pictures("figure_8.txt"))
    assert all(picture in drawn for picture in expected)


def test_figure_8_commits_nothing_of_term_2_by_counting():
    commits = [
        line.split()[1]
        for block in blocks("figure_8.txt")
        if block.line == "log"
        for line in block.expected.splitlines()
        if terms(line).startswith("1 2")
    ]
    assert set(commits) <= {"commit=-1", "down"}


def test_figure_8_e_commits_the_2_with_the_4():
    story = blocks("figure_8_e.txt")
    first = next(block for block in story if block.line == "log")
    assert tuple(terms(line) for line in first.expected.splitlines()) == FIGURE_8["e"]
    assert first.expected.startswith("n0 commit=2 ")
    assert any(block.line == "campaign n4" for block in story), "(e): n4 cannot win any more"
