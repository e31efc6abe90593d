"""What an oracle is: it looks at the cluster after each event and knows what may not be.

Oracles read the state of the production objects; they never trust production's own assertions,
events or counters where the bytes themselves can be read. Source: spec/proof.md 3.6 (A30-A39).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.replica import Change, Replica

_P = ParamSpec("_P")
_Reporting = TypeVar("_Reporting", bound="_HasFindings")


class _HasFindings(Protocol):
    findings: Findings


class Violation(Exception):  # noqa: N818 - it is a finding, not an error of the simulator
    """Something that must never be, found at a moment of virtual time."""

    def __init__(self, oracle: str, text: str, **evidence: object) -> None:
        super().__init__(f"{oracle}: {text}")
        self.oracle = oracle
        self.text = text
        self.evidence = evidence


class Oracle(Protocol):
    """Judges replicas; cheap, since it is called only when one of them has changed."""

    name: str

    def on_boot(self, replica: Replica) -> None:
        """Look at a replica whose process has just opened its log."""

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look at a replica after an event that changed it. Errors: `Violation`."""


class Findings:
    """Where violations are reported that are found inside the production's own calls.

    Raised there, they would be taken for a bug of the caller and handled by it. The same goes for
    an error of an oracle itself: it ends the run as a failure of the harness.
    """

    def __init__(self) -> None:
        self.all: list[Exception] = []

    @property
    def first(self) -> Exception | None:
        """What was found first: the run ends after the event in which it was."""
        return self.all[0] if self.all else None

    def report(self, found: Exception) -> None:
        """Keep it."""
        self.all.append(found)


def guarded(
    validator: Callable[Concatenate[_Reporting, _P], None],
) -> Callable[Concatenate[_Reporting, _P], None]:
    """Have what ``judge`` raises reported to its object's findings instead."""

    @functools.wraps(validator)
    def judging(self: _Reporting, /, *args: _P.args, **named: _P.kwargs) -> None:
        try:
            validator(self, *args, **named)
        except Exception as error:  # noqa: BLE001 - the caller is production's code
            self.findings.report(error)

    return judging
