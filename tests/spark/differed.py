"""Histories over which the two checkers differed, or both erred: what each check says of them.

Both are asked (`test_differed` here, `tests/unit/chaos/test_differed`), each history by itself.
"""

from collections.abc import Mapping
from functools import partial

from tests.spark.generate import HistoryBuilder, Message
from tests.spark.kinds import Spoil

Said = Mapping[str, tuple[str, int]]
"""By check its verdict, and how many anomalies it finds."""


def audited_alone(
    run: HistoryBuilder, messages: list[Message], *, lost: int | None = None, **copy: object
) -> None:
    """Only an auditor read the topic; another group got a copy from a queue of its own."""
    for row in run.tables["deliveries"]:
        row.update(auditor=True, grp="auditor")
    if lost is not None:
        run.tables["deliveries"].remove(messages[lost].delivery)
    run.tables["acks"] = []
    run.deliver(messages[5], grp="others", queue_id=0, queue_offset=0, **copy)
    for queue_id in range(run.queues):
        end = run._offsets["orders", queue_id]
        run.add("drain", grp="auditor", topic="orders", queue_id=queue_id, min_off=0, end_off=end,
                read_to=end, empty_polls=2, drained=True)  # fmt: skip


letter_beside = partial(audited_alone, is_dlq=True, topic="%DLQ%others")
retry_beside = partial(audited_alone, is_retry=True, reconsume=1, topic="%RETRY%others")


def batches_refused(run: HistoryBuilder, messages: list[Message]) -> None:
    """Of twelve sends of a kind none succeeds, though others of that phase do."""
    for _ in range(12):
        run.send(outcome="fail", kind="batch", tries=["fail"], err_code=2)


def nameless_retry(run: HistoryBuilder, messages: list[Message]) -> None:
    """What comes from a retry queue, to which nobody sent, is nothing that can be read."""
    run.deliver(messages[5], topic="%RETRY%billing", is_retry=True, reconsume=1, queue_offset=0,
                msg_key=None, body_hash=None, payload_run_id=None)  # fmt: skip


DIFFERED: dict[str, tuple[Said, Spoil]] = {
    "an auditor and a dead letter": ({"A1": ("valid", 0)}, letter_beside),
    "an auditor and a retry": ({"A1": ("valid", 0)}, retry_beside),
    "lost to an auditor, and a dead letter": (
        {"A1": ("invalid", 1)}, partial(letter_beside, lost=3),
    ),
    "lost to an auditor, and a retry": ({"A1": ("invalid", 1)}, partial(retry_beside, lost=3)),
    "no batch succeeds": ({"A45": ("unknown", 0)}, batches_refused),
    "a retry without a name": ({"A5": ("invalid", 1), "A6": ("valid", 0)}, nameless_retry),
}  # fmt: skip
"""What each says, and how the history comes about. Complaints are not counted in process."""
