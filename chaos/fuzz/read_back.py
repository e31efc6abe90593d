"""Whether everything that was acknowledged can be read, as it was sent."""

import asyncio
import struct
from collections.abc import Callable
from typing import Final
from zlib import crc32

from chaos.fuzz.frames import json_frame
from chaos.fuzz.storm import Ledger
from chaos.net.wire import FrameSplitter
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.cancel import timeout

PULL: Final = 11
CREATE_TOPIC: Final = 17
COUNT: Final = 256
ANSWER_TIMEOUT_S: Final = 10.0
FOUND: Final = 0
PROBLEMS_MAX: Final = 20


async def read_back(find: Callable[[], tuple[str, int]], ledger: Ledger) -> tuple[int, list[str]]:
    """Return how many messages were read back equal, and what is wrong.

    Topics that were made unreadable by requests that may do so are opened again first.
    """
    reader = _Reader(*await asyncio.open_connection(*find()))
    count, problems = 0, []
    for topic in sorted({topic for topic, _ in ledger.messages}):
        queues = 1 + max(queue_id for name, queue_id in ledger.messages if name == topic)
        await reader.open_topic(topic, queues)
    for (topic, queue_id), expected in sorted(ledger.messages.items()):
        position, last = min(expected), max(expected)
        missing = dict(expected)
        while position <= last:
            following, found = await reader.pull(topic, queue_id, position)
            for offset, checksum in found:
                if offset in missing:
                    if missing.pop(offset) != checksum:
                        problems.append(f"{topic} {queue_id} {offset}: another body than was sent")
                    else:
                        count += 1
            if following <= position:
                break
            position = following
        if missing:
            first = min(missing)
            problems.append(f"{topic} {queue_id}: {len(missing)} lost, the first at {first}")
        if len(problems) > PROBLEMS_MAX:
            break
    reader.close()
    return count, problems


class _Reader:
    """One connection to the leader, one pull at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = FrameSplitter()
        self._opaque = 0

    async def open_topic(self, topic: str, queues: int) -> None:
        """Have a topic readable again, whatever hostile requests have made of its settings."""
        self._opaque += 1
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
            "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        self._writer.write(json_frame(CREATE_TOPIC, 0, self._opaque, fields, b""))
        await self._answer()

    async def pull(
        self, topic: str, queue_id: int, offset: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """Return where the next pull begins, and offset and checksum of each message."""
        self._opaque += 1
        fields = {
            "consumerGroup": "read-back", "topic": topic, "queueId": str(queue_id),
            "queueOffset": str(offset), "maxMsgNums": str(COUNT), "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        self._writer.write(json_frame(PULL, 0, self._opaque, fields, b""))
        frame = await self._answer()
        header_bytes = int.from_bytes(frame[5:8], "big")
        records = decode_records(frame[8 + header_bytes :]) if _code(frame) == FOUND else []
        found = [(record.queue_offset, crc32(record.body)) for record in records]
        return (found[-1][0] + 1 if found else offset), found

    async def _answer(self) -> bytes:
        async with timeout(ANSWER_TIMEOUT_S):
            while True:
                data = await self._reader.read(1 << 20)
                if not data:
                    raise EOFError("the leader closed the connection while it was read back from")
                frames = self._splitter.feed(data)
                if frames:
                    return frames[-1]

    def close(self) -> None:
        self._writer.close()


def _code(frame: bytes) -> int:
    """Return the code of an answer with a JSON header."""
    at = frame.index(b'"code":') + 7
    digits = frame[at : at + 12].split(b",")[0].split(b"}")[0]
    return int(digits) if frame[4] == 0 else int(struct.unpack_from(">h", frame, 8)[0])
