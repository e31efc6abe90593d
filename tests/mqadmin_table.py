"""The table of mqadmin's commands in docs/operations.md, as tests read it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "operations.md"
_HEAD: Final = "| command | since | asks | result |"


@dataclass(frozen=True, slots=True)
class Row:
    """Commands of one kind.

    ``since`` is "5" for what only RocketMQ 5 has, "4" for what it no longer has; ``refused`` is the
    code of the answer, None where nothing is refused.
    """

    commands: tuple[str, ...]
    since: str
    codes: tuple[int, ...]
    works: bool
    refused: int | None


def _rows() -> list[Row]:
    _, _, rest = _PAGE.read_text(encoding="utf-8").partition(f"{_HEAD}\n")
    found = []
    for line in rest.splitlines()[1:]:
        if not line.startswith("|"):
            break
        commands, since, asks, result = (cell.strip() for cell in line.split("|")[1:5])
        refused = re.match(r"refused: (\d+)", result)
        found.append(
            Row(
                commands=tuple(re.findall(r"`(\w+)`", commands)),
                since=since,
                codes=tuple(int(code) for code in re.findall(r"\d+", asks)),
                works=result.startswith("works"),
                refused=int(refused[1]) if refused else None,
            )
        )
    return found


ROWS: Final = _rows()
