"""The last part of a trace as a Lamport diagram: an SVG with a line for each host.

Time runs down, by events and not by the clock, so that what happened at once stays legible. Raft's
messages are arrows from the line ``say`` of the sender to the ``arrive`` of the receiver; a message
that never arrived ends in a cross. Faults, roles and the violation are marks on the lines.
Source: Lamport, "Time, Clocks, and the Ordering of Events"; Maelstrom's diagrams.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PEER_PORT: Final = "40911"
MARKS_MAX: Final = 160
"""Rows of the diagram; only the last ones are drawn."""
COLUMN: Final = 190
ROW: Final = 20
TOP: Final = 70
LEFT: Final = 150

COLOURS: Final = {
    "boot": "#2a7", "kill": "#c22", "exit": "#c22", "pause": "#b60", "resume": "#2a7",
    "wipe": "#c22", "role": "#225", "cut_log": "#93c", "commit": "#888", "fault": "#b60",
    "heal": "#2a7", "cut": "#b60", "reset": "#b60", "rule": "#b60", "rule_end": "#2a7",
    "disk_fault": "#b60", "violation": "#d00", "sent": "#06a",
}  # fmt: skip
_SILENT: Final = frozenset(
    {"host", "arrive", "disk", "disk_path", "delay", "user_timeout", "power_loss_disk"}
)


@dataclass(slots=True)
class Line:
    """One line of a trace."""

    at_ns: int
    kind: str
    host: str
    columns: dict[str, str]


@dataclass(slots=True)
class Arrow:
    """A message; ``end_row`` is None if it never arrived."""

    source: str
    target: str
    text: str
    start_row: int
    end_row: int | None = None


@dataclass(slots=True)
class Picture:
    """Rows of marks, and the arrows between them."""

    rows: list[Line] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)


def parse_line(text: str) -> Line:
    """Return the parts of a line of a trace. Errors: `ValueError` if it is none."""
    at, kind, host, *words = text.split(" ")
    columns: dict[str, str] = {}
    last = ""
    for word in words:
        name, separator, value = word.partition("=")
        if separator and name.isidentifier():
            columns[name] = value
            last = name
        elif last:
            columns[last] += f" {word}"
    return Line(int(at), kind, host, columns)


def draw_lamport(lines: Sequence[str], *, title: str, marks_max: int = MARKS_MAX) -> str:
    """Return the SVG of the end of a trace."""
    parsed = [parse_line(line) for line in lines]
    names = {line.columns["address"]: line.host for line in parsed if line.kind == "host"}
    picture = _arrange(parsed, names, marks_max)
    hosts = [name for name in names.values() if _is_in(picture, name)] or ["-"]
    columns = {name: LEFT + COLUMN * at for at, name in enumerate(hosts)}
    width = LEFT + COLUMN * len(hosts) + 200
    height = TOP + ROW * (len(picture.rows) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="monospace" font-size="11">',
        "<defs><marker id='head' markerWidth='8' markerHeight='8' refX='7' refY='3' "
        "orient='auto'><path d='M0,0 L7,3 L0,6 z' fill='#446'/></marker></defs>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="10" y="22" font-size="15">{escape(title)}</text>',
    ]
    for name, x in columns.items():
        parts.append(f'<text class="host" x="{x - 10}" y="{TOP - 22}">{escape(name)}</text>')
        parts.append(
            f'<line class="life" x1="{x}" y1="{TOP - 14}" x2="{x}" y2="{height - ROW}" '
            'stroke="#bbb"/>'
        )
    parts += _draw_arrows(picture, columns)
    parts += _draw_marks(picture, columns, width)
    return "\n".join([*parts, "</svg>\n"])


def _arrange(parsed: Sequence[Line], names: dict[str, str], marks_max: int) -> Picture:
    """Return the last rows and the arrows that begin or end in them."""
    picture = Picture()
    flying: dict[tuple[str, str], deque[Arrow]] = {}
    for line in parsed:
        if line.kind == "say":
            arrow = Arrow(line.host, line.columns["to"], line.columns["what"], len(picture.rows))
            picture.rows.append(line)
            picture.arrows.append(arrow)
            flying.setdefault((arrow.source, arrow.target), deque()).append(arrow)
        elif line.kind == "arrive" and line.columns.get("port") == PEER_PORT:
            pair = (names.get(line.columns["source"], ""), names.get(line.host, ""))
            waiting = flying.get(pair)
            if waiting:
                waiting.popleft().end_row = len(picture.rows)
                picture.rows.append(line)
        elif line.kind in {"kill", "exit"}:
            for pair, waiting in flying.items():
                if line.host in pair:
                    waiting.clear()
            picture.rows.append(line)
        elif line.kind not in _SILENT:
            picture.rows.append(line)
    return _cut(picture, marks_max)


def _cut(picture: Picture, marks_max: int) -> Picture:
    first = max(0, len(picture.rows) - marks_max)
    arrows = [
        Arrow(
            arrow.source, arrow.target, arrow.text, max(arrow.start_row - first, 0),
            None if arrow.end_row is None else arrow.end_row - first,
        )
        for arrow in picture.arrows
        if (arrow.start_row if arrow.end_row is None else arrow.end_row) >= first
    ]  # fmt: skip
    return Picture(picture.rows[first:], arrows)


def _is_in(picture: Picture, name: str) -> bool:
    told = any(name in (arrow.source, arrow.target) for arrow in picture.arrows)
    return told or any(line.host == name for line in picture.rows)


def _draw_arrows(picture: Picture, columns: dict[str, int]) -> Iterator[str]:
    for arrow in picture.arrows:
        if arrow.source not in columns or arrow.target not in columns:
            continue
        x1, x2 = columns[arrow.source], columns[arrow.target]
        y1 = TOP + ROW * arrow.start_row
        lost = arrow.end_row is None
        y2 = y1 + ROW // 2 if arrow.end_row is None else TOP + ROW * arrow.end_row
        if lost:
            x2 = (x1 + x2) // 2
        style = 'stroke="#c55" stroke-dasharray="4 3"' if lost else 'stroke="#446"'
        yield (
            f'<line class="{"lost" if lost else "message"}" x1="{x1}" y1="{y1}" x2="{x2}" '
            f'y2="{y2}" {style} marker-end="url(#head)"><title>{escape(arrow.text)}</title></line>'
        )
        if lost:
            yield f'<text x="{x2 - 3}" y="{y2 + 4}" fill="#c55">x</text>'
        side = 6 if x2 > x1 else -6
        anchor = "start" if side > 0 else "end"
        yield (
            f'<text class="label" x="{x1 + side}" y="{y1 - 3}" text-anchor="{anchor}" '
            f'font-size="9" fill="#446">{escape(arrow.text[:34])}</text>'
        )


def _draw_marks(picture: Picture, columns: dict[str, int], width: int) -> Iterator[str]:
    shown_ms = ""
    for row, line in enumerate(picture.rows):
        y = TOP + ROW * row
        at_ms = f"{line.at_ns / 1e6:.1f} ms"
        if at_ms != shown_ms:
            yield f'<text class="time" x="10" y="{y + 4}" fill="#777">{at_ms}</text>'
            shown_ms = at_ms
        if line.kind in {"say", "arrive"}:
            continue
        words = " ".join(f"{name}={value}" for name, value in line.columns.items())
        text = f"{line.kind} {words}".strip()
        colour = COLOURS.get(line.kind, "#555")
        if line.kind == "violation":
            yield (
                f'<rect class="violation" x="0" y="{y - 8}" width="{width}" height="{ROW}" '
                f'fill="#fdd"/><text x="80" y="{y + 5}" fill="{colour}" font-weight="bold">'
                f"{escape(text)}</text>"
            )
            continue
        x = columns.get(line.host, LEFT - 40)
        yield f'<circle class="mark" cx="{x}" cy="{y}" r="4" fill={quoteattr(colour)}/>'
        yield f'<text class="event" x="{x + 8}" y="{y + 4}" fill="{colour}">{escape(text)}</text>'
