"""What another one planted who has not read the checkers: each alone is found by its check.

And beside each what looks like it and is sound. Both checkers are asked of all of it.
Source: spec/proof.md 3.0.
"""

from tests.spark.generate import MS
from tests.spark.kinds import Kind, Row, Spoil, failing, of, transactions


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


PLANTED_VIOLATIONS: dict[str, tuple[str, str, Spoil]] = {
    "given, its commit failed": (
        "A54", "invalid", of(transactions, given_though_its_commit_failed),
    ),
    "given, rolled back": ("A53", "invalid", of(transactions, given_though_only_rolled_back)),
    "missing, its rollback failed": (
        "A55", "invalid", of(transactions, missing_though_only_committed),
    ),
    "nothing of another topic": ("A1", "invalid", of(failing, nothing_of_another_topic)),
}  # fmt: skip
"""As in `minimal`: the check that finds it, its verdict, and how the history comes about."""

SOUND: dict[str, Spoil] = {
    "decided both ways": of(transactions, decided_both_ways),
    "decided both ways, and missing": of(transactions, missing_as_decided_both_ways),
}
"""What looks odd and is all right."""
