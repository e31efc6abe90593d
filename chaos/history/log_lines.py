"""What in the log of a process tells of a bug, of damage, or of a machine that fails.

Takes a log line by line and keeps a few rows of the table ``node_log``: tracebacks, assertions,
panics, lines of level ERROR and CRITICAL, and of damage. What differs in its time and its numbers
only is one row that counts. Lines may be torn, as processes are killed, or be no text at all.

Pure: whoever reads the file gives the text, and knows which time a stamp is. Source: the format is
`ledgermq.runtime.log_format`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from chaos.history.domains import LOGGED_LATE_NS, PASSING

KIND_ROWS_MAX: Final = 50
"""Rows of one kind of one process: none crowds out the others. What is more is counted."""
LINE_CHARACTERS_MAX: Final = 600
"""Of what a row has of its line."""
TRACE_LINES: Final = 3
"""How many of the last lines of a traceback a row has: the place, its code, the exception."""

Moment = Callable[[str], int | None]
"""Which time of the run's clock the stamp of a line is; None: nobody knows."""

_HEAD: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (DEBUG|INFO|WARNING|ERROR|CRITICAL) "
)
_TRACE: Final = "Traceback (most recent call last):"
_GROUP: Final = re.compile(r"^\s*[|+] ?")
"""What the lines of a group of exceptions begin with."""
_EXCEPTION: Final = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_THREAD: Final = ("Exception in thread", "Exception ignored in")
_PANIC: Final = re.compile(
    r"^(?:Fatal Python error|Segmentation fault|double free|free\(\)|malloc\(\)|corrupted size|"
    r"\*\*\* .* \*\*\*|thread '.*' panicked|panic:)"
)
_EVENT: Final = re.compile(r"\bevent=(\w+)")
_HELD_BACK: Final = re.compile(r" held_back=(\d+)(?= \| |$)")
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")
_BROKEN: Final = re.compile(r"invariant[ _]broken|AssertionError|assertion failed", re.IGNORECASE)
_RESOURCE: Final = re.compile(
    r"\bdisk_full\b|Errno (?:5|23|24|28|30|122)\b|\b(?:EIO|ENOSPC|EMFILE|ENFILE|EDQUOT|EROFS)\b|"
    r"No space left|Input/output error|Too many open files|quota exceeded|Read-only file system"
)
_CORRUPT: Final = re.compile(
    r"corrupt|damage|quarantine|unreadable|unrepaired|not_repaired|message_lost|message_not_found|"
    r"snapshot_refused|\bcrc\b|checksum",
    re.IGNORECASE,
)
_SLOW: Final = frozenset({"disk_hung", "slow_write"})
"""Events by which a node says that its machine is slow: it waits, or lets others lead."""
_REMOVED: Final = frozenset({"delayed_messages_removed"})
"""Events by which a node says that a log was cut at its beginning before all of it was done."""
_GRAVE: Final = frozenset({"ERROR", "CRITICAL"})
_TELLING: Final = _GRAVE | {"WARNING"}
"""Levels of lines with tracebacks of their own; what follows others was written by Python itself,
as a process ends."""


@dataclass(slots=True)
class _Record:
    """A line with its stamp, and what follows without one."""

    stamp: str = ""
    level: str = ""
    text: str = ""
    is_traced: bool = False
    """Whether a traceback follows."""
    is_headed: bool = False
    """Whether the traceback follows at once, as those do that are logged."""
    in_trace: bool = False
    followed: int = 0
    before: str = ""
    """The line before the traceback."""
    exception: str = ""
    tail: list[str] = field(default_factory=list)


class LogRows:
    """The rows of one process's log; ``role``: broker, namesrv or client."""

    def __init__(self, node: str, role: str, moment: Moment) -> None:
        self.dropped = 0
        """Lines that are in no row: there were too many of their kind already."""
        self._about = {"node": node, "role": role}
        self._is_client = role == "client"
        self._moment = moment
        self._record = _Record()
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self._kinds: Counter[str] = Counter()

    def take(self, line: str) -> None:
        """Take the next line, without its end."""
        # A process that is killed leaves half a line, and the next one goes on behind it.
        heads = [head for head in _HEAD.finditer(line) if not _is_quoted(line, head.start())]
        begin = heads[0].start() if heads else len(line)
        if begin or not heads:
            self._go_on(line[:begin])
        for head, behind in zip_longest(heads, heads[1:]):
            self._close()
            end = len(line) if behind is None else behind.start()
            text = line[head.end() : end].rstrip()
            self._record = _Record(stamp=head[1], level=head[2], text=text)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, once there are no more lines."""
        self._close()
        yield from self._rows.values()

    def _go_on(self, line: str) -> None:
        """Take a line that has no stamp."""
        record = self._record
        line = _GROUP.sub("", line.rstrip())
        text = line.strip()
        if text.endswith(_TRACE):
            if not record.is_traced:
                record.is_headed = record.followed == 0 and record.level in _TELLING
            record.is_traced = record.in_trace = True
            record.tail.clear()
        elif record.in_trace and text:
            record.tail = [*record.tail[1 - TRACE_LINES :], text[:LINE_CHARACTERS_MAX]]
            if found := _EXCEPTION.match(line):
                record.exception, record.in_trace = found[1], False
        elif _PANIC.match(text):
            self._add("panic", text, record.stamp)
        elif not record.is_traced:
            record.before = text[:LINE_CHARACTERS_MAX]
        record.followed += 1

    def _close(self) -> None:
        """Sort out the record that is complete."""
        record, self._record = self._record, _Record()
        event = _EVENT.search(record.text)
        said = {"level": record.level, "event": event[1] if event else ""}
        if record.is_traced and self._is_told(record):
            kind = "assertion" if record.exception == "AssertionError" else "traceback"
            head = record.text if record.is_headed else record.before
            text = " | ".join(filter(None, (head, *record.tail)))
            more = said if record.is_headed else {}
            self._add(kind, text, record.stamp, exception=record.exception, **more)
        if not record.is_headed and (kind := _kind_of(record.level, said["event"], record.text)):
            self._add(kind, record.text, record.stamp, **said)

    def _is_told(self, record: _Record) -> bool:
        """Tell whether a traceback was logged, or a thread ended by it.

        By others a process ends: a client's is a part of the harness, whose end A48 has.
        """
        is_logged = record.is_headed and record.level in _GRAVE
        return not self._is_client or is_logged or record.before.startswith(_THREAD)

    def _add(self, kind: str, text: str, stamp: str, **more: str) -> None:
        number = 1
        if held := _HELD_BACK.search(text):
            number, text = number + int(held[1]), text[: held.start()] + text[held.end() :]
        t = self._moment(stamp) if stamp else None
        line = text[:LINE_CHARACTERS_MAX]
        same = (kind, *more.values(), _NUMBER.sub("#", line))
        row = self._rows.get(same)
        if row is not None and not _is_apart(row, t):
            row["count"] += number
            row["t_last"] = None if t is None or row["t"] is None else max(t, row["t_last"])
            return
        if self._kinds[kind] >= KIND_ROWS_MAX:
            self.dropped += number
            return
        if row is not None:
            self._rows[*same, str(len(self._rows))] = row
        self._kinds[kind] += 1
        told = {name: word or None for name, word in more.items()}
        about = self._about | {"kind": kind, "t": t, "t_last": t}
        self._rows[same] = about | told | {"count": number, "line": line}


def _is_apart(row: dict[str, Any], t: int | None) -> bool:
    """Tell whether another fault may be why: a row that lasts over two would fit neither."""
    last = row["t_last"]
    return row["kind"] == PASSING and None not in (t, last) and t - last > LOGGED_LATE_NS


def _is_quoted(line: str, at: int) -> bool:
    """Tell whether a part of a line is text of somebody else's, between quotation marks.

    Half a line of a process that was killed may end within such marks: nothing closes them.
    """
    return any(line[:at].count(mark) % 2 and line[at:].count(mark) % 2 for mark in "'\"")


def _kind_of(level: str, event: str, text: str) -> str:
    """Return what a line without a traceback is; empty if it does not matter."""
    if level not in _GRAVE:
        return "corrupt" if level == "WARNING" and event.startswith("corrupt") else ""
    if _BROKEN.search(text):
        return "assertion"
    if event in _SLOW or event in _REMOVED:
        return "slow" if event in _SLOW else "removed"
    if _RESOURCE.search(text):
        return "resource"
    return "corrupt" if _CORRUPT.search(text) else "error"
