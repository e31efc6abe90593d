"""The catalogue of checks: what each asks, how bad an anomaly is, and who answers.

Titles and severities of verdicts come from here, and so does which checks a verdict compares: all
that both checkers have. Pure lookups over the entries of its neighbours. Source: spec/proof.md 3.
"""

import re
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
RUN_JSON: Final = "run.json"
REPLICAS: Final = "replicas"
LEFT_OUT: Final = "left_out"
"""The member of run.json that names the tables of which rows were left out."""
REFUSED, MISSING, EMPTY, UNREAD, ODD, BARE, UNSETTLED, PARTIAL = (
    "was refused", "is missing though run.json names it", "is empty though run.json names it",
    "cannot be read", "cannot be used as run.json has it", "say nothing in",
    "hold entries and call none of them committed", "lacks some of its rows",
)  # fmt: skip
"""Why a table, or a member of run.json, is of no use."""
_RESTS: Final[Mapping[str, tuple[str, ...]]] = {
    one.id: tuple(
        dict.fromkeys(
            name
            for name in re.findall(r"\w+", f"{one.needs} {one.weighs}")
            if name != "or" and one.id != "A48"  # which says what is wrong with them
        )
    )
    for one in CHECKS.values()
}


def without(check: str, unusable: Mapping[str, str]) -> str:
    """Return what a check rests on and cannot have, in words; empty if it has all.

    ``unusable``: why, by table and by member of run.json, or by ``run.json`` itself. A finding that
    may be excused hangs on what that promises.
    """
    if RUN_JSON in unusable and check in EXCUSABLE:
        return f"needs {RUN_JSON}, which {unusable[RUN_JSON]}"
    return next(
        (f"needs {name}, which {unusable[name]}" for name in _RESTS[check] if name in unusable), ""
    )


__all__ = [
    "BARE", "CHECKS", "COMPARED", "CRIT", "EMPTY", "EXCUSABLE", "INFO", "LEFT_OUT",
    "MAJOR", "MINOR", "MISSING", "ODD", "PARTIAL", "REFUSED", "REPLICAS", "RUN_JSON", "UNREAD",
    "UNSETTLED", "CheckEntry", "without",
]  # fmt: skip
