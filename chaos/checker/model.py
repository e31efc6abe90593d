"""The history as the checks see it, and what a check answers.

Rows are plain dicts with the columns of ``chaos.history.tables``. Source: chaos.md 3.0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chaos.history.segment import EntryRow

Row = dict[str, Any]
VALID, UNKNOWN, INVALID, NOT_CHECKED = "valid", "unknown", "invalid", "not checked"
CRIT, MAJOR, MINOR, INFO = "CRIT", "MAJOR", "MINOR", "INFO"
EVIDENCE_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One node's log as it lay on its disk after the run; indexes are -1 where there is none."""

    node: str
    rows: Sequence[EntryRow]
    commit_index: int
    first_index: int = 0
    end_index: int = -1

    def committed(self) -> Iterator[EntryRow]:
        """Yield the readable entries that this node calls committed."""
        for row in self.rows:
            if 0 <= row.entry_index <= self.commit_index:
                yield row


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that was recorded of a run. ``group`` is the consumer group that is judged."""

    topic: str
    group: str
    run_tag: str
    quorum: int = 2
    sends: Sequence[Row] = ()
    deliveries: Sequence[Row] = ()
    acks: Sequence[Row] = ()
    events: Sequence[Row] = ()
    faults: Sequence[Row] = ()
    drain: Sequence[Row] = ()
    replicas: Sequence[Replica] = ()
    raft_events: Sequence[Row] = ()
    probes: Sequence[Row] = ()
    coverage: dict[str, int] = field(default_factory=dict)
    """Least number of effective faults per kind."""
    problems: Sequence[str] = ()
    """What went wrong with the harness itself (A48)."""

    @cached_property
    def ok_sends(self) -> list[Row]:
        """Acknowledged sends."""
        return [s for s in self.sends if s["outcome"] == "ok"]

    @cached_property
    def by_key(self) -> dict[int, Row]:
        """Sends by message key."""
        return {s["msg_key"]: s for s in self.sends}

    @cached_property
    def own(self) -> list[Row]:
        """Deliveries on the run's topic that do not carry another run's tag."""
        return [
            d
            for d in self.deliveries
            if d["topic"] == self.topic and d.get("payload_run_id") in {None, self.run_tag}
        ]

    @cached_property
    def to_group(self) -> list[Row]:
        """Own deliveries to the judged group."""
        return [d for d in self.own if d["grp"] == self.group and not d.get("auditor")]

    @cached_property
    def audited(self) -> set[int]:
        """Keys that the auditor read."""
        return {d["msg_key"] for d in self.own if d.get("auditor") and d["msg_key"] is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer of one check; ``count`` is exact, ``evidence`` the first few."""

    check: str
    verdict: str
    severity: str
    count: int = 0
    summary: str = ""
    evidence: Sequence[Row] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the members of the verdict file for this check."""
        return {
            "title": TITLES[self.check],
            "verdict": self.verdict,
            "severity": self.severity,
            "count": self.count,
            "summary": self.summary,
            "evidence": list(self.evidence)[:EVIDENCE_MAX],
            "details": self.details,
        }


def result(check: str, found: Sequence[Row], summary: str, **details: object) -> Result:
    """Return the result of a check that found these anomalies: invalid if severe and any."""
    severity = SEVERITIES[check]
    bad = bool(found) and severity in {CRIT, MAJOR}
    return Result(
        check=check,
        verdict=INVALID if bad else VALID,
        severity=severity,
        count=len(found),
        summary=summary,
        evidence=list(found[:EVIDENCE_MAX]),
        details=details,
    )


def undecided(check: str, why: str, **details: object) -> Result:
    """Return the result of a check that cannot be decided."""
    return Result(
        check=check, verdict=UNKNOWN, severity=SEVERITIES[check], summary=why, details=details
    )


TITLES = {
    "A1": "acknowledged but lost",
    "A5": "phantom: delivered but never sent",
    "A6": "corrupt body",
    "A7": "aborted read: a refused send was delivered",
    "A8": "duplicate in the log beyond the attempts made",
    "A9": "redelivery",
    "A15": "inconsistent offset: two messages at one place",
    "A30": "leader uniqueness: one leader a term",
    "A31": "vote uniqueness: one vote a term",
    "A32": "term regress",
    "A33": "commit or applied index regress inside one life",
    "A34": "log matching: one (index, term), two contents",
    "A35": "committed, then lost or replaced",
    "A41": "time without acknowledgements around each kill",
    "A45": "enough was recorded to judge",
    "A47": "the planned faults took effect",
    "A48": "the harness itself worked",
}
_CRITICAL = ("A1", "A5", "A6", "A7", "A15", "A30", "A31", "A32", "A34", "A35")
SEVERITIES = dict.fromkeys(_CRITICAL, CRIT) | {
    "A33": MAJOR,
    "A8": MINOR,
    "A9": INFO,
    "A41": INFO,
    "A45": INFO,
    "A47": INFO,
    "A48": INFO,
}
