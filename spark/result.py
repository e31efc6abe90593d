"""What a check found, the verdict over all checks, and ``results.json``. Knows no Spark session.

Source: spec/proof.md 3.0 (severity), 4.2 (exit codes), 4.3 (anomalies, contract).
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame

VALID: Final = "valid"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"
NOT_CHECKED: Final = "not checked"
CRIT: Final = "CRIT"
MAJOR: Final = "MAJOR"
MINOR: Final = "MINOR"
INFO: Final = "INFO"
EXIT_VALID: Final = 0
EXIT_INVALID: Final = 1
EXIT_UNKNOWN: Final = 2
EXIT_CONTRACT_EXCEEDED: Final = 3
EXIT_USAGE: Final = 254
EXIT_HARNESS: Final = 255
EVIDENCE_MAX: Final = 20

TITLES: Final[dict[str, str]] = {
    "A1": "acknowledged but lost",
    "A5": "phantom: delivered but never sent",
    "A6": "corrupt body",
    "A7": "aborted read: a refused send was delivered",
    "A8": "duplicate in the log",
    "A9": "redelivery without a cause",
    "A11": "append order: sent later, stored before",
    "A15": "inconsistent offset: two messages at one place",
    "A27": "refused by a listener and not delivered again",
    "A30": "leader uniqueness: one leader a term",
    "A31": "vote uniqueness: one vote a term",
    "A32": "term regress",
    "A33": "commit or applied index regress inside one life",
    "A34": "log matching: one (index, term), two contents",
    "A35": "committed, then lost or replaced",
    "A45": "history floor: enough was recorded to judge",
    "A46": "delivered to a group that did not subscribe to it",
    "A47": "the planned faults took effect and were lifted",
    "A49": "the client's word contradicts its attempts",
    "A50": "what was asked at the end was answered rightly",
    "A51": "no process ended that no fault ended",
}
SEVERITIES: Final[dict[str, str]] = {
    "A1": CRIT,
    "A5": CRIT,
    "A6": CRIT,
    "A7": CRIT,
    "A8": MINOR,
    "A9": MAJOR,
    "A11": CRIT,
    "A15": CRIT,
    "A30": CRIT,
    "A31": CRIT,
    "A32": CRIT,
    "A33": MAJOR,
    "A34": CRIT,
    "A35": CRIT,
    "A45": INFO,
    "A47": INFO,
    "A27": MAJOR,
    "A46": MAJOR,
    "A49": MAJOR,
    "A50": MAJOR,
    "A51": MAJOR,
}
# What unsynced loss on a majority may bring about, and so is excused when that was injected.
EXCUSED_BY_EXCEEDED_CONTRACT: Final = ("A1", "A15", "A35")


@dataclass(slots=True, kw_only=True)
class CheckResult:
    """The result of one check. ``evidence`` is capped; ``count`` is exact.

    ``anomalies``: a DataFrame of the table ``anomalies``, or None where there are none.
    """

    check: str
    verdict: str = VALID
    count: int = 0
    severity: str = ""
    summary: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    anomalies: DataFrame | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.severity = self.severity or SEVERITIES[self.check]

    def judge(self) -> None:
        """Set the verdict from count and severity, unless something already made it unknown."""
        if self.count and self.severity in {CRIT, MAJOR}:
            self.verdict = INVALID

    def as_json(self) -> dict[str, Any]:
        """Return the members of ``results.json`` for this check."""
        return {
            "title": TITLES[self.check],
            "verdict": self.verdict,
            "count": self.count,
            "severity": self.severity,
            "summary": self.summary,
            "evidence": self.evidence[:EVIDENCE_MAX],
            "details": self.details,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the run promised, and whether the faults that took effect went beyond it."""

    stated: dict[str, Any]
    exceeded: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict over all checks, its exit code, and the reasons for both."""

    verdict: str
    exit_code: int
    reasons: tuple[str, ...]


def decide(results: list[CheckResult], contract: Contract, problems: list[str]) -> Verdict:
    """Return the verdict: the worst of the checks, where invalid > unknown > valid.

    Loss that the witnessed faults allow (``contract.exceeded``) is valid with exit code 3, and so
    are more copies than a send's attempts explain (``bound_exceeded``).
    """
    invalid: list[str] = []
    excused: list[str] = []
    unknown = list(problems)
    for result in results:
        line = f"{result.check} {TITLES[result.check]}: {result.count}"
        if result.verdict == INVALID:
            excusable = contract.exceeded and result.check in EXCUSED_BY_EXCEEDED_CONTRACT
            (excused if excusable else invalid).append(line)
        elif result.verdict == UNKNOWN:
            unknown.append(f"{result.check}: {result.summary}")
    if invalid:
        return Verdict(
            verdict=INVALID, exit_code=EXIT_INVALID, reasons=tuple(invalid + excused + unknown)
        )
    if unknown:
        return Verdict(verdict=UNKNOWN, exit_code=EXIT_UNKNOWN, reasons=tuple(unknown + excused))
    bounds = [str(r.details["bound_exceeded"]) for r in results if r.details.get("bound_exceeded")]
    if excused or bounds:
        reasons = (*contract.reasons, *excused, *bounds)
        return Verdict(verdict=VALID, exit_code=EXIT_CONTRACT_EXCEEDED, reasons=reasons)
    return Verdict(verdict=VALID, exit_code=EXIT_VALID, reasons=())
