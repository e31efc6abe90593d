"""A27 where a message came to its group several times: once accepted, another time refused."""

import pytest

from chaos.checker.compose import check_history
from chaos.load import load_history
from tests.spark.generate import MS, HistoryBuilder, Message
from tests.spark.minimal import GROUP, write_minimal
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS


def ended(run: HistoryBuilder, message: Message, *, refused: bool) -> None:
    """A listener has the message a further time, says yes or no, and it comes no more."""
    row = run.deliver(message, consumer="c1", generation=2)
    row["t_proc_end"] = row["t_recv"] + MS
    if refused:
        run.add("acks", op_id=run.op(), grp=GROUP, kind="nack", msg_key=message.key, consumer="c1",
                t_inv=row["t_proc_end"], outcome="info")  # fmt: skip


def accepted_and_refused(run: HistoryBuilder, messages: list[Message]) -> None:
    ended(run, messages[3], refused=False)
    ended(run, messages[3], refused=True)


def refused_twice(run: HistoryBuilder, messages: list[Message]) -> None:
    ended(run, messages[3], refused=True)
    ended(run, messages[3], refused=True)


def accepted_by_others(run: HistoryBuilder, messages: list[Message]) -> None:
    ended(run, messages[3], refused=True)
    row = run.deliver(messages[3], grp="shipping", consumer="s0", after=-9 * MS)
    row["t_proc_end"] = row["t_recv"] + MS


@pytest.mark.parametrize(
    ("spoil", "verdict", "count"),
    [
        (accepted_and_refused, "valid", 0),
        (refused_twice, "invalid", 1),
        (accepted_by_others, "invalid", 1),
    ],
)
def test_what_a_group_has_accepted_once_need_not_come_again(
    session, spoil, verdict, count, tmp_path
):
    run = write_minimal(spoil, tmp_path / "run")
    other = check_history(load_history(run)).results["A27"]
    report = report_of(session, run, tmp_path, only={"A27"})
    found = next(result for result in report.results if result.check == "A27")
    assert (found.verdict, found.count) == (other.verdict, other.count) == (verdict, count)
