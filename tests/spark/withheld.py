"""Histories that keep something back, or say it twice, or say it of no moment that can be.

Both checkers are asked (`test_withheld` here, `tests/unit/chaos/test_withheld`): nothing that is
refused is read as an outcome, and nothing that is not there as a proof.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark import foreign
from tests.spark.foreign import column, emptied
from tests.spark.generate import MS, HistoryBuilder, Message, write_table
from tests.spark.kinds import (
    Kind,
    committed_past,
    failing,
    given_after_all,
    of,
    orderly,
    passed_a_refusal,
    reading,
    rows_without,
)
from tests.spark.minimal import member, queues_read

Spoil = Callable[[HistoryBuilder, list[Message]], None]
LONG_RUNNING = 40_000_000 * MS


def pipe(run: Path) -> None:
    os.mkfifo(run / "tables" / "sends" / "pipe.parquet")


def pipe_for_a_table(run: Path) -> None:
    os.mkfifo(run / "tables" / "answers.parquet")


def rows_of(run: Path, table: str) -> list[dict[str, Any]]:
    return pq.read_table(run / "tables" / table / "part-0.parquet").to_pylist()


def twice(table: str, number: int = 1) -> foreign.After:
    """Write the first rows of a table once more, into a file of their own."""

    def spoil(run: Path) -> None:
        write_table(run, table, rows_of(run, table)[:number], part=1)

    return spoil


def changed(table: str, at: int, **change: Any) -> foreign.After:
    """Change one row."""

    def spoil(run: Path) -> None:
        rows = rows_of(run, table)
        rows[at] |= change
        write_table(run, table, rows)

    return spoil


def fault(**change: Any) -> foreign.After:
    """Write a fault; ``change`` is what is odd about it."""
    times = dict.fromkeys(("t_on0", "t_on1"), 1_010 * MS)
    times |= dict.fromkeys(("t_off0", "t_off1"), 1_020 * MS)
    seen = {"probe": "p", "before": 0.0, "during": 1.0, "after": 0.0, "effective": True}
    row = {"run_id": "a-run", "fault_id": "f7", "kind": "pause", "targets": ["n1"],
           "status": "healed", "witness": seen}  # fmt: skip
    return lambda run: write_table(run, "faults", [row | times | change]) and None


def fault_twice(run: Path) -> None:
    fault()(run)
    twice("faults")(run)


def checksums_of_one_log(run: Path) -> None:
    """Two logs of the same entries, each in a file of its own; one has no checksums."""
    shutil.rmtree(run / "replicas")
    row = {"run_id": "a-run", "index": 0, "term": 1, "type": "noop", "committed": True}
    for part, (node, crc) in enumerate((("n0", 7), ("n1", None))):
        write_table(run, "replica_log", [row | {"node": node, "entry_crc": crc}], part)


def table_of_no_name(run: Path) -> None:
    (run / "tables" / "sned").mkdir()
    pq.write_table(pa.table({"op_id": [1]}), run / "tables" / "sned" / "part-0.parquet")


def keys_as_hexadecimal_text(run: Path) -> None:
    table = pq.read_table(run / "tables" / "sends" / "part-0.parquet")
    at = table.schema.get_field_index("msg_key")
    words = pa.array([hex(key) for key in table.column(at).to_pylist()])
    table = table.set_column(at, "msg_key", words)
    pq.write_table(table, run / "tables" / "sends" / "part-0.parquet")


def folder_of_a_table(run: Path) -> None:
    (run / "tables" / "masters").mkdir()
    (run / "tables" / "masters" / "masters.csv").write_text("t0,t1\n")


def named_and_empty(*tables: str) -> foreign.After:
    """Name tables in run.json, and take their rows."""

    def spoil(run: Path) -> None:
        member("tables", list(tables))(run)
        for table in tables:
            emptied(table)(run)

    return spoil


def one_fetch_in_microseconds(run: Path) -> None:
    """The clock of the run began long before it."""
    for table in ("sends", "deliveries", "acks", "events", "raft_probe"):
        rows = rows_of(run, table)
        for row in rows:
            for name, t in list(row.items()):
                if name.startswith("t_") or name in {"t0", "t1"}:
                    row[name] = None if t is None else t + LONG_RUNNING
        if table == "deliveries":
            rows[3]["t_fetch_inv"] //= 1_000
        write_table(run, table, rows)


REFUSED: dict[str, tuple[foreign.After, str]] = {
    "a pipe among the files": (pipe, "pipe.parquet"),
    "a pipe for a table": (pipe_for_a_table, "answers.parquet"),
    "a send twice": (twice("sends"), "twice|once more"),
    "deliveries twice": (twice("deliveries", 4), "twice|once more"),
    "an acknowledgement twice": (twice("acks"), "twice|once more"),
    "a fault twice": (fault_twice, "twice|once more"),
    "a number twice, another never": (changed("events", 0, idx=1), "twice|once more"),
    "keys as hexadecimal text": (keys_as_hexadecimal_text, "decimal"),
    "checksums of one log": (checksums_of_one_log, "entry_crc is null"),
    "acknowledged before it was sent": (changed("sends", 2, t_cmp=1_001 * MS), "t_cmp is"),
    "a call that ends first": (
        changed("deliveries", 2, t_proc_begin=1_100 * MS, t_proc_end=1_099 * MS), "t_proc_end is",
    ),
    "received before it was fetched": (changed("deliveries", 2, t_recv=5 * MS), "t_recv is"),
    "answered before it was asked": (changed("raft_probe", 0, t1=5), "t1 is"),
    "fetches in microseconds": (
        column("deliveries", "t_fetch_inv", lambda t: t // 1_000), "t_fetch_inv",
    ),
    "one fetch in microseconds": (one_fetch_in_microseconds, "t_fetch_inv"),
    "a fault over before it began": (fault(t_off0=1_000 * MS, t_off1=1_000 * MS), "t_off0 is"),
    "a bound of another name": (member("contract", {"recovery_ms": 5}), "recovery_ms"),
    "a table of no name": (table_of_no_name, "sned"),
    "a table without Parquet": (folder_of_a_table, "tables/masters"),
    "no answers of replicas": (named_and_empty("raft_probe"), "raft_probe is empty"),
    "no masters": (named_and_empty("masters"), "masters is empty"),
    "no answers": (named_and_empty("answers"), "answers is empty"),
}  # fmt: skip
"""What is wrong with the files of a run, and by which word it is named (one of these)."""

STAY: dict[str, tuple[foreign.After, str]] = {
    "never lifted": (fault(status="active", t_off0=None, t_off1=None), "f7 was never lifted"),
    "lifted, and not when": (fault(t_off0=None, t_off1=None), "f7: nobody says when"),
    "at no time": (
        fault(t_on0=None, t_on1=None, t_off0=None, t_off1=None), "f7 was in force",
    ),
    "begun and no more": (fault(status=None, t_off0=None, t_off1=None), "f7: nobody says when"),
}  # fmt: skip
"""Faults of which no end is known."""


def log_of(run: HistoryBuilder, messages: list[Message]) -> None:
    """Somebody decoded the logs, and does not say what is committed; two entries differ."""
    run.with_replicas = False
    for node, log in run.logs.items():
        for entry in log:
            key = messages[entry.index].key if entry.index < len(messages) else None
            run.add(
                "replica_log", node=node, group=0, index=entry.index, term=1, type="message",
                topic=entry.topic, queue_id=entry.queue_id, queue_offset=entry.queue_offset,
                msg_key=key, entry_crc=entry.index, crc_ok=True, committed=None,
            )  # fmt: skip
    run.tables["replica_log"][-1].update(term=2, entry_crc=9)


def meta(text: str) -> foreign.After:
    """Write the meta.json of a replica anew."""
    return lambda run: (run / "replicas" / "n1" / "meta.json").write_text(text) and None


def pipe_for_meta(run: Path) -> None:
    (run / "replicas" / "n1" / "meta.json").unlink()
    os.mkfifo(run / "replicas" / "n1" / "meta.json")


def pipe_for_a_segment(run: Path) -> None:
    os.mkfifo(run / "replicas" / "n1" / "data" / ("9" * 20))


DUMPS: dict[str, foreign.After] = {
    "a commit index without end": meta('{"commit_index": 1e400}'),
    "a first index without end": meta('{"commit_index": 3, "first_index": 1e400}'),
    "an index of a half": meta('{"commit_index": 3, "end_index": 1.5}'),
    "an end of yes": meta('{"commit_index": 3, "end_index": true}'),
    "more than numbers go": meta('{"commit_index": 1' + "0" * 400 + "}"),
    "meta.json of a thousand levels": meta('{"a":' * 50_000 + "1" + "}" * 50_000),
    "a pipe for meta.json": pipe_for_meta,
    "a pipe for a segment": pipe_for_a_segment,
}
"""What nobody can use of the dump of a replica."""

LEFT_OUT: dict[str, tuple[foreign.After, dict[str, str]]] = {
    "deliveries": (
        changed("deliveries", 3, queue_offset=-1),
        dict.fromkeys(("A1", "A27", "A55", "A57"), "deliveries, which was refused"),
    ),
    "acknowledgements": (
        column("acks", "kind", lambda _: "COMMIT"),
        dict.fromkeys(("A2", "A27", "A28", "A57"), "acks, which was refused"),
    ),
    "no acknowledgements": (
        named_and_empty("acks"), dict.fromkeys(("A9", "A28"), "acks, which is empty"),
    ),
    "the end of queues": (
        named_and_empty("drain"), dict.fromkeys(("A1", "A19"), "drain, which is empty"),
    ),
    "run.json": (
        foreign.run_json('{"run_id": '),
        {"A1": "run.json, which cannot be read", "A28": "reconsume_max, which cannot be read"},
    ),
    "subscriptions": (
        member("subscriptions", {"billing": {"orders": "red"}}),
        dict.fromkeys(("A1", "A46"), "subscriptions, which cannot be used"),
    ),
    "limits": (
        member("reconsume_max", {"billing": -1}),
        dict.fromkeys(("A28", "A57"), "reconsume_max, which cannot be used"),
    ),
    "limits of yes": (
        member("reconsume_max", {"billing": True}),
        dict.fromkeys(("A28", "A57"), "reconsume_max, which cannot be used"),
    ),
}  # fmt: skip
"""What was left out: the checks that are unknown for want of it, and what they say."""


def refused_in_doubt(run: HistoryBuilder, messages: list[Message]) -> None:
    """Its listener refuses a message for the last time and for the first, of nobody knows what."""
    of(failing, rows_without("nack 1", "msg_key"))(run, messages)


def queues_without_indexes(run: HistoryBuilder, messages: list[Message]) -> None:
    queues_read(run, lambda rows: rows[3].update(index=None))


def elsewhere(kind: Kind) -> None:
    """A commit of a queue whose end nobody told."""
    kind.ack("commit", queue_id=77, value_offset=3)


def outcomes_withheld(kind: Kind) -> None:
    for name in ("commit", "fetch", "durable"):
        kind.rows[name]["outcome"] = None


LACKING: dict[str, tuple[tuple[str, ...], str, Spoil]] = {
    "whose refusal": (("A26", "A27", "A28", "A29", "A57"), "acks.msg_key", refused_in_doubt),
    "how statements ended": (
        ("A2", "A18", "A19", "A52"),
        "acks.outcome",
        of(reading, outcomes_withheld),
    ),
    "which entry": (("A39",), "queue_index.index", queues_without_indexes),
    "end of some queue": (("A19",), "drain of", of(reading, elsewhere)),
}
"""As `kinds.LACKING`: the checks that cannot be decided, and what each says that it needs."""


def failed_reset(spoil: Callable[[Kind], None], family: Callable[..., Kind] = reading) -> Spoil:
    """Somebody tried to set the offset anew, in vain; and something is wrong."""

    def both(kind: Kind) -> None:
        kind.run.clock += MS
        t, queue_id = kind.given[0]["t_recv"], kind.given[4]["queue_id"]
        kind.ack("reset", queue_id=queue_id, outcome="fail", t_inv=t, t_cmp=t)
        spoil(kind)

    return of(family, both)


def fetched_low(kind: Kind) -> None:
    kind.rows["fetch"].update(value_offset=3)
    t = kind.rows["fetch"]["t_inv"]
    for row in kind.run.tables["acks"]:
        if row["kind"] == "reset":
            row.update(t_inv=t - MS // 2, t_cmp=t - MS // 2)


def master_of_a_term(run: HistoryBuilder, messages: list[Message]) -> None:
    run.probe("n1", "master", 1, messages[3].t)


FOUND: dict[str, tuple[str, Spoil]] = {
    "committed past, and no reset": ("A2", failed_reset(committed_past)),
    "told less, and no reset": ("A18", failed_reset(fetched_low)),
    "given after all, and no reset": ("A52", failed_reset(given_after_all)),
    "passed a refusal, and no reset": ("A17", failed_reset(passed_a_refusal, orderly)),
    "a master in the term of a leader": ("A30", master_of_a_term),
}  # fmt: skip
"""What is proved all the same."""
