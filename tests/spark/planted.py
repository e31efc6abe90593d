"""What another one planted who has not read the checkers: each alone is found by its check.

And beside each what looks like it and is sound. Both checkers are asked of all of it.
Source: spec/proof.md 3.0.
"""

from collections.abc import Callable

from tests.spark.generate import MS
from tests.spark.kinds import (
    Kind,
    Row,
    Spoil,
    failing,
    kind_of,
    no_letter,
    not_given,
    of,
    transactions,
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
    "nothing of another topic": ("A1", "invalid", of(failing, nothing_of_another_topic)),
}  # fmt: skip
"""As in `minimal`: the check that finds it, its verdict, and how the history comes about."""

SOUND: dict[str, Spoil] = {
    "decided both ways": of(transactions, decided_both_ways),
    "decided both ways, and missing": of(transactions, missing_as_decided_both_ways),
}
"""What looks odd and is all right."""
