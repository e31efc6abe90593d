"""When our checkpoint of the queues counts in a directory that RocketMQ may have worked on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from dledger.mark import LogMark
from ledgermq.runtime.disk import RealDisk
from store.config import StoreConfig
from store.plain import PlainLog, PlainLogConfig
from store.queues.consume_queue import ConsumeQueues
from store.recovery import foreign as takeover
from store.recovery.checkpoint import Checkpoint, maybe_decode_checkpoint
from tests.integration.plain_broker import QUEUE_FILE_BYTES, SEGMENT_BYTES, plain

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A store with 30 messages that was stopped cleanly."""

    async def main() -> None:
        async with plain(tmp_path) as broker:
            for number in range(30):
                await broker.send("one", 0, b"%d" % number)

    asyncio.run(main())
    return tmp_path


def counts(store: Path, checkpoint: Checkpoint) -> bool:
    config = StoreConfig(
        directory=str(store), store_host=bytes(8), queue_file_bytes=QUEUE_FILE_BYTES
    )
    log = PlainLog(PlainLogConfig(directory=str(store / "commitlog"), segment_bytes=SEGMENT_BYTES))
    log.open(clean=True)
    return takeover._counts(checkpoint, RealDisk(), ConsumeQueues(config, RealDisk()), log)


def test_checkpoint_counts_only_for_the_very_record_it_names(left: Path) -> None:
    checkpoint = maybe_decode_checkpoint((left / "consumequeue.checkpoint").read_bytes())
    assert checkpoint is not None
    assert counts(left, checkpoint)
    head = checkpoint.head
    mark = head.marks[0]
    for stale in (
        # Another message of the same size has taken the place.
        msgspec.structs.replace(head, store_timestamp=head.store_timestamp - 1),
        msgspec.structs.replace(
            head, marks=(LogMark(mark.index - 1, mark.term, mark.position - 1), *head.marks[1:])
        ),
        msgspec.structs.replace(head, marks=()),
        msgspec.structs.replace(head, file_bytes=head.file_bytes * 2),
    ):
        assert not counts(left, msgspec.structs.replace(checkpoint, head=stale)), stale
