"""What somebody's word seems to explain, and does not: each alone is found by its check, by both.

And what is sound though it looks odd, or cannot be told.
"""

from tests.spark.generate import MS, HistoryBuilder, Message
from tests.spark.kinds import Kind, Spoil, early, failing, kind_of, of, too_soon, waiting


def early_before_a_clock_moved(kind: Kind) -> None:
    """A wall clock was moved long after the message had come."""
    early(kind)
    kind.run.clock += 10_000 * MS
    kind.run.fault("clock_jump", ["n0"], kind.run.clock, kind.run.clock + MS)


def too_soon_by_the_clock_of_another(kind: Kind) -> None:
    """The clock that was moved is of no broker of this system."""
    too_soon(kind)
    begin = kind.rows["nack 0"]["t_inv"] - 100 * MS
    kind.run.fault("clock_jump", ["m7"], begin, kind.run.clock)


def never_asked_though_quiet_when_due(run: HistoryBuilder, messages: list[Message]) -> None:
    """A broker stood still for long, and was there again before the half was old enough."""
    kind = kind_of(run, "txn")
    run.run["check_back"] = {"after_ms": 2_000, "interval_ms": 200, "max": 2}
    left = kind.send(kind="txn", stored=False)
    left.send.update(queue_id=None, queue_offset=None)
    times = {"t_inv": run.clock, "t_cmp": run.clock + MS}
    run.add("txn", step="half", txn_id=left.key, msg_key=left.key, outcome="ok", **times)
    run.fault("pause", ["n0"], run.clock + 100 * MS, run.clock + 1_500 * MS)
    run.clock += 20_000 * MS
    kind.deliver(kind.send())


def early_by_a_clock_half_moved(kind: Kind) -> None:
    """The fault that was to move a wall clock failed amid it: nobody knows whether it did."""
    early(kind)
    begin = min(row["t_inv"] for row in kind.run.tables["sends"])
    kind.run.fault("clock_jump", ["n0"], begin, kind.run.clock, effective=False)
    kind.run.tables["faults"][-1].update(status="failed", t_on1=None)


def never_asked_by_who_still_stands(run: HistoryBuilder, messages: list[Message]) -> None:
    """A broker was to go on, and could not be made to: it stands still to the end."""
    never_asked_though_quiet_when_due(run, messages)
    run.tables["faults"][-1].update(status="heal_failed", t_off1=None)


def alone_by_a_fault_that_failed(run: HistoryBuilder, messages: list[Message]) -> None:
    """Two of three were to be frozen, and nobody knows whether they were: it accuses nobody."""
    for node in run.nodes[1:]:
        run.fault("pause", [node], messages[2].t - MS, messages[-2].t)
        run.tables["faults"][-1]["status"] = "failed"


HALF_APPLIED = (
    "early by a clock half moved", "not asked by who still stands", "alone by a fault that failed",
)  # fmt: skip


def gone_from_two_cut_logs(run: HistoryBuilder, messages: list[Message]) -> None:
    """All logs have lost their first entries; what two of them lack lies far behind those."""
    run.first_index = dict.fromkeys(run.nodes, 3)
    for node in run.nodes[1:]:
        run.logs[node] = run.logs[node][:-1]


def committed_by_who_got_nothing(run: HistoryBuilder, messages: list[Message]) -> None:
    """A group that nothing else tells of committed an offset: it consumes the topic."""
    kind = kind_of(run, "silent")
    kind.deliver(kind.send())
    del run.consumes[kind.grp]
    run.consumes["others"] = {kind.topic}
    run.tables["deliveries"][-1]["grp"] = "others"
    kind.ack("commit", queue_id=0, value_offset=1)


def named_and_never_heard_of(run: HistoryBuilder, messages: list[Message]) -> None:
    """Of a group nothing is on record but how it consumes."""
    run.run.setdefault("modes", {})["unheard"] = "concurrent"


def due_long_after_the_end(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nobody can tell whether a message is lost that is to come in a year."""
    kind = kind_of(run, "year")
    kind.deliver(kind.send())
    message = kind.send(kind="delay", delay_ms=365 * 86_400_000, stored=False)
    message.send.update(queue_id=None, queue_offset=None)


def on_one_log_of_three(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nobody says of how many nodes a majority is, but three noted something; one has a log."""
    del run.run["nodes"], run.run["quorum"]
    run.nodes = run.nodes[:1]


CLAIM_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "not asked, though quiet": ("A23", "invalid", never_asked_though_quiet_when_due),
    "committed by who got nothing": ("A1", "unknown", committed_by_who_got_nothing),
    "named and never heard of": ("A1", "unknown", named_and_never_heard_of),
    "due long after the end": ("A1", "unknown", due_long_after_the_end),
    "too soon by another's clock": (
        "A26", "invalid", of(failing, too_soon_by_the_clock_of_another),
    ),
    "early before a clock moved": ("A56", "invalid", of(waiting, early_before_a_clock_moved)),
    "early by a clock half moved": ("A48", "unknown", of(waiting, early_by_a_clock_half_moved)),
    "not asked by who still stands": ("A48", "unknown", never_asked_by_who_still_stands),
    "alone by a fault that failed": ("A48", "unknown", alone_by_a_fault_that_failed),
    "gone from two cut logs": ("A35", "invalid", gone_from_two_cut_logs),
    "on one log of three": ("A35", "invalid", on_one_log_of_three),
}  # fmt: skip
"""As in `minimal`: the check that finds it, its verdict, and how the history comes about."""
