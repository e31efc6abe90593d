"""What a controller keeps and takes at most; docs/security.md shows it. Pure."""

from typing import Final

from ledgermq.remoting.protocol.limits import Limit, Scope, Unit

_REFUSED: Final = "2005, and nothing changes"

GROUPS_MAX: Final = Limit(
    512, "groups that a controller knows", Unit.COUNT, Scope.PROCESS, _REFUSED
)
"""A name is kept for ever: its epochs must not begin anew."""
REPLICAS_MAX: Final = Limit(
    16, "replicas of a group that a controller knows", Unit.COUNT, Scope.GROUP, _REFUSED
)
TEXT_LENGTH_MAX: Final = Limit(
    255, "name, address or check code given to a controller", Unit.COUNT, Scope.REQUEST, _REFUSED
)
REPLICA_ID_MAX: Final = Limit(
    2**31 - 1, "id of a replica in a controller", Unit.VALUE, Scope.REQUEST, _REFUSED
)
EPOCH_MAX: Final = Limit(
    2**31 - 1, "epoch of a master or of an in-sync set", Unit.VALUE, Scope.GROUP, _REFUSED
)
"""RocketMQ's epochs are Java's int."""
COMMAND_BYTES_MAX: Final = Limit(
    4 * 1024, "command of a controller", Unit.BYTES, Scope.REQUEST, _REFUSED
)
STATE_BYTES_MAX: Final = Limit(
    8 * 1024 * 1024, "state of a controller", Unit.BYTES, Scope.PROCESS, "refused, nothing is read"
)
"""Must hold all groups at their limits, and fit into a frame."""

MESSAGE_BYTES_MAX: Final = Limit(
    12 * 1024 * 1024, "message of another controller", Unit.BYTES, Scope.REQUEST, "dropped"
)
"""Holds a whole log or a whole state, and fits into a frame."""
PLACE_MAX: Final = Limit(
    1 << 53, "term, or index of an entry, of a controller", Unit.VALUE, Scope.PROCESS,
    "dropped; in a file: the start is refused",
)  # fmt: skip
"""Far from where numbers end: an entry or an election behind it must still be one."""
AHEAD_MAX: Final = Limit(
    1 << 32, "terms or entries by which another controller is ahead", Unit.COUNT, Scope.REQUEST,
    "dropped",
)  # fmt: skip
"""None can be further: terms and places would end, and nobody lead any more."""
UNSENT_BYTES_MAX: Final = Limit(
    16 * 1024 * 1024, "messages that wait for another controller", Unit.BYTES, Scope.CONNECTION,
    "closed",
)  # fmt: skip
ENTRIES_MAX: Final = Limit(
    256, "commands between two snapshots of a controller", Unit.COUNT, Scope.PROCESS,
    "a snapshot takes their place",
)  # fmt: skip
PROPOSALS_MAX: Final = Limit(
    64, "commands of a controller that wait for a majority", Unit.COUNT, Scope.PROCESS,
    "2007, try again",
)  # fmt: skip
QUESTION_BYTES_MAX: Final = Limit(
    160 * 1024, "names that a controller is asked about", Unit.BYTES, Scope.REQUEST, _REFUSED
)
SILENCE_MS_MAX: Final = Limit(
    60_000, "silence of a replica that lives", Unit.MILLISECONDS, Scope.REQUEST, "this one counts"
)

LIMITS: Final = (
    GROUPS_MAX,
    REPLICAS_MAX,
    TEXT_LENGTH_MAX,
    REPLICA_ID_MAX,
    EPOCH_MAX,
    COMMAND_BYTES_MAX,
    STATE_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    PLACE_MAX,
    AHEAD_MAX,
    UNSENT_BYTES_MAX,
    ENTRIES_MAX,
    PROPOSALS_MAX,
    QUESTION_BYTES_MAX,
    SILENCE_MS_MAX,
)
