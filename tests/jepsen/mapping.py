"""What Jepsen's checkers call what ours call A1 to A15, and what both must say of one history.

Jepsen's Kafka workload looks at all groups together, its total-queue at one group at a time. Both
were read in the sources that docs/checking.md names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.checker import Verdict
from chaos.checker.model import Result
from chaos.exchange.edn import read_forms

LOST, UNEXPECTED, DUPLICATED, RECOVERED = QUEUE = ("lost", "unexpected", "duplicated", "recovered")
"""What total-queue counts."""
NO_WRITER: Final = "no-writer-of-value"
"""What the Kafka workload throws where it asks who sent a message, and nobody did to that queue."""

SHUFFLED: Final = ("A8 places", "A15")
"""A message at two places has no one place in an order, nor has one of two at one place: Jepsen
then takes either, and what it says of polls and sends that go back or skip follows from that."""
EARLY: Final = "A45 early"
FOUND_BY_US: Final[Mapping[str, Sequence[str]]] = {
    "lost-write": ("A1",),
    "unseen": ("A1",),
    "G1a": ("A7",),
    "inconsistent-offsets": ("A15",),
    # As many copies as attempts are all right for us, and counted: at least once. What was
    # acknowledged elsewhere than it came from is a copy to Jepsen.
    "duplicate": SHUFFLED,
    # What comes again to one member is A9 to us, and a poll that goes back to Jepsen.
    "nonmonotonic-poll": ("A13", "A9", *SHUFFLED),
    "int-nonmonotonic-poll": ("A13", "A9", *SHUFFLED),
    # What nobody got was passed over, too. After a poll that went back the next one leaps.
    "poll-skip": ("A14", "A1", "A13", *SHUFFLED),
    "int-poll-skip": ("A14", "A1", "A13", *SHUFFLED),
    "nonmonotonic-send": ("A11", *SHUFFLED),
    "G0-realtime": ("A11", *SHUFFLED),
    # A poll stands between two sends, or came before the send of what it found: A45 calls the
    # clocks of such a history broken, so that it is unknown.
    "G1c-realtime": ("A11", EARLY, *SHUFFLED),
    "G0": SHUFFLED,
    "G1c": SHUFFLED,
    # In another queue than it was sent to nobody sent it, to Jepsen.
    NO_WRITER: ("A5", "A8"),
    UNEXPECTED: ("A5",),
    LOST: ("A1",),
}
"""What Jepsen finds, one of these finds, too."""
FOUND_BY_JEPSEN: Final[Mapping[str, Sequence[str]]] = {
    "A1": (LOST,),
    "A5": (UNEXPECTED,),
    "A7": ("G1a",),
    "A8": ("duplicate", NO_WRITER),
    "A9": (DUPLICATED,),
    # Not "nonmonotonic-send" alone, which looks at one process only.
    "A11": ("G0-realtime", "G1c-realtime", "nonmonotonic-send"),
    "A13": ("nonmonotonic-poll", "int-nonmonotonic-poll"),
    "A14": ("poll-skip", "int-poll-skip"),
    "A15": ("inconsistent-offsets", "duplicate"),
}
"""What we find, one of these finds, too."""
_OF_ORDER: Final = ("A11", "A13", "A14")
_SHADOWS: Final = ("PL-1-cycle-exists", "strong-PL-1-cycle-exists", "PL-2-cycle-exists",
                   "strong-PL-2-cycle-exists")  # fmt: skip
"""What Elle says in addition where it names a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """What Jepsen's checkers found in one history."""

    kafka: Mapping[str, int] = field(default_factory=dict)
    is_valid: bool = True
    """By the Kafka workload."""
    thrown: str = ""
    """What it threw instead of an answer."""
    queues: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What total-queue counts, by group."""

    def total(self, what: str) -> int:
        return sum(counts[what] for counts in self.queues.values())

    def kinds(self) -> set[str]:
        """Return all that was found; unknown sends that were stored are no anomaly."""
        queues = {what for what in QUEUE if what != RECOVERED and self.total(what)}
        return {*self.kafka, *queues, *({self.thrown} if self.thrown else ())} - {*_SHADOWS}


def read_theirs(lines: Sequence[str]) -> dict[str, Theirs]:
    """Return what the driver wrote, by file."""
    found = {}
    for _, told in read_forms(lines):
        kafka = told["kafka"] or {"valid?": True, "errors": {}}
        queues = {
            group: {what: counts[f"{what}-count"] for what in QUEUE}
            for group, counts in told["queues"].items()
        }
        found[told["file"]] = Theirs(
            kafka=kafka.get("errors", {}), thrown=kafka.get("thrown", ""), queues=queues,
            is_valid=kafka.get("valid?", False),
        )  # fmt: skip
    return found


def our_kinds(results: Mapping[str, Result]) -> set[str]:
    """Return which of the checks that Jepsen has, too, found something."""
    found = {name for name in FOUND_BY_JEPSEN if results[name].count}
    more = {
        "A8 places": results["A8"].details.get("at_several_places"),
        EARLY: "earlier than their send" in results["A45"].summary,
    }
    return found | {name for name, is_so in more.items() if is_so}


def differences(ours: Verdict, theirs: Theirs) -> list[str]:
    """Return where the two do not say of a history what the tables above demand."""
    results, said = ours.results, theirs.kinds()
    mine = our_kinds(results)
    wrong = [
        f"Jepsen says {kind}, and we none of {FOUND_BY_US.get(kind)}"
        for kind in sorted(said - {DUPLICATED})
        if not mine & {*FOUND_BY_US.get(kind, ())}
    ]
    for check in sorted(mine & FOUND_BY_JEPSEN.keys()):
        # Of a history in which it misses a writer the Kafka workload says nothing else.
        is_silent = bool(theirs.thrown) and check not in {"A1", "A5", "A9"}
        is_shuffled = check in _OF_ORDER and bool(mine & {*SHUFFLED})
        if not (is_silent or is_shuffled or said & {*FOUND_BY_JEPSEN[check]}):
            wrong.append(f"we say {check}, and Jepsen none of {FOUND_BY_JEPSEN[check]}")
    return wrong + [
        f"{what}: {one} and {other}"
        for what, one, other in _counts(results, theirs)
        if one != other
    ]


def _counts(results: Mapping[str, Result], theirs: Theirs) -> list[tuple[str, Any, Any]]:
    """Return what has one definition on both sides: its name, our number and theirs."""
    a9, a3 = results["A9"].details, results["A3"].details
    counts = [
        ("A1 and lost", results["A1"].count, theirs.total(LOST)),
        ("A5 and unexpected", results["A5"].count, theirs.total(UNEXPECTED)),
        # Explained or not: Jepsen asks for no cause.
        ("A9 and duplicated", a9["redelivered"], theirs.total(DUPLICATED)),
        # Every group gets what was stored; a refused one comes to one of them.
        ("A3 and recovered", len(theirs.queues) * a3["recovered"] + results["A7"].count,
         theirs.total(RECOVERED)),
    ]  # fmt: skip
    if theirs.thrown:
        return counts
    nowhere, holes = _lost_to_all(results["A1"], len(theirs.queues))
    disputed = sum(" and came only from " not in row["explain"] for row in results["A15"].evidence)
    counts += [
        ("A7 and G1a", results["A7"].count, theirs.kafka.get("G1a", 0)),
        ("A15 and inconsistent-offsets", disputed, theirs.kafka.get("inconsistent-offsets", 0)),
        # What one group got was seen. What lies behind all that was polled is unseen, not lost.
        ("A1 of all groups and unseen", nowhere, theirs.kafka.get("unseen", 0)),
    ]
    if not our_kinds(results) & {*SHUFFLED}:
        # A copy of something earlier is no later poll to Jepsen.
        lost = theirs.kafka.get("lost-write", 0)
        counts.append(("A1 with a later poll and lost-write", holes, lost))
    return counts


def _lost_to_all(lost: Result, groups: int) -> tuple[int, int]:
    """Return how many messages no group got, and before how many of them a later one came."""
    kinds: dict[int, list[str]] = {}
    for row in lost.evidence:
        kinds.setdefault(row["msg_key"], []).append(row["kind"])
    nowhere = [told for told in kinds.values() if len(told) == groups]
    return len(nowhere), sum("hole" in told for told in nowhere)
