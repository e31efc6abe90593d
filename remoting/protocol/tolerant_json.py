"""JSON as fastjson writes and reads it, for the bodies and headers that strict JSON cannot carry.

Beyond JSON: object keys without quotes (``{0:5}``), single quotes, objects as keys
(``{{"queueId":0,"topic":"T"}:5}``), a trailing comma, and ``{"$ref":"$.a[0]"}`` for an object that
occurred before. An object used as a key becomes the tuple of its sorted items.

Only used where msgspec, which is 50 times as fast, refuses the text.
Source: protocol.md 3.14 (fastjson 1.2.83 and fastjson2 2.0.43, verified by execution).
"""

import re
from typing import Any, Final

import msgspec

from remoting.protocol.errors import RemoteProtocolError

DEPTH_MAX: Final = 64
"""Deepest nesting read; real bodies have at most six levels."""

Json = Any
"""dict, list, str, int, float, bool or None."""

_SPACE: Final = re.compile(r"\s*")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_BARE_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.\-]*")
_WORDS: Final = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {
    '"': '"', "'": "'", "\\": "\\", "/": "/",
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
}  # fmt: skip
_DIGITS_MAX: Final = 64
NOT_DECODED: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for bytes that it takes for no JSON, or no UTF-8, or that are nested too
deeply for it."""
_REF_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def loads(data: bytes) -> Json:
    """Return the value of a JSON text. Errors: `RemoteProtocolError` if it is none."""
    if b'"$ref"' not in data:
        try:
            return msgspec.json.decode(data)
        except NOT_DECODED:
            pass
    reader = _Reader(data.decode("utf-8", "replace"))
    return reader.read_all()


def text_of(value: Json) -> str:
    """Return a value as Java's String member would hold it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        try:
            return msgspec.json.encode(value).decode()
        except (*NOT_DECODED, TypeError, ValueError):
            return str(value)
    return str(value)


class _Reader:
    """A recursive-descent reader over one text."""

    __slots__ = ("_position", "_references", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._references: list[tuple[Any, Any, str]] = []

    def read_all(self) -> Json:
        root = self._value(0)
        self._skip_space()
        if self._position != len(self._text):
            raise self._error("text after the value")
        for container, key, path in self._references:
            container[key] = _resolve(root, path)
        return root

    def _value(self, depth: int) -> Json:
        if depth > DEPTH_MAX:
            raise self._error("nesting too deep")
        self._skip_space()
        char = self._text[self._position : self._position + 1]
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
        text, position = self._text, self._position + 1
        parts: list[str] = []
        while True:
            end = text.find(quote, position)
            if end < 0:
                raise self._error("string without end")
            escape = text.find("\\", position, end)
            if escape < 0:
                parts.append(text[position:end])
                self._position = end + 1
                return _join_surrogates("".join(parts))
            parts.append(text[position:escape])
            char, position = self._escape(escape + 1)
            parts.append(char)

    def _escape(self, position: int) -> tuple[str, int]:
        char = self._text[position : position + 1]
        if char in _ESCAPES:
            return _ESCAPES[char], position + 1
        width = {"u": 4, "x": 2}.get(char, 0)
        digits = self._text[position + 1 : position + 1 + width]
        if not width or not re.fullmatch(f"[0-9a-fA-F]{{{width}}}", digits):
            raise self._error("unknown escape")
        return chr(int(digits, 16)), position + 1 + width

    def _note_reference(self, container: Json, key: Json, value: Json) -> None:
        if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str):
            self._references.append((container, key, value["$ref"]))

    def _separator(self, close: str) -> None:
        self._skip_space()
        char = self._text[self._position : self._position + 1]
        if char == ",":
            self._position += 1
        elif char != close:
            raise self._error(f"expected , or {close}")

    def _closes(self, close: str) -> bool:
        self._skip_space()
        if self._text[self._position : self._position + 1] == close:
            self._position += 1
            return True
        return False

    def _expect(self, char: str) -> None:
        self._skip_space()
        if self._text[self._position : self._position + 1] != char:
            raise self._error(f"expected {char}")
        self._position += 1

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        assert match is not None, "the pattern matches nothing, too"
        self._position = match.end()

    def _error(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"JSON at character {self._position}: {what}")


def _join_surrogates(text: str) -> str:
    """Join escaped surrogate pairs; a lone half becomes a question mark, as in Java's UTF-8."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


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
