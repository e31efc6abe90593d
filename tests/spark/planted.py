"""What another one planted who has not read the checkers: each alone is found by its check.

And beside each what looks like it and is sound. Both checkers are asked of all of it.
Source: spec/proof.md 3.0.
"""

from collections.abc import Callable
from typing import Any

from tests.spark.generate import MS, Entry, HistoryBuilder, Message
from tests.spark.kinds import (
    Kind,
    Row,
    Spoil,
    failing,
    kind_of,
    no_letter,
    not_given,
    of,
    reading,
    transactions,
    waiting,
)


def said_otherwise(kind: Kind, step: str, outcome: str) -> None:
    """Of the one that was committed a second decision is on record."""
    about = {"step": step, "outcome": outcome}
    kind.run.add("txn", **(kind.rows["commit/commit"] | about))


def given_though_its_commit_failed(kind: Kind) -> None:
    """It is certain that its commit did nothing; its producer was asked twice, and did not know."""
    kind.rows["commit/commit"]["outcome"] = "fail"
    half: Row = kind.rows["commit/half"]
    for number in (1, 2):
        t = half["t_inv"] + number * 200 * MS
        asked = {"step": "checkback", "answer": "unknown", "t_inv": t, "t_cmp": t + MS}
        kind.run.add("txn", **(half | asked))
        kind.run.clock = max(kind.run.clock, t + MS)


def given_though_only_rolled_back(kind: Kind) -> None:
    """It was rolled back, and the commit that is on record, too, did nothing."""
    said_otherwise(kind, "rollback", "ok")
    kind.rows["commit/commit"]["outcome"] = "fail"


def missing_though_only_committed(kind: Kind) -> None:
    """It was committed, and the rollback that is on record, too, did nothing."""
    said_otherwise(kind, "rollback", "fail")
    kind.run.tables["deliveries"].remove(kind.given[0])


def decided_both_ways(kind: Kind) -> None:
    """Nobody knows which of two decisions was heard: it may come, and may not."""
    said_otherwise(kind, "rollback", "info")
    said_otherwise(kind, "commit", "info")


def missing_as_decided_both_ways(kind: Kind) -> None:
    decided_both_ways(kind)
    kind.run.tables["deliveries"].remove(kind.given[0])


def nothing_of_another_topic(kind: Kind) -> None:
    """A group whose dead letter an auditor read got nothing of the second topic that it read."""
    other = f"{kind.topic}-more"
    kind.run.consumes[kind.grp].add(other)
    kind.send(topic=other)


def not_drained(kind: Kind) -> None:
    """Another group, of another topic, did not come to the end of its queue."""
    run, other = kind.run, kind_of(kind.run, "open")
    other.deliver(other.send())
    for queue_id, is_drained in ((0, False), (1, True)):
        end = 1 - queue_id
        run.add("drain", grp=other.grp, topic=other.topic, queue_id=queue_id, min_off=0,
                end_off=end, read_to=0, empty_polls=2, drained=is_drained)  # fmt: skip


def beside(spoil: Callable[[Kind], None]) -> Callable[[Kind], None]:
    """Spoil one group, and have another one not drained: it has nothing to do with it."""

    def both(kind: Kind) -> None:
        spoil(kind)
        not_drained(kind)

    return both


def refused_once(kind: Kind) -> None:
    kind.run.clock += 10 * MS
    about = {"msg_key": kind.sent[2].key, "reconsume": 0, "delay_ms": 10, "outcome": "info"}
    kind.ack("nack", **about)


def missing_where_nobody_drained(kind: Kind) -> None:
    """Nothing tells how far its own group read; others of its topic read all of it."""
    run, others = kind.run, f"{kind.grp}-others"
    run.consumes |= {others: run.consumes[kind.grp], kind.grp: set()}
    for message in (kind.sent[0], kind.sent[2]):
        run.deliver(message, grp=others, consumer="d0")
    run.tables["deliveries"].remove(kind.given[0])


def read_to_the_end(kind: Kind) -> Kind:
    """All of a queue is read and committed; then nothing happens for a minute."""
    for _ in range(8):
        kind.send(kind="orderly", shard_key="a")
    for message in kind.sent:
        given(kind, message)
    kind.run.clock += 10 * MS
    kind.ack("commit", queue_id=0, value_offset=8)
    kind.run.clock += 60_000 * MS
    return kind


def given(kind: Kind, message: Message) -> None:
    t = kind.run.clock + 10 * MS
    kind.deliver(message, t_proc_begin=t, t_proc_end=t + MS // 2)


def set_back(run: HistoryBuilder, to: int, outcome: str = "ok", **place: Any) -> Kind:
    """A queue is set back, and what lies there comes again."""
    kind = read_to_the_end(kind_of(run, "reset", "orderly"))
    kind.ack("reset", **({"queue_id": 0, "value_offset": to, "outcome": outcome} | place))
    run.clock += 10 * MS
    return kind


def came_again(run: HistoryBuilder, messages: list[Message]) -> None:
    kind = set_back(run, to=2)
    for message in kind.sent[2:]:
        given(kind, message)


def came_from_before(run: HistoryBuilder, messages: list[Message]) -> None:
    """It lies before the offset to which its queue was set back."""
    kind = set_back(run, to=6)
    for at in (5, 6, 7):
        given(kind, kind.sent[at])


def came_though_it_failed(run: HistoryBuilder, messages: list[Message]) -> None:
    given((kind := set_back(run, to=6, outcome="fail")), kind.sent[7])


def came_though_another_was_reset(run: HistoryBuilder, messages: list[Message]) -> None:
    """Another queue was set back, and the queue of another group."""
    kind = set_back(run, to=0, queue_id=1)
    kind.ack("reset", grp="elsewhere", queue_id=0, value_offset=0)
    given(kind, kind.sent[7])


def came_twice_more(run: HistoryBuilder, messages: list[Message]) -> None:
    """It came again since its queue was set back, and once more a minute later."""
    kind = set_back(run, to=7)
    given(kind, kind.sent[7])
    run.clock += 60_000 * MS
    given(kind, kind.sent[7])


def set_forth_and_back(run: HistoryBuilder, messages: list[Message]) -> None:
    """A queue is set forth, and back to where it was: one member polls it, then another one."""
    kind = kind_of(run, "reset", "orderly")
    for _ in range(8):
        kind.send(kind="orderly", shard_key="a")
    for begin, end, member in ((0, 3, "c0"), (6, 8, "c0"), (3, 4, "c0"), (4, 8, "c1")):
        kind.ack("reset", queue_id=0, value_offset=begin)
        run.clock += 10 * MS
        for message in kind.sent[begin:end]:
            t = run.clock + 10 * MS
            about = {"t_proc_begin": t, "t_proc_end": t + MS // 2, "consumer": member}
            kind.deliver(message, generation=int(member[1:]) + 1, **about)
        run.clock += 10 * MS


def set_forth(run: HistoryBuilder, *then: tuple[int, int], outcome: str = "ok") -> Kind:
    """The first three of eight come, then the queue is set forth to the seventh.

    ``then``: to where it is set next, and how many come from there.
    """
    kind = kind_of(run, "reset")
    for _ in range(8):
        kind.send()
    for message in kind.sent[:3]:
        kind.deliver(message)
    for begin, count in ((6, 2), *then):
        kind.ack("reset", queue_id=0, value_offset=begin, outcome=outcome)
        run.clock += 10 * MS
        for message in kind.sent[begin : begin + count]:
            kind.deliver(message)
        run.clock += 10 * MS
    return kind


def missing_since_it_was_set_back(run: HistoryBuilder, messages: list[Message]) -> None:
    """Its queue was set forth behind the sixth, and back before it: then it is owed."""
    set_forth(run, (4, 1), (6, 2))


def missing_though_set_back_later(run: HistoryBuilder, messages: list[Message]) -> None:
    """It had been passed over when its queue was set back behind it."""
    kind = read_to_the_end(kind_of(run, "reset"))
    run.tables["deliveries"].remove(kind.given[2])
    kind.ack("reset", queue_id=0, value_offset=5)
    run.clock += 10 * MS
    for message in kind.sent[5:]:
        given(kind, message)


def missing_though_not_set_forth(run: HistoryBuilder, messages: list[Message]) -> None:
    """The reset that would have skipped three messages failed."""
    set_forth(run, outcome="fail")


def missing_if_not_set_forth(run: HistoryBuilder, messages: list[Message]) -> None:
    """Nobody knows whether the reset was done that would have skipped three messages."""
    set_forth(run, outcome="info")


def skipped_though_committed(run: HistoryBuilder, messages: list[Message]) -> None:
    """A committed transaction's message, which an auditor read, was skipped by a reset."""
    kind = transactions(run)
    rows = run.tables["deliveries"]
    reader = kind_of(run, "skipping")
    run.consumes[reader.grp] = {kind.topic}
    reader.ack("reset", topic=kind.topic, queue_id=0, value_offset=1)
    run.clock += 10 * MS
    run.deliver(kind.sent[2], grp=reader.grp, consumer="d0")
    assert rows[-1]["queue_offset"] == 1


def two_topics_with_one_key(run: HistoryBuilder, messages: list[Message]) -> None:
    """What came of one topic would hide that the message of another never did: of one key."""
    kind = kind_of(run, "twin")
    other = f"{kind.topic}-more"
    run.consumes[kind.grp].add(other)
    kind.deliver(kind.send())
    kind.send(topic=other, msg_key=kind.sent[0].key, outcome="info", tries=["info"])


def delayed_and_passed(kind: Kind) -> None:
    """The offset behind the last delayed message is committed before the message has come."""
    t = kind.given[-1]["t_recv"] - MS // 2
    kind.ack("commit", queue_id=0, value_offset=4, t_inv=t, t_cmp=t)


def hole_and_an_open_queue(kind: Kind) -> None:
    """An auditor found nothing at one place, and did not come to the end of another queue.

    Of the first queue it says twice that it read all.
    """
    kind.run.tables["deliveries"].remove(kind.audited[2])
    for queue_id, read_to in ((0, 7), (0, 8), (1, 0)):
        end = 8 - 8 * queue_id
        kind.run.add("drain", grp="auditor", topic=kind.topic, queue_id=queue_id, min_off=0,
                     end_off=end, read_to=read_to, drained=not queue_id)  # fmt: skip


def read_and_gone(run: HistoryBuilder, messages: list[Message]) -> None:
    """A message of which nobody knows the outcome was read, and no log holds it."""
    run.deliver(run.send(outcome="info", tries=["info"]))


def read_from_one_log(run: HistoryBuilder, messages: list[Message]) -> None:
    """It lies in the end of one log, where nothing is committed."""
    message = run.send(outcome="info", tries=["info"])
    run.deliver(message)
    log = run.logs["n0"]
    run.commits["n0"] = log[-1].index
    log.append(Entry(message.index, 1, message.queue_id, message.queue_offset, message.body))


def read_by_a_promise_of_one(run: HistoryBuilder, messages: list[Message]) -> None:
    """A master shows what it alone has."""
    run.run["contract"]["durability"] = "master"
    read_and_gone(run, messages)


def read_and_stored(run: HistoryBuilder, messages: list[Message]) -> None:
    run.deliver(run.send(outcome="info", tries=["info"], stored=True))


def terms_fall(run: HistoryBuilder, messages: list[Message]) -> None:
    """All logs agree, and each has entries of the third term before others of the first."""
    last = messages[-1].index
    for log in run.logs.values():
        for entry in log:
            if entry.index in range(last - 3, last):
                entry.term = 3


PLANTED_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "given, its commit failed": (
        "A54", "invalid", of(transactions, given_though_its_commit_failed),
    ),
    "given, rolled back": ("A53", "invalid", of(transactions, given_though_only_rolled_back)),
    "missing, its rollback failed": (
        "A55", "invalid", of(transactions, missing_though_only_committed),
    ),
    "missing, others not drained": ("A55", "invalid", of(transactions, beside(not_given))),
    "missing, nobody drained": ("A55", "unknown", of(transactions, missing_where_nobody_drained)),
    "refused, others not drained": ("A27", "invalid", of(failing, beside(refused_once))),
    "no letter, others not drained": ("A57", "invalid", of(failing, beside(no_letter))),
    "again from before a reset": ("A9", "invalid", came_from_before),
    "again, its reset failed": ("A9", "invalid", came_though_it_failed),
    "again, another was reset": ("A9", "invalid", came_though_another_was_reset),
    "again twice after a reset": ("A9", "invalid", came_twice_more),
    "missing since it was set back": ("A1", "invalid", missing_since_it_was_set_back),
    "missing, set back later": ("A1", "invalid", missing_though_set_back_later),
    "missing, not set forth": ("A1", "invalid", missing_though_not_set_forth),
    "missing, if not set forth": ("A1", "unknown", missing_if_not_set_forth),
    "two topics with one key": ("A45", "unknown", two_topics_with_one_key),
    "delayed and passed": ("A2", "invalid", of(waiting, delayed_and_passed)),
    "hole, and an open queue": ("A16", "invalid", of(reading, hole_and_an_open_queue)),
    "read and gone": ("A35", "invalid", read_and_gone),
    "read from one log": ("A35", "invalid", read_from_one_log),
    "terms fall": ("A34", "invalid", terms_fall),
    "nothing of another topic": ("A1", "invalid", of(failing, nothing_of_another_topic)),
}  # fmt: skip
"""As in `minimal`: the check that finds it, its verdict, and how the history comes about."""

SOUND: dict[str, Spoil] = {
    "again after a reset": came_again,
    "set forth and back": set_forth_and_back,
    "read and stored": read_and_stored,
    "set forth": lambda run, _: set_forth(run) and None,
    "skipped though committed": skipped_though_committed,
    "decided both ways": of(transactions, decided_both_ways),
    "decided both ways, and missing": of(transactions, missing_as_decided_both_ways),
}
"""What looks odd and is all right, all in one history."""
SOUND_ALONE: dict[str, Spoil] = {"read by a promise of one": read_by_a_promise_of_one}
"""The same of what says something of all of a history."""
