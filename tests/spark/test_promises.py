"""A message lies on as many logs as its own group promises, however many groups there are."""

import json
from dataclasses import replace

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.generate import HistoryBuilder
from tests.spark.reports import SPARK_MARKS, alarms, explain, report_of

pytestmark = SPARK_MARKS
FIRST, SECOND = ("n0", "n1", "n2"), ("m0", "m1", "m2")


def two_groups(path, *, torn):
    """Six messages in each of two groups; ``torn``: the last one lies on one log of the second."""
    run = HistoryBuilder(nodes=(*FIRST, *SECOND))
    run.raft_groups = dict.fromkeys(FIRST, "g") | dict.fromkeys(SECOND, "h")
    for number in (1, 2):
        run.chapter(number).traffic(6)
    for nodes, topic in ((FIRST, "orders-1"), (SECOND, "orders-2")):
        for node in nodes:
            mine = [entry for entry in run.logs[node] if entry.topic == topic]
            run.logs[node] = [replace(entry, index=at) for at, entry in enumerate(mine)]
    for node in SECOND[1:] if torn else ():
        run.logs[node].pop()
    return run.write(path / "run")


@pytest.mark.parametrize("said", [None, 2, {"g": 2, "h": 2}], ids=["nothing", "number", "groups"])
def test_both_checkers_count_the_logs_of_a_group(session, tmp_path, said):
    directory = two_groups(tmp_path, torn=False)
    about = json.loads((directory / "run.json").read_text()) | {"quorum": said}
    (directory / "run.json").write_text(json.dumps(about))
    local = check_history(load_history(directory))
    assert (local.verdict, local.results["A48"].summary) == ("valid", "no gaps, no deaths")
    assert alarms(report_of(session, directory, tmp_path)) == {}


def test_both_checkers_find_what_lies_on_too_few_of_them(session, tmp_path):
    directory = two_groups(tmp_path, torn=True)
    found = check_history(load_history(directory)).results["A35"]
    report = report_of(session, directory, tmp_path)
    assert found.count == alarms(report)["A35"] == 1
    assert "lies on m0: on fewer than 2" in found.evidence[0]["explain"]
    assert "lies on m0: fewer than 2" in explain(report, "A35")
