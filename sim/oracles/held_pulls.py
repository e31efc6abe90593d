"""Pulls that may be held: how long, and whether one was told too soon that there is nothing.

Source: spec/wire.md 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.oracles.wire import Said

SUSPENDS: Final = 2
"""In the sys flag of a pull: it may be held."""
SUSPEND_MS_MAX: Final = 60_000
SOON_MS: Final = 50
SLOW: Final = "the connection does not take the answers to earlier pulls"
"""Of an answer to a client that does not read its answers."""


def is_too_soon(request: Said, answer: Said, waited_ms: int) -> bool:
    """Tell whether ``answer`` says that nothing has come before the time is up that was given."""
    held_ms = min(request.number("suspendTimeoutMillis", 0), SUSPEND_MS_MAX)
    may_wait = bool(request.number("sysFlag", 0) & SUSPENDS)
    return may_wait and waited_ms < held_ms - SOON_MS and answer.remark != SLOW
