"""What a check of a store found: findings, how bad they are, and the health that follows.

Pure. It knows no format.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

LISTED_PER_KIND_MAX: Final = 20
"""Findings of one kind and part that are kept; the others are only counted."""


class Severity(StrEnum):
    """How bad a finding is."""

    NOTE = "note"
    """Good to know; nothing is wrong."""
    HARMLESS = "harmless"
    """What a crash leaves behind; the next start of a broker puts it right and loses nothing."""
    DAMAGE = "damage"
    """Bytes are not what was written, or are missing."""


class Health(StrEnum):
    """The verdict."""

    HEALTHY = "healthy"
    HARMLESS = "harmless"
    DAMAGED = "damaged"


class Part(StrEnum):
    """Which part of a store."""

    DIRECTORY = "directory"
    LOG = "log"
    LOG_INDEX = "log index"
    QUEUE = "consume queue"
    INDEX = "key index"
    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, at one place."""

    severity: Severity
    part: Part
    kind: str
    """A short name of what is wrong, the same for all findings alike."""
    path: str
    offset: int | None
    """Byte in the file, None for the file as a whole."""
    what: str
    remedy: str = ""

    def as_row(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(slots=True)
class Findings:
    """All findings of a check; of each kind only the first ones are kept whole."""

    listed: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[Severity, Part, str]] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        """Note a finding."""
        kind = (finding.severity, finding.part, finding.kind)
        self.counts[kind] += 1
        if self.counts[kind] <= LISTED_PER_KIND_MAX:
            self.listed.append(finding)

    def damage(
        self, part: Part, kind: str, path: str, offset: int | None, what: str, remedy: str = ""
    ) -> None:
        """Note damage."""
        self.add(Finding(Severity.DAMAGE, part, kind, path, offset, what, remedy))

    def harmless(
        self, part: Part, kind: str, path: str, offset: int | None, what: str, remedy: str = ""
    ) -> None:
        """Note something that the next start puts right."""
        self.add(Finding(Severity.HARMLESS, part, kind, path, offset, what, remedy))

    def note(self, part: Part, kind: str, path: str, what: str) -> None:
        """Note something that is good to know."""
        self.add(Finding(Severity.NOTE, part, kind, path, None, what))

    @property
    def health(self) -> Health:
        """The verdict."""
        worst = {severity for severity, _, _ in self.counts}
        if Severity.DAMAGE in worst:
            return Health.DAMAGED
        return Health.HARMLESS if Severity.HARMLESS in worst else Health.HEALTHY

    @property
    def omitted(self) -> dict[tuple[Severity, Part, str], int]:
        """How many findings of a kind are not listed."""
        return {
            kind: count - LISTED_PER_KIND_MAX
            for kind, count in self.counts.items()
            if count > LISTED_PER_KIND_MAX
        }
