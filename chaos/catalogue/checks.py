"""The catalogue of checks: what each asks, how bad an anomaly is, and who answers.

Titles and severities of verdicts come from here, and so does which checks a verdict compares: all
that both checkers have. Pure lookups over the entries of its neighbours. Source: spec/proof.md 3.
"""

from collections.abc import Mapping
from typing import Final

from chaos.catalogue import message_checks, system_checks
from chaos.catalogue.kinds import CRIT, INFO, MAJOR, MINOR, CheckEntry

CHECKS: Final[Mapping[str, CheckEntry]] = {
    one.id: one for one in (*message_checks.CHECKS, *system_checks.CHECKS)
}
"""Every check by its id, in the order of the ids."""
COMPARED: Final = tuple(one.id for one in CHECKS.values() if one.in_process and one.on_spark)
"""The checks on which the two checkers have to agree."""
EXCUSABLE: Final = tuple(one.id for one in CHECKS.values() if one.excusable)
"""What is excused where faults took more than the contract promises to keep."""

__all__ = ["CHECKS", "COMPARED", "CRIT", "EXCUSABLE", "INFO", "MAJOR", "MINOR", "CheckEntry"]
