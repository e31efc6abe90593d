"""Histories over which the two checkers differed, or both erred: what each check says of them.

Both are asked (`test_differed` here, `tests/unit/chaos/test_differed`), each history by itself.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.spark.generate import MS, HistoryBuilder, Message
from tests.spark.kinds import Spoil
from tests.spark.withheld import log_of

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


def decoded(run: HistoryBuilder, messages: list[Message]) -> list[dict[str, Any]]:
    """Somebody decoded the logs; return the rows, of which all are committed."""
    log_of(run, messages)
    rows = run.tables["replica_log"]
    for row in rows:
        row.update(committed=True, dump_id="later", term=1, entry_crc=row["index"])
    return rows


def dumped_twice(run: HistoryBuilder, messages: list[Message]) -> None:
    """What n1 had committed at one time is something else in its next dump."""
    rows = decoded(run, messages)
    row = next(row for row in rows if row["node"] == "n1" and row["index"] == 5)
    rows.append(row | {"dump_id": "first", "term": 7, "entry_crc": 999, "msg_key": None})
    rows.append(rows.pop(rows.index(row)))


def spoiled_beside_dumps(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nobody needs to decode logs that were copied, so nobody reads how they were decoded."""
    decoded(run, messages)[-1].update(type="Message")
    run.with_replicas = True


def differ_at_an_index(run: HistoryBuilder, messages: list[Message]) -> None:
    decoded(run, messages)[-1].update(entry_crc=999)


def cut_what_was_committed(run: HistoryBuilder, messages: list[Message]) -> None:
    run.event("n1", "truncate", 1, index=1)


def ended_nameless(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run["exits"] = [{"process": "n1", "exit": 1}, {"process": None, "exit": 3}]


def out_of_files_elsewhere(run: HistoryBuilder, messages: list[Message]) -> None:
    """A fault of a node without a name is none of this one."""
    run.fault("descriptors", [""], messages[2].t, messages[6].t)
    run.add("node_log", node="n0", role="broker", kind="resource", t=messages[3].t, count=1,
            line="Too many open files", level="ERROR")  # fmt: skip


def fell_behind_an_overlap(run: HistoryBuilder, messages: list[Message]) -> None:
    """A term was told, and a lower one by who was asked amid it; the third came after both."""
    t = run.clock
    for begin, end, term in ((0, 10, 5), (5, 20, 3), (25, 30, 3), (35, 40, 3)):
        run.add("raft_probe", node="n0", t0=t + begin * MS, t1=t + end * MS, ok=True,
                role="follower", term=term, group=0, commit=0)  # fmt: skip


def rows_left_out(run: HistoryBuilder, messages: list[Message]) -> None:
    """Whoever made the history left rows out of ``sends``: that of a message may be one of them."""
    row = messages[5].send
    run.tables["sends"].remove(row)
    run.run["left_out"] = ["sends"]


def group_without_a_name(run: HistoryBuilder, messages: list[Message]) -> None:
    """Each meta.json says in another way that the group of its log has no name."""
    run.raft_groups.update(n0=None, n1="", n2=0)  # type: ignore[arg-type]


DIFFERED: dict[str, tuple[Said, Spoil]] = {
    "an auditor and a dead letter": ({"A1": ("valid", 0)}, letter_beside),
    "an auditor and a retry": ({"A1": ("valid", 0)}, retry_beside),
    "lost to an auditor, and a dead letter": (
        {"A1": ("invalid", 1)}, partial(letter_beside, lost=3),
    ),
    "lost to an auditor, and a retry": ({"A1": ("invalid", 1)}, partial(retry_beside, lost=3)),
    "no batch succeeds": ({"A45": ("unknown", 0)}, batches_refused),
    "a retry without a name": ({"A5": ("invalid", 1), "A6": ("valid", 0)}, nameless_retry),
    "two dumps of a node": ({"A35": ("invalid", 1), "A34": ("valid", 0)}, dumped_twice),
    "a decoded log beside dumps": (
        {"A34": ("valid", 0), "A35": ("valid", 0), "A48": ("valid", 0)}, spoiled_beside_dumps,
    ),
    "two contents of an entry": (
        {"A35": ("invalid", 1), "A34": ("invalid", 1)}, differ_at_an_index,
    ),
    "a commit cut off": ({"A35": ("invalid", 1)}, cut_what_was_committed),
    "an end without a name": ({"A51": ("invalid", 2)}, ended_nameless),
    "a fall behind an overlap": ({"A32": ("invalid", 1)}, fell_behind_an_overlap),
    "no files where nobody is": ({"A62": ("invalid", 1)}, out_of_files_elsewhere),
    "rows of a table left out": (
        {"A5": ("unknown", 0), "A1": ("unknown", 0), "A51": ("valid", 0)}, rows_left_out,
    ),
    "logs of a group without a name": (
        {"A35": ("valid", 0), "A34": ("valid", 0)}, group_without_a_name,
    ),
}  # fmt: skip
"""What each says, and how the history comes about. Complaints are not counted in process."""
