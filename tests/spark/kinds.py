"""Every kind of message in small histories: sound, in violation of one check, or lacking a column.

Each violation has topics and groups of its own, so that many lie side by side in one history.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.spark.generate import MS, HistoryBuilder, Message
from tests.spark.leaders import LEADERS_LACKING

Row = dict[str, Any]


@dataclass
class Kind:
    """One topic with one group, and what happened to it."""

    run: HistoryBuilder
    topic: str
    grp: str
    sent: list[Message] = field(default_factory=list)
    given: list[Row] = field(default_factory=list)
    audited: list[Row] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)

    def send(self, **row: Any) -> Message:
        made = {"topic": self.topic, "queue_id": 0, "tries": ["ok"], "msg_id": "id"} | row
        self.sent.append(self.run.send(**made))
        return self.sent[-1]

    def deliver(self, message: Message, **row: Any) -> Row:
        self.given.append(self.run.deliver(message, grp=self.grp, **row))
        return self.given[-1]

    def ack(self, kind: str, **row: Any) -> Row:
        self.run.clock += MS
        t = self.run.clock
        made = {"grp": self.grp, "topic": self.topic, "t_inv": t, "t_cmp": t, "outcome": "ok"}
        return self.run.add("acks", op_id=self.run.op(), kind=kind, **(made | row))


Spoil = Callable[[HistoryBuilder, list[Message]], None]
BY_NAME: dict[str, Callable[[Kind], None]] = {}


def kind_of(run: HistoryBuilder, name: str, mode: str = "concurrent") -> Kind:
    number = len(run.consumes)
    made = Kind(run, f"{name}-{number}", f"{name}-group-{number}")
    run.consumes[made.grp] = {made.topic}
    run.run.setdefault("modes", {})[made.grp] = mode
    return made


def reading(run: HistoryBuilder) -> Kind:
    """A group that reads a queue, commits and asks; an auditor that reads all of it."""
    kind = kind_of(run, "read")
    for _ in range(8):
        kind.send()
    for message in kind.sent:
        kind.deliver(message)
    run.clock += 10 * MS  # all has come
    kind.rows["commit"] = kind.ack("commit", queue_id=0, value_offset=8)
    kind.rows["fetch"] = kind.ack("fetch", queue_id=0, value_offset=8)
    for message in kind.sent:
        row = run.deliver(message, grp="auditor", auditor=True, consumer="auditor")
        kind.audited.append(row)
    run.consumes.setdefault("auditor", set()).add(kind.topic)
    run.clock += 100 * MS
    kind.rows["durable"] = kind.ack("commit", queue_id=0, value_offset=8, durable=True)
    return kind


def batches(run: HistoryBuilder) -> Kind:
    """Three messages in one request."""
    kind = kind_of(run, "batch")
    for _ in range(3):
        kind.send(kind="batch")
    first = kind.sent[0].send
    for message in kind.sent[1:]:
        message.send.update({name: first[name] for name in ("op_id", "t_inv", "t_cmp")})
    for message in kind.sent:
        kind.deliver(message)
    return kind


def orderly(run: HistoryBuilder) -> Kind:
    """Two shards, each in a queue of its own, one call after the other."""
    kind = kind_of(run, "order", "orderly")
    for number in range(8):
        kind.send(kind="orderly", queue_id=number % 2, shard_key="ab"[number % 2])
    for message in kind.sent:
        t = run.clock + 10 * MS
        kind.deliver(message, t_proc_begin=t, t_proc_end=t + MS // 2)
    return kind


def refused_in_order(run: HistoryBuilder) -> Kind:
    """The last call of a shard is refused, and comes again at once; the other shard goes on."""
    kind = orderly(run)
    refuse(kind, 6)
    kind.send(kind="orderly", queue_id=1, shard_key="b")
    for at, times in ((8, 0), (6, 1)):
        t = run.clock + 10 * MS
        about = {"t_proc_begin": t, "t_proc_end": t + MS // 2, "reconsume": times}
        kind.deliver(kind.sent[at], **about)
    return kind


def refuse(kind: Kind, at: int) -> None:
    """The listener refuses a message at the end of its call."""
    row = kind.given[at]
    t = row["t_proc_end"]
    place = {name: row[name] for name in ("topic", "queue_id", "queue_offset", "msg_key")}
    kind.ack("nack", reconsume=0, delay_ms=0, **place, t_inv=t, t_cmp=t)


def one_call(run: HistoryBuilder) -> Kind:
    """All that a poll brought is given in one call; a message in the middle is of another tag."""
    kind = reading(run)
    first = kind.given[0]
    for pos, row in enumerate(kind.given):
        row.update(op_id=first["op_id"], pos=pos, t_fetch_inv=first["t_fetch_inv"])
        row["t_recv"] = kind.given[-1]["t_recv"]
    run.tables["deliveries"].remove(kind.given[2])
    run.run.setdefault("subscriptions", {})[kind.grp] = {kind.topic: ["red"]}
    for number, message in enumerate(kind.sent):
        message.send["tag"] = "blue" if number == 2 else "red"
    return kind


def waiting(run: HistoryBuilder) -> Kind:
    """Delayed messages; where they are to lie nobody knows when they are acknowledged."""
    kind = kind_of(run, "wait")
    for _ in range(4):
        message = kind.send(kind="delay", delay_ms=1_000)
        message.send.update(queue_id=None, queue_offset=None)
    for message in kind.sent:
        run.clock = max(run.clock, message.send["t_cmp"] + 1_000 * MS)
        kind.deliver(message)
    return kind


def failing(run: HistoryBuilder) -> Kind:
    """A message that is refused, comes again once, is refused again: a dead letter."""
    kind = kind_of(run, "fail")
    run.run.setdefault("reconsume_max", {})[kind.grp] = 1
    for _ in range(3):
        kind.send()
    for message in kind.sent:
        kind.deliver(message)
    bad = kind.sent[1]
    for times in (0, 1):
        about = {"msg_key": bad.key, "reconsume": times, "delay_ms": 1_000, "outcome": "info"}
        run.clock += 10 * MS
        kind.rows[f"nack {times}"] = kind.ack("nack", **about)
        run.clock += 1_100 * MS
        if times == 0:
            kind.rows["retry"] = kind.deliver(bad, is_retry=True, reconsume=1, queue_offset=0)
    letter = {"auditor": True, "is_dlq": True, "queue_offset": 0, "consumer": "auditor"}
    kind.rows["letter"] = run.deliver(bad, grp=kind.grp, **letter)
    return kind


def transactions(run: HistoryBuilder) -> Kind:
    """One committed, one rolled back, one committed by its producer's answer."""
    kind = kind_of(run, "txn")
    run.run["check_back"] = {"after_ms": 100, "interval_ms": 200, "max": 2}
    for said in ("commit", "rollback", "checkback"):
        message = kind.send(kind="txn", stored=said != "rollback")
        message.send.update(queue_id=None, queue_offset=None)
        answer = "commit" if said == "checkback" else None
        for step in ("half", said):
            run.clock += (150 if step == "checkback" else 1) * MS
            about = {"txn_id": message.key, "msg_key": message.key, "outcome": "ok"}
            times = {"t_inv": run.clock, "t_cmp": run.clock + MS}
            kind.rows[f"{said}/{step}"] = run.add(
                "txn", step=step, answer=answer if step == said else None, **about, **times
            )
        if said != "rollback":
            kind.deliver(message)
    return kind


def question_lost(run: HistoryBuilder) -> Kind:
    """Of two questions about a half one was lost while a broker stood still: there is no third."""
    kind = kind_of(run, "txn")
    run.run["check_back"] = {"after_ms": 100, "interval_ms": 200, "max": 2}
    left = kind.send(kind="txn", stored=False)
    left.send.update(queue_id=None, queue_offset=None)
    run.fault("pause", ["n0"], run.clock + 50 * MS, run.clock + 250 * MS)
    for step, answer in (("half", None), ("checkback", "unknown")):
        about = {"txn_id": left.key, "msg_key": left.key, "outcome": "ok", "answer": answer}
        run.add("txn", step=step, t_inv=run.clock, t_cmp=run.clock + MS, **about)
        run.clock += 500 * MS
    run.clock += 12_000 * MS
    kind.deliver(kind.send())
    return kind


def committed_too_late(run: HistoryBuilder) -> Kind:
    """A leader took a commit, and was paused before it had told the others."""
    kind = kind_of(run, "spread")
    for message in [kind.send() for _ in range(4)]:
        kind.deliver(message)
    run.clock += 10 * MS
    kind.ack("commit", queue_id=0, value_offset=1)
    run.clock += 5_000 * MS
    kind.ack("commit", queue_id=0, value_offset=4)
    run.fault("pause", ["n0"], run.clock + 1_000 * MS, run.clock + 1_500 * MS)
    run.clock += 20_000 * MS
    kind.ack("fetch", queue_id=0, value_offset=1)
    return kind


def letter_in_doubt(run: HistoryBuilder) -> Kind:
    """The answer to what was given back for the last time is lost: it is given back once more."""
    kind = failing(run)
    letter_twice(kind)
    t = kind.rows["nack 1"]["t_inv"]
    run.fault("pause", ["n0"], t + 500 * MS, t + 1_000 * MS)
    run.clock += 10_000 * MS
    return kind


def letters_beyond_doubt(run: HistoryBuilder, messages: list[Any]) -> None:
    """So many times no lost answer has a message given back."""
    run.clock += 20_000 * MS  # its fault excuses nothing else
    kind = letter_in_doubt(run)
    for at in range(2, 5):
        run.deliver(kind.sent[1], grp=kind.grp, is_dlq=True, auditor=True, queue_offset=at)


def made_anew(run: HistoryBuilder) -> Kind:
    """A topic is deleted and made anew: its offsets, and those of its group, begin once more."""
    kind = kind_of(run, "anew", "orderly")
    for epoch, number in ((0, 6), (1, 2)):
        run._offsets[kind.topic, 0] = 0
        run.clock += 20_000 * MS
        for _ in range(number):
            message = kind.send(kind="orderly", shard_key="a", epoch=epoch)
            t = run.clock + 10 * MS
            kind.deliver(message, epoch=epoch, t_proc_begin=t, t_proc_end=t + MS // 2)
        kind.ack("fetch", queue_id=0, value_offset=0)
        kind.ack("commit", queue_id=0, value_offset=number)
    return kind


FAMILIES = (
    reading, committed_too_late, batches, orderly, waiting, failing, letter_in_doubt, transactions,
    refused_in_order, one_call, made_anew, question_lost,
)  # fmt: skip


def every_kind(run: HistoryBuilder, messages: list[Message]) -> None:
    """Add all of it, sound."""
    for family in FAMILIES:
        family(run)
    run.with_queues = True
    run.probe("n0", "leader", 1, run.clock)
    run.add("masters", controller="c0", t0=run.clock, t1=run.clock + 1, grp="a", epoch=1, node="n0",
            set_epoch=1, in_sync=[1])  # fmt: skip
    run.add("node_log", node="n0", role="broker", kind="slow", level="ERROR", event="slow_write",
            t=run.clock, t_last=run.clock + 1, count=2, line="event=slow_write")  # fmt: skip


def of(family: Callable[[HistoryBuilder], Kind], spoil: Callable[[Kind], object]) -> Spoil:
    """Add one family and spoil it."""

    def add(run: HistoryBuilder, messages: list[Message]) -> None:
        spoil(family(run))
        run.probe("n0", "leader", 1, run.clock)

    return add


def swap(one: Row, other: Row, *names: str) -> None:
    for name in names:
        one[name], other[name] = other[name], one[name]


def poll_back(kind: Kind) -> None:
    swap(kind.given[3], kind.given[4], "t_fetch_inv", "t_recv")


def committed_past(kind: Kind) -> None:
    """The offset behind the last message is committed before the message has come."""
    t = kind.given[7]["t_recv"] - MS // 2
    kind.rows["commit"].update(t_inv=t, t_cmp=t)


def passed_over(kind: Kind) -> None:
    """c0 goes on behind the fourth message, which c1 gets when it has the queue."""
    end = kind.given[-1]["t_recv"]
    kind.given[3].update(consumer="c1", generation=2, t_fetch_inv=end, t_recv=end + MS)


def two_holes(kind: Kind) -> None:
    for at in (7, 2, 3):
        kind.run.tables["deliveries"].remove(kind.audited[at])


def late(kind: Kind) -> None:
    kind.run.run["contract"]["late_ms_max"] = 500
    for name in ("t_fetch_inv", "t_recv"):
        kind.given[-1][name] += 2_000 * MS


def early(kind: Kind) -> None:
    sent = kind.sent[0].send
    kind.given[0].update(t_fetch_inv=sent["t_cmp"], t_recv=sent["t_inv"] + 900 * MS)


def not_given(kind: Kind) -> None:
    kind.run.tables["deliveries"].remove(kind.given[1])


def too_soon(kind: Kind) -> None:
    t = kind.rows["nack 0"]["t_inv"] + 500 * MS
    kind.rows["retry"].update(t_fetch_inv=t - MS, t_recv=t)


def once_too_often(kind: Kind) -> None:
    """It came for the second time, though one is the limit; of the third refusal nobody knows."""
    kind.run.clock += 1_100 * MS
    kind.deliver(kind.sent[1], is_retry=True, reconsume=2, queue_offset=1)


def letter_of_nothing(kind: Kind) -> None:
    kind.run.deliver(kind.sent[2], grp=kind.grp, is_dlq=True, auditor=True, queue_offset=1)


def letter_twice(kind: Kind) -> None:
    kind.run.deliver(kind.sent[1], grp=kind.grp, is_dlq=True, auditor=True, queue_offset=1)


def no_letter(kind: Kind) -> None:
    kind.run.tables["deliveries"].remove(kind.rows["letter"])


def before_the_word(kind: Kind) -> None:
    t = kind.rows["commit/commit"]["t_inv"]
    kind.given[0].update(t_fetch_inv=t - 2 * MS, t_recv=t - MS)


def rolled_back_and_given(kind: Kind) -> None:
    """It is stored, as if it had been committed, and comes."""
    kind.rows["commit/commit"]["step"] = "rollback"


def asked_again(kind: Kind, times: int, apart_ms: int) -> None:
    """Its producer is asked once more, though it has answered."""
    asked = kind.rows["checkback/checkback"]
    for number in range(times):
        t = asked["t_inv"] + (number + 1) * apart_ms * MS
        kind.run.add("txn", **(asked | {"t_inv": t, "t_cmp": t + MS}))
        kind.run.clock = max(kind.run.clock, t + MS)


def asked_too_soon(kind: Kind) -> None:
    t = kind.rows["checkback/half"]["t_inv"] + 2 * MS
    kind.rows["checkback/checkback"].update(t_inv=t, t_cmp=t)


def never_asked(kind: Kind) -> None:
    """Nobody decides a half, and nobody is asked about it for ten seconds."""
    left = kind.send(kind="txn", stored=False)
    left.send.update(queue_id=None, queue_offset=None)
    kind.run.clock += 10_000 * MS
    kind.deliver(kind.send())


def given_after_all(kind: Kind) -> None:
    """A commit of unknown outcome may be why it comes again, but an earlier one was durable."""
    kind.ack("commit", queue_id=0, value_offset=8, outcome="info")
    kind.deliver(kind.sent[7], consumer="c1", generation=2)


def given_though_acknowledged(kind: Kind) -> None:
    """Of one message; the queue is not committed."""
    for name in ("commit", "fetch", "durable"):
        kind.rows[name]["value_offset"] = 0
    kind.ack("ack", queue_id=0, queue_offset=7, msg_key=kind.sent[7].key, durable=True)
    kind.ack("commit", queue_id=0, value_offset=0, outcome="info")
    kind.deliver(kind.sent[7], consumer="c1", generation=2)


def overlapped(kind: Kind) -> None:
    kind.given[2]["t_proc_end"] = kind.given[4]["t_proc_begin"] + 1


def shard_turned(kind: Kind) -> None:
    swap(kind.given[2], kind.given[4], "t_proc_begin", "t_proc_end")


def passed_a_refusal(kind: Kind) -> None:
    """The third of a shard is refused, the fourth is given, and only then the third again."""
    refuse(kind, 4)
    t = kind.run.clock + 10 * MS
    kind.deliver(kind.sent[4], t_proc_begin=t, t_proc_end=t + 1, reconsume=1)


def call_turned(kind: Kind) -> None:
    swap(kind.given[3], kind.given[4], "pos")


def too_soon_by_the_clock(run: HistoryBuilder, messages: list[Any], *, moved: bool = True) -> None:
    """A delayed message and a retry come early; a wall clock was moved, or was to be."""
    of(waiting, early)(run, messages)
    of(failing, too_soon)(run, messages)
    run.fault("clock_jump", ["n0"], messages[2].t, messages[6].t, moved)
    run.run["coverage"] = {}


def told_less_while_one_is_down(kind: Kind) -> None:
    """A broker is down, and who leads does so all the while: what was committed stands."""
    begin, end = kind.rows["commit"]["t_inv"] - 3 * MS, kind.rows["fetch"]["t_inv"] + 3 * MS
    kind.run.fault("stop", ["n2"], begin, end)
    kind.rows["fetch"].update(value_offset=3)


def told_less_once_it_had_committed(kind: Kind) -> None:
    """Who was told less has committed since, and its pulls carry that."""
    t = kind.rows["commit"]["t_inv"] - 2 * MS
    kind.rows["fetch"].update(value_offset=0, t_inv=t, t_cmp=t, consumer="c0")
    kind.rows["commit"].update(consumer="c0")
    kind.run.clock += 4_000 * MS
    kind.ack("fetch", queue_id=0, value_offset=3, consumer="c1")


TWO_HOLES = of(reading, two_holes)
KIND_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "batch turned": (
        "A12", "invalid", of(batches, lambda k: swap(k.sent[0].send, k.sent[1].send, "seq"))
    ),
    "poll back": ("A13", "invalid", of(reading, poll_back)),
    "call turned": ("A13", "invalid", of(one_call, call_turned)),
    "passed over": ("A14", "invalid", of(reading, passed_over)),
    "two holes": ("A16", "invalid", TWO_HOLES),
    "two calls at once": ("A17", "invalid", of(orderly, overlapped)),
    "shard turned": ("A17", "invalid", of(orderly, shard_turned)),
    "passed a refusal": ("A17", "invalid", of(orderly, passed_a_refusal)),
    "committed past": ("A2", "invalid", of(reading, committed_past)),
    "told less": ("A18", "invalid", of(reading, lambda k: k.rows["fetch"].update(value_offset=3))),
    "told less while one is down": ("A18", "invalid", of(reading, told_less_while_one_is_down)),
    "told less, once committed": ("A18", "invalid", of(reading, told_less_once_it_had_committed)),
    "committed beyond": (
        "A19", "invalid", of(reading, lambda k: k.ack("commit", queue_id=0, value_offset=9))
    ),
    "asked too often": ("A23", "invalid", of(transactions, lambda k: asked_again(k, 2, 400))),
    "asked twice at once": ("A23", "invalid", of(transactions, lambda k: asked_again(k, 1, 50))),
    "asked too soon": ("A23", "invalid", of(transactions, asked_too_soon)),
    "never asked": ("A23", "invalid", of(transactions, never_asked)),
    "durably committed": ("A52", "invalid", of(reading, given_after_all)),
    "durably acknowledged": ("A52", "invalid", of(reading, given_though_acknowledged)),
    "overdue": ("A25", "invalid", of(waiting, late)),
    "delayed and lost": ("A1", "invalid", of(waiting, not_given)),
    "early": ("A56", "invalid", of(waiting, early)),
    "retry too soon": ("A26", "invalid", of(failing, too_soon)),
    "once too often": ("A26", "invalid", of(failing, once_too_often)),
    "letter of nothing": ("A28", "invalid", of(failing, letter_of_nothing)),
    "letter twice": ("A29", "valid", of(failing, letter_twice)),
    "letters beyond doubt": ("A29", "valid", letters_beyond_doubt),
    "no letter": ("A57", "invalid", of(failing, no_letter)),
    "rolled back and given": ("A53", "invalid", of(transactions, rolled_back_and_given)),
    "before the word": ("A54", "invalid", of(transactions, before_the_word)),
    "committed and not given": ("A55", "invalid", of(transactions, not_given)),
}  # fmt: skip


def plant_kinds(run: HistoryBuilder, rng: random.Random) -> Counter[str]:
    """Plant some violations of every kind; return how many of each check there are.

    Few in one history: each has a topic and a group of its own, and Spark's plans grow with them.
    """
    planted = Counter({check: 0 for check, _, _ in KIND_VIOLATIONS.values()})
    for check, _, spoil in KIND_VIOLATIONS.values():
        if rng.random() < 0.15:
            spoil(run, [])
            planted[check] += 2 if spoil is TWO_HOLES else 1
    return planted


def emptied(kind: Kind, name: str) -> None:
    for row in kind.given:
        row[name] = None


def drain_without(kind: Kind, name: str, grp: str) -> None:
    kind.run.drain_lacks[grp, kind.topic] = name


def sends_without(name: str) -> Callable[[Kind], None]:
    def spoil(kind: Kind) -> None:
        for message in kind.sent:
            message.send[name] = None

    return spoil


def rows_without(row: str, name: str) -> Callable[[Kind], None]:
    return lambda kind: kind.rows[row].update({name: None})


def no_decisions(kind: Kind) -> None:
    kind.run.tables["txn"] = []


def none_committed(run: HistoryBuilder, messages: list[Any]) -> None:
    """No node says that anything of its log is committed, though all was acknowledged."""
    run.commits.update(dict.fromkeys(run.nodes, -1))


def no_limit(kind: Kind) -> None:
    del kind.run.run["reconsume_max"]


LETTERS = ("A28", "A29", "A57")
LACKING: dict[str, tuple[tuple[str, ...], str, Spoil]] = {
    "seq of a batch": (("A12",), "sends.seq", of(batches, sends_without("seq"))),
    "generation": (("A13", "A14"), "deliveries.generation", of(
        reading, lambda k: emptied(k, "generation"))),
    "poll": (("A13", "A14"), "deliveries.t_fetch_inv", of(
        reading, lambda k: emptied(k, "t_fetch_inv"))),
    "end of a queue": (("A16", "A19"), "drain.end_off", of(
        reading, lambda k: drain_without(k, "end_off", "auditor"))),
    "begin of a queue": (("A16",), "drain.min_off", of(
        reading, lambda k: drain_without(k, "min_off", "auditor"))),
    "call": (("A17",), "deliveries.t_proc_begin", of(
        orderly, lambda k: emptied(k, "t_proc_begin"))),
    "shard": (("A17",), "sends.shard_key", of(orderly, sends_without("shard_key"))),
    "what was told": (("A18",), "acks.value_offset", of(
        reading, rows_without("fetch", "value_offset"))),
    "what was committed": (("A2",), "acks.value_offset", of(
        reading, rows_without("commit", "value_offset"))),
    "delay": (("A25", "A56"), "sends.delay_ms", of(waiting, sends_without("delay_ms"))),
    "delay of a refusal": (("A26",), "acks.delay_ms", of(
        failing, rows_without("nack 0", "delay_ms"))),
    "times of a refusal": (LETTERS, "acks.reconsume", of(
        failing, rows_without("nack 1", "reconsume"))),
    "limit of retries": (LETTERS, "reconsume_max", of(failing, no_limit)),
    "answer": (("A23", "A53", "A54", "A55"), "txn.answer", of(
        transactions, rows_without("checkback/checkback", "answer"))),
    "decisions": (("A23", "A53", "A54", "A55"), "txn", of(transactions, no_decisions)),
    "commits of logs": (("A34", "A35", "A39"), "none of them committed", none_committed),
} | LEADERS_LACKING  # fmt: skip
"""What is missing: the checks that cannot be decided, and what each says that it needs."""
LACKING_TOGETHER = (
    "seq of a batch", "generation", "end of a queue", "call", "shard", "what was told",
    "what was committed", "delay", "delay of a refusal", "times of a refusal", "answer",
    "log of a candidate", "begin of an append",
)  # fmt: skip
"""Of each check one, all in one history."""
