"""What a check found, the verdict over all checks, and ``results.json``. Knows no Spark session.

Source: spec/proof.md 3.0 (severity), 4.2 (exit codes), 4.3 (anomalies, contract).
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame

from chaos.catalogue.checks import CHECKS, CRIT, EXCUSABLE, MAJOR
from chaos.catalogue.contracts import Allowance, beyond

VALID: Final = "valid"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"
NOT_CHECKED: Final = "not checked"
EXIT_VALID: Final = 0
EXIT_INVALID: Final = 1
EXIT_UNKNOWN: Final = 2
EXIT_CONTRACT_EXCEEDED: Final = 3
EXIT_USAGE: Final = 254
EXIT_HARNESS: Final = 255
EVIDENCE_MAX: Final = 20
SPARK_CHECKS: Final = tuple(one.id for one in CHECKS.values() if one.on_spark)
"""The checks that this job has, in the order of their ids."""


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
        self.severity = self.severity or CHECKS[self.check].severity

    def validator(self) -> None:
        """Set the verdict from count and severity, unless something already made it unknown."""
        if self.count and self.severity in {CRIT, MAJOR}:
            self.verdict = INVALID

    def as_json(self) -> dict[str, Any]:
        """Return the members of ``results.json`` for this check."""
        return {
            "title": CHECKS[self.check].title,
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
    messages_max: int | None = None
    """Most messages of a group that may be lost where it is exceeded; None: no number bounds it."""
    whole: frozenset[str] = frozenset()
    """Nodes of groups that have, by their logs, all that they promised to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict over all checks, its exit code, and the reasons for both."""

    verdict: str
    exit_code: int
    reasons: tuple[str, ...]


def _excess(result: CheckResult, contract: Contract) -> str:
    """Return how a check found more than the witnessed faults explain; empty if it did not."""
    if apart := result.details.get("not_excused"):
        return f" ({apart})"
    lost = int(result.details.get("most_of_a_group", result.count))
    allowed = Allowance(why="; ".join(contract.reasons), messages_max=contract.messages_max)
    more = beyond(allowed, lost)
    return f" ({more})" if more else ""


def decide(results: list[CheckResult], contract: Contract, problems: list[str]) -> Verdict:
    """Return the verdict: the worst of the checks, where invalid > unknown > valid.

    Loss that the witnessed faults allow (``contract.exceeded``) is valid with exit code 3, and so
    are more copies than a send's attempts explain (``bound_exceeded``).
    """
    invalid: list[str] = []
    excused: list[str] = []
    unknown = list(problems)
    for result in results:
        line = f"{result.check} {CHECKS[result.check].title}: {result.count}"
        if result.verdict == INVALID:
            excess = _excess(result, contract)
            excusable = contract.exceeded and result.check in EXCUSABLE and not excess
            (excused if excusable else invalid).append(line + excess)
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
