"""Runs whose disks were taken beyond the contract, and what is found before, amid and after it."""

from collections.abc import Callable

from tests.spark.generate import GROUP, MS, HistoryBuilder, Message

Spoil = Callable[[HistoryBuilder, list[Message]], None]
SETTLED_MS = 10_000


def lost_with_disks(spoil: Spoil | None, when: str) -> HistoryBuilder:
    """Twelve messages before two disks are wiped, six amid it, six soon, twelve when all is quiet.

    One message of those amid it is lost; ``spoil`` gets the messages of ``when``.
    """
    run = HistoryBuilder()
    told = {"before": run.traffic(12)}
    run.clock += 100 * MS
    begin = run.clock
    told["amid"] = run.traffic(6)
    run.clock += 100 * MS
    for node in ("n0", "n1"):
        run.fault("wipe", [node], begin, run.clock)
    run.clock += 2_000 * MS
    told["soon"] = run.traffic(6)
    run.clock += (SETTLED_MS + 1_000) * MS
    told["after"] = run.traffic(12)
    run.clock += 60_000 * MS
    run.with_replicas = False
    run.run.update(nodes=[], coverage={})
    run.add("events", idx=0, type="ok", f="send", t_mono_ns=1_000 * MS)
    run.tables["deliveries"].remove(told["amid"][3].delivery)
    if spoil is not None:
        spoil(run, told[when])
    return run


def lost(run: HistoryBuilder, messages: list[Message]) -> None:
    run.tables["deliveries"].remove(messages[5].delivery)


def all_lost(run: HistoryBuilder, messages: list[Message]) -> None:
    for message in messages:
        run.tables["deliveries"].remove(message.delivery)


def overtaken(run: HistoryBuilder, messages: list[Message]) -> None:
    one, other = messages[1], messages[3]
    one.send.update(t_inv=other.send["t_cmp"] + 1, t_cmp=other.send["t_cmp"] + 2)


def polled_back(run: HistoryBuilder, messages: list[Message]) -> None:
    one, other = messages[1].delivery, messages[3].delivery
    for name in ("t_fetch_inv", "t_recv"):
        one[name], other[name] = other[name], one[name]


def refused_for_good(run: HistoryBuilder, messages: list[Message]) -> None:
    run.add("acks", op_id=run.op(), grp=GROUP, kind="nack", msg_key=messages[3].key,
            t_inv=messages[3].delivery["t_recv"] + MS, outcome="info")  # fmt: skip


def had_by_others(run: HistoryBuilder, messages: list[Message]) -> None:
    """Another group got all of it, what was lost by the first one long after the disks."""
    for row in list(run.tables["deliveries"]):
        run.add("deliveries", **(row | {"grp": "shipping", "consumer": "s0"}))
    run.deliver(messages[3], grp="shipping", consumer="s0", generation=2)


def on_all_logs(run: HistoryBuilder, messages: list[Message]) -> None:
    run.with_replicas = True


def passed_over(run: HistoryBuilder, messages: list[Message]) -> None:
    """It lies where its queue was before disks were taken: groups have read on from there."""
    run.tables["deliveries"].remove(messages[0].delivery)
    messages[0].send["queue_offset"] = 1


def lost_and_had_by_others(run: HistoryBuilder, messages: list[Message]) -> None:
    had_by_others(run, messages)
    run.tables["deliveries"].remove(messages[3].delivery)


def put_where_another_was(run: HistoryBuilder, messages: list[Message]) -> None:
    """What had waited was put to the place that another one had before its disks were taken."""
    plain_where_another_was(run, messages)
    wait(run, messages[3])


def plain_where_another_was(run: HistoryBuilder, messages: list[Message]) -> None:
    """The same of a message that nothing keeps waiting: it was at its place before."""
    lost_and_had_by_others(run, messages)
    later = run.tables["deliveries"][-1]
    assert later["msg_key"] == messages[3].key
    later["queue_offset"] = neighbour(messages).send["queue_offset"]


def another_came_there_later(run: HistoryBuilder, messages: list[Message]) -> None:
    """What had waited was put to a place of its own; another one was seen there since."""
    other = neighbour(messages)
    lost_and_had_by_others(run, messages)
    wait(run, messages[3])
    run.clock += 100 * MS
    row = run.tables["deliveries"][-1]
    run.deliver(other, grp="shipping", consumer="s0", generation=3)
    run.tables["deliveries"][-1]["queue_offset"] = row["queue_offset"]


def neighbour(messages: list[Message]) -> Message:
    """Return a message before the fourth in its queue."""
    queue_id = messages[3].send["queue_id"]
    return next(one for one in messages[:3] if one.send["queue_id"] == queue_id)


def wait(run: HistoryBuilder, message: Message) -> None:
    """Have a message been delayed until it was read last: nobody had it before."""
    rows = run.tables["deliveries"]
    for row in [row for row in rows if row["msg_key"] == message.key][:-1]:
        rows.remove(row)
    (last,) = (row for row in rows if row["msg_key"] == message.key)
    waited_ms = (last["t_recv"] - message.send["t_cmp"]) // MS
    message.send.update(kind="delay", delay_ms=waited_ms, queue_id=None, queue_offset=None)


def passed(run: HistoryBuilder, messages: list[Message]) -> None:
    """Its group committed an offset behind it while it was under way."""
    message = messages[2]
    t = message.delivery["t_recv"] - MS // 2
    run.commit(message.queue_id, message.queue_offset + 1, t=t)


def passed_and_renewed(run: HistoryBuilder, messages: list[Message]) -> None:
    """Beside that a topic was made anew: who read the former one went on committing its offset."""
    passed(run, messages)
    for epoch in (0, 1):
        message = run.send(topic="renewed", queue_id=0, epoch=epoch)
        message.send["queue_offset"] = 0
        if epoch:
            run.add("acks", op_id=run.op(), grp=GROUP, topic="renewed", queue_id=0, kind="commit",
                    value_offset=1, t_inv=run.clock, t_cmp=run.clock, outcome="ok")  # fmt: skip
            run.clock += 2 * MS
        run.deliver(message, queue_offset=0, epoch=epoch)
        if not epoch:
            times = {"t_inv": messages[0].send["t_inv"], "t_cmp": messages[0].send["t_cmp"]}
            message.send.update(times)
            fetched = {name: messages[0].delivery[name] for name in ("t_fetch_inv", "t_recv")}
            run.tables["deliveries"][-1].update(fetched)


def told_another_index(run: HistoryBuilder, messages: list[Message]) -> None:
    """Where its producer was told that it lies another one is committed; one log is gone."""
    run.with_replicas = True
    run.logs["n2"], run.commits["n2"] = [], -1
    messages[2].send["raft_index"] = messages[4].index


def of_a_whole_group(run: HistoryBuilder, messages: list[Message]) -> None:
    """It was of a second Raft group, of whose disks none was taken; no log holds it."""
    lost_one = messages[3]
    lost_one.send.update(node="m0", raft_group=1)
    for log in run.logs.values():
        log[:] = [entry for entry in log if entry.index != lost_one.index]
        for index, entry in enumerate(log):
            entry.index = index
    others = ("m0", "m1", "m2")
    run.nodes += others
    run.logs |= {node: [] for node in others}
    run.raft_groups |= dict.fromkeys(others, "h")
    run.with_replicas = True


LOSING: dict[str, tuple[Spoil | None, str, int, str]] = {
    "lost amid it": (None, "amid", 3, "A1"),
    "refused amid it": (refused_for_good, "amid", 3, "A27"),
    "overtaken amid it": (overtaken, "amid", 3, "A11"),
    "lost amid it, had by others": (had_by_others, "amid", 1, "A1"),
    "lost amid it, on all logs": (on_all_logs, "amid", 1, "A1"),
    "lost amid it, of a whole group": (of_a_whole_group, "amid", 1, "A1"),
    "lost soon": (lost, "soon", 1, "A1"),
    "passed over soon": (passed_over, "soon", 3, "A1"),
    "lost before": (lost, "before", 3, "A1"),
    "lost before, had by others": (lost_and_had_by_others, "before", 1, "A1"),
    "put where another was": (put_where_another_was, "before", 3, "A1"),
    "put where another came later": (another_came_there_later, "before", 1, "A1"),
    "plain where another was": (plain_where_another_was, "before", 1, "A1"),
    "lost after": (lost, "after", 1, "A1"),
    "all lost after": (all_lost, "after", 1, "A1"),
    "refused after": (refused_for_good, "after", 1, "A27"),
    "overtaken before": (overtaken, "before", 1, "A11"),
    "overtaken after": (overtaken, "after", 1, "A11"),
    "polled back before": (polled_back, "before", 1, "A13"),
    "passed before": (passed, "before", 1, "A2"),
    "passed amid it": (passed, "amid", 3, "A2"),
    "passed amid it, another anew": (passed_and_renewed, "amid", 3, "A2"),
    "passed after": (passed, "after", 1, "A2"),
    "told another index before": (told_another_index, "before", 3, "A35"),
    "told another index after": (told_another_index, "after", 1, "A35"),
}
"""What is found, among what, with which exit code, by which check."""

NUMBERS: dict[str, tuple[dict[str, object], tuple[str, ...], int]] = {
    "nobody knows": ({}, (), 1),
    "three": ({"nodes": 3}, (), 3),
    "five": ({"nodes": 5}, (), 1),
    "a majority of so many": ({"quorum": 2}, (), 3),
    "three that answered": ({}, ("n0", "n1", "n2"), 3),
    "five that answered": ({}, ("n0", "n1", "n2", "n3", "n4"), 1),
}
"""How many brokers there are: what run.json says, who answered, and the exit code."""


def of_so_many(said: dict[str, object], answered: tuple[str, ...]) -> HistoryBuilder:
    """Return such a run, of whose brokers only this is known."""
    run = lost_with_disks(None, "amid")
    del run.run["quorum"], run.run["nodes"]
    run.run |= said
    run.tables["raft_event"] = []
    for node in answered:
        run.probe(node, "follower", 1, 1_000 * MS)
    return run


FAILING: dict[str, tuple[int | None, int]] = {"kept all": (0, 1), "nobody knows": (None, 3)}
"""How many messages only brokers had whose calls failed, and the exit code where one is lost."""


def by_failing_calls(only_there: int | None) -> HistoryBuilder:
    """The disks of a majority were not taken: calls failed, and their witness may know of more."""
    run = lost_with_disks(None, "amid")
    for fault in run.tables["faults"]:
        fault.update(kind="eio", only_there=only_there)
    return run
