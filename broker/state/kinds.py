"""The kinds of records that change replicated state. A value is stored with each record."""

from enum import StrEnum

from store import origins


class StateKind(StrEnum):
    """What a state record changes; no value is ever used for something else."""

    TOPIC = "topic"
    FORGET_TOPIC = "forget-topic"
    GROUP = "group"
    FORGET_GROUP = "forget-group"
    OFFSET = "offset"
    FORGET_OFFSETS = "forget-offsets"
    LOCK = "lock"
    UNLOCK = "unlock"
    DELIVERED = origins.DELIVERED
    """Of a delayed message; its copy stands for the record."""
    HALF = origins.HALF
    """Of half a transaction, which stands for the record; so do the next two."""
    COPIED = origins.COPIED
    OP = origins.OP
    ASKED = "tx-asked"
    """Producers are asked how halves end."""
