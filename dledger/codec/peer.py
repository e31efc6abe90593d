"""Messages between replicas as frames of the remoting protocol, with a body of our own.

Frame: serialize type 1, a binary header without fields, oneway; its code names the message. Body:

| offset | size | field | note |
|---|---|---|---|
| 0 | 1 | version | 1 |
| 1 | 1 | names | uint8: length of the names |
| 2 | 2 | reserved | 0 |
| 4 | 4 | CRC | CRC-32 of everything from 8 up to the entries |
| 8 | 8 | term | int64 |
| 16 | f | fields | of the message, see the structs below |
| 16+f | n | names | group, sender, receiver: uint8 length and text each |
| 16+f+n | rest | data | entries, raw as in the log, or a chunk of a snapshot; its CRC is a field |

Behind entries there may be a hint (`Span.hint`), whose size and CRC are fields, too.

All big-endian. Entries are neither encoded nor copied here: a leader sends the bytes it wrote.
The code numbers are ours (real DLedger uses 51001... with JSON; the two do not mix, see docs).
"""

import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

from msgspec.structs import astuple

from dledger.codec.configuration import (
    decode_configuration,
    encode_configuration,
    read_configurations,
)
from dledger.codec.entry import index_units
from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    AskMembers,
    FetchedEntries,
    FetchedSnapshot,
    FetchEntries,
    FetchSnapshot,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    RecoveringReply,
    Rejoined,
    RejoinGrant,
    SnapshotReply,
    TellClock,
    TimeoutNow,
    ToldMembers,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import LogIndex, NodeId, SnapshotId, Span, Term
from dledger.errors import CorruptEntry, DLedgerError
from dledger.limits import NODE_ID, PEER_FRAME_BYTES_MAX, PEER_MESSAGE_BYTES
from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.frame import MAX_FRAME_BYTES, Frame, encode_frame

VERSION: Final = 1
SERIALIZE_BINARY: Final = 1
HEAD: Final = struct.Struct(">BBHIq")
_SUM: Final = struct.Struct(">BBHI")
_TERM: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">hBhiiii")
_LANGUAGE_PYTHON: Final = 3
_FLAG_ONEWAY: Final = 2

CODES: Final[dict[type[Message], int]] = {
    PreVoteRequest: 31001,
    PreVoteReply: 31002,
    VoteRequest: 31003,
    VoteReply: 31004,
    Append: 31005,
    AppendReply: 31006,
    AppendReject: 31007,
    Heartbeat: 31008,
    HeartbeatReply: 31009,
    RecoveringReply: 31010,
    RejoinGrant: 31011,
    Rejoined: 31012,
    InstallSnapshot: 31020,
    SnapshotReply: 31021,
    TimeoutNow: 31030,
    FetchEntries: 31040,
    FetchedEntries: 31041,
    FetchSnapshot: 31042,
    FetchedSnapshot: 31043,
    AskMembers: 31044,
    ToldMembers: 31045,
    TellClock: 31046,
}
_CHUNKS: Final[dict[int, type[InstallSnapshot | FetchedSnapshot]]] = {
    31020: InstallSnapshot,
    31043: FetchedSnapshot,
}
_WITH_CHUNK: Final = (InstallSnapshot, FetchedSnapshot)
_TRANSFER_VOTE_REQUEST: Final = 31031
"""A `VoteRequest` with ``transfer``; 31003 is one without."""
APPEND_HINTED: Final = 31014
"""An `Append` whose entries have a hint; 31005 is one without."""
HELLO: Final = 31013
"""The first frame on a connection: where the sender is found. Behind the names: the address."""
_WITH_TEXT: Final = frozenset({HELLO, CODES[ToldMembers]})
CODES_OF_PEERS: Final = range(31_001, 32_000)
"""Kinds of messages between replicas; one that is not known is from a later version."""
NAMES_BYTES_MAX: Final = 255
_NAMES_MAX: Final = 256
"""Most servers whose names are remembered."""
_FIELDS: Final[dict[int, struct.Struct]] = {
    31001: struct.Struct(">qq"),  # last_index, last_term
    31002: struct.Struct(">?"),  # granted
    31003: struct.Struct(">qq"),
    31004: struct.Struct(">?"),
    31005: struct.Struct(">qqqqqqI"),  # prev_index, prev_term, commit; first, last, term, CRC
    31006: struct.Struct(">q"),  # match_index
    31007: struct.Struct(">qqqq"),  # prev_index, hint_index, hint_term, last_index
    31008: struct.Struct(">qq"),  # commit_index, round
    31009: struct.Struct(">q"),  # round
    31010: struct.Struct(">qQ"),  # match_index, generation
    31011: struct.Struct(">Q"),  # generation
    31012: struct.Struct(">Q"),
    31013: struct.Struct(">I"),  # CRC of the address
    31014: struct.Struct(">qqqqqqIII"),  # as 31005; bytes and CRC of the hint
    31020: struct.Struct(">qqqIqI"),  # last_index, last_term, size, CRC of all; offset, CRC here
    31021: struct.Struct(">qqqIq"),  # last_index, last_term, size, CRC of all; offset
    31030: struct.Struct(">q"),  # last_index
    31031: struct.Struct(">qq?"),  # last_index, last_term, transfer
    31040: struct.Struct(">qq"),  # first_index, last_index
    31041: struct.Struct(">qqqI"),  # first; last (below first: none), term, CRC of the entries
    31042: struct.Struct(">qq"),  # last_index, offset
    31043: struct.Struct(">qqqIqI"),  # last_index, last_term, size, CRC of all; offset, CRC here
    31044: struct.Struct(">q"),  # version
    31046: struct.Struct(">q"),  # wall clock, ms
    31045: struct.Struct(">I"),  # CRC of the configuration, which follows the names as JSON
}
_BODY_CLASSES: Final[dict[int, type[Message]]] = {
    **{code: cls for cls, code in CODES.items()},
    _TRANSFER_VOTE_REQUEST: VoteRequest,
    APPEND_HINTED: Append,
}
_HEADERS: Final[dict[int, bytes]] = {
    code: _HEADER.pack(code, _LANGUAGE_PYTHON, VERSION, 0, _FLAG_ONEWAY, 0, 0)
    for code in (*_BODY_CLASSES, HELLO)
}
_FIELDS_AT: Final = HEAD.size
_APPEND_HEADER: Final = _HEADERS[CODES[Append]]
_APPEND_REST: Final = encode_frame(SERIALIZE_BINARY, _APPEND_HEADER)[4:]
"""How the frame of an `Append` goes on behind its total: as every other one."""
_APPEND_HEAD: Final = struct.Struct(f">i{len(_APPEND_REST)}s{_SUM.format[1:]}")
_pack_append_head: Final = _APPEND_HEAD.pack
_APPEND_HEAD_BYTES: Final = _APPEND_HEAD.size - 4
"""What the total counts of it."""
_APPEND_FIELDS: Final = struct.Struct(HEAD.format + _FIELDS[CODES[Append]].format[1:])
_pack_span: Final = struct.Struct(">q" + _FIELDS[CODES[Append]].format[1:]).pack
"""Term and fields of an `Append` in one go."""

# Of the messages that an idle group sends all the time: term and fields in one go.
_SUM_BYTES: Final = 4
_pack_sum: Final = struct.Struct(">I").pack
_FREQUENT: Final[
    dict[type[Heartbeat | HeartbeatReply | AppendReply], tuple[str, tuple[str, ...]]]
] = {
    Heartbeat: (">qqq", ("term", "commit_index", "round")),
    HeartbeatReply: (">qq", ("term", "round")),
    AppendReply: (">qq", ("term", "match_index")),
}
_FREQUENT_OUT: Final[dict[type[Message], tuple[Callable[..., bytes], Callable[[Message], Any]]]] = {
    cls: (struct.Struct(fields).pack, attrgetter(*names))
    for cls, (fields, names) in _FREQUENT.items()
}
_FREQUENT_IN: Final = {
    _HEADERS[CODES[cls]]: (cls, struct.Struct(">BBHI" + fields[1:]))
    for cls, (fields, _) in _FREQUENT.items()
}


class Hello(NamedTuple):
    """A server says where it is found; it may be a member that the receiver does not know yet."""

    sender: NodeId
    address: str


class Misaddressed(DLedgerError):  # noqa: N818  # says what is
    """A message of another group, for another node, or of a later version; dropped."""


class PeerCodec:
    """Encodes what this node says, decodes what it hears."""

    def __init__(self, group: str, self_id: NodeId, peers: tuple[NodeId, ...] = ()) -> None:
        self._group = group
        self._self_id = self_id
        self._names_out = {peer: _pack_names(group, self_id, peer) for peer in peers}
        self._senders = {_pack_names(group, peer, self_id): peer for peer in peers}
        self._starts: dict[tuple[type[Message], NodeId], tuple[bytes, bytes]] = {}
        """The beginning of frequent frames: the part before the CRC, and the names."""
        self._summed: bytes | memoryview = b""
        self._sum = 0
        self.is_sound_hint: Callable[[bytes, int], bool] = _take_no_hint
        """Whether a hint is one, of so many entries; the user of the log knows."""

    def encode(self, message: Message) -> tuple[bytes | memoryview, ...]:
        """Return the frame as one buffer, or more where entries and their hint follow.

        A hint that has no room beside its entries is left out: nobody needs it.
        Errors: `LocalProtocolError` for entries that no frame can carry.
        """
        kind = type(message)
        if isinstance(message, Append) and message.span is not None and not message.span.hint:
            return self._encode_span(message, message.span)
        frequent = _FREQUENT_OUT.get(kind)
        if frequent is not None:
            receiver = message.receiver
            start, names = self._starts.get((kind, receiver)) or self._add_start(kind, receiver)
            pack, values = frequent
            body = pack(*values(message)) + names
            return (start + _pack_sum(crc32(body)) + body,)
        code, hint = CODES[kind], b""
        if isinstance(message, VoteRequest) and message.transfer:
            code = _TRANSFER_VOTE_REQUEST
        elif isinstance(message, Append) and message.span is not None and _has_hint(message.span):
            code, hint = APPEND_HINTED, message.span.hint
        fields, data = self._pack_fields(code, message)
        names = self._names_out.get(message.receiver) or self._add_receiver(message.receiver)
        body = _TERM.pack(message.term) + fields + names
        head = _SUM.pack(VERSION, len(names), 0, crc32(body)) + body
        total = len(head) + len(data) + len(hint)
        prefix = encode_frame(SERIALIZE_BINARY, _HEADERS[code], total, PEER_FRAME_BYTES_MAX)
        frame = prefix + head
        if hint:
            return frame, data, hint
        return (frame, data) if data else (frame,)

    def _encode_span(self, message: Append, span: Span) -> tuple[bytes | memoryview, ...]:
        """Return the frame of entries without a hint: each turn of a leader has one a follower."""
        receiver, data = message.receiver, span.data
        names = self._names_out.get(receiver) or self._add_receiver(receiver)
        if data is not self._summed:  # the same span goes to every follower
            self._summed, self._sum = data, crc32(data)
        body = _pack_span(
            message.term, message.prev_index, message.prev_term, message.commit_index,
            span.first_index, span.last_index, span.term, self._sum,
        ) + names  # fmt: skip
        total = _APPEND_HEAD_BYTES + len(body) + len(data)
        if total + 4 > PEER_FRAME_BYTES_MAX:
            raise LocalProtocolError(f"frame of {total + 4} bytes exceeds {PEER_FRAME_BYTES_MAX}")
        head = _pack_append_head(total, _APPEND_REST, VERSION, len(names), 0, crc32(body))
        return head + body, data

    def _add_start(self, kind: type[Message], receiver: NodeId) -> tuple[bytes, bytes]:
        code = CODES[kind]
        names = self._names_out.get(receiver) or self._add_receiver(receiver)
        size = _FIELDS_AT + _FIELDS[code].size + len(names)
        head = _SUM.pack(VERSION, len(names), 0, 0)[:-_SUM_BYTES]
        start = encode_frame(SERIALIZE_BINARY, _HEADERS[code], size) + head
        if len(self._starts) >= _NAMES_MAX:
            self._starts.clear()
        self._starts[kind, receiver] = start, names
        return start, names

    def encode_hello(self, receiver: NodeId, address: str) -> bytes:
        """Return the frame that says where this node is found."""
        data = address.encode()
        names = self._names_out.get(receiver) or self._add_receiver(receiver)
        body = _TERM.pack(0) + _FIELDS[HELLO].pack(crc32(data)) + names
        head = _SUM.pack(VERSION, len(names), 0, crc32(body))
        total = len(head) + len(body) + len(data)
        return encode_frame(SERIALIZE_BINARY, _HEADERS[HELLO], total) + head + body + data

    def _add_receiver(self, receiver: NodeId) -> bytes:
        names = self._names_out[receiver] = _pack_names(self._group, self._self_id, receiver)
        return names

    def _add_sender(self, names: bytes | memoryview) -> NodeId:
        """Return who sent; it needs not be a known member, but must mean this node and group.

        What is no id goes no further: it would be voted for, and be in files and log lines.
        """
        packed = bytes(names)
        parts = _split_names(packed)
        if len(parts) != 3 or (parts[0], parts[2]) != (self._group, self._self_id):
            raise Misaddressed(f"from and for {'/'.join(parts)!r}")
        if not NODE_ID.match(parts[1]):
            raise CorruptEntry(f"its sender is no member's id: {parts[1]!r}")
        if len(self._senders) < _NAMES_MAX:
            self._senders[packed] = parts[1]
        return parts[1]

    def _pack_fields(self, code: int, message: Message) -> tuple[bytes, bytes | memoryview]:
        """Pack what follows sender, receiver and term, the frequent first; return (fields, data).

        Fields are in the order of the message's own.
        """
        fields = _FIELDS[code]
        if isinstance(message, AppendReply):
            return fields.pack(message.match_index), b""
        if isinstance(message, Append):
            data = message.span.data if message.span is not None else b""
            return self._pack_append(fields, message), data
        if isinstance(message, FetchedEntries):
            data = message.span.data if message.span is not None else b""
            return _pack_fetched(fields, message), data
        if isinstance(message, _WITH_CHUNK):
            packed = fields.pack(*astuple(message.id), message.offset, crc32(message.data))
            return packed, message.data
        if isinstance(message, SnapshotReply):
            return fields.pack(*astuple(message.id), message.offset), b""
        if isinstance(message, ToldMembers):
            told = encode_configuration(message.configuration)
            return fields.pack(crc32(told)), told
        values = astuple(message)[3:]
        if code == CODES[VoteRequest]:
            values = values[:2]
        return fields.pack(*values), b""

    def _pack_append(self, fields: struct.Struct, message: Append) -> bytes:
        span = message.span
        prev = message.prev_index
        if span is None:
            return fields.pack(prev, message.prev_term, message.commit_index, prev + 1, prev, 0, 0)
        if span.data is not self._summed:  # the same span goes to every follower
            self._summed = span.data
            self._sum = crc32(span.data)
        places = (prev, message.prev_term, message.commit_index, span.first_index, span.last_index)
        if fields is _FIELDS[CODES[Append]]:
            return fields.pack(*places, span.term, self._sum)
        return fields.pack(*places, span.term, self._sum, len(span.hint), crc32(span.hint))

    def decode(self, frame: Frame) -> Message | Hello:
        """Read a frame.

        Errors: `CorruptEntry` for bytes no replica sends, `Misaddressed` for what others sent.
        """
        body = frame.body
        frequent = _FREQUENT_IN.get(frame.header)
        if frequent is None:
            if frame.header == _APPEND_HEADER and len(body) > _APPEND_FIELDS.size:
                return self._decode_plain_append(body) or self._decode_any(frame)
        else:
            cls, whole = frequent
            names_at = whole.size
            sender = self._senders.get(body[names_at:])
            if sender is not None and len(body) > names_at:
                version, names_bytes, _, crc, term, *values = whole.unpack_from(body)
                is_whole = names_at + names_bytes == len(body)
                if is_whole and version == VERSION and crc32(body[8:]) == crc:
                    return cls(sender, self._self_id, term, *values)
        return self._decode_any(frame)

    def _decode_plain_append(self, body: bytes) -> Append | None:
        """Read entries without a hint, of a known sender: each turn of a follower has one."""
        version, names_bytes, _, crc, term, *values = _APPEND_FIELDS.unpack_from(body)
        names_at = _APPEND_FIELDS.size
        data_at = names_at + names_bytes
        sender = self._senders.get(body[names_at:data_at])
        if sender is None or version != VERSION or crc32(body[8:data_at]) != crc:
            return None
        return self._decode_append(sender, term, values, memoryview(body)[data_at:])

    def _decode_any(self, frame: Frame) -> Message | Hello:
        code = int.from_bytes(frame.header[:2])
        fields, body = _FIELDS.get(code), frame.body
        if fields is None and code in CODES_OF_PEERS:
            raise Misaddressed(f"a kind of message that this version does not know: {code}")
        if fields is None or len(body) < _FIELDS_AT + fields.size:
            raise CorruptEntry(f"no peer message: code {code}, {len(body)} bytes")
        version, names_bytes, _, crc, term = HEAD.unpack_from(body)
        names_at = _FIELDS_AT + fields.size
        data_at = names_at + names_bytes
        if version != VERSION or crc32(body[8:data_at]) != crc:
            raise CorruptEntry(f"peer message {code}: version {version} or a CRC that is wrong")
        names = body[names_at:data_at]
        sender = self._senders.get(names) or self._add_sender(names)
        values = fields.unpack_from(body, _FIELDS_AT)
        if code == APPEND_HINTED or code == CODES[Append]:
            return self._decode_append(sender, term, values, memoryview(body)[data_at:])
        if code == CODES[FetchedEntries]:
            found = _decode_span(values, memoryview(body)[data_at:])
            return FetchedEntries(sender, self._self_id, term, values[0], found)
        if code in _CHUNKS:
            chunk = _check_chunk(values, memoryview(body)[data_at:])
            place = (SnapshotId(*values[:4]), values[4])
            return _CHUNKS[code](sender, self._self_id, term, *place, chunk)
        if code in _WITH_TEXT:
            return self._decode_text(code, (sender, term), values[0], bytes(body[data_at:]))
        if len(body) != data_at:
            raise CorruptEntry(f"peer message {code}: {len(body) - data_at} bytes too many")
        if code == CODES[SnapshotReply]:
            values = (SnapshotId(*values[:4]), values[4])
        message: Message = _BODY_CLASSES[code](sender, self._self_id, term, *values)
        return message

    def _decode_text(
        self, code: int, origin: tuple[NodeId, Term], crc: int, text: bytes
    ) -> ToldMembers | Hello:
        if crc32(text) != crc:
            raise CorruptEntry(f"peer message {code}: the CRC of its text does not match")
        sender, term = origin
        if code == HELLO:
            return Hello(sender, text.decode(errors="replace"))
        return ToldMembers(sender, self._self_id, term, decode_configuration(text))

    def _decode_append(
        self, sender: NodeId, term: Term, values: Sequence[int], data: memoryview
    ) -> Append:
        prev_index, prev_term, commit_index, first_index, last_index, span_term, crc, *hint = values
        if first_index != prev_index + 1 or prev_index < -1 or prev_term > term:
            raise CorruptEntry(f"entries from {first_index} on do not follow {prev_index}")
        if last_index >= first_index and not prev_term <= span_term <= term:
            raise CorruptEntry(f"entries of term {span_term} behind one of {prev_term}")
        text = self._check_hint(data, last_index - prev_index, *hint) if hint else b""
        if text:
            data = data[: -len(text)]
        span = _decode_span((first_index, last_index, span_term, crc), data, text)
        return Append(sender, self._self_id, term, prev_index, prev_term, commit_index, span)

    def _check_hint(self, data: memoryview, entries: int, hint_bytes: int, crc: int) -> bytes:
        """Return the hint with which ``data`` ends. Errors: `CorruptEntry`."""
        hint = bytes(data[-hint_bytes:]) if 0 < hint_bytes < len(data) else b""
        if not hint or crc32(hint) != crc or not self.is_sound_hint(hint, entries):
            raise CorruptEntry(f"a hint of {hint_bytes} bytes does not describe {entries} entries")
        return hint


def _decode_span(values: tuple[int, ...], data: memoryview, hint: bytes = b"") -> Span | None:
    first_index, last_index, term, crc = values
    if last_index < first_index:
        if data:
            raise CorruptEntry(f"{len(data)} bytes where no entries should be")
        return None
    if crc32(data) != crc:
        raise CorruptEntry(f"entries {first_index}..{last_index}: CRC does not match")
    marked: list[LogIndex] = []
    units = index_units(data, first_index, last_index, term, marked)
    position = int.from_bytes(data[24:32], "big")
    configs = read_configurations(data, units, marked) if marked else ()
    return Span(first_index, last_index, term, position, data, units, configs, hint)


def _has_hint(span: Span) -> bool:
    """Tell whether a span goes out with its hint."""
    hint = len(span.hint)
    return hint > 0 and len(span.data) + hint + PEER_MESSAGE_BYTES <= MAX_FRAME_BYTES


def _take_no_hint(hint: bytes, entries: int) -> bool:
    """Refuse every hint: nobody here reads one."""
    del hint, entries
    return False


def _check_chunk(values: tuple[int, ...], data: memoryview) -> memoryview:
    last_index, _, size, _, offset, crc = values
    if last_index < 0 or not 0 <= offset <= offset + len(data) <= size:
        raise CorruptEntry(f"snapshot {last_index}: {len(data)} bytes at {offset} of {size}")
    if crc32(data) != crc:
        raise CorruptEntry(f"snapshot {last_index}: CRC of the chunk at {offset} does not match")
    return data


def _pack_fetched(fields: struct.Struct, message: FetchedEntries) -> bytes:
    span, first = message.span, message.first_index
    if span is None:
        return fields.pack(first, first - 1, 0, 0)
    return fields.pack(first, span.last_index, span.term, crc32(span.data))


def names_fit(*names: str) -> bool:
    """Tell whether a message has room for these: group, sender, receiver."""
    return sum(1 + len(name.encode()) for name in names) <= NAMES_BYTES_MAX


def _pack_names(group: str, sender: NodeId, receiver: NodeId) -> bytes:
    parts = [name.encode() for name in (group, sender, receiver)]
    packed = b"".join(bytes((len(part),)) + part for part in parts)
    if len(packed) > NAMES_BYTES_MAX:
        raise ValueError(f"names of group and nodes are too long: {packed!r}")
    return packed


def _split_names(packed: bytes) -> list[str]:
    names: list[str] = []
    while packed:
        names.append(packed[1 : packed[0] + 1].decode(errors="replace"))
        packed = packed[packed[0] + 1 :]
    return names
