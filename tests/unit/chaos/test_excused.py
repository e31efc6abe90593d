"""No fault excuses what it has nothing to do with; whoever lets it is found out.

The histories are among those of `test_minimal`, where each is found by its check alone.
"""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.architecture.tree import ROOT
from tests.spark.excused import EXCUSE_VIOLATIONS
from tests.spark.generate import MS
from tests.spark.kinds import failing, of
from tests.spark.minimal import write_minimal


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("again, without a fault", "witness-not-asked"),
        ("two votes, and no wipe", "witness-not-asked"),
        ("late, without a fault", "witness-not-asked"),
        ("again amid names that stand still", "whatever-unsettles-brokers"),
        ("again as a producer is killed", "whatever-unsettles-brokers"),
        ("again amid what nobody knows", "whatever-unsettles-brokers"),
        ("again amid a pause elsewhere", "whatever-unsettles-brokers"),
        ("asked amid names that stand still", "whatever-unsettles-brokers"),
        ("not asked since", "unrest-without-end"),
        ("two copies of a refusal", "copies-by-their-number"),
        ("received early and kept", "received-as-its-listener-begins"),
        ("two votes of one life", "wiped-once-forgotten-always"),
    ],
)
def test_planted_excuse_is_seen(name, bug, tmp_path):
    check, verdict, spoil = EXCUSE_VIOLATIONS[name]
    run = write_minimal(spoil, tmp_path)
    assert check_history(load_history(run)).results[check].verdict == verdict
    with planted(HARNESS_BUGS[bug]):
        assert check_history(load_history(run)).results[check].verdict == "valid"


def kept_by_its_consumer(kind):
    """No broker took it back: what was received once was tried again in time, as from elsewhere."""
    refused = kind.rows["nack 0"]["t_inv"]
    kind.rows["retry"].update(
        t_fetch_inv=kind.given[1]["t_fetch_inv"],
        t_recv=kind.given[1]["t_recv"],
        t_proc_begin=refused + 1_050 * MS,
        t_proc_end=refused + 1_051 * MS,
    )


def test_what_a_consumer_keeps_is_given_when_its_listener_begins(tmp_path):
    run = write_minimal(of(failing, kept_by_its_consumer), tmp_path)
    assert check_history(load_history(run)).results["A26"].verdict == "valid"


def test_checks_ask_for_faults_that_took_effect_in_one_place():
    """Of all faults only those speak that are about faults, and evidence."""
    checker = ROOT / "chaos" / "checker"
    asking = {file.name for file in checker.glob("*.py") if "istory.faults" in file.read_text()}
    assert asking == {"effects.py", "messages.py"}
    spark = [*(ROOT / "spark").glob("*.py"), *(ROOT / "spark" / "checks").glob("*.py")]
    asking = {file.name for file in spark if "noted_faults" in file.read_text()}
    assert asking == {"context.py", "evidence.py"}
