"""RemotingCommand: what a frame says, with its JSON and its binary header codec.

JSON header: fastjson's, keys in alphabetical order, null members omitted. The reader is as
tolerant as Java's: any key may be missing, order is free, numbers and booleans inside extFields
become strings, unknown keys are ignored.

Binary header (serialize type ROCKETMQ), big-endian:
| offset | size | field |
|---|---|---|
| 0 | 2 | code, signed |
| 2 | 1 | language |
| 3 | 2 | version |
| 5 | 4 | opaque |
| 9 | 4 | flag |
| 13 | 4 + n | remark length, remark; 0 = none |
| | 4 + n | extFields length in bytes, entries; 0 = none |
| entry | 2 + n, 4 + n | key length, key, value length, value; an empty value is no value |

Source: RemotingCommand, RemotingSerializable, RocketMQSerializable (spec/wire.md 1.2, 1.3).
"""

import re
import struct
from typing import Any, Final

import msgspec

from ledgermq.remoting.protocol.codes import VERSION, LanguageCode, SerializeType
from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.frame import Frame, encode_frame
from ledgermq.remoting.protocol.limits import Int32
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED, Json, loads, text_of

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2
_JSON: Final = int(SerializeType.JSON)
_BINARY: Final = int(SerializeType.ROCKETMQ)
_OTHER: Final = int(LanguageCode.OTHER)
"""For every frame: a member of an enumeration costs ten times as much as a global."""

_HEAD: Final = struct.Struct(">hbhii")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_LANGUAGE_BY_NAME: Final = {language.name: int(language) for language in LanguageCode}
_NAME_BY_LANGUAGE: Final = {int(language): language.name for language in LanguageCode}


class RemotingCommand(msgspec.Struct, gc=False):
    """A request or a response. ``ext_fields`` holds the flattened custom header."""

    code: int
    flag: int = 0
    opaque: int = 0
    version: int = VERSION
    language: int = LanguageCode.JAVA
    remark: str | None = None
    ext_fields: dict[str, str] = {}
    body: bytes = b""
    serialize_type: int = SerializeType.JSON
    empty_ext_fields: bool = False
    """Write ``extFields`` though it is empty, as Java does for a header without any value."""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & FLAG_ONEWAY)


class Head(msgspec.Struct, gc=False):
    """The part of a header that routes the frame."""

    opaque: Int32 = 0
    flag: Int32 = 0
    code: Int32 = 0


def decode_command(frame: Frame) -> RemotingCommand:
    """Return the command of a frame. Errors: `RemoteProtocolError` for a malformed header."""
    if frame.serialize_type == _BINARY:
        return _decode_binary(frame)
    try:
        head = _decode_json_fast(frame.header)
    except NOT_DECODED:
        return _decode_json_tolerant(frame)
    fields = head.extFields
    return RemotingCommand(
        head.code,
        head.flag,
        head.opaque,
        head.version,
        _LANGUAGE_BY_NAME.get(head.language, _OTHER),
        head.remark,
        {} if fields is None else fields,
        frame.body,
        SerializeType.JSON,
        fields is not None and not fields,
    )


def decode_head(frame: Frame) -> Head:
    """Return opaque, flag and code only, cheaply. Errors: `RemoteProtocolError`."""
    if frame.serialize_type == _BINARY:
        if len(frame.header) < _HEAD.size:
            raise RemoteProtocolError("binary header is cut short")
        code, _, _, opaque, flag = _HEAD.unpack_from(frame.header)
        return Head(opaque, flag, code)
    try:
        return _decode_json_head(frame.header)
    except NOT_DECODED:
        command = _decode_json_tolerant(frame)
        return Head(command.opaque, command.flag, command.code)


def peek_code(frame: Frame) -> int:
    """Return the code of a frame, cheaply. Errors: `RemoteProtocolError`."""
    header = frame.header
    if frame.serialize_type == _JSON and header.startswith(b'{"code":'):
        end = header.find(b",", 8, 20)
        if end > 0 and header[8:end].isdigit():
            return int(header[8:end])
    return decode_head(frame).code


def encode_command(command: RemotingCommand) -> list[bytes]:
    """Return the buffers of a frame, in order: prefix with header, then the body if there is one.

    Errors: `LocalProtocolError` for what the header type or the frame limit cannot carry.
    """
    is_binary = command.serialize_type == _BINARY
    header = _encode_binary(command) if is_binary else _encode_json(command)
    body = command.body
    prefix = encode_frame(command.serialize_type, header, len(body))
    return [prefix, body] if body else [prefix]


def make_response(
    request: RemotingCommand,
    code: int,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """Return the response to ``request``, in the header type of the request.

    ``ext_fields`` None leaves extFields out; an empty dict writes it empty.
    """
    return RemotingCommand(
        code,
        FLAG_RESPONSE,
        request.opaque,
        VERSION,
        LanguageCode.JAVA,
        remark,
        {} if ext_fields is None else ext_fields,
        body,
        request.serialize_type,
        ext_fields is not None and not ext_fields,
    )


class _JsonHeader(msgspec.Struct, gc=False):
    code: Int32 = 0
    flag: Int32 = 0
    opaque: Int32 = 0
    version: Int32 = 0
    language: str = "JAVA"
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the key on the wire


_Scalar = str | int | float | bool | None


class _LooseHeader(msgspec.Struct, gc=False):
    """Numbers for text and text for numbers, as other clients write them and fastjson reads."""

    code: _Scalar = 0
    flag: _Scalar = 0
    opaque: _Scalar = 0
    version: _Scalar = 0
    language: _Scalar = "JAVA"
    remark: _Scalar = None
    extFields: dict[str, _Scalar] | None = None  # noqa: N815 - the key on the wire


class _JsonOut(msgspec.Struct, gc=False):
    """Members in the order of fastjson's output."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815 - the key on the wire
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815 - the key on the wire
    version: int


_decode_json_fast: Final = msgspec.json.Decoder(_JsonHeader).decode
_decode_json_loose: Final = msgspec.json.Decoder(_LooseHeader).decode
_decode_json_head: Final = msgspec.json.Decoder(Head).decode
_encode_json_out: Final = msgspec.json.Encoder().encode


def _decode_json_tolerant(frame: Frame) -> RemotingCommand:
    """Read what fastjson reads and the fast path refuses."""
    try:
        head = _decode_json_loose(frame.header)
    except NOT_DECODED:
        head = _read_loose_header(frame.header)
    fields = head.extFields
    return RemotingCommand(
        _int32(head.code, "code"),
        _int32(head.flag, "flag"),
        _int32(head.opaque, "opaque"),
        _int32(head.version, "version"),
        _language(head.language),
        None if head.remark is None else text_of(head.remark),
        {key: text_of(value) for key, value in (fields or {}).items() if value is not None},
        frame.body,
        SerializeType.JSON,
        fields is not None and not fields,
    )


def _read_loose_header(header: bytes) -> _LooseHeader:
    """Read a header the slow way, which is bounded."""
    value = loads(header)
    if not isinstance(value, dict):
        raise RemoteProtocolError("JSON header is not an object")
    fields = value.get("extFields")
    if fields is not None and not isinstance(fields, dict):
        raise RemoteProtocolError("extFields is not an object")
    if fields:
        fields = {text_of(key): _scalar(item) for key, item in fields.items()}
    remark = _scalar(value.get("remark"))
    return _LooseHeader(
        value.get("code"),
        value.get("flag"),
        value.get("opaque"),
        value.get("version"),
        value.get("language", "JAVA"),
        remark,
        fields,
    )


def _scalar(value: Json) -> _Scalar:
    return text_of(value) if isinstance(value, (dict, list)) else value


def _int32(found: Any, key: str) -> int:  # noqa: ANN401 - whatever JSON holds
    """Return an int member as Java's reader would take it: numbers, digits in a string, null."""
    if found is None:
        return 0
    try:
        number = int(found)
    except (TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"header member {key} is not an integer") from error
    if not -(2**31) <= number < 2**31:
        raise RemoteProtocolError(f"header member {key} is not an int32")
    return int(number)


def _language(value: object) -> int:
    if isinstance(value, int) and value in _NAME_BY_LANGUAGE:
        return int(value)
    return _LANGUAGE_BY_NAME.get(value, _OTHER) if isinstance(value, str) else _OTHER


def maybe_head_of_large(frame: Frame) -> Head | None:
    """Return opaque, flag and code of a header that is too large to be read; None if not found.

    Looked for where writers put them: the fixed part of a binary header, either end of a JSON one.
    """
    if frame.serialize_type == _BINARY:
        return decode_head(frame)
    ends = frame.header[:_END_BYTES] + frame.header[-_END_BYTES:]
    found = {key: int(number) for key, number in _MEMBER.findall(ends)}
    if b"opaque" not in found:
        return None
    return Head(found[b"opaque"], found.get(b"flag", 0), found.get(b"code", 0))


_END_BYTES: Final = 256
_MEMBER: Final = re.compile(rb'"(opaque|flag|code)"\s*:\s*(-?[0-9]{1,9}|[12][0-9]{9})\b')


def _encode_json(command: RemotingCommand) -> bytes:
    fields = command.ext_fields
    out = _JsonOut(
        command.code,
        fields if fields or command.empty_ext_fields else msgspec.UNSET,
        command.flag,
        _NAME_BY_LANGUAGE.get(command.language, "OTHER"),
        command.opaque,
        msgspec.UNSET if command.remark is None else command.remark,
        "JSON",
        command.version,
    )
    try:
        return _encode_json_out(out)
    except (*NOT_DECODED, UnicodeEncodeError, TypeError, OverflowError) as error:
        raise LocalProtocolError(f"header cannot be written as JSON: {error}") from error


def _encode_binary(command: RemotingCommand) -> bytes:
    try:
        parts = [
            _HEAD.pack(
                command.code, command.language, command.version, command.opaque, command.flag
            )
        ]
        remark = b"" if command.remark is None else command.remark.encode()
        parts += (_INT32.pack(len(remark)), remark)
        entries: list[bytes] = []
        for key, value in command.ext_fields.items():
            name, text = key.encode(), value.encode()
            entries += (_INT16.pack(len(name)), name, _INT32.pack(len(text)), text)
        packed = b"".join(entries)
        parts += (_INT32.pack(len(packed)), packed)
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"binary header cannot carry this command: {error}") from error
    return b"".join(parts)


def _decode_binary(frame: Frame) -> RemotingCommand:
    header = frame.header
    try:
        code, language, version, opaque, flag = _HEAD.unpack_from(header)
        remark, position = _binary_remark(header)
        (fields_bytes,) = _INT32.unpack_from(header, position)
        position += 4
        end = position + fields_bytes
        if fields_bytes < 0 or end > len(header):
            raise RemoteProtocolError("extFields reach beyond the binary header")
        fields = decode_binary_fields(header, position, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"binary header is malformed: {error}") from error
    return RemotingCommand(
        code,
        flag,
        opaque,
        version,
        language if language in _NAME_BY_LANGUAGE else LanguageCode.OTHER,
        remark or None,
        fields,
        frame.body,
        SerializeType.ROCKETMQ,
    )


def decode_binary_fields(header: bytes, position: int, end: int) -> dict[str, str]:
    """Return the extFields between two positions of a binary header.

    Errors: `RemoteProtocolError`, `IndexError` or `UnicodeDecodeError` if they are malformed.
    """
    fields: dict[str, str] = {}
    while position < end:
        key_end = position + 2 + (header[position] << 8 | header[position + 1])
        value_at = key_end + 4
        value_end = value_at + int.from_bytes(header[key_end:value_at], "big")
        if value_end > end:
            raise RemoteProtocolError("extFields reach beyond their length")
        if value_end > value_at:
            fields[header[position + 2 : key_end].decode()] = header[value_at:value_end].decode()
        position = value_end
    return fields


def _binary_remark(header: bytes) -> tuple[str, int]:
    """Return the remark of a binary header and the position after it."""
    start = _HEAD.size + 4
    (size,) = _INT32.unpack_from(header, _HEAD.size)
    if size < 0 or start + size > len(header):
        raise RemoteProtocolError("remark reaches beyond the binary header")
    return header[start : start + size].decode(), start + size
