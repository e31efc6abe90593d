"""A runner for text files of commands and what they print.

A file is blocks of one command line, ``----``, the output, and an empty line:

    command word word key=value key=(a,b)
    ----
    output

``GOLDEN_REWRITE=1`` in the environment writes the output that was found back into the file; read
the difference before you keep it. Lines that begin with ``#`` before a command belong to it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SEPARATOR = "----"


@dataclass
class Command:
    """One command line, parsed."""

    name: str
    words: list[str]
    options: dict[str, str] = field(default_factory=dict)

    def numbers(self, key: str) -> list[int]:
        return [int(number) for number in self.options[key].strip("()").split(",") if number]

    def number(self, key: str, default: int) -> int:
        return int(self.options.get(key, default))


@dataclass
class Block:
    """Comment, command and expected output."""

    comment: list[str]
    line: str
    expected: str
    number: int


def parse_line(line: str) -> Command:
    words = re.findall(r"[^\s()]+(?:\([^)]*\))?", line)
    plain = [word for word in words[1:] if "=" not in word]
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    return Command(words[0], plain, options)


def parse_file(text: str) -> list[Block]:
    blocks: list[Block] = []
    comment: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.startswith("#"):
            comment.append(line)
            continue
        number = at
        assert lines[at : at + 1] == [SEPARATOR], f"line {number}: no {SEPARATOR}"
        at += 1
        expected: list[str] = []
        while at < len(lines) and lines[at].strip():
            expected.append(lines[at])
            at += 1
        blocks.append(Block(comment, line, "\n".join(expected), number))
        comment = []
    return blocks


def run_file(path: Path, run: Callable[[Command], str], *, rewrite: bool) -> None:
    """Run all blocks of a file in order; compare, or write back."""
    blocks = parse_file(path.read_text())
    written: list[str] = []
    for block in blocks:
        found = run(parse_line(block.line)).rstrip() or "ok"
        written += [*block.comment, block.line, SEPARATOR, found]
        if not rewrite:
            assert found == block.expected, f"{path.name}:{block.number}: {block.line}\n{found}"
    if rewrite:
        path.write_text("\n".join(written).strip("\n") + "\n")
