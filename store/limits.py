"""Limits of the store on what comes from outside, as `docs/security.md` lists them. Pure."""

from typing import Final

from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

QUARANTINED_NAMED: Final = Limit(
    1000, "entries without a message, remembered", Unit.COUNT, Scope.PROCESS, "named again"
)
SKIPPED_MAX: Final = Limit(
    65_536, "queue offsets skipped at once", Unit.COUNT, Scope.REQUEST, "quarantined"
)
QUEUE_STARTS_MAX: Final = Limit(
    1 << 22, "queues in a snapshot", Unit.COUNT, Scope.GROUP, "it is not taken, and that is told"
)
"""They are checked and made one by one; a broker with so many has other troubles."""
HA_TRANSFER_BYTES_MAX: Final = Limit(
    4 * 1024 * 1024, "one transfer of the HA stream", Unit.BYTES, Scope.CONNECTION, "closed"
)
HA_RECORD_BYTES_MAX: Final = Limit(
    16 * 1024 * 1024, "a record that comes over the HA stream", Unit.BYTES, Scope.CONNECTION,
    "closed",
)  # fmt: skip
HA_BEGIN_MAX: Final = Limit(
    1 << 62, "position at which an empty slave's log begins", Unit.VALUE, Scope.CONNECTION,
    "closed",
)  # fmt: skip
HA_SLAVES_MAX: Final = Limit(
    32, "connections of slaves to a master", Unit.COUNT, Scope.PROCESS, "closed"
)
HA_PROOF_MS: Final = Limit(
    5_000, "slave that has not proven who it is", Unit.MILLISECONDS, Scope.CONNECTION, "closed"
)
HA_COMPLAINTS_MAX: Final = Limit(
    32, "log lines about refused slaves, in an hour", Unit.COUNT, Scope.PROCESS, "not written"
)
HA_REPORTS_BYTES_MAX: Final = Limit(
    4_096, "reports of a slave in one turn of the loop", Unit.BYTES, Scope.CONNECTION,
    "the rest waits for the next turn",
)  # fmt: skip
HA_UNSENT_BYTES: Final = Limit(
    512 * 1024, "of the log, waiting to be sent to a slave", Unit.BYTES, Scope.CONNECTION,
    "sent later, from the log",
)  # fmt: skip
EPOCHS_MAX: Final = Limit(
    10_000, "epochs of a log that controllers gave a master", Unit.COUNT, Scope.PROCESS,
    "the oldest is forgotten",
)  # fmt: skip

LIMITS: Final = (
    QUARANTINED_NAMED,
    SKIPPED_MAX,
    QUEUE_STARTS_MAX,
    HA_TRANSFER_BYTES_MAX,
    HA_RECORD_BYTES_MAX,
    HA_BEGIN_MAX,
    HA_SLAVES_MAX,
    HA_PROOF_MS,
    HA_COMPLAINTS_MAX,
    HA_REPORTS_BYTES_MAX,
    HA_UNSENT_BYTES,
    EPOCHS_MAX,
)
