"""What stands for the beginning of the log in a broker: taking it, dropping the log, starting anew.

The state image holds all tables, as they are now, and where each queue begins in the trimmed log.
Before anything is dropped, tables and queues are saved as they always are; what they do not cover
on disk stays. A start takes the image where the saved tables are older than the log's beginning:
then a snapshot has replaced the log and the process ended before its tables were saved. Tables that
neither has, since a version wrote them that did not know them, are made from what is in the log.
Source: docs/adr/0002; Raft paper 7.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.state.replicated_state import BAD_CONTENT
from broker.state.snapshot import FIRST_TABLES
from broker.state.steps import in_turns
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.tolerant_json import NOT_DECODED
from ledgermq.runtime.errors import FatalError
from store.queues.start import find_problem_of_starts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from broker.state.snapshot import Snapshot
    from dledger.core.snapshot import SnapshotMeta
    from dledger.node import DLedgerNode
    from dledger.replicated_log import ReplicatedLog
    from store.message_store import MessageStore
    from store.queues.start import QueueStart

_log = logging.getLogger(__name__)

NO_LIMIT: Final = 1 << 62
COPIED_PER_STEP: Final = 2 * 1024 * 1024
_pack: Final = msgspec.msgpack.encode


class StateImage(msgspec.Struct, frozen=True):
    """The state of a broker, in msgpack; files as `broker.state.snapshot` has them."""

    files: dict[str, memoryview]
    queues: list[tuple[str, int, int]]
    """Topic, queue id and next offset where the log begins; those that begin with 0 left out."""


def image_steps(
    tables: Generator[None, None, dict[str, bytearray]], queues: list[QueueStart]
) -> Generator[None, None, bytearray]:
    """Return a `StateImage`, as msgpack has it, of tables that are made in steps; in steps."""
    files = yield from tables
    image = bytearray(b"\x82" + _pack("files") + b"\xde" + len(files).to_bytes(2, "big"))
    for name, text in files.items():
        image += _pack(name) + b"\xc6" + len(text).to_bytes(4, "big")
        with memoryview(text) as whole:
            for at in range(0, len(text), COPIED_PER_STEP):
                image += whole[at : at + COPIED_PER_STEP]
                if at:
                    yield
    image += _pack("queues") + _pack(queues)
    return image


def decode_image(data: bytes) -> StateImage:
    """Read a state image. Errors: `FatalError`; its bytes are those some broker wrote."""
    try:
        return msgspec.msgpack.decode(data, type=StateImage)
    except NOT_DECODED as error:
        raise FatalError(f"the snapshot does not hold the state of a broker: {error}") from error


def state_problem(snapshot: Snapshot, data: bytes) -> str:
    """Return why this is no state of a broker, empty if it is one. Not in the loop.

    What is found to be none when it is taken over has replaced a log by then.
    """
    try:
        image = decode_image(data)
    except FatalError as error:
        return error.message
    missing = FIRST_TABLES - image.files.keys()
    if missing:
        return f"it lacks {min(missing)}"
    return find_problem_of_starts(image.queues) or snapshot.find_problem(image.files)


class Compactor:
    """Drops the beginning of one broker's log.

    Args:
        save: writes the tables to disk.
    """

    def __init__(
        self,
        node: DLedgerNode,
        log: ReplicatedLog,
        store: MessageStore,
        snapshot: Snapshot,
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._log = log
        self._store = store
        self._snapshot = snapshot
        self._save = save
        self._lock = asyncio.Lock()

    def load(self, saved_index: int) -> tuple[int, list[QueueStart]]:
        """Return which index all tables include, and where the queues begin; at the start.

        ``saved_index``: what the tables on disk include, -1 if they must be made again.
        Errors: `FatalError`, with the path of the snapshot if that is no state of a broker.
        """
        reader = self._node.reader
        meta = reader.snapshot_meta
        if meta is None:
            return (-1 if self._lacks_tables(-1) else saved_index), []
        state = reader.snapshot_state()
        try:
            image = decode_image(state)
            problem = find_problem_of_starts(image.queues)
            if not problem:
                saved_index = self._take_tables(meta, image, saved_index)
        except FatalError as error:
            problem = error.message
        except BAD_CONTENT as error:
            problem = f"a table in it is none: {error}"
        if problem:
            raise FatalError(
                f"{reader.snapshot_path}: {problem}; move the directory away and start with an"
                " empty one, when the others have everything"
            )
        last_index = meta.id.last_index
        return (last_index if self._lacks_tables(last_index) else saved_index), image.queues

    def _take_tables(self, meta: SnapshotMeta, image: StateImage, saved_index: int) -> int:
        """Take what the tables on disk lack; return what all include. Errors: `BAD_CONTENT`."""
        if saved_index >= meta.id.last_index:
            self._snapshot.fill(image.files)
            return saved_index
        _log.warning(
            "event=tables_taken_from_the_snapshot saved_index=%d state_index=%d",
            saved_index,
            meta.state_index,
        )
        self._snapshot.restore(image.files)
        return meta.state_index

    def _lacks_tables(self, before: int) -> bool:
        """Tell whether tables must be made from the log behind an entry, and say so.

        What they would know of messages before it is of no use: these are in the log no more.
        """
        lacking = self._snapshot.lacking
        if lacking:
            _log.warning(
                "event=tables_made_from_the_log tables=%s behind=%d", ",".join(sorted(lacking)),
                before,
            )  # fmt: skip
        return bool(lacking)

    def restore(self, state: bytes) -> tuple[list[QueueStart], Generator[None, None, None]]:
        """Return where the queues begin, and the steps that replace the tables."""
        image = decode_image(state)
        return image.queues, self._snapshot.restore_steps(image.files)

    async def compact(self, upto: int = NO_LIMIT) -> dict[str, Any]:
        """Drop the whole segments whose entries are at most ``upto``, as far as that may be.

        Returns what was dropped, and what forbids more.
        """
        async with self._lock:
            await self._save()
            await self._store.checkpoints.write()
            node = self._node
            limit, reason = self._limit(upto)
            before, position = node.first_index, node.first_position
            plan = node.trimmer.plan(limit)
            starts: list[QueueStart] = []
            if plan is not None:
                await self._store.log_start.resolve(plan.position)
                if not self._store.log_start.is_whole:
                    plan, reason = None, "the queues do not begin where the log does yet"
            if plan is not None:
                try:
                    starts = self._store.log_start.queue_starts_at(plan.position)
                except DamagedEntry as error:
                    plan, reason = None, f"{error}; the store is repairing it"
            if plan is not None:
                # The tables as they are at this entry, whatever is applied until they are text.
                state_index = self._log.index_before(self._store.applied)
                image = await in_turns(image_steps(self._snapshot.take_steps(), starts))
                # Entries that a loss of power takes must not live on in a snapshot: whoever
                # installs it would pass over what takes their place.
                is_synced = await node.operations.sync_to(state_index)
                if not (is_synced and await node.trimmer.trim(plan, state_index, image)):
                    reason = "the snapshot could not be written, see the log of the broker"
            if node.first_index <= limit:
                reason += "; what is left of that shares a segment with what stays"
            return {
                "node": node.self_id,
                "first_index": node.first_index,
                "first_position": node.first_position,
                "dropped_entries": node.first_index - before,
                "dropped_bytes": node.first_position - position,
                "limit_index": limit,
                "reason": reason,
            }

    def _limit(self, upto: int) -> tuple[int, str]:
        """Return the last entry that may go, and why no more."""
        log_limit = self._node.trimmer.limit()
        limits = (
            (upto, "no more was asked for"),
            (log_limit.last_index, log_limit.reason),
            (self._log.index_before(self._store.applied), "what follows is not applied yet"),
            (self._snapshot.saved_index, "the tables on disk include no more"),
            (
                self._log.index_before(self._store.checkpoints.covered),
                "the queues on disk cover no more",
            ),
        )
        return min(limits, key=lambda limit: limit[0])
