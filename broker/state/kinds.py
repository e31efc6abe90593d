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
