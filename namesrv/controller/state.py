"""What the controllers agree on: groups, their replicas, master, in-sync set and epochs. Pure.

A value of this module never changes in place: a command makes a new `Group` of an old one
(`namesrv.controller.machine`). The encoding is JSON, versioned, and the same for equal states.
Source: SyncStateInfo and BrokerReplicaInfo of RocketMQ 5.
"""

import re
from typing import Final

import msgspec

from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from namesrv.controller.limits import (
    EPOCH_MAX,
    GROUPS_MAX,
    REPLICA_ID_MAX,
    REPLICAS_MAX,
    STATE_BYTES_MAX,
    TEXT_LENGTH_MAX,
)

STATE_VERSION: Final = 1
NO_MASTER: Final = 0
"""Ids of replicas begin at 1, as RocketMQ's FIRST_BROKER_CONTROLLER_ID."""


TEXT_PATTERN: Final = r"^[%|a-zA-Z0-9_.:;@\[\]-]*$"
"""What names, addresses and check codes are made of: nothing that takes more room encoded."""
_TEXT: Final = re.compile(TEXT_PATTERN, re.ASCII)


class BadState(ValueError):  # noqa: N818  # says what is
    """Bytes that are no state of a controller, or one that cannot be; the message says why."""


class Replica(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One broker of a group."""

    check_code: str
    """What its directory holds: another directory cannot take its id."""
    address: str = ""
    """``host:port`` for clients; empty until it registers."""
    ha_address: str = ""
    """``host:port`` for slaves; empty until it registers."""


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The brokers of one name."""

    cluster: str
    replicas: dict[int, Replica] = {}
    next_id: int = 1
    """The id that the next replica gets; ids are never given twice."""
    master: int = NO_MASTER
    """Id of the master, `NO_MASTER` while there is none."""
    master_epoch: int = 0
    """How many masters there have been."""
    in_sync: tuple[int, ...] = ()
    """Ids, ascending, of those who have all that was acknowledged; empty before any master."""
    in_sync_epoch: int = 0
    """How often the in-sync set has changed."""
    reserve: tuple[int, ...] = ()
    """Who else was in sync before the election of the one that is now; empty once it has changed
    the set: it has taken office."""
    reserve_epoch: int = 0
    """The epoch of that election."""
    in_doubt: bool = False
    """Whether all that were in sync may have lost the end of their log: any other may have more."""

    def problem(self) -> str:
        """Return what makes it impossible, empty if nothing does."""
        ids = tuple(self.replicas)
        texts = [self.cluster]
        for replica in self.replicas.values():
            texts += (replica.check_code, replica.address, replica.ha_address)
        checks = (
            (len(ids) <= REPLICAS_MAX, "too many replicas"),
            (ids == tuple(sorted(ids)), "replicas out of order"),
            (all(map(is_text, texts)), "a text that cannot be"),
            (all(1 <= one < self.next_id for one in ids), "an id that was not given"),
            (1 <= self.next_id <= REPLICA_ID_MAX + 1, "an id that cannot be"),
            (0 <= self.master_epoch <= EPOCH_MAX, "an epoch that cannot be"),
            (0 <= self.in_sync_epoch <= EPOCH_MAX, "an epoch that cannot be"),
            (self.in_sync == tuple(sorted(set(self.in_sync))), "an in-sync set out of order"),
            (set(self.in_sync) <= set(ids), "an in-sync replica that is not known"),
            (self.reserve == tuple(sorted(set(self.reserve))), "a reserve out of order"),
            (set(self.reserve) <= set(ids) - set(self.in_sync), "a reserve that cannot be"),
            (0 <= self.reserve_epoch <= self.master_epoch, "an epoch that cannot be"),
            (self.master in (NO_MASTER, *self.in_sync), "a master that is not in sync"),
            (bool(self.in_sync) == bool(self.master_epoch), "an in-sync set without an epoch"),
            (not (self.in_doubt and self.master), "a master of whom it is not known what it has"),
        )
        return next((why for holds, why in checks if not holds), "")


Groups = dict[str, Group]


def is_text(text: str) -> bool:
    """Return whether a name, address or check code can be kept."""
    return len(text) <= TEXT_LENGTH_MAX and _TEXT.fullmatch(text) is not None


class _Encoded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    groups: Groups


def encode_state(groups: Groups) -> bytes:
    """Return the text of all groups; equal groups give equal bytes."""
    return msgspec.json.encode(_Encoded(STATE_VERSION, dict(sorted(groups.items()))))


def decode_state(data: bytes) -> Groups:
    """Return the groups that a text holds. Errors: `BadState`."""
    if len(data) > STATE_BYTES_MAX:
        raise BadState(f"{len(data)} bytes, more than {STATE_BYTES_MAX}")
    try:
        found = msgspec.json.decode(data, type=_Encoded)
    except NOT_DECODED as error:
        raise BadState(str(error)) from error
    if found.version != STATE_VERSION:
        raise BadState(f"version {found.version}, and this build knows {STATE_VERSION}")
    if len(found.groups) > GROUPS_MAX:
        raise BadState(f"{len(found.groups)} groups, more than {GROUPS_MAX}")
    for name, group in found.groups.items():
        why = group.problem() if is_text(name) else "a name that cannot be"
        if why:
            raise BadState(f"group {name[:TEXT_LENGTH_MAX]!r}: {why}")
    return found.groups
