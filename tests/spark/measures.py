"""A history in which there is something to measure, and the numbers that both must tell."""

from tests.spark.generate import MS, HistoryBuilder, Message, plant_lost

NUMBERS = {
    "A3": {"recovered": 3, "vanished": 2},
    "A58": {"elections": 7, "terms": 6, "failed": 4, "longest": 3},
}


def unknown_sends(run: HistoryBuilder) -> None:
    """Two were stored, one of them read; one was sent twice and read; two came to nothing."""
    run.deliver(run.send(outcome="info", stored=True))
    run.send(outcome="info", stored=True)
    again = run.send(outcome="info")
    again.send["outcome"] = "fail"
    again.send["err_code"] = 14
    run.add("sends", **(again.send | {"op_id": run.op(), "outcome": "info", "err_code": -2}))
    run.deliver(again, queue_offset=900)
    run.send(outcome="info")
    run.send(outcome="info")
    run.send(outcome="fail")


def elections(run: HistoryBuilder) -> None:
    """Term 1 and 6 have a leader; nobody wins 2 to 4, in two of which two stand; 5 was not."""
    run.election("n0", 1)
    for node, term in (("n1", 2), ("n2", 3), ("n1", 4), ("n0", 4)):
        run.event(node, "become_candidate", term)
    run.event("n1", "become_candidate", 6)
    run.event("n1", "become_leader", 6, peer="n1")
    run.event("n2", "become_candidate", 7)


def lose(run: HistoryBuilder, messages: list[Message]) -> dict[str, float]:
    """Lose two messages; return what their span is."""
    lost = (messages[3], messages[8])
    for message in lost:
        plant_lost(run, message)
    times = [message.send["t_cmp"] for message in lost]
    size = sum(message.send["body_len"] for message in lost)
    return {"messages": 2, "bytes": size, "span_ms": (max(times) - min(times)) / MS}


def measured() -> tuple[HistoryBuilder, dict[str, dict[str, float]]]:
    """Return such a history, and its numbers by check."""
    run = HistoryBuilder()
    messages = run.traffic(12)
    elections(run)
    unknown_sends(run)
    return run, NUMBERS | {"A59": lose(run, messages)}
