"""Start of the index: which files can be trusted, and from where dispatch must fill it again.

1. `load_index`, before the log is open: the files that ``index.checkpoint`` names are taken as far
   as it says; without it, files that RocketMQ left whole are. From the first that is not as it
   should be, all are removed. The first ones may be gone: they go with the beginning of the log,
   and the checkpoint is from before.
2. `agree_with_log`, once it is open: entries of what the log has lost are dropped, and everything
   is if a file is gone whose messages the log still has. The answer is
   where dispatch has to begin so that nothing is missing; what is there already is passed over.

No file is read as a whole: entries and slots are compared with their CRCs in blocks, each when it
is first read. (Of slots that change there is none: those of the last file have one if it was left
by a clean stop.) A flipped bit elsewhere may hide a message, as in RocketMQ, and can never bring up
a wrong one, since whoever asks looks at the message.
Source: spec/disk.md 5.4, 5.7; RocketMQ IndexService.load.
"""

import logging
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from dledger.mark import LogMark
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import FatalError
from store.index.codec import ENTRY, ENTRY_BYTES, FIRST_ENTRY, HEADER_BYTES, Header, decode_header
from store.index.crcs import EntryCrcs, SlotCrcs
from store.index.file import DamagedIndex, IndexFile
from store.index.marks import FileMark, IndexMark, encode_mark, maybe_decode_mark

if TYPE_CHECKING:
    from store.index.key_index import KeyIndex
    from store.ports import LogMarks, LogReader

NAME_DIGITS = 17
_log = logging.getLogger(__name__)


class Loaded(msgspec.Struct):
    """What `load_index` found."""

    log: LogMark | None = None
    """Everything up to this entry is in the index; None: up to the last message in it."""
    had_mark: bool = False
    """Whether there was a checkpoint of ours, whatever it said."""
    gone_physical: int = -1
    """The last message of files that it names and that are gone; -1: there are none."""


def load_index(index: "KeyIndex", *, trusted_until: int | None) -> Loaded:
    """Take the files that can be trusted, remove all others.

    ``trusted_until``: files of RocketMQ are whole if they end at or before this time (ms); None:
    all of them are, after a clean stop. Errors: `OSError`, `FatalError`.
    """
    disk = index.disk
    names = [
        name
        for name in _names(index)
        if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
    ]
    data = disk.read(index.mark_path)
    mark = maybe_decode_mark(data) if data is not None else None
    if data is not None and mark is None:
        _log.warning("event=index_checkpoint_unreadable file=%s", index.mark_path)
    if mark is not None and (mark.slots, mark.entries) != tuple(index.layout):
        _log.warning("event=index_size_changed slots=%d entries=%d", mark.slots, mark.entries)
        mark = IndexMark(*index.layout, None, ())
    gone: list[FileMark] = []
    if mark is not None:
        gone = _gone(index, mark)
        mark = msgspec.structs.replace(mark, files=mark.files[len(gone) :])
        files = _marked(index, mark)
        exact = len(files) == len(mark.files)
        loaded = Loaded(mark.log if exact else None)
        if not exact:
            files += _others(
                index, mark.files[len(files)], names[len(files) :], trusted_until, files
            )
    else:
        files = _adopted(index, names, trusted_until, []) if data is None else []
        loaded = Loaded()
    if files and not files[-1].is_full:
        try:
            files[-1].ready_table(index.handles)
        except DamagedIndex as error:
            _log.warning("event=index_file_damaged reason=%s", error)
            loaded = Loaded()
            files.pop()
    kept = {file.name for file in files}
    for name in names:
        if name not in kept:
            _log.warning("event=index_file_not_trusted file=%s/%s", index.directory, name)
            index.handles.remove(f"{index.directory}/{name}")
    index.take(files)
    loaded.had_mark = data is not None
    loaded.gone_physical = gone[-1].end_physical if gone else -1
    return loaded


def agree_with_log(
    index: "KeyIndex",
    loaded: Loaded,
    log: "LogReader",
    marks: "LogMarks",
    queues_mark: LogMark | None,
) -> int:
    """Make the index agree with the log; return the position where dispatch begins at the latest.

    ``queues_mark``: an entry of this very log up to which the queues are known to be right.
    Errors: `OSError`, `FatalError`.
    """
    mark = loaded.log
    if loaded.gone_physical >= log.first_position:
        _log.warning("event=index_files_missing up_to=%d", loaded.gone_physical)
        index.reset()
        mark = None
    end = None if mark is None else marks.maybe_end(mark)
    if end is not None:
        return max(end, log.first_position)
    if mark is None:
        began = _reopen_last(index, log)
    else:
        began = _cut_to_queues(index, mark, marks, queues_mark)
    if began is None:
        if index.files or mark is not None:
            _log.warning("event=index_rebuilt from=%d", log.first_position)
        index.reset()
        began = log.first_position
    if not index.files and not loaded.had_mark:
        return max(began, log.first_position)
    # What was cut is overwritten from now on: the old mark must not count any more.
    kept = queues_mark if mark is not None and index.files else None
    try:
        index.disk.replace(index.mark_path, encode_mark(index.mark(kept)))
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        index.disk.remove(index.mark_path)  # without one the index is built anew, if it must be
    return max(began, log.first_position)


def _reopen_last(index: "KeyIndex", log: "LogReader") -> int | None:
    """Drop the last message of the last file, whose keys may not all be there; None if unknown.

    Returns where its entry starts, for dispatch to begin there.
    """
    if not index.files:
        return None
    physical = index.files[-1].end_physical
    if log.maybe_size(physical) is None or not _cut(index, physical):
        return None
    return physical - log.header_bytes


def _cut_to_queues(
    index: "KeyIndex", mark: LogMark, marks: "LogMarks", queues_mark: LogMark | None
) -> int | None:
    """Drop what lies behind the mark of the queues; return where that is, None if it is no help."""
    if queues_mark is None or queues_mark.position > mark.position:
        return None
    end = marks.maybe_end(queues_mark)
    if end is None:
        return None
    _log.warning("event=index_ahead_of_the_log cut_to=%d", end)
    return end if _cut(index, end) else None


def _cut(index: "KeyIndex", physical: int) -> bool:
    """Drop the entries at or behind ``physical``; False if some file is damaged."""
    while index.files:
        file = index.files[-1]
        try:
            file.cut(index.handles, physical)
        except DamagedIndex as error:
            _log.warning("event=index_file_damaged reason=%s", error)
            return False
        if file.count > FIRST_ENTRY:
            break
        index.remove_from(len(index.files) - 1)
    index.take(index.files)
    return True


def _gone(index: "KeyIndex", mark: IndexMark) -> list[FileMark]:
    """Return the first files of a checkpoint that are not there; the last one never goes."""
    size, directory = index.disk.size, index.directory
    return list(takewhile(lambda one: size(f"{directory}/{one.name}") is None, mark.files[:-1]))


def _marked(index: "KeyIndex", mark: IndexMark) -> list[IndexFile]:
    """Return the files that are as the checkpoint says, up to the first that is not."""
    files: list[IndexFile] = []
    for one in mark.files:
        file = _file(index, one)
        if file is None or (files and file.name <= files[-1].name):
            break
        files.append(file)
    return files


def _file(index: "KeyIndex", mark: FileMark) -> IndexFile | None:
    """Return a file if its size, its last entry and, where it counts, its header are right."""
    header = Header(*msgspec.structs.astuple(mark)[1:7])
    if not FIRST_ENTRY < mark.count <= index.layout.entries or mark.slots_count > mark.count:
        return None
    file = IndexFile(index.layout, index.directory, mark.name, header)
    if index.disk.size(file.path) != index.layout.file_bytes:
        return None
    file.is_created = True
    file.slots_count = mark.slots_count
    file.crcs = EntryCrcs.maybe_unpacked(mark.entry_crcs, mark.count)
    file.slot_crcs = SlotCrcs.maybe_unpacked(mark.slot_crcs, index.layout.slots)
    opened = index.handles.open(file.path)
    last = opened.pread(index.layout.entry_at(mark.count - 1), ENTRY_BYTES)
    if ENTRY.unpack(last)[1] != mark.end_physical:
        return None
    if mark.slots_count == mark.count and decode_header(opened.pread(0, HEADER_BYTES)) != header:
        return None
    return file


def _others(
    index: "KeyIndex",
    mark: FileMark,
    names: list[str],
    trusted_until: int | None,
    before: list[IndexFile],
) -> list[IndexFile]:
    """Return the files from one on that is not as ``mark`` says: none, unless RocketMQ wrote."""
    if _was_continued(index, mark):
        _log.info("event=index_of_another_writer file=%s/%s", index.directory, mark.name)
        return _adopted(index, names, trusted_until, before)
    _log.warning("event=index_file_damaged file=%s/%s", index.directory, mark.name)
    return []


def _was_continued(index: "KeyIndex", mark: FileMark) -> bool:
    """Tell whether RocketMQ went on with a file of ours: it has more entries than we know of."""
    path = f"{index.directory}/{mark.name}"
    if index.disk.size(path) != index.layout.file_bytes:
        return False
    header = decode_header(index.handles.open(path).pread(0, HEADER_BYTES))
    begin = mark.begin_timestamp, mark.begin_physical
    return (
        header is not None
        and header.next_number > mark.count
        and (header.begin_timestamp, header.begin_physical) == begin
    )


def _adopted(
    index: "KeyIndex", names: list[str], trusted_until: int | None, before: list[IndexFile]
) -> list[IndexFile]:
    """Return the whole files of RocketMQ behind ``before``, up to the first that is not."""
    files: list[IndexFile] = []
    for name in names:
        path = f"{index.directory}/{name}"
        if index.disk.size(path) != index.layout.file_bytes:
            break
        header = decode_header(index.handles.open(path).pread(0, HEADER_BYTES))
        last = [*before, *files][-1:]
        if header is None or not _is_sane(header, last[0] if last else None, index):
            break
        if trusted_until is not None and header.end_timestamp > trusted_until:
            break
        file = _file(index, FileMark(name, *header, header.next_number))
        if file is None:
            break
        files.append(file)
    return files


def _is_sane(header: Header, before: IndexFile | None, index: "KeyIndex") -> bool:
    """Tell whether a header may be one that follows that of ``before``, which is full."""
    return (
        0 < header.begin_timestamp <= header.end_timestamp
        and 0 <= header.begin_physical <= header.end_physical
        and 0 < header.used_slots < header.next_number <= index.layout.entries
        and (before is None or (before.is_full and before.end_physical <= header.begin_physical))
    )


def _names(index: "KeyIndex") -> list[str]:
    """Return what lies there. Errors: `FatalError`: no file could, and each flush would end so."""
    try:
        return index.disk.names(index.directory)
    except NotADirectoryError as error:
        message = f"{index.directory} exists and is not a directory: move it away"
        raise FatalError(message) from error
