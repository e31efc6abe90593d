"""What happened, as one hash: two runs with equal digests did the same things at the same times.

Every callback that runs leaves its virtual time and its host; every chunk of bytes that arrives
leaves its checksum; everything rarer is an *event* with columns. All of it goes through BLAKE2b, in
order. Lines are kept only when asked, and only for events and chunks:

    <virtual ns> <kind> <host> <column>=<value> ...

Nothing in a trace depends on addresses of objects, hashes of strings or the time of day.
"""

import hashlib
from array import array
from typing import Final

BATCH: Final = 8192
"""Numbers that are gathered before they are hashed."""


class Trace:
    """The trace of one run; ``now_ns`` is kept up to date by the loop."""

    __slots__ = ("_hash", "_sites", "_texts", "keep_lines", "lines", "note", "now_ns", "numbers")

    def __init__(self, *, keep_lines: bool = False) -> None:
        """Begin an empty trace."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._texts: list[str] = []
        self._sites: dict[tuple[str, str], int] = {}
        """Numbers for the kinds of events at a host: a commit, or by name a step of its disk."""
        self.keep_lines = keep_lines
        self.lines: list[str] = []
        self.now_ns = 0
        self.numbers: array[int] = array("Q")
        """What is not hashed yet."""
        self.note = self.numbers.append
        """Add a number of 0..2**64-1; the caller keeps `numbers` short by `fold`."""

    def fold(self) -> None:
        """Hash what has been gathered."""
        self._hash.update(self.numbers)
        self._hash.update("\n".join(self._texts).encode())
        del self.numbers[:]
        self._texts.clear()

    def event(self, kind: str, host: str, **columns: object) -> None:
        """Add an event; columns are integers, strings, or of a type whose text is always equal."""
        # The time among the numbers holds the place of the text, which is hashed behind them.
        self.note(self.now_ns)
        self._texts.append(f"{kind} {host} {columns}")
        if self.keep_lines:
            self.line(kind, host, **columns)

    def disk(self, host: str, op: str, path: int, offset: int, size: int, crc: int) -> None:
        """Add a step of a disk; these are most of the events, and go in as numbers."""
        site = self._sites.get((host, op))
        if site is None:
            site = self._add_site("disk", host, op)
        self.numbers.extend((self.now_ns, site << 32 | path, offset, size << 32 | crc))
        if self.keep_lines:
            self.line("disk", host, op=op, path=path, offset=offset, size=size, crc=crc)

    def commit(self, host: str, index: int, term: int) -> None:
        """Add that a commit index was told to a broker; the next most frequent, likewise."""
        site = self._sites.get((host, ""))
        if site is None:
            site = self._add_site("commit", host, "")
        self.numbers.extend((self.now_ns, site << 32 | term, index))
        if self.keep_lines:
            self.line("commit", host, index=index, term=term)

    def _add_site(self, kind: str, host: str, op: str) -> int:
        """Number a kind of event at a host that has not been met before."""
        site = self._sites[host, op] = len(self._sites)
        self._texts.append(f"{kind} {host} {op}")
        return site

    def line(self, kind: str, host: str, **columns: object) -> None:
        """Keep a line of something that is hashed elsewhere; call it only if `keep_lines`."""
        text = " ".join([kind, host or "-", *(f"{key}={columns[key]}" for key in columns)])
        self.lines.append(f"{self.now_ns} {text}")

    def digest(self) -> str:
        """Return the hash of everything so far, as hexadecimal digits."""
        self.fold()
        return self._hash.hexdigest()
