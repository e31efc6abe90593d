"""What clients may do, in words that plans and clients share. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

TAGS_ASKED: Final = ("*", "red", "Aa", "red || Aa", "BB || blue || red")
"""Subscriptions of groups; the hashes of Aa and BB are equal."""


class Odd(Enum):
    """One kind of frames, or of silence, that no client library would make."""

    SEND = "odd_send"
    """Flags, hosts, names at their limits, properties; new topics appear."""
    BATCH = "odd_batch"
    """Batches to the limit, beyond it, and of many bytes."""
    LARGE = "odd_large"
    """Bodies of megabytes."""
    PULL = "odd_pull"
    """Reads with numbers and expressions that make no sense."""
    QUERY = "odd_query"
    """Any request code, with fields that were mutated."""
    ADMIN = "odd_admin"
    """Topics with odd fields."""
    OFFSETS = "odd_offsets"
    """Floods of committed offsets: groups that do not exist, long names, huge queue ids."""
    HEARTBEAT = "odd_heartbeat"
    """Many groups, references within references, deep nesting."""
    LOCK = "odd_lock"
    """Many queues, some of which do not exist."""
    GARBAGE = "odd_garbage"
    """Random bytes; frames that are cut short, or have a bit flipped."""
    DEAF = "odd_deaf"
    """A reader that asks and never reads."""
    SILENT = "odd_silent"
    """Connections that say nothing, or half a frame."""
    PEER = "odd_peer"
    """Messages between replicas from one that is none."""
    REGISTER = "odd_register"
    """Registrations of brokers that do not exist, or of one that does, by another."""
