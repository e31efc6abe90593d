"""What the tests of the index share: messages, an index over a disk in memory, a plain model."""

import tarfile
from functools import lru_cache

from dledger.mark import LogMark
from ledgermq.remoting.protocol.properties import java_string_hash, parse_properties
from store.config import IndexConfig
from store.index.key_index import KeyIndex
from store.index.recovery import agree_with_log, load_index
from store.index.search import Span, search
from store.layout import read_record
from tests import fixtures
from tests.unit.store.fakes import FakeClock, FakeDisk

ALWAYS = Span(0, 1 << 62)


def properties(unique="", keys="", more=""):
    parts = [("KEYS", keys), ("UNIQ_KEY", unique), ("TAGS", more)]
    return "\x02".join(f"{name}\x01{value}" for name, value in parts if value).encode()


def keyed(number, *, topic="t", keys="", unique=None, flags=0, step=100, every_ms=250):
    """Return message ``number`` of a log as dispatch hands it over."""
    name = f"{number:028X}{number & 0xFFFF:04X}" if unique is None else unique
    stored = 1_700_000_000_000 + number * every_ms
    return topic.encode(), properties(name, keys), number * step, stored, flags


class Log:
    """As much of a log as the start of the index asks: entries of 100 bytes, named by number."""

    header_bytes = 0
    first_position = 0

    def __init__(self, count, *, step=100):
        self.count = count
        self.step = step

    def maybe_end(self, mark):
        is_in = mark.position == mark.index * self.step and mark.index < self.count
        return mark.position + self.step if mark.term == 1 and is_in else None

    def maybe_size(self, physical):
        is_in = physical % self.step == 0 and 0 <= physical < self.count * self.step
        return self.step if is_in else None


def log_mark(number, *, step=100):
    """Return the mark of message ``number``."""
    return LogMark(number, 1, number * step)


def make(disk=None, *, slots=16, entries=10):
    return KeyIndex(
        IndexConfig(slots=slots, entries=entries), "/s", disk or FakeDisk(), FakeClock()
    )


def checkpoint(index, mark, *, is_last=False):
    """Write a checkpoint; after the last one of all, all slots are on disk and known to be."""
    assert index.flush()
    for _ in range(1 + is_last):
        plan = index.plan(mark, is_last=is_last)
        index.settle(plan, is_written=plan.run())


def reopened(disk, log, *, queues_mark=None, slots=16, entries=10):
    """Return the index after a start, and where dispatch has to begin."""
    index = make(disk, slots=slots, entries=entries)
    loaded = load_index(index, trusted_until=0)
    return index, agree(index, loaded, log, queues_mark)


def agree(index, loaded, log, queues_mark):
    """Make the index agree with the log; return the number of the message to begin with."""
    position = agree_with_log(index, loaded, log, log, queues_mark)
    assert position % log.step == 0
    return position // log.step


def find(index, key, *, topic="t", limit=64, span=ALWAYS):
    found = search(index, (topic.encode(), key.encode()), limit, span, 10_000)
    return found.physicals


def contents(disk):
    """Return all index files by name, as far as their entries count."""
    return {
        path: bytes(data)
        for path, data in sorted(disk.files.items())
        if path.startswith("/s/index/")
    }


class Model:
    """RocketMQ's index written down simply: entries in a list, chains by walking them."""

    def __init__(self, messages):
        self.entries = []
        for topic, raw, physical, stored, flags in messages:
            if flags & 12 == 12:
                continue
            found = parse_properties(raw)
            keys = [found["UNIQ_KEY"]] if "UNIQ_KEY" in found else []
            keys += [word for word in found.get("KEYS", "").split(" ") if word]
            self.entries += [(f"{topic.decode()}#{key}", physical, stored) for key in keys]

    def hashes(self):
        return [
            0 if (h := java_string_hash(k)) == -(1 << 31) else abs(h) for k, _, _ in self.entries
        ]

    def physicals(self, key, topic="t"):
        wanted = f"{topic}#{key}"
        return list(dict.fromkeys(p for k, p, _ in reversed(self.entries) if k == wanted))


@lru_cache(maxsize=4)
def recorded(name, prefix):
    """Return ``(files of index/ by name, messages in the order of the log)`` of a recording."""
    index, segments = {}, {}
    with tarfile.open(fixtures.store(name)) as archive:
        for member in archive:
            parts = member.name.split("/")
            if not member.isfile() or not member.name.startswith(prefix):
                continue
            if parts[-2] == "index" and len(parts[-1]) == 17:
                index[parts[-1]] = archive.extractfile(member).read()
            elif parts[-2] in ("data", "commitlog"):
                segments[int(parts[-1])] = archive.extractfile(member).read()
    messages = []
    for _start, data in sorted(segments.items()):
        messages += _messages(data, is_raft=name.startswith("dledger"))
    return dict(sorted(index.items())), messages


def _messages(data, *, is_raft):
    at = 0
    while at + 8 <= len(data):
        head = 48 if is_raft else 0
        size = int.from_bytes(data[at + head : at + head + 4], "big")
        magic = data[at + head + 4 : at + head + 8]
        if magic not in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
            return
        _, _, _, flags, stored, topic, raw = read_record(memoryview(data), at + head)
        physical = int.from_bytes(data[at + head + 28 : at + head + 36], "big")
        yield topic, raw, physical, stored, flags
        at += head + size
