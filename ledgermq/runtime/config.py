"""Properties files and the frozen dataclasses that they fill.

A field of a configuration class is declared by `key`, with RocketMQ's name; `bind` fills the class
and refuses, by a `FatalError` that names file, line, key and value, what it does not understand.

Source of the file format: java.util.Properties.load.
"""

import codecs
import dataclasses
import difflib
import enum
import logging
import pathlib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from ledgermq.runtime.config_keys import ROCKETMQ_KEYS
from ledgermq.runtime.errors import FatalError

_log = logging.getLogger(__name__)

Config = TypeVar("Config")

COMMAND_LINE: Final = "command line"
FILE_BYTES_MAX: Final = 1024 * 1024

_METADATA: Final = "config_key"
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key besides its type: its name in the file and its range."""

    name: str
    low: int | None = None
    high: int | None = None


class Properties(dict[str, str]):
    """The keys and values of one file; ``place(key)`` tells where a key stands."""

    def __init__(self, path: str = "", items: Mapping[str, str] | None = None) -> None:
        super().__init__(items or {})
        self.path = path
        self.lines: dict[str, int] = {}

    def place(self, name: str) -> str:
        """Return ``file:line`` of a key, or the file."""
        line = self.lines.get(name)
        return f"{self.path}:{line}" if line else self.path or "configuration"


def key(name: str, default: object, *, low: int | None = None, high: int | None = None) -> Any:  # noqa: ANN401 - stands for a field of any type, as dataclasses.field does
    """Return a dataclass field that is bound to ``name``; ``low`` and ``high`` bound an integer."""
    return dataclasses.field(default=default, metadata={_METADATA: Key(name, low, high)})


def load_properties(path: str) -> Properties:
    """Read a Java properties file. Errors: `FatalError` when it cannot be read."""
    try:
        with pathlib.Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)  # what is no file may say that it has no bytes
    except OSError as error:
        raise FatalError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise FatalError(f"{path}: larger than {FILE_BYTES_MAX} bytes, no configuration file")
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    return parse_properties_text(text, path)


def parse_properties_text(text: str, path: str = "") -> Properties:
    """Return the properties in a text; a later line wins over an earlier one with the same key."""
    properties = Properties(path)
    for number, line in _logical_lines(text):
        name, value = _split(line)
        properties[name] = value.strip()
        properties.lines[name] = number
    return properties


def bind(
    kind: type[Config], properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> Config:
    """Return a ``kind`` filled from properties and, winning over them, from the command line.

    Keys that only RocketMQ knows are accepted and named in one log line. Errors: `FatalError`
    (exit code 2) naming file, line, key and value, and what was expected.
    """
    fields = _fields(kind)
    values: dict[str, object] = {}
    unused: list[str] = []
    sources = [(properties, ""), (overrides or {}, COMMAND_LINE)]
    for source, fixed_place in sources:
        for name, text in source.items():
            place = fixed_place or _place(properties, name)
            if name in fields:
                attribute, spec, annotation = fields[name]
                values[attribute] = _convert(place, spec, annotation, text)
            elif name in ROCKETMQ_KEYS:
                unused.append(name)
            else:
                raise FatalError(f"{place}: unknown key {name}={text}: {_advice(name, fields)}")
    if unused:
        _log.info("event=config_keys_unused keys=%s", ",".join(sorted(unused)))
    try:
        return kind(**values)
    except ValueError as error:
        raise FatalError(f"{_place(properties, '')}: {error}") from error


def properties_of(config: object) -> dict[str, str]:
    """Return the values of a configuration by their keys, as a properties file has them."""
    found = {}
    for field in dataclasses.fields(typing.cast("Any", config)):
        spec = field.metadata.get(_METADATA)
        if spec is not None:
            value = getattr(config, field.name)
            if isinstance(value, bool):
                value = "true" if value else "false"
            found[spec.name] = value.name if isinstance(value, enum.Enum) else str(value)
    return found


def _fields(kind: type[Any]) -> dict[str, tuple[str, Key, Any]]:
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        spec = field.metadata.get(_METADATA)
        if spec is not None:
            found[spec.name] = (field.name, spec, hints[field.name])
    return found


def _place(properties: Mapping[str, str], name: str) -> str:
    return properties.place(name) if isinstance(properties, Properties) else "configuration"


def _advice(name: str, fields: Iterable[str]) -> str:
    known = {known.lower(): known for known in (*ROCKETMQ_KEYS, *fields)}
    near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    if near:
        return f"did you mean {known[near[0]]}? Correct the key or remove the line"
    return "no such key; remove the line"


def _convert(place: str, spec: Key, annotation: Any, text: str) -> object:  # noqa: ANN401 - a type
    """Return the value of a key as its field's type."""
    if isinstance(annotation, types.UnionType):
        annotation = next(one for one in typing.get_args(annotation) if one is not type(None))
    wrong = f"{place}: {spec.name}={text}:"
    if annotation is bool:
        if text.lower() not in {"true", "false"}:
            raise FatalError(f"{wrong} true or false is expected")
        return text.lower() == "true"
    if annotation is int:
        return _integer(wrong, spec, text)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = {member.name.upper(): member for member in annotation}
        if text.upper() not in members:
            raise FatalError(f"{wrong} one of {', '.join(members)} is expected")
        return members[text.upper()]
    assert annotation is str, (spec.name, annotation)
    if "\0" in text:
        raise FatalError(f"{place}: {spec.name}: a NUL is in no value")
    return text


def _integer(wrong: str, spec: Key, text: str) -> int:
    low, high = spec.low, spec.high
    span = "" if low is None and high is None else f" from {_bound(low)} to {_bound(high)}"
    if not _INTEGER.fullmatch(text):
        raise FatalError(f"{wrong} an integer{span} is expected")
    number = int(text)
    if (low is not None and number < low) or (high is not None and number > high):
        raise FatalError(f"{wrong} an integer{span} is expected")
    return number


def _bound(value: int | None) -> str:
    return "any" if value is None else str(value)


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield the lines that hold a property with their numbers, continuation lines joined."""
    joined, start = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    """Return key and value of a logical line."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(line[:position]), _unescape(rest)


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match.group(1):
            return chr(int(match.group(1), 16))
        char = match.group(2)
        return _ESCAPES.get(char, char)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text)
