"""Limits of the store on what comes from outside, as `docs/security.md` lists them. Pure."""

from typing import Final

from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

QUARANTINED_NAMED: Final = Limit(
    1000, "entries without a message, remembered", Unit.COUNT, Scope.PROCESS, "named again"
)
SKIPPED_MAX: Final = Limit(
    65_536, "queue offsets skipped at once", Unit.COUNT, Scope.REQUEST, "quarantined"
)

LIMITS: Final = (QUARANTINED_NAMED, SKIPPED_MAX)
