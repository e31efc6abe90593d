"""State diagrams of the docs, drawn from the transition tables: ``python -m dledger.diagrams``.

A diagram stands between two marker lines, which name its table; this writes anew what is between
them. With ``--check`` nothing is written: exit code 1 if a diagram is not what its table says.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

from dledger.core.leadership import PHASES, Phase
from dledger.core.model import TRANSITIONS, Role
from dledger.core.progress import PACES, Pace

TABLES: Final[dict[str, tuple[Enum, Mapping[Any, str]]]] = {
    "roles": (Role.FOLLOWER, TRANSITIONS),
    "followers": (Pace.PROBE, PACES),
    "transfers": (Phase.CATCHING_UP, PHASES),
}
"""Name of the diagram: its first state, and why each change happens."""
DOCUMENT: Final = "docs/raft.md"
_BLOCK: Final = re.compile(
    r"(<!-- diagram (\w+), made by python -m dledger\.diagrams -->\n).*?(<!-- end -->)", re.DOTALL
)


def draw(first: Enum, table: Mapping[tuple[Enum, Enum], str]) -> str:
    """Return a mermaid diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    for (before, after), reason in table.items():
        words = reason.replace(":", " -").replace(";", ",")
        lines.append(f"    {before.value} --> {after.value}: {words}")
    ends = {after for _, after in table} - {before for before, _ in table}
    lines += [
        f"    {state.value} --> [*]" for state in sorted(ends, key=lambda end: str(end.value))
    ]
    return "\n".join([*lines, "```", ""])


def redraw(text: str) -> str:
    """Return a document with its diagrams drawn anew. Errors: KeyError for an unknown name."""
    return _BLOCK.sub(lambda found: found[1] + draw(*TABLES[found[2]]) + found[3], text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, or check; return the exit code."""
    parser = argparse.ArgumentParser(prog="dledger.diagrams", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("document", nargs="?", default=DOCUMENT, type=Path)
    options = parser.parse_args(arguments)
    text = Path(options.document).read_text(encoding="utf-8")
    drawn = redraw(text)
    if drawn == text:
        return 0
    if not options.check:
        Path(options.document).write_text(drawn, encoding="utf-8")
        return 0
    sys.stderr.write(f"{options.document}: draw it anew: python -m dledger.diagrams\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
