"""JSON as fastjson writes and reads it, for the bodies and headers that strict JSON cannot carry.

Beyond JSON: object keys without quotes (``{0:5}``), single quotes, objects as keys
(``{{"queueId":0,"topic":"T"}:5}``), a trailing comma, and ``{"$ref":"$.a[0]"}`` for an object that
occurred before. An object used as a key becomes the tuple of its sorted items.

Only used where msgspec, which is 50 times as fast, refuses the text. Reading is this slow, and a
reference can double what it names, so that what comes from outside has a `Reach`: so many bytes,
so many values, those counted twice that two references name. Files of our own have a wider one.
Source: spec/wire.md 3.10 (fastjson 1.2.83 and fastjson2 2.0.43, verified by execution).
"""

import re
from typing import Any, Final, NamedTuple

import msgspec

from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.limits import (
    ANSWER_VALUES_MAX,
    BODY_BYTES_MAX,
    BODY_VALUES_MAX,
    NESTING_MAX,
    REGISTER_BYTES_MAX,
    TOLERANT_ANSWER_VALUES_MAX,
    TOLERANT_BYTES_MAX,
    TOLERANT_VALUES_MAX,
)

Json = Any
"""dict, list, str, int, float, bool or None."""


class Reach(NamedTuple):
    """How far the slow reader goes."""

    bytes_max: int
    values_max: int
    """Keys, values and escapes, and what references add."""
    strict_values_max: int | None = None
    """What strict JSON may hold; None: no more than its bytes can."""


REQUEST: Final = Reach(TOLERANT_BYTES_MAX, TOLERANT_VALUES_MAX)
"""For what any client may send: at most 20 ms of work."""
ANSWER: Final = Reach(16 * 1024 * 1024, TOLERANT_ANSWER_VALUES_MAX, ANSWER_VALUES_MAX)
"""For the answers of servers that we asked; a real name server writes routes in this dialect."""
REGISTRATION: Final = Reach(REGISTER_BYTES_MAX, TOLERANT_VALUES_MAX)
"""For what a broker says of itself: long, but then in strict JSON."""
FILE: Final = Reach(1 << 30, 50_000_000)
"""For files of a directory that was given to us."""

_SPACES: Final = " \t\r\n\f\v"
_SPACE: Final = re.compile(r"\s*")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BARE_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.\-]*")
_WORDS: Final = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {
    '"': '"', "'": "'", "\\": "\\", "/": "/",
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
}  # fmt: skip
_STRINGS: Final = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DIGITS_MAX: Final = 64
NOT_DECODED: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for bytes that it takes for no JSON, or no UTF-8, or that are nested too
deeply for it."""
_REF_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


def loads(data: bytes, reach: Reach = REQUEST) -> Json:
    """Return the value of a JSON text. Errors: `RemoteProtocolError` if it is none."""
    check_reach(data, reach)
    if b'"$ref"' not in data:
        try:
            return msgspec.json.decode(data)
        except NOT_DECODED:
            pass
    return _Reader(data.decode("utf-8", "replace"), reach.values_max).read_all()


def check_reach(data: bytes, reach: Reach) -> None:
    """Refuse a text that is too long, or would become too many values, before it is read.

    Errors: `RemoteProtocolError`.
    """
    if len(data) > reach.bytes_max:
        raise RemoteProtocolError(f"JSON of {len(data)} bytes, more than {reach.bytes_max}")
    most = reach.strict_values_max
    if most is not None and len(data) > most:
        values = data.count(b",") + data.count(b"{") + data.count(b"[")
        if values > most:
            raise RemoteProtocolError(f"JSON of {values} values, more than {most}")


def check_body(data: bytes, reach: Reach) -> None:
    """Refuse a body that nobody needs to read; a request's must not hold up the others.

    Errors: `RemoteProtocolError`.
    """
    if reach is not REQUEST:
        check_reach(data, reach)
        return
    if len(data) > BODY_BYTES_MAX:
        raise RemoteProtocolError(f"body of {len(data)} bytes, more than {BODY_BYTES_MAX}")
    values = data.count(b",") + data.count(b"{")
    if values > BODY_VALUES_MAX:
        raise RemoteProtocolError(f"body of {values} values, more than {BODY_VALUES_MAX}")


def text_of(value: Json) -> str:
    """Return a value as Java's String member would hold it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        try:
            return msgspec.json.encode(value).decode()
        except (*NOT_DECODED, TypeError, ValueError, OverflowError):
            return str(value)
    return str(value)


class _Reader:
    """A recursive-descent reader over one text."""

    __slots__ = ("_left", "_position", "_references", "_text", "_values_max")

    def __init__(self, text: str, values_max: int) -> None:
        self._text = text
        self._position = 0
        self._values_max = self._left = values_max
        self._references: list[tuple[Any, Any, str]] = []

    def read_all(self) -> Json:
        root = self._value(0)
        self._skip_space()
        if self._position != len(self._text):
            raise self._error("text after the value")
        for container, key, path in self._references:
            container[key] = _resolve(root, path)
        if self._references:
            _Expansion(self._values_max).measure(root, 0)
        return root

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise self._error(f"more than {self._values_max} values")

    def _value(self, depth: int) -> Json:
        if depth > NESTING_MAX:
            raise self._error("nesting too deep")
        self._spend(1)
        char = self._next_char()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char in ('"', "'") and char:
            return self._string(char)
        return self._scalar()

    def _scalar(self) -> Json:
        match = _NUMBER.match(self._text, self._position)
        if match:
            self._position = match.end()
            text = match.group()
            if len(text) > _DIGITS_MAX:
                raise self._error("number too long")
            return float(text) if match.group(1) or match.group(2) else int(text)
        match = _BARE_KEY.match(self._text, self._position)
        if match and match.group() in _WORDS:
            self._position = match.end()
            return _WORDS[match.group()]
        raise self._error("no value")

    def _object(self, depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        self._position += 1
        while not self._closes("}"):
            key = self._key(depth)
            self._expect(":")
            value = self._value(depth + 1)
            result[key] = value
            self._note_reference(result, key, value)
            self._separator("}")
        return result

    def _array(self, depth: int) -> list[Any]:
        result: list[Any] = []
        self._position += 1
        while not self._closes("]"):
            value = self._value(depth + 1)
            result.append(value)
            self._note_reference(result, len(result) - 1, value)
            self._separator("]")
        return result

    def _key(self, depth: int) -> Json:
        match = _BARE_KEY.match(self._text, self._position)
        if match:
            self._position = match.end()
            return match.group()
        key = self._value(depth + 1)
        if isinstance(key, dict):
            try:
                key = tuple(sorted(key.items()))
                hash(key)
            except TypeError as error:
                raise self._error("object key with nested members") from error
            return key
        if isinstance(key, list):
            raise self._error("array as key")
        return key

    def _string(self, quote: str) -> str:
        match = _STRINGS[quote].match(self._text, self._position)
        if match is None:
            raise self._error("string without end")
        text = match.group(1)
        if "\\" in text:
            self._spend(text.count("\\"))
            text = _ESCAPE.sub(self._escape, text)
            if _SURROGATE.search(text):
                text = _join_surrogates(text)
        self._position = match.end()
        return text

    def _escape(self, match: re.Match[str]) -> str:
        number = match.group(1) or match.group(2)
        if number:
            return chr(int(number, 16))
        try:
            return _ESCAPES[match.group(3)]
        except KeyError:
            raise self._error("unknown escape") from None

    def _note_reference(self, container: Json, key: Json, value: Json) -> None:
        if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str):
            self._references.append((container, key, value["$ref"]))

    def _separator(self, close: str) -> None:
        char = self._next_char()
        if char == ",":
            self._position += 1
        elif char != close:
            raise self._error(f"expected , or {close}")

    def _closes(self, close: str) -> bool:
        if self._next_char() == close:
            self._position += 1
            return True
        return False

    def _expect(self, char: str) -> None:
        if self._next_char() != char:
            raise self._error(f"expected {char}")
        self._position += 1

    def _next_char(self) -> str:
        """Return the character that follows the space here, "" at the end."""
        text, position = self._text, self._position
        char = text[position : position + 1]
        if char in _SPACES or not char.isascii():
            self._skip_space()
            char = text[self._position : self._position + 1]
        return char

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        assert match is not None, "the pattern matches nothing, too"
        self._position = match.end()

    def _error(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"JSON at character {self._position}: {what}")


def _join_surrogates(text: str) -> str:
    """Join escaped surrogate pairs; a lone half becomes a question mark, as in Java's UTF-8."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


class _Expansion:
    """Measures a value as whoever walks it finds it: what is named twice counts twice."""

    def __init__(self, values_max: int) -> None:
        self._values_max = values_max
        self._known: dict[int, tuple[int, int]] = {}

    def measure(self, value: Json, depth: int) -> tuple[int, int]:
        """Return the values and the levels of a value, itself counted.

        Errors: `RemoteProtocolError` when they are too many; a value that holds itself has no end.
        """
        if not isinstance(value, (dict, list)):
            return 1, 0
        known = self._known.get(id(value))
        size, height = known or (1, 0)
        if known is None:
            if depth > NESTING_MAX:
                raise RemoteProtocolError("JSON: references nest too deep")
            for item in value.values() if isinstance(value, dict) else value:
                item_size, item_height = self.measure(item, depth + 1)
                size, height = size + item_size, max(height, item_height + 1)
            self._known[id(value)] = size, height
        if size > self._values_max or depth + height > NESTING_MAX:
            raise RemoteProtocolError("JSON: references expand too far")
        return size, height


def _resolve(root: Json, path: str) -> Json:
    """Return what ``$.a.b[0]`` points to; None for a path that leads nowhere."""
    value = root
    if not path.startswith("$"):
        return None
    for name, index in _REF_STEP.findall(path[1:]):
        if name and isinstance(value, dict):
            value = value.get(name)
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    return value
