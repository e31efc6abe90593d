"""Reads the part of YAML in which scenarios are written, and remembers the line of everything.

Taken: block mappings and sequences, flow ones (``{a: 1, b: [x, y]}``, over several lines too),
comments, plain and quoted words. Refused, by line: tabs that indent, anchors, aliases, tags, block
scalars, several documents, a key twice. A plain word is a number if it reads as one in decimal,
``true`` and ``false`` are booleans, ``null`` is none, all else is text: ``no`` is a word.

Pure. Knows nothing of scenarios. Source: YAML 1.2.2, chapters 7 and 8.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

BYTES_MAX: Final = 256 * 1024
DEPTH_MAX: Final = 12
NUMBER_CHARS_MAX: Final = 32
_KEY: Final = re.compile(
    r"""("[^"]*"|'[^']*'|[^\s"'\[\]{},:#](?:[^\[\]{},:#]*[^\s\[\]{},:#])?)\s*:(?=\s|$)\s*"""
)
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_TOKEN: Final = re.compile(r"""\s*([\[\]{},]|"[^"]*"|'[^']*'|:(?=[\s,\[\]{}]|$)|[^\[\]{},:]+)""")
_NOT_TAKEN: Final = {
    "&": "an anchor", "*": "an alias", "!": "a tag", "|": "a block scalar", ">": "a block scalar",
    "@": "a reserved character", "`": "a reserved character", "%": "a directive",
}  # fmt: skip

Plain = str | int | float | bool | None


class Unreadable(Exception):  # noqa: N818 - it says what is the matter
    """A line is no YAML, or none that is taken here."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line, self.what = line, what


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the line where it begins, counted from 1."""

    line: int
    value: "Plain | dict[str, Node] | list[Node]"

    def plain(self) -> object:
        """Return the value without its lines."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    text: str


def read(text: str) -> Node:
    """Return the document of a text. Errors: Unreadable."""
    if len(text.encode("utf-8", "surrogatepass")) > BYTES_MAX:
        raise Unreadable(1, f"over {BYTES_MAX} bytes")
    lines = list(_joined(_significant(text)))
    if not lines:
        raise Unreadable(1, "there is nothing in it")
    node, rest = _block(lines, 0, lines[0].indent, 0)
    if rest < len(lines):
        raise Unreadable(lines[rest].number, "indented less than what it would belong to")
    return node


def _significant(text: str) -> Iterator[_Line]:
    """Yield the lines that say something, without their comments."""
    for number, raw in enumerate(text.splitlines(), 1):
        body = _without_comment(raw).rstrip()
        content = body.lstrip(" ")
        if not content or (number == 1 and content == "---"):
            continue
        if content.startswith("\t"):
            raise Unreadable(number, "a tab indents it: use spaces")
        if content in {"---", "..."}:
            raise Unreadable(number, "one document to a file")
        yield _Line(number, len(body) - len(content), content)


def _without_comment(line: str) -> str:
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and (at == 0 or line[at - 1] in " \t[{,:"):
            quote = char
        elif char == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at]
    return line


def _joined(lines: Iterator[_Line]) -> Iterator[_Line]:
    """Yield lines with what their open brackets go on with."""
    for line in lines:
        texts, still_open = [line.text], _open_brackets(line.text)
        while still_open > 0:
            following = next(lines, None)
            if following is None:
                raise Unreadable(line.number, "a bracket is not closed")
            texts.append(following.text)
            still_open += _open_brackets(following.text)
        yield _Line(line.number, line.indent, " ".join(texts))


def _open_brackets(text: str) -> int:
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", text)
    return sum(bare.count(c) for c in "[{") - sum(bare.count(c) for c in "]}")


def _block(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Node, int]:
    """Return the value that begins at a line, and the line behind it."""
    line = lines[at]
    if depth > DEPTH_MAX:
        raise Unreadable(line.number, f"over {DEPTH_MAX} levels deep")
    if line.text == "-" or line.text.startswith("- "):
        return _sequence(lines, at, indent, depth)
    if _KEY.match(line.text):
        return _mapping(lines, at, indent, depth)
    return _flow(line.text, line.number), at + 1


def _sequence(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Node, int]:
    items: list[Node] = []
    begin = lines[at].number
    while at < len(lines) and lines[at].indent == indent and lines[at].text.startswith("-"):
        line = lines[at]
        if line.text != "-" and not line.text.startswith("- "):
            raise Unreadable(line.number, "a space belongs behind the dash")
        inner = line.text[1:].lstrip(" ")
        if not inner:
            node, at = _indented(lines, at, indent, depth)
        else:
            deeper = indent + len(line.text) - len(inner)
            lines[at] = _Line(line.number, deeper, inner)
            node, at = _block(lines, at, deeper, depth + 1)
        items.append(node)
        _refuse_deeper(lines, at, indent)
    return Node(begin, items), at


def _mapping(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Node, int]:
    found: dict[str, Node] = {}
    begin = lines[at].number
    while at < len(lines) and lines[at].indent == indent:
        line = lines[at]
        key = _KEY.match(line.text)
        if key is None:
            raise Unreadable(line.number, "a key and a colon were expected")
        name = _unquoted(key[1])
        if name in found:
            raise Unreadable(line.number, f"{name} is there twice")
        rest = line.text[key.end() :]
        if rest:
            found[name], at = _flow(rest, line.number), at + 1
        else:
            found[name], at = _indented(lines, at, indent, depth)
        _refuse_deeper(lines, at, indent)
    return Node(begin, found), at


def _indented(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Node, int]:
    """Return what belongs to a key or a dash with nothing behind it."""
    number, at = lines[at].number, at + 1
    if at >= len(lines):
        return Node(number, None), at
    deeper = lines[at].indent
    # A sequence may begin where its key does.
    if deeper > indent or (deeper == indent and lines[at].text.startswith("- ")):
        return _block(lines, at, deeper, depth + 1)
    return Node(number, None), at


def _refuse_deeper(lines: list[_Line], at: int, indent: int) -> None:
    if at < len(lines) and lines[at].indent > indent:
        raise Unreadable(lines[at].number, "indented more than what it would belong to")


def _flow(text: str, line: int) -> Node:
    """Return the value of one line: a word, or what is in brackets."""
    if text[0] not in "[{":
        return Node(line, _word(text, line))
    tokens = [found[1] for found in _TOKEN.finditer(text) if found[1].strip()][::-1]
    value = _flow_value(tokens, line, 0)
    if tokens:
        rest = "".join(tokens[::-1])
        raise Unreadable(line, f"{rest!r} is behind the end of a bracket")
    return value


def _flow_value(tokens: list[str], line: int, depth: int) -> Node:
    """Take a value off ``tokens``, of which the last is the next one."""
    if not tokens or depth > DEPTH_MAX:
        raise Unreadable(line, "a bracket is not closed, or there are too many")
    piece = tokens.pop()
    if piece == "[":
        return _flow_list(tokens, line, depth + 1)
    if piece == "{":
        return _flow_dict(tokens, line, depth + 1)
    if piece in "]},:":
        raise Unreadable(line, f"{piece!r} where a value was expected")
    return Node(line, _word(piece.strip(), line))


def _flow_list(tokens: list[str], line: int, depth: int) -> Node:
    items: list[Node] = []
    while tokens and tokens[-1] != "]":
        items.append(_flow_value(tokens, line, depth))
        _take_comma(tokens, "]", line)
    _close(tokens, line)
    return Node(line, items)


def _flow_dict(tokens: list[str], line: int, depth: int) -> Node:
    found: dict[str, Node] = {}
    while tokens and tokens[-1] != "}":
        piece = tokens.pop()
        name = _unquoted(piece.strip())
        if piece in "[]{,:" or tokens[-1:] != [":"]:
            raise Unreadable(line, f"a colon was expected behind {name!r}")
        if name in found:
            raise Unreadable(line, f"{name} is there twice")
        tokens.pop()
        found[name] = _flow_value(tokens, line, depth)
        _take_comma(tokens, "}", line)
    _close(tokens, line)
    return Node(line, found)


def _take_comma(tokens: list[str], end: str, line: int) -> None:
    if tokens[-1:] == [","]:
        tokens.pop()
    elif tokens[-1:] != [end]:
        raise Unreadable(line, f"a comma or {end} was expected")


def _close(tokens: list[str], line: int) -> None:
    if not tokens:
        raise Unreadable(line, "a bracket is not closed")
    tokens.pop()


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _word(text: str, line: int) -> Plain:
    if text[0] in "\"'":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1] or "\\" in text:
            raise Unreadable(line, "a quotation does not end, or has a quote or backslash within")
        return text[1:-1]
    if text[0] in _NOT_TAKEN:
        raise Unreadable(line, f"{_NOT_TAKEN[text[0]]} is not taken here: write it out")
    if re.search(r":(\s|$)", text):
        raise Unreadable(line, "a colon within a value: put it in quotes")
    if _NUMBER.fullmatch(text):
        if len(text) > NUMBER_CHARS_MAX:
            raise Unreadable(line, f"a number of {len(text)} characters")
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    return {"true": True, "false": False, "null": None}.get(text, text)
