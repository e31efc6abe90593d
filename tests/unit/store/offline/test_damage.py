"""Any damage to any file: an answer with a place, or a refusal; no wrong message, no traceback.

`tests.unit.store.faults.damage` says what may happen to files and their names.
"""

import base64
import struct
import tempfile
from functools import cache
from itertools import islice
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.main import run
from dledger.codec.entry import END_MAGIC, END_RECORD
from ledgermq.remoting.protocol.message import MAGIC_BLANK
from store.offline.files import read_row
from store.offline.folder import UnusableError, open_folder
from store.offline.log import LogWalk
from store.offline.messages import Dump, Selection
from store.offline.records import Damage, Record
from store.offline.statistics import collect
from store.offline.verify import verify
from store.plain.files import IGNORED_NAMES
from store.queues.names import may_be_queue, may_be_topic
from tests.unit.store.faults.damage import CONTENT, FRACTIONS, damages
from tests.unit.store.faults.damage import Damage as Befallen
from tests.unit.store.faults.stores import built
from tests.unit.store.offline.stores import MESSAGES, SEGMENT, PlainStore, write

CASES = 80


@cache
def raft_files():
    files, _ = built(raft=True)
    return {
        path.removeprefix("/store/"): data
        for path, data in files.items()
        if "raft_event" not in path
    }


@cache
def plain_files():
    return PlainStore().files()


def rows_of(root):
    """Bodies by where they lie and what they are, as ``dump`` gives them; None if refused."""
    try:
        dump = Dump(open_folder(root), Selection())
    except UnusableError:
        return None
    return {
        (row["commitLogOffset"], row["bodyCRC"], base64.b64decode(row["bodyBase64"]))
        for row in dump.message_rows()
    }


@cache
def truth(files):
    with tempfile.TemporaryDirectory() as root:
        return rows_of(write(Path(root), files()))


def examine(files, befallen):
    """Damage a store; return the verdict on it, and what is read of it."""
    damaged = dict(files())
    changed = [path for damage in befallen for path in damage.befall(damaged)]
    with tempfile.TemporaryDirectory() as root:
        write(Path(root), damaged)
        rows = rows_of(root)
        if rows is None:
            return None, None, changed
        collect(open_folder(root))
        report = verify(open_folder(root))
        for found in report.findings.listed:
            assert found.path.startswith(root), found
        return report, rows, changed


@settings(max_examples=CASES)
@given(damages())
def test_damaged_raft_store_gives_no_wrong_message(befallen):
    _, rows, _ = examine(raft_files, befallen)
    assert rows is None or rows <= truth(raft_files)


@settings(max_examples=CASES)
@given(damages())
def test_damaged_plain_store_gives_no_wrong_body(befallen):
    _, rows, _ = examine(plain_files, befallen)
    assert rows is None or rows <= truth(plain_files)


@settings(max_examples=CASES)
@example(0.5, 0.25, 40)  # of the channel: it makes a message a configuration
@given(FRACTIONS, FRACTIONS, st.integers(0, 2**32))
def test_one_flip_in_the_log_of_a_raft_group_is_always_found(file, place, seed):
    segments = sorted(path for path in raft_files() if "/data/" in path)
    path = segments[int(file * len(segments))]
    report, rows, _ = examine(raft_files, [Befallen("flip", path, (place,), seed)])
    assert report.findings.health == "damaged", path
    assert any(path.rpartition("/")[0] in found.path for found in report.findings.listed)
    assert len(rows) >= len(truth(raft_files)) - 1


@settings(max_examples=CASES)
@given(FRACTIONS, FRACTIONS, st.integers(0, 2**32), st.sampled_from((raft_files, plain_files)))
def test_one_flip_in_a_queue_is_always_found(file, place, seed, files):
    queues = sorted(path for path in files() if path.startswith("consumequeue/"))
    path = queues[int(file * len(queues))]
    report, rows, _ = examine(files, [Befallen("flip", path, (place,), seed)])
    assert report.findings.health == "damaged", path
    assert {f.path.partition("consumequeue/")[2] for f in report.findings.listed} == {
        path.removeprefix("consumequeue/")
    }
    assert rows == truth(files)


@settings(max_examples=40)
@given(st.sampled_from(sorted(plain_files())), damages(CONTENT, max_size=1))
def test_command_line_ends_with_a_line_and_a_code(path, befallen):
    with tempfile.TemporaryDirectory() as root:
        damaged = dict(plain_files())
        befallen[0].befall(damaged)
        Path(write(Path(root), damaged), path).unlink()
        for command in ("verify", "stat", "dump"):
            assert run(["store", command, root, "--json"]) in {0, 1, 2}


def test_a_segment_that_is_too_long_and_leads_back_to_its_end_is_walked_to_its_end(tmp_path):
    """A blank of no bytes where the next segment would begin: the walk stood still there."""
    store = PlainStore()
    files = store.files()
    last = max(path for path in files if path.startswith("commitlog/"))
    end = len(store.log) - int(last.removeprefix("commitlog/"))
    data = bytearray(files[last])
    data[end : end + 8] = struct.pack(">iI", SEGMENT - end, MAGIC_BLANK)
    files[last] = bytes(data) + struct.pack(">iI", 0, MAGIC_BLANK).ljust(SEGMENT, b"\1")
    (log,) = open_folder(write(tmp_path, files)).logs
    assert log.segments.file_bytes == SEGMENT
    items = list(islice(LogWalk(log).run(), MESSAGES + 10))
    assert sum(isinstance(item, Record) for item in items) == MESSAGES


def test_a_segment_of_a_group_that_leads_back_to_its_end_is_walked_to_its_end(tmp_path):
    files = dict(raft_files())
    last = max(path for path in files if "/data/" in path)
    size = len(files[last])
    (log,) = open_folder(write(tmp_path, files)).logs
    entries = sum(isinstance(item, Record) for item in LogWalk(log).run())
    data = files[last].rstrip(b"\0")
    data += END_RECORD.pack(END_MAGIC, size - len(data))
    files[last] = data.ljust(size, b"\0") + END_RECORD.pack(END_MAGIC, 0).ljust(size, b"\1")
    (log,) = open_folder(write(tmp_path, files)).logs
    items = list(islice(LogWalk(log).run(), entries + 10))
    assert sum(isinstance(item, Record) for item in items) >= entries - 1


@settings(max_examples=CASES)
@given(st.binary(max_size=5000), st.integers(0, 1 << 20), st.booleans())
@example(b"\x00\x00\x00\x5b\xda\xa3\x20\xa7" * 200, 0, False)
@example(b"\xda\xa3\x20\xa7" * 400, 0, True)
def test_garbage_as_a_segment_is_walked_to_its_end(data, base, raft):
    with tempfile.TemporaryDirectory() as root:
        kind = "dledger-n0/data" if raft else "commitlog"
        write(Path(root), {f"{kind}/{base:020}": data})
        (log,) = open_folder(root).logs
        assert read_row(log.segments.directory) == log.segments
        for item in LogWalk(log).run():
            assert isinstance(item, Record | Damage)
        verify(open_folder(root))


def put_beside(target: Path) -> None:
    """Make a file or a directory, if there is none."""
    if not target.exists():
        target.mkdir() if len(target.name) % 2 else target.touch()


@settings(max_examples=40)
@given(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=40))
@example("10")
@example("a topic")
@example("some")
def test_strange_names_are_damage_where_a_broker_refuses_them(name):
    strange = name.encode("utf-8", "surrogatepass")[:200].decode("utf-8", "surrogateescape")
    if strange in {".", ".."}:
        return
    with tempfile.TemporaryDirectory() as root:
        write(Path(root), plain_files())
        for place in ("", "consumequeue", "consumequeue/t0", "index", "config"):
            put_beside(Path(root, place, strange))
        topic, queue = Path(root, "consumequeue", strange), Path(root, "consumequeue/t0", strange)
        refused = (topic.is_file() and may_be_topic(strange)) or (
            queue.is_file() and may_be_queue(strange)
        )
        assert run(["store", "verify", root]) == refused
        put_beside(Path(root, "commitlog", strange))
        assert run(["store", "verify", root]) == (refused or strange not in IGNORED_NAMES)
