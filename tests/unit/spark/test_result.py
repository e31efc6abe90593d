"""The verdict over all checks, the contract, and what is said of errors."""

import pytest

from spark.context import Fault
from spark.contract import Promise, evaluate_contract
from spark.job import describe_error
from spark.result import INVALID, UNKNOWN, CheckResult, Contract, decide

KEPT = Contract(stated={}, exceeded=False, reasons=())
BROKEN = Contract(stated={}, exceeded=True, reasons=("power was lost on n0, n1",))


def found(check, count=1, verdict=None):
    result = CheckResult(check=check, count=count)
    result.validator()
    if verdict:
        result.verdict = verdict
    return result


GROUP = Promise(nodes=frozenset({"n0", "n1", "n2"}), copies=2)


def power_loss(*targets, kind="proc.powerloss", effective=True, only_there=None):
    return Fault(
        fault_id="f", kind=kind, targets=targets, start=0, end=9, effective=effective, status="",
        only_there=only_there,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("results", "contract", "problems", "expected"),
    [
        ([found("A1", 0), found("A5", 0)], KEPT, [], ("valid", 0)),
        ([found("A1")], KEPT, [], ("invalid", 1)),
        ([found("A8")], KEPT, [], ("valid", 0)),
        ([found("A8"), found("A9")], KEPT, [], ("invalid", 1)),
        ([found("A1", 0, UNKNOWN)], KEPT, [], ("unknown", 2)),
        ([found("A1", 0, UNKNOWN), found("A5")], KEPT, [], ("invalid", 1)),
        ([found("A1", 0)], KEPT, ["sends is broken"], ("unknown", 2)),
        ([found("A1")], BROKEN, [], ("valid", 3)),
        ([found("A1", 0)], BROKEN, [], ("valid", 0)),
        ([found("A1"), found("A6")], BROKEN, [], ("invalid", 1)),
        ([found("A1"), found("A5", 0, UNKNOWN)], BROKEN, [], ("unknown", 2)),
    ],
)
def test_the_worst_check_decides(results, contract, problems, expected):
    verdict = decide(results, contract, problems)
    assert (verdict.verdict, verdict.exit_code) == expected
    assert bool(verdict.reasons) == (expected != ("valid", 0))


def test_more_copies_than_attempts_exceed_the_contract():
    result = found("A8", 5)
    result.details["bound_exceeded"] = "too many"
    assert decide([result], KEPT, []).exit_code == 3


def test_an_idempotent_contract_makes_duplicates_invalid():
    result = found("A8", 1, INVALID)
    assert decide([result], KEPT, []).exit_code == 1


@pytest.mark.parametrize(
    ("flush", "faults", "exceeded"),
    [
        ("ASYNC_FLUSH", [power_loss("n0", "n1")], True),
        ("ASYNC_FLUSH", [power_loss("n0"), power_loss("n1")], True),
        ("ASYNC_FLUSH", [power_loss("n0")], False),
        ("ASYNC_FLUSH", [power_loss("n0", "n1", effective=False)], False),
        ("ASYNC_FLUSH", [power_loss("n0", "n1", kind="kill")], False),
        ("SYNC_FLUSH", [power_loss("n0", "n1")], False),
        ("SYNC_FLUSH", [power_loss("n0", "n1", kind="disk.wipe")], True),
    ],
)
def test_only_witnessed_loss_of_a_majority_exceeds_the_contract(flush, faults, exceeded):
    contract = evaluate_contract({"contract": {"flush": flush}}, faults, [GROUP])
    assert contract.exceeded is exceeded
    assert bool(contract.reasons) is exceeded


def test_no_promise_is_exceeded_by_definition():
    assert evaluate_contract({"contract": {"durability": "none"}}, [], [GROUP]).exceeded


def test_a_majority_is_one_of_a_group():
    other = Promise(nodes=frozenset({"m0", "m1", "m2"}), copies=2)
    over_both = [power_loss("n0", "m0")]
    assert not evaluate_contract({}, over_both, [GROUP, other]).exceeded
    of_one = [power_loss("m0", "m2")]
    assert evaluate_contract({}, of_one, [GROUP, other]).exceeded


@pytest.mark.parametrize(
    ("alone", "lost", "code"), [((5,), 5, 3), ((5,), 6, 1), ((0,), 1, 1), ((2, 3), 5, 3)]
)
def test_a_master_may_lose_what_it_alone_had(alone, lost, code):
    pair = Promise(nodes=frozenset({"n0", "n1"}), copies=1)
    faults = [power_loss("n0", kind="wipe", only_there=number) for number in alone]
    contract = evaluate_contract({"contract": {"durability": "master"}}, faults, [pair])
    result = found("A1", lost + 2)  # two groups
    result.details["most_of_a_group"] = lost
    assert decide([result], contract, []).exit_code == code


def test_an_error_is_one_line_even_if_it_came_from_a_worker():
    worker = RuntimeError(
        "An exception was thrown\nTraceback:\n  File x\nspark.history.BrokenHistoryError: seg: bad"
    )
    assert describe_error(worker) == "BrokenHistoryError: seg: bad"
    assert describe_error(ValueError("no good\nmore")) == "ValueError: no good"
    assert describe_error(KeyError()) == "KeyError: "


def test_error_of_the_jvm_is_told_by_its_first_cause():
    trace = (
        "An error occurred while calling o7.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: x\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)\n"
        "Caused by: org.apache.parquet.io.ParquetDecodingException: could not verify page\n"
        "\tat org.apache.parquet.hadoop.Reader.read(Reader.java:1)\n"
        "\t... 22 more\n"
    )
    assert describe_error(RuntimeError(trace)) == "ParquetDecodingException: could not verify page"
