"""What controllers say to each other: the messages of PySyncObj's Raft, without its pickles. Pure.

PySyncObj hands its transport dictionaries and unpickles what comes from the network, which runs
what a peer likes. Here each message has a type of its own with bounded fields, and an entry is a
no-op or the bytes of a command (`namesrv.controller.commands`), read before anything stores it;
nothing else can be said. The encoding is MessagePack:

```
array [version, sender, boot, number, message]
```

``boot`` is drawn at each start of a sender, and ``number`` counts what it has sent since, so that
what is late or repeated is seen. The term of the sender is in every message, also where PySyncObj
leaves it out.
Source: `_SyncObj__onMessageReceived` of PySyncObj 0.3.17; Raft paper 5.2, 5.3, 7.
"""

from typing import Annotated, Final

import msgspec

from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from namesrv.controller.commands import BadCommand, decode_command
from namesrv.controller.limits import (
    COMMAND_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    PLACE_MAX,
    STATE_BYTES_MAX,
)

WIRE_VERSION: Final = 1
SNAPSHOT_BYTES_MAX: Final = int(STATE_BYTES_MAX) + 64 * 1024
"""A state, and two entries around it."""

BOOTS_REMEMBERED: Final = 16
"""Starts of a peer of which it is known how much has come."""
RETURN_MS: Final = 1_000
"""After so long without a message of a later start an earlier one counts again."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Counts what a sender has sent, or is drawn at its start."""
Place = Annotated[int, msgspec.Meta(ge=0, le=int(PLACE_MAX))]
"""A term, or the index of an entry."""
Payload = Annotated[bytes, msgspec.Meta(max_length=int(COMMAND_BYTES_MAX))]
Peer = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class BadMessage(ValueError):  # noqa: N818  # says what is
    """Bytes that no controller sends; the message says why."""


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One entry of the log."""

    index: Place
    term: Place
    payload: Payload | None
    """A command; None is the no-op with which a leader begins."""


class _Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    term: Place
    """Of the sender."""


class AskVote(_Message, frozen=True):
    """A candidate asks for a vote."""

    last_index: Place
    last_term: Place


class GiveVote(_Message, frozen=True):
    """The vote; there is no other answer."""


class AskPreVote(_Message, frozen=True):
    """Who would begin an election asks whether it would get a vote."""

    poll: Number
    """Which question of the sender it is."""
    last_index: Place
    last_term: Place


class GivePreVote(_Message, frozen=True):
    """It would, as far as the sender knows; there is no other answer."""

    poll: Number


class Append(_Message, frozen=True):
    """A leader's entries behind one, and how far the log is committed."""

    commit: Place
    prev_index: Place
    prev_term: Place
    entries: tuple[Entry, ...] = ()

    @property
    def end(self) -> int:
        """The index of the last entry that it speaks of."""
        return self.prev_index + len(self.entries)


class Install(_Message, frozen=True):
    """A leader's snapshot, whole in the first message; the last one is empty."""

    commit: Place
    data: Annotated[bytes, msgspec.Meta(max_length=SNAPSHOT_BYTES_MAX)]
    is_first: bool
    is_last: bool


class Beat(_Message, frozen=True):
    """A leader that has nothing to send yet."""

    commit: Place


class NextIndex(_Message, frozen=True):
    """A follower's answer: which entry it wants next."""

    next_index: Place
    reset: bool
    success: bool


Message = AskVote | GiveVote | AskPreVote | GivePreVote | Append | Install | Beat | NextIndex


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message, and which one of its sender it is."""

    version: int
    sender: Peer
    boot: Number
    number: Number
    message: Message


def encode(sender: str, boot: int, number: int, message: Message) -> bytes:
    """Return the bytes of a message. Errors: `BadMessage` if it is too large."""
    data = msgspec.msgpack.encode(Envelope(WIRE_VERSION, sender, boot, number, message))
    if len(data) > MESSAGE_BYTES_MAX:
        raise BadMessage(f"{len(data)} bytes, more than {MESSAGE_BYTES_MAX}")
    return data


def decode(data: bytes) -> Envelope:
    """Return what was sent. Errors: `BadMessage`."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise BadMessage(f"{len(data)} bytes, more than {MESSAGE_BYTES_MAX}")
    try:
        found = msgspec.msgpack.decode(data, type=Envelope)
    except NOT_DECODED as error:
        raise BadMessage(str(error)) from error
    if found.version != WIRE_VERSION:
        raise BadMessage(f"version {found.version}, and this build knows {WIRE_VERSION}")
    check_entries(found.message)
    return found


def check_entries(message: Message) -> None:
    """Check that entries follow each other and hold commands. Errors: `BadMessage`."""
    if not isinstance(message, Append):
        return
    index, term = message.prev_index, message.prev_term
    for entry in message.entries:
        if entry.index != index + 1 or not term <= entry.term <= message.term:
            raise BadMessage(f"entry {entry.index} of term {entry.term} behind {index} of {term}")
        index, term = entry.index, entry.term
        if entry.payload is not None:
            try:
                decode_command(entry.payload)
            except BadCommand as error:
                raise BadMessage(f"entry {index} of term {term} is no command: {error}") from error


class _Starts:
    """What has come of the starts of one sender."""

    __slots__ = ("current", "heard_ms", "numbers")

    def __init__(self, boot: int, now_ms: int) -> None:
        self.current, self.heard_ms = boot, now_ms
        """The start that counts, and when it was heard last."""
        self.numbers: dict[int, int] = {}
        """The last number of each, the one heard last at the end."""


class Order:
    """Tells what of one sender is late or repeated: a connection may outlive the next one.

    A start that another one has followed counts no more while that one is heard. It does again once
    that is silent: a message of an earlier start that somebody has kept shuts out nobody for long.
    """

    def __init__(self) -> None:
        self._senders: dict[str, _Starts] = {}

    def take(self, envelope: Envelope, now_ms: int) -> bool:
        """Return whether a message is newer than all before it of its sender."""
        boot, number = envelope.boot, envelope.number
        starts = self._senders.setdefault(envelope.sender, _Starts(boot, now_ms))
        numbers = starts.numbers
        if number <= numbers.get(boot, -1):
            return False
        if boot != starts.current and boot in numbers and now_ms - starts.heard_ms < RETURN_MS:
            return False
        starts.current, starts.heard_ms = boot, now_ms
        numbers.pop(boot, None)
        numbers[boot] = number
        if len(numbers) > BOOTS_REMEMBERED:
            del numbers[next(iter(numbers))]
        return True
