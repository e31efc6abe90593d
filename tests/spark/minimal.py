"""For each check a history that violates only it, and ways to hand in what is no history at all.

Both checkers are asked (`test_minimal` here, `tests/unit/chaos/test_minimal`): each must find
exactly that check and no other, and nothing in the sound one.
"""

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark import foreign
from tests.spark.claims import CLAIM_VIOLATIONS, HALF_APPLIED
from tests.spark.elsewhere import ELSEWHERE_VIOLATIONS
from tests.spark.excused import EXCUSE_VIOLATIONS
from tests.spark.foreign import column
from tests.spark.generate import (
    GROUP,
    MS,
    HistoryBuilder,
    Message,
    plant_aborted,
    plant_commit_fall,
    plant_divergence,
    plant_lost,
    plant_mismatch,
    plant_phantom,
    plant_second_vote,
    plant_term_fall,
    plant_two_leaders,
)
from tests.spark.kinds import KIND_VIOLATIONS, transactions
from tests.spark.leaders import LEADER_VIOLATIONS
from tests.spark.logged import LOG_VIOLATIONS
from tests.spark.planted import PLANTED_VIOLATIONS
from tests.spark.serving import SERVICE_VIOLATIONS

Spoil = Callable[[HistoryBuilder, list[Message]], None]


def recorded(run: HistoryBuilder, parts: int = 1) -> list[Message]:
    """Add what a run of the harness has: attempts, assignments, commits, probes, a fault."""
    messages = run.traffic(12 * parts)
    for message in messages:
        message.send.update(tries=["ok"], msg_id=f"id-{message.key}")
    end = max(row["t_recv"] for row in run.tables["deliveries"])
    for queue_id in range(run.queues):
        run.commit(queue_id, 6 * parts, t=end + MS)
    value = '{"consumer": "c0", "grp": "billing", "topic": "orders", "queues": [0, 1]}'
    rows = [("start", "{}", 0), ("rebalance", value, 1)]
    for idx, (f, said, t) in enumerate(rows):
        run.add("events", idx=idx, type="info", f=f, role="consumer", node="c0", value=said,
                t_mono_ns=900 * MS + t)  # fmt: skip
    run.probe("n0", "leader", 1, 1_000 * MS)
    run.clock = end + 60_000 * MS  # far from everything
    return messages


def write_minimal(spoil: Spoil | None, path: Path) -> Path:
    """Write the sound history, spoiled in one way."""
    run = HistoryBuilder()
    messages = recorded(run)
    run.election("n0", 1)
    if spoil is not None:
        spoil(run, messages)
    return run.write(path / "run")


def write_together(names: Sequence[str], path: Path) -> Path:
    """Write one history with several violations, each in twelve messages of its own."""
    run = HistoryBuilder()
    messages = recorded(run, len(names))
    run.election("n0", 1)
    for number, name in enumerate(names):
        VIOLATIONS[name][2](run, messages[12 * number : 12 * number + 12])
        run.clock += (5_000 if name in KIND_VIOLATIONS else 60_000) * MS
    return run.write(path / "run")


def corrupt(run: HistoryBuilder, messages: list[Message]) -> None:
    """A retry copy came with other bytes: its place is its own."""
    run.add("acks", grp=GROUP, kind="nack", msg_key=messages[2].key, delay_ms=0,
            t_inv=messages[2].delivery["t_recv"] + MS, outcome="info")  # fmt: skip
    run.deliver(messages[2], is_retry=True, reconsume=1, queue_offset=3, body_hash=5)


def clash(run: HistoryBuilder, messages: list[Message]) -> None:
    """What the auditor read at a place is another acknowledged message."""
    one, other = messages[0], messages[2]
    run.deliver(one, grp="auditor", auditor=True, queue_offset=other.queue_offset)
    one.send["attempts"] = 2


def delivered_twice(run: HistoryBuilder, messages: list[Message]) -> None:
    run.deliver(messages[3])


def revoked_queue_pulled(run: HistoryBuilder, messages: list[Message]) -> None:
    """c0 gave queue 0 to c1 and fetches it still, while others come and go."""
    t = run.clock
    for idx, (who, queues) in enumerate((("c0", [1]), ("c1", [0]), ("c2", [])), start=2):
        value = f'{{"consumer": "{who}", "topic": "orders", "queues": {queues}}}'
        run.add("events", idx=idx, type="info", f="rebalance", role="consumer", value=value,
                t_mono_ns=t + idx)  # fmt: skip
    run.clock = t + 3_000 * MS
    late = run.send(queue_id=0, tries=["ok"], msg_id="late")
    run.deliver(late, consumer="c1", generation=1)
    run.deliver(late, consumer="c0", generation=2)


def overtaken(run: HistoryBuilder, messages: list[Message]) -> None:
    """Two sends of one producer, one after the other, lie the other way round."""
    one, other = messages[4], messages[6]
    one.send.update(t_inv=other.send["t_cmp"] + 1, t_cmp=other.send["t_cmp"] + 2)


def overtaken_by_an_unknown_one(run: HistoryBuilder, messages: list[Message]) -> None:
    """One that nobody answered began after another was acknowledged, and was found before it."""
    one, other = messages[4], messages[6]
    one.send.update(t_inv=other.send["t_cmp"] + 1, t_cmp=None, outcome="info", queue_offset=None)


def told_another_index(run: HistoryBuilder, messages: list[Message]) -> None:
    """At the index that its producer was told lies another message."""
    messages[8].send["raft_index"] = messages[9].index
    messages[7].send["raft_index"] = messages[7].index


def beyond_the_end(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[-1].send["queue_offset"] = 9_000


def failed_after_an_unknown_try(run: HistoryBuilder, messages: list[Message]) -> None:
    run.send(outcome="fail", tries=["info", "fail"])


def stored_without_an_answer(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[3].send["tries"] = ["fail"]


def another_queue_than_asked(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[3].send["asked_queue"] = 1 - messages[3].queue_id


def without_a_place(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[3].send.update(queue_offset=None)


def without_an_id(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[3].send.update(msg_id=None)


def refused_for_good(run: HistoryBuilder, messages: list[Message]) -> None:
    """The listener refused a message, and that was the end of it."""
    run.add("acks", op_id=run.op(), grp=GROUP, kind="nack", msg_key=messages[3].key,
            t_inv=messages[3].delivery["t_recv"] + MS, outcome="info")  # fmt: skip


def of_another_tag(run: HistoryBuilder, messages: list[Message]) -> None:
    """A group subscribed to one tag, got it, and got one of another tag too."""
    run.run["subscriptions"] = {"tagged": {"orders": ["red"]}}
    for message in messages:
        message.send["tag"] = "red" if message is messages[3] else "blue"
    run.deliver(messages[3], grp="tagged", consumer="c9")
    run.deliver(messages[5], grp="tagged", consumer="c9")


def wrong_answer(run: HistoryBuilder, messages: list[Message]) -> None:
    for told in ("7", "8"):
        run.add("answers", kind="group_offset", subject="billing orders/0", expected="7", told=told)


def silence_at_the_end(run: HistoryBuilder, messages: list[Message]) -> None:
    run.add("answers", kind="route", subject="orders", expected="n0", told=None)


def short_end(run: HistoryBuilder, messages: list[Message]) -> None:
    for queue_id in range(run.queues):
        end = run._offsets["orders", queue_id]
        for row in run.tables["acks"]:
            if row.get("queue_id") == queue_id and row["kind"] == "commit":
                row["value_offset"] -= queue_id
        run.add("drain", grp=GROUP, topic="orders", queue_id=queue_id, min_off=0,
                end_off=end - queue_id, read_to=end, empty_polls=2, drained=True)  # fmt: skip


def process_ended(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run["exits"] = [{"process": "n1", "exit": "exit=1", "log": ["ValueError: 10911"]}]


def gap(run: HistoryBuilder, messages: list[Message]) -> None:
    run.add("events", idx=9, type="ok", f="send", t_mono_ns=run.clock)


def no_effect(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run["coverage"] = {"kill": 1}
    run.fault("kill", ["n0"], messages[2].t, messages[4].t, effective=False)


def no_effect_of_any(run: HistoryBuilder, messages: list[Message]) -> None:
    no_effect(run, messages)
    run.fault("cut", ["n0", "n1"], messages[2].t, messages[4].t)
    run.run["coverage"] = {"any": 3}


def problem(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run["problems"] = ["producer-0 died"]


def worker_died(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run["problems"] = [*run.run.get("problems", ()), "producer-0 died"]


def not_lifted(run: HistoryBuilder, messages: list[Message]) -> None:
    run.fault("cut", ["n0", "n1"], messages[2].t, messages[6].t)
    run.tables["faults"][-1]["status"] = "heal_failed"


def named(run: HistoryBuilder, controller: str, at: int, epoch: int, node: str | None) -> None:
    """A controller says who is master of an epoch; each ten epochs are a group of their own."""
    t0 = run.clock + at * MS
    run.add("masters", controller=controller, t0=t0, t1=t0 + 1, grp=f"group-{epoch // 10}",
            epoch=epoch, node=node, set_epoch=1, in_sync=[1, 2])  # fmt: skip


def two_masters_of_an_epoch(run: HistoryBuilder, messages: list[Message]) -> None:
    named(run, "c0", 1, 14, "n0")
    named(run, "c1", 2, 14, "n1")


def earlier_epoch_named(run: HistoryBuilder, messages: list[Message]) -> None:
    """Another controller may not know yet; the same one did."""
    named(run, "c0", 1, 25, "n0")
    named(run, "c1", 2, 24, None)
    named(run, "c0", 3, 24, None)


def acknowledged_by_another(run: HistoryBuilder, messages: list[Message]) -> None:
    named(run, "c0", 1, 1, "n1")
    for message in messages:
        message.send["node"] = "n0"


def leads_unnamed(run: HistoryBuilder, messages: list[Message]) -> None:
    named(run, "c0", 1, 35, "n1")
    run.add("raft_probe", node="n0", t0=messages[3].t, t1=messages[3].t + 1, ok=True,
            role="leader", term=35)  # fmt: skip


def decided_by_nobody(run: HistoryBuilder, messages: list[Message]) -> None:
    """A message of a transaction was delivered, and none of its steps is on record."""
    key = transactions(run).rows["commit/half"]["msg_key"]
    run.tables["txn"] = [row for row in run.tables["txn"] if row["msg_key"] != key]


def queues_read(run: HistoryBuilder, spoil: Callable[[list[dict[str, Any]]], object]) -> None:
    run.with_queues = True
    run.queue_spoils.append(spoil)


def queue_names_another(run: HistoryBuilder, messages: list[Message]) -> None:
    """A place of n1's queue names the entry behind its own."""
    at = messages[3].index
    queues_read(run, lambda rows: row_at(rows, "n1", at).update(index=at + 2, msg_key=None))


def queue_leaves_one_out(run: HistoryBuilder, messages: list[Message]) -> None:
    at = messages[5].index
    queues_read(run, lambda rows: rows.remove(row_at(rows, "n2", at)))


def queue_goes_on(run: HistoryBuilder, messages: list[Message]) -> None:
    """Behind its end a queue names what its log has not, by place alone."""
    at = messages[7].index

    def spoil(rows: list[dict[str, Any]]) -> None:
        rows.append(row_at(rows, "n0", at) | {"queue_offset": 8_000, "index": None})

    queues_read(run, spoil)


def row_at(rows: list[dict[str, Any]], node: str, index: int) -> dict[str, Any]:
    return next(row for row in rows if row["node"] == node and row["index"] == index)


VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "two masters of an epoch": ("A63", "invalid", two_masters_of_an_epoch),
    "an earlier epoch named": ("A63", "invalid", earlier_epoch_named),
    "acknowledged by another": ("A63", "invalid", acknowledged_by_another),
    "leads and is not named": ("A63", "invalid", leads_unnamed),
    "decided by nobody": ("A54", "invalid", decided_by_nobody),
    "lost": ("A1", "invalid", lambda r, m: plant_lost(r, m[3])),
    "phantom": ("A5", "invalid", lambda r, m: plant_phantom(r, m[3])),
    "corrupt": ("A6", "invalid", corrupt),
    "aborted": ("A7", "invalid", lambda r, m: plant_aborted(r, m[3])),
    "failed, said the client": ("A7", "invalid", lambda r, m: r.send(
        outcome="fail", stored=True, err_code=2, tries=["fail"]) and None),
    "duplicate": ("A8", "valid", foreign.stored_twice),
    "delivered twice": ("A9", "invalid", delivered_twice),
    "revoked queue pulled": ("A9", "invalid", revoked_queue_pulled),
    "overtaken": ("A11", "invalid", overtaken),
    "overtaken by an unknown one": ("A11", "invalid", overtaken_by_an_unknown_one),
    "beyond the end": ("A15", "invalid", beyond_the_end),
    "two at one place": ("A15", "invalid", clash),
    "refused for good": ("A27", "invalid", refused_for_good),
    "two leaders": ("A30", "invalid", lambda r, m: plant_two_leaders(r, m[3])),
    "two votes": ("A31", "invalid", lambda r, m: plant_second_vote(r, m[3])),
    "term fell": ("A32", "invalid", lambda r, m: plant_term_fall(r, m[3])),
    "commit fell": ("A33", "invalid", lambda r, m: plant_commit_fall(r, m[3])),
    "mismatch": ("A34", "invalid", lambda r, m: plant_mismatch(r, m[3])),
    "queue names another": ("A39", "invalid", queue_names_another),
    "queue leaves one out": ("A39", "invalid", queue_leaves_one_out),
    "queue goes on": ("A39", "invalid", queue_goes_on),
    "divergence": ("A35", "invalid", lambda r, m: plant_divergence(r, m[3])),
    "gone from two logs": ("A35", "invalid", foreign.gone_from_two_logs),
    "told another index": ("A35", "invalid", told_another_index),
    "gap": ("A45", "unknown", gap),
    "of another tag": ("A46", "invalid", of_another_tag),
    "wrong answer": ("A50", "invalid", wrong_answer),
    "silence at the end": ("A50", "invalid", silence_at_the_end),
    "short end": ("A50", "invalid", short_end),
    "process ended": ("A51", "invalid", process_ended),
    "no effect": ("A47", "unknown", no_effect),
    "no effect of any": ("A47", "unknown", no_effect_of_any),
    "worker died": ("A48", "unknown", worker_died),
    "not lifted": ("A48", "unknown", not_lifted),
    "failed after an unknown try": ("A49", "invalid", failed_after_an_unknown_try),
    "stored without an answer": ("A49", "invalid", stored_without_an_answer),
    "another queue than asked": ("A49", "invalid", another_queue_than_asked),
    "without a place": ("A49", "invalid", without_a_place),
    "without an id": ("A49", "invalid", without_an_id),
}  # fmt: skip
VIOLATIONS |= KIND_VIOLATIONS | LEADER_VIOLATIONS | SERVICE_VIOLATIONS | EXCUSE_VIOLATIONS
VIOLATIONS |= LOG_VIOLATIONS | CLAIM_VIOLATIONS | PLANTED_VIOLATIONS | ELSEWHERE_VIOLATIONS


# What can be seen side by side: none hides or explains another, and the logs still fit. The order
# counts where a violation is about ends of queues or of logs.
TOGETHER: dict[str, tuple[str, ...]] = {
    "messages": (
        "lost", "phantom", "corrupt", "aborted", "failed, said the client", "delivered twice",
        "overtaken", "overtaken by an unknown one", "refused for good", "of another tag",
    ),
    "answers": (
        "revoked queue pulled", "two at one place", "wrong answer", "silence at the end",
        "process ended", "failed after an unknown try", "stored without an answer",
        "another queue than asked", "without a place", "short end", "gone from two logs",
        "told another index",
    ),
    "replicas": (
        "two leaders", "two votes", "term fell", "commit fell", "divergence", "mismatch",
        "beyond the end",
    ),
    "queues": ("queue names another", "queue leaves one out", "queue goes on"),
    # Not asked where sends are of several groups, as some of those are.
    "leaders": tuple(name for name in LEADER_VIOLATIONS if name != "acknowledged by one of three"),
    "service": tuple(SERVICE_VIOLATIONS),
    "masters": (
        "two masters of an epoch", "an earlier epoch named", "leads and is not named",
        "decided by nobody",
    ),
    "an acknowledging stranger": ("acknowledged by another",),
    "ids": ("without an id", "acknowledged by one of three"),
    "doubts": (
        "gap", "no effect", "no effect of any", "duplicate", "worker died", "not lifted",
    ),
    "kinds": tuple(KIND_VIOLATIONS),
    "excuses": tuple(EXCUSE_VIOLATIONS),
    "logs": tuple(LOG_VIOLATIONS),
    "planted": tuple(PLANTED_VIOLATIONS),
    "elsewhere": tuple(ELSEWHERE_VIOLATIONS),
    # The clock that is moved last would explain what comes early later.
    "claims": tuple(
        name for name in CLAIM_VIOLATIONS if name not in {"on one log of three", *HALF_APPLIED}
    ),
    "half applied": HALF_APPLIED,
    "a single log": ("on one log of three",),
}  # fmt: skip


def nulled(table: str, name: str, at: int = 3) -> foreign.After:
    """Make one cell null."""

    def spoil(run: Path) -> None:
        rows = count()
        column(table, name, lambda value: None if next(rows) == at else value)(run)

    return spoil


def fault_with_a_word_for_a_witness(run: Path) -> None:
    (run / "tables" / "faults").mkdir()
    fault = {"run_id": "a-run", "fault_id": "f", "kind": "kill", "witness": "yes"}
    pq.write_table(pa.Table.from_pylist([fault]), run / "tables" / "faults" / "0.parquet")


def member(name: str, value: object) -> foreign.After:
    """Say something in run.json."""

    def spoil(run: Path) -> None:
        file = run / "run.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))

    return spoil


def folder_for_run_json(run: Path) -> None:
    (run / "run.json").unlink()
    (run / "run.json").mkdir()


def no_events(run: Path) -> None:
    """The table is there, and has no row."""
    file = run / "tables" / "events" / "part-0.parquet"
    pq.write_table(pq.read_table(file).slice(0, 0), file)


def stray(*names: str) -> foreign.After:
    """Put a file that is no Parquet somewhere into the run."""

    def spoil(run: Path) -> None:
        file = run.joinpath(*names)
        file.parent.mkdir(exist_ok=True)
        file.write_text("grp,kind\n")

    return spoil


def step_twice(run: Path) -> None:
    (run / "tables" / "txn").mkdir()
    step = {"run_id": "a-run", "msg_key": 1, "step": "half", "t_inv": 900 * MS, "outcome": "ok"}
    pq.write_table(pa.Table.from_pylist([step, step]), run / "tables" / "txn" / "0.parquet")


def copied_beside(run: Path) -> None:
    """The file of a table lies in its folder, and beside it once more."""
    file = run / "tables" / "acks" / "part-0.parquet"
    (run / "tables" / "acks.parquet").write_bytes(file.read_bytes())


DISHONEST: dict[str, tuple[foreign.After, str]] = {
    f"{table}.{name} is null": (nulled(table, name, at), name)
    for table, name, at in (
        ("sends", "msg_key", 3),
        ("sends", "op_id", 3),
        ("sends", "topic", 3),
        ("sends", "t_inv", 3),
        ("sends", "outcome", 3),
        ("deliveries", "grp", 3),
        ("deliveries", "topic", 3),
        ("deliveries", "queue_id", 3),
        ("deliveries", "queue_offset", 3),
        ("deliveries", "t_recv", 3),
        ("drain", "grp", 0),
        ("acks", "grp", 0),
        ("acks", "kind", 0),
        ("events", "idx", 0),
        ("events", "f", 0),
        ("raft_event", "kind", 3),
        ("raft_probe", "node", 0),
    )
} | {
    "outcome is upper case": (column("sends", "outcome", str.upper), "'OK'"),
    "outcome is a word nobody knows": (column("sends", "outcome", lambda _: "done"), "'done'"),
    "acks of an unknown kind": (column("acks", "kind", lambda _: "COMMIT"), "'COMMIT'"),
    "a negative offset": (column("deliveries", "queue_offset", lambda at: -1 - at), "-1"),
    "a negative queue": (column("sends", "queue_id", lambda at: at - 1), "-1"),
    "deliveries in milliseconds": (column("deliveries", "t_recv", lambda t: t // MS), "t_recv"),
    "sends in microseconds": (column("sends", "t_inv", lambda t: t // 1_000), "t_inv"),
    "tries of no known word": (
        column("sends", "tries", lambda tries: ["OK"] if tries else None), "OK",
    ),
    "a fetch before all time": (column("deliveries", "t_fetch_inv", lambda _: -1), "t_fetch_inv"),
    "a call over before all time": (column("deliveries", "t_proc_end", lambda _: -1), "t_proc_end"),
    "a term below 0": (column("sends", "raft_term", lambda _: -1), "raft_term"),
    "exits are words": (member("exits", ["n1 died"]), "n1 died"),
    "a tag in the place of tags": (member("subscriptions", {GROUP: {"orders": "x"}}), "'x'"),
    "tags of no topic": (member("subscriptions", {GROUP: ["x"]}), "subscriptions"),
    "a quorum of yes": (member("quorum", value=True), "quorum"),
    "a bound that is no number": (
        member("contract", {"recovery_ms_max": float("nan")}), "recovery_ms_max",
    ),
    "a tolerance of yes": (member("clock_tolerance_ns", value=True), "clock_tolerance_ns"),
    "a name that is a list": (member("run_id", ["x"]), "run_id"),
    "a folder for run.json": (folder_for_run_json, "run.json"),
    "run.json of a thousand levels": (
        foreign.run_json('{"a":' * 50_000 + "1" + "}" * 50_000), "run.json",
    ),
    "events without rows": (no_events, "events is empty"),
    "a part of a table that is no Parquet": (stray("tables", "acks", "part-1.csv"), "part-1.csv"),
    "a table that is no Parquet": (stray("tables", "txn.jsonl"), "txn.jsonl"),
    "a folder elsewhere without Parquet": (stray("txn", "0.csv"), "0.csv"),
    "a step of a transaction twice": (step_twice, "msg_key 1"),
    "a table in two places": (copied_beside, "tables/acks"),
    "a word in the place of tables": (member("left_out", "sends"), "left_out"),
    "a witness that is a word": (fault_with_a_word_for_a_witness, "witness"),
}  # fmt: skip


MISSING = ("sends", "deliveries", "acks", "events", "raft_event", "raft_probe", "drain")


def name_tables(run: HistoryBuilder, messages: list[Message]) -> None:
    """Say in run.json which tables the recorder wrote, as the harness does."""
    run.run["tables"] = list(MISSING)
