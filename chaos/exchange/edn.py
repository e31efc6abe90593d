"""EDN, the notation of Clojure in which Jepsen writes histories: read form by form, and written.

Keywords and symbols are strings of types of their own; what a tag says is not looked at, its value
is taken. Knows no Jepsen. Source: the edn-format specification.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from chaos.exchange.quoting import quoted

DEPTH_MAX: Final = 64
FORM_CHARS_MAX: Final = 16 << 20
"""The longest form that is read: an operation of a history, not the history."""
FORM_TOKENS_MAX: Final = 2 << 20
"""Of so many words and brackets a form is made at the most: each takes memory of its own."""
STRING_CHARS_MAX: Final = 1 << 20
_TOKEN: Final = re.compile(
    r"""(?P<space>[\s,]+|;[^\n]*|\^(?=\{))
    |(?P<open>\#\{|[(\[{])
    |(?P<close>[)\]}])
    |(?P<discard>\#_)
    |(?P<char>\\(?:newline|space|tab|return|formfeed|backspace|u[0-9a-fA-F]{4}|.))
    |(?P<tag>\#[A-Za-z][^\s,()\[\]{}";]*)
    |(?P<atom>[^\s,()\[\]{}"\#;\\^][^\s,()\[\]{}";]*)""",
    re.VERBOSE | re.DOTALL,
)
_STRING: Final = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""What a string is made of, up to its end. Possessive: nothing is kept to go back to."""
_CLOSES: Final = {"(": ")", "[": "]", "{": "}", "#{": "}"}
_WHOLE: Final = re.compile(r"[+-]?\d+N?")
_DECIMAL: Final = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?M?")
_CONSTANTS: Final = {"nil": None, "true": True, "false": False}
_CHARS: Final = {"newline": "\n", "space": " ", "tab": "\t", "return": "\r"}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "b": "\b", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class EdnError(Exception):
    """A text is not EDN; the message says on which line."""


class Keyword(str):
    """A keyword, without its colon; equal to the string of its name."""

    __slots__ = ()


class Symbol(str):
    """A symbol; equal to the string of its name."""

    __slots__ = ()


class _Frame:
    """What was opened and not yet closed: a collection, a tag or a discard."""

    __slots__ = ("items", "opened")

    def __init__(self, opened: str) -> None:
        self.opened = opened
        self.items: list[Any] = []


class _OpenString:
    """A string that was opened and not yet closed, in the pieces in which it comes."""

    __slots__ = ("_is_escaped", "_pieces", "_size", "line")

    def __init__(self, line: int) -> None:
        self.line = line
        self._pieces: list[str] = []
        self._size = 0
        self._is_escaped = False

    def take(self, text: str, at: int) -> int:
        """Take what is its own of ``text`` from ``at`` on; return where it ended, -1 if it did not.

        Each character is looked at once. Errors: EdnError if it is too long.
        """
        end = min(len(text), at + STRING_CHARS_MAX + 2)
        body = min(at + self._is_escaped, end)
        found = _STRING.match(text, body, end)
        stop = body if found is None else found.end()
        self._is_escaped = stop < end and text[stop] == "\\"
        is_closed = stop < end and not self._is_escaped
        own = stop if is_closed else end
        self._pieces.append(text[at:own])
        self._size += own - at
        if self._size > STRING_CHARS_MAX:
            raise EdnError(f"line {self.line}: a string that is too long")
        return stop + 1 if is_closed else -1

    def text(self) -> str:
        """Return it with its quotes."""
        return '"' + "".join(self._pieces) + '"'


def read_forms(lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """Yield the forms of a text, each with the line on which it begins.

    A vector or list around all of them is looked through: its members are the forms. Lists and
    vectors become lists, or tuples as keys, sets frozensets. Errors: EdnError.
    """
    stack: list[_Frame] = []
    wrapper, begin, size, count = "", 0, 0, 0
    for line, kind, text in _tokens(lines):
        size, count = (size + len(text), count + 1) if stack else (len(text), 1)
        is_large = size > FORM_CHARS_MAX or count > FORM_TOKENS_MAX
        if is_large or len(stack) > DEPTH_MAX:
            raise EdnError(f"line {begin or line}: a form that is too long, or too deep")
        if not stack:
            begin = line
            around = _around(kind, text, wrapper)
            if around is not None:
                wrapper = around
                continue
        if kind in {"open", "tag", "discard"}:
            stack.append(_Frame(text if kind == "open" else kind))
            continue
        if kind == "close":
            if not stack or _CLOSES.get(stack[-1].opened) != text:
                raise EdnError(f"line {line}: {text} closes nothing that is open")
            value = _collection(stack.pop(), line)
        else:
            value = _scalar(kind, text, line)
        for done in _settle(stack, value):
            yield begin, done
    if stack or wrapper:
        raise EdnError(f"line {begin}: this has no end")


def _around(kind: str, text: str, wrapper: str) -> str | None:
    """Return what closes the wrapper that is open behind this token; None if it is of a form."""
    if kind == "open" and text in {"(", "["} and not wrapper:
        return _CLOSES[text]
    return "" if kind == "close" and text == wrapper else None


def _settle(stack: list[_Frame], value: object) -> Iterator[object]:
    """Give a value to what waits for it; yield it if nothing does."""
    while stack:
        waiting = stack[-1].opened
        if waiting == "discard":
            stack.pop()
            return
        if waiting != "tag":
            stack[-1].items.append(value)
            return
        stack.pop()
    yield value


def _tokens(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each token; of a string that has several lines the first."""
    opened: _OpenString | None = None
    for number, line in enumerate(lines, start=1):
        at = 0
        while at < len(line):
            if opened is not None:
                at = opened.take(line, at)
                if at < 0:
                    break
                yield opened.line, "string", opened.text()
                opened = None
            elif line[at] == '"':
                opened, at = _OpenString(number), at + 1
            else:
                found = _TOKEN.match(line, at)
                if found is None:
                    raise EdnError(f"line {number}: {line[at : at + 20]!r} is not EDN")
                at = found.end()
                if found.lastgroup not in {"space", None}:
                    yield number, str(found.lastgroup), found.group()
    if opened is not None:
        raise EdnError(f"line {opened.line}: this string has no end")


def _collection(frame: _Frame, line: int) -> object:
    items = frame.items
    if frame.opened == "#{":
        return frozenset(map(_frozen, items))
    if frame.opened != "{":
        return items
    if len(items) % 2:
        raise EdnError(f"line {line}: a map with a key and no value")
    return {_frozen(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _frozen(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(one)) for key, one in value.items())
    return value


def _scalar(kind: str, text: str, line: int) -> object:
    if kind == "string":
        return _whole(_ESCAPE.sub(lambda found: _unescaped(found, line), text[1:-1]), line)
    if kind == "char":
        name = text[1:]
        is_code = len(name) == 5 and name[0] == "u"
        return _whole(chr(int(name[1:], 16)), line) if is_code else _CHARS.get(name, name)
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] == ":":
        return Keyword(text[1:])
    if _WHOLE.fullmatch(text):
        if len(text) > 40:
            raise EdnError(f"line {line}: a number of {len(text)} digits")
        return int(text.removesuffix("N"))
    if _DECIMAL.fullmatch(text):
        return float(text.removesuffix("M"))
    return Symbol(text)


def _whole(text: str, line: int) -> str:
    """Return a text with the halves of surrogate pairs joined. Errors: EdnError for one alone."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise EdnError(f"line {line}: half a character in {quoted(text)}") from error


def _unescaped(found: re.Match[str], line: int) -> str:
    code = found.group(1)
    if len(code) == 5:
        return chr(int(code[1:], 16))
    if code not in _ESCAPES:
        raise EdnError(f"line {line}: the escape \\{code} is unknown")
    return _ESCAPES[code]


def write_form(value: object) -> str:
    """Return a value as EDN on one line; lists are vectors, keys of maps keep their order.

    Errors: TypeError for what has no form.
    """
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case Keyword():
            return f":{value!s}"
        case int() | float() | Symbol():
            return str(value)
        case str():
            return _quoted(value)
        case dict():
            pairs = (f"{write_form(key)} {write_form(one)}" for key, one in value.items())
            return "{" + ", ".join(pairs) + "}"
        case list() | tuple():
            return "[" + " ".join(map(write_form, value)) + "]"
        case _:
            raise TypeError(f"no form for a {type(value).__name__}")


def _quoted(text: str) -> str:
    back = {char: f"\\{code}" for code, char in _ESCAPES.items()}
    return '"' + "".join(back.get(char, char) for char in text) + '"'
