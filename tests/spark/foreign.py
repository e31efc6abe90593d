"""Runs as somebody else might hand them in: each spoiled in one way, with the right verdict.

Both checkers are asked (`test_foreign` here, `tests/unit/chaos/test_foreign`); their answers must
be the same: 0 valid, 1 invalid, 2 unknown, 3 valid but the contract was exceeded.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.history.payload import make_key
from tests.spark.generate import MS, Entry, HistoryBuilder, Message, write_table

Spoil = Callable[[HistoryBuilder, list[Message]], None]
After = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``spoil`` changes what is written, ``after`` what was; ``check`` is to say what is wrong."""

    exit_code: int
    check: str = ""
    spoil: Spoil | None = None
    after: After | None = None


def write_case(case: Case, path: Path) -> Path:
    """Write the run of a case and return its directory."""
    run = HistoryBuilder()
    messages = run.traffic(12)
    if case.spoil is not None:
        case.spoil(run, messages)
    written = run.write(path / "run")
    if case.after is not None:
        case.after(written)
    return written


def spoil_with(names: Iterable[str]) -> Spoil:
    """Return what spoils a run in several ways at once."""

    def spoil(run: HistoryBuilder, messages: list[Message]) -> None:
        for at, name in enumerate(names):
            one = CASES[name].spoil
            if one is not None:
                one(run, messages[at:] + messages[:at])

    return spoil


def _filler(run: HistoryBuilder, at: int, nodes: tuple[str, ...]) -> None:
    """Put a message of nobody's in the place of an entry, of the same length."""
    for node in nodes:
        old = run.logs[node][at]
        run.logs[node][at] = Entry(
            old.index, old.term, 0, 6_000 + at, b"z" * len(old.body), "%" * len(old.topic)
        )


def gone_from_all_logs(run: HistoryBuilder, messages: list[Message]) -> None:
    _filler(run, 4, run.nodes)


def gone_from_two_logs(run: HistoryBuilder, messages: list[Message]) -> None:
    # The two have not committed it, so that only the count of copies tells.
    for node in run.nodes[1:]:
        run.logs[node] = run.logs[node][:-1]


def committed_nowhere(run: HistoryBuilder, messages: list[Message]) -> None:
    for node in run.nodes:
        run.commits[node] = 30


def delivered_beyond_the_end(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[-1].delivery["queue_offset"] = 9_000


def acknowledged_beyond_the_end(run: HistoryBuilder, messages: list[Message]) -> None:
    messages[-1].send["queue_offset"] = 9_000


def refused_and_stored(run: HistoryBuilder, messages: list[Message]) -> None:
    run.send(outcome="fail", stored=True)


def refused_by_a_code_that_proves_nothing(run: HistoryBuilder, messages: list[Message]) -> None:
    run.deliver(run.send(outcome="fail", stored=True, err_code=2))


def event_lost(run: HistoryBuilder, messages: list[Message]) -> None:
    for number in range(5):
        idx, t = number + (number > 2), 900 * MS + number
        run.add("events", idx=idx, type="ok", f="send", t_mono_ns=t)


def clock_went_back(run: HistoryBuilder, messages: list[Message]) -> None:
    for number in range(5):
        run.add("events", idx=number, type="ok", f="send", t_mono_ns=900 * MS + number % 3)


def received_before_it_was_sent(run: HistoryBuilder, messages: list[Message]) -> None:
    t = messages[1].send["t_inv"] - MS
    messages[1].delivery.update(t_fetch_inv=t - MS, t_recv=t)


def fault_without_witness(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run.pop("coverage")
    run.fault("kill", ["n0"], messages[2].t, messages[6].t)
    run.tables["faults"][0]["witness"] = None


def too_few_faults(run: HistoryBuilder, messages: list[Message]) -> None:
    run.run["coverage"] = {"kill": 2}
    run.fault("kill", ["n0"], messages[2].t, messages[6].t)


def fault_never_lifted(run: HistoryBuilder, messages: list[Message]) -> None:
    run.fault("cut", ["n0", "n1"], messages[2].t, messages[6].t)
    run.tables["faults"][0]["status"] = "heal_failed"


def stored_twice(run: HistoryBuilder, messages: list[Message]) -> None:
    at = messages[3]
    copy = 50
    for log in run.logs.values():
        log.append(Entry(log[-1].index + 1, 1, at.queue_id, copy, at.body))
    run.deliver(at, queue_offset=copy)


def second_group_misses_one(run: HistoryBuilder, messages: list[Message]) -> None:
    for message in messages[1:]:
        run.deliver(message, grp="second")


def no_keys_in_phantoms(run: HistoryBuilder, messages: list[Message]) -> None:
    for grp, auditor in (("billing", False), ("auditor", True)):
        run.deliver(
            messages[0], grp=grp, auditor=auditor, msg_key=None, body_hash=5, queue_offset=8_000
        )


def no_bytes(run: HistoryBuilder, messages: list[Message]) -> None:
    run.deliver(messages[3], grp="billing")
    messages[3].delivery.update(msg_key=None, body_hash=None)


def attempts_have_rows(run: HistoryBuilder, messages: list[Message]) -> None:
    refused = dict(messages[3].send, outcome="fail", err_code=14, queue_offset=None)
    run.tables["sends"].insert(3, refused | {"op_id": 9_999})


def named_by_run_id(run: HistoryBuilder, messages: list[Message]) -> None:
    for row in run.tables["deliveries"]:
        row["payload_run_id"] = run.run_id


def phantom_of_a_fresh_key(run: HistoryBuilder, messages: list[Message]) -> None:
    run.deliver(messages[0], msg_key=make_key(9, 9), queue_offset=9_000, body_hash=4)


def began_again_without(run: HistoryBuilder, messages: list[Message]) -> None:
    run.election("n0", 1)
    run.event("n1", "boot", 1, index=1, prev_index=1)
    # Who is killed between the note of a commit and the next one has more than it noted.
    run.event("n2", "boot", 1, index=5, prev_index=1)


def began_again_after_a_loss_of_power(run: HistoryBuilder, messages: list[Message]) -> None:
    began_again_without(run, messages)
    run.fault("proc.powerloss", ["n1"], messages[2].t, messages[6].t)


def came_from_elsewhere(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nobody has the logs; one send says where a message lies, and all readers found it apart."""
    run.run["nodes"] = []
    run.with_replicas = False
    messages[-1].delivery["queue_offset"] = 77


def came_from_where_it_was_stored_first(run: HistoryBuilder, messages: list[Message]) -> None:
    came_from_elsewhere(run, messages)
    messages[-1].send["attempts"] = 2


def one_fault_soon_after_the_begin(run: HistoryBuilder, messages: list[Message]) -> None:
    """Times count from the begin; the latest of some tables is a thousandth of the run's end."""
    for rows in run.tables.values():
        for row in rows:
            row |= {name: t - 990 * MS for name, t in row.items() if name.startswith("t_") and t}
    run.fault("kill", ["n0"], 20 * MS, 21 * MS)
    run.run["coverage"] = {}
    run.clock = 100_000 * MS
    run.deliver(run.send())


def events_of_the_first_nanosecond(run: HistoryBuilder, messages: list[Message]) -> None:
    for number in range(3):
        run.add("events", idx=number, type="ok", f="send", t_mono_ns=number // 2)


def attempts_without_ids(run: HistoryBuilder, messages: list[Message]) -> None:
    """A system that gives its messages no ids, and says how each attempt ended."""
    for message in messages:
        message.send.update(tries=["ok"], msg_id=None)


def group_that_got_nothing(run: HistoryBuilder, messages: list[Message]) -> None:
    """It subscribed, says run.json; nobody says how far it has read."""
    run.run["subscriptions"] = {"second": {"orders": ["red"]}}
    messages[3].send["tag"] = "red"


def came_again_from_somewhere(run: HistoryBuilder, messages: list[Message]) -> None:
    """A refused message comes again, at an offset of another queue; nobody calls it a retry."""
    one, other = messages[3], messages[5]
    run.add("acks", grp="billing", kind="nack", msg_key=one.key, delay_ms=0,
            t_inv=one.delivery["t_recv"] + MS, outcome="info")  # fmt: skip
    run.deliver(one, reconsume=1, is_retry=None, queue_offset=other.queue_offset)


def without(name: str) -> After:
    def remove(run: Path) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def cut_short(table: str) -> After:
    def cut(run: Path) -> None:
        file = run / "tables" / table / "part-0.parquet"
        file.write_bytes(file.read_bytes()[:-40])

    return cut


def emptied(table: str) -> After:
    def empty(run: Path) -> None:
        write_table(run, table, [])

    return empty


def column(table: str, name: str, change: Callable[[Any], Any]) -> After:
    def rewrite(run: Path) -> None:
        file = run / "tables" / table / "part-0.parquet"
        found = pq.read_table(file)
        values = pa.array([change(value) for value in found[name].to_pylist()])
        pq.write_table(found.set_column(found.schema.get_field_index(name), name, values), file)

    return rewrite


def run_json(text: str) -> After:
    return lambda run: (run / "run.json").write_text(text) and None


def header_flipped(offset: int) -> After:
    """Flip a bit in the header of the first entry."""

    def flip(run: Path) -> None:
        file = run / "replicas" / "n2" / "data" / ("0" * 20)
        data = bytearray(file.read_bytes())
        data[offset] ^= 1
        file.write_bytes(bytes(data))

    return flip


def strangers(run: Path) -> None:
    """Lay files of others beside the run's own."""
    (run / "replicas" / "notes.txt").write_text("hello")
    (run / "replicas" / "n1" / "data" / "README").write_text("hello")
    (run / "tables" / "mine").mkdir()


def page_spoiled(run: Path) -> None:
    """Change bytes of the data of a table that has checksums."""
    file = run / "tables" / "sends" / "part-0.parquet"
    pq.write_table(
        pq.read_table(file), file, compression="none", use_dictionary=False,
        write_page_checksum=True,
    )  # fmt: skip
    data = bytearray(file.read_bytes())
    key = -1
    for _ in range(6):  # behind what the page's header says of it
        key = data.find(b"orders", key + 1)
    data[key] ^= 1
    file.write_bytes(bytes(data))


CASES = {
    "sound": Case(exit_code=0),
    "without run.json": Case(exit_code=0, after=without("run.json")),
    "run.json names only the run": Case(exit_code=0, after=run_json('{"run_id": "a-run"}')),
    "run.json is cut short": Case(exit_code=2, after=run_json('{"run_id": ')),
    "run.json is a list": Case(exit_code=2, after=run_json(json.dumps([1]))),
    "deliveries name the run by its id": Case(exit_code=0, spoil=named_by_run_id),
    "files of others beside": Case(exit_code=0, after=strangers),
    "without sends": Case(exit_code=2, after=without("tables/sends")),
    "no sends": Case(exit_code=2, after=emptied("sends")),
    "no deliveries": Case(exit_code=2, after=emptied("deliveries")),
    "no events": Case(exit_code=2, after=emptied("events")),
    "sends cut short": Case(exit_code=2, after=cut_short("sends")),
    "deliveries cut short": Case(exit_code=2, after=cut_short("deliveries")),
    "a page spoiled": Case(exit_code=2, after=page_spoiled),
    "numbers as text": Case(exit_code=0, after=column("sends", "msg_key", str)),
    "keys are words": Case(exit_code=2, after=column("sends", "msg_key", lambda key: f"m{key}")),
    "offsets are structs": Case(
        exit_code=2, after=column("sends", "queue_offset", lambda at: {"at": at})
    ),
    "without the log of one": Case(exit_code=2, after=without("replicas/n1")),
    "without any log": Case(exit_code=2, after=without("replicas")),
    "without meta.json": Case(exit_code=2, after=without("replicas/n1/meta.json")),
    "without segments": Case(exit_code=1, check="A35", after=without("replicas/n1/data")),
    "channel flipped": Case(exit_code=1, check="A34", after=header_flipped(35)),
    "chain CRC flipped": Case(exit_code=1, check="A34", after=header_flipped(39)),
    "gone from all logs": Case(exit_code=1, check="A35", spoil=gone_from_all_logs),
    "gone from two logs": Case(exit_code=1, check="A35", spoil=gone_from_two_logs),
    "committed and in no log": Case(exit_code=1, check="A35", spoil=committed_nowhere),
    "began again without": Case(exit_code=1, check="A35", spoil=began_again_without),
    "began again after a loss of power": Case(exit_code=0, spoil=began_again_after_a_loss_of_power),
    "delivered beyond the end": Case(exit_code=1, check="A15", spoil=delivered_beyond_the_end),
    "acknowledged beyond the end": Case(
        exit_code=1, check="A15", spoil=acknowledged_beyond_the_end
    ),
    "came from elsewhere": Case(exit_code=1, check="A15", spoil=came_from_elsewhere),
    "came from where it was stored first": Case(
        exit_code=0, spoil=came_from_where_it_was_stored_first
    ),
    "one fault soon after the begin": Case(exit_code=0, spoil=one_fault_soon_after_the_begin),
    "came again from somewhere": Case(exit_code=0, spoil=came_again_from_somewhere),
    "refused and stored": Case(exit_code=1, check="A7", spoil=refused_and_stored),
    "refused by a code that proves nothing": Case(
        exit_code=0, spoil=refused_by_a_code_that_proves_nothing
    ),
    "attempts without ids": Case(exit_code=0, spoil=attempts_without_ids),
    "one row an attempt": Case(exit_code=0, spoil=attempts_have_rows),
    "events of the first nanosecond": Case(exit_code=0, spoil=events_of_the_first_nanosecond),
    "event lost": Case(exit_code=2, spoil=event_lost),
    "clock went back": Case(exit_code=2, spoil=clock_went_back),
    "received before it was sent": Case(exit_code=2, spoil=received_before_it_was_sent),
    "fault without witness": Case(exit_code=2, spoil=fault_without_witness),
    "too few faults": Case(exit_code=2, spoil=too_few_faults),
    "fault never lifted": Case(exit_code=2, spoil=fault_never_lifted),
    "stored twice": Case(exit_code=3, check="A8", spoil=stored_twice),
    "a group that got nothing": Case(exit_code=2, spoil=group_that_got_nothing),
    "second group misses one": Case(exit_code=1, check="A1", spoil=second_group_misses_one),
    "phantom": Case(exit_code=1, check="A5", spoil=phantom_of_a_fresh_key),
    "phantom without a key": Case(exit_code=1, check="A5", spoil=no_keys_in_phantoms),
    "body without bytes": Case(exit_code=1, check="A6", spoil=no_bytes),
}
