"""A connection of the fuzzer: bursts of hostile frames, each burst fenced by an ordinary question.

The answer to the question, in time, shows that the server is still serving this connection, and
keeps the fuzzer from sending more than is worked through. What the answers to sends promise is
noted in `Ledger`, to be read back at the end.
"""

import asyncio
import json
import random
import struct
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from chaos.fuzz.frames import Sent, draw, json_frame
from chaos.fuzz.requests import Request
from chaos.net.wire import FrameSplitter
from ledgermq.runtime.cancel import timeout

BURST: Final = 40
FENCE_TIMEOUT_S: Final = 10.0
"""An ordinary question that is not answered for so long is a finding."""
SPOILT_WAIT_S: Final = 0.02
KEPT: Final = 256
"""Frames of each connection that are kept, to be sent again when something was found."""
_FENCE_CODE: Final = 38
_SENDS: Final = frozenset({10, 310, 320})
_BATCH: Final = 320
_SUCCESS: Final = 0


class Ledger:
    """Messages whose storing a broker has acknowledged: by topic and queue, offset and checksum."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, int], dict[int, int]] = {}
        self.contradictions: list[str] = []

    def note(self, place: tuple[str, int], offset: int, content: bytes) -> None:
        """Take an acknowledgement; one place has one message for ever."""
        checksum = crc32(content)
        known = self.messages.setdefault(place, {})
        if known.setdefault(offset, checksum) != checksum:
            self.contradictions.append(f"{place} offset {offset} was acknowledged twice")

    def __len__(self) -> int:
        return sum(map(len, self.messages.values()))


@dataclass(slots=True)
class Tally:
    """What was sent and what came back."""

    frames: int = 0
    sent_bytes: int = 0
    connections: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    """By ``request code > response code``."""
    slowest_fence_ms: float = 0.0
    problems: list[str] = field(default_factory=list)


class Storm:
    """One connection at a time to one address, until it is told to stop.

    Args:
        find: returns the address of now; the leader's changes.
        requests: what is drawn from.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], tuple[str, int]],
        requests: Sequence[Request],
        seed: str,
        tally: Tally,
        ledger: Ledger,
    ) -> None:
        self.name = name
        self._find = find
        self._requests = requests
        self._weights = [request.weight for request in requests]
        self._rng = random.Random(seed)
        self._tally = tally
        self._ledger = ledger
        self._opaque = 0
        self.recent: deque[bytes] = deque(maxlen=KEPT)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Send until ``is_over``."""
        while not is_over():
            try:
                async with timeout(FENCE_TIMEOUT_S):
                    reader, writer = await asyncio.open_connection(*self._find())
            except (OSError, TimeoutError):
                self._tally.answers["no connection"] += 1
                await asyncio.sleep(0.05)
                continue
            self._tally.connections += 1
            try:
                await self._bursts(reader, writer, is_over)
            except (OSError, EOFError):
                self._tally.answers["connection closed"] += 1
            finally:
                writer.transport.abort()  # whoever does not read must not hold up the end

    async def _bursts(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        is_over: Callable[[], bool],
    ) -> None:
        splitter = FrameSplitter()
        while not is_over():
            waiting: dict[int, Sent] = {}
            for _ in range(BURST):
                if writer.is_closing():
                    raise EOFError
                self._opaque += 1
                sent = draw(self._rng, self._requests, self._weights, self._opaque)
                self._write(writer, sent.data)
                if sent.is_spoilt:
                    await writer.drain()
                    await asyncio.sleep(SPOILT_WAIT_S)
                    return
                if not sent.is_oneway:
                    waiting[self._opaque] = sent
            self._opaque += 1
            fields = {"consumerGroup": "nobody"}
            self._write(writer, json_frame(_FENCE_CODE, 0, self._opaque, fields, b""))
            await self._await_fence(reader, writer, splitter, waiting)

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        self.recent.append(data)
        self._tally.frames += 1
        self._tally.sent_bytes += len(data)

    async def _await_fence(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        splitter: FrameSplitter,
        waiting: dict[int, Sent],
    ) -> None:
        """Read answers until the fence's; what is slower, as held pulls are, is not waited for."""
        loop = asyncio.get_running_loop()
        begun, fence = loop.time(), self._opaque
        try:
            async with timeout(FENCE_TIMEOUT_S):
                await writer.drain()
                while True:
                    data = await reader.read(1 << 18)
                    if not data:
                        raise EOFError
                    if self._take(splitter.feed(data), waiting, fence):
                        break
        except TimeoutError:
            late = f"{self.name}: an ordinary question was not answered in {FENCE_TIMEOUT_S:.0f} s"
            self._tally.problems.append(late)
            raise EOFError from None
        waited_ms = (loop.time() - begun) * 1000
        self._tally.slowest_fence_ms = max(self._tally.slowest_fence_ms, waited_ms)

    def _take(self, frames: Sequence[bytes], waiting: dict[int, Sent], fence: int) -> bool:
        """Note answers; tell whether the fence's is among them."""
        is_passed = False
        for frame in frames:
            code, opaque, fields = _response(frame)
            is_passed |= opaque == fence
            sent = waiting.pop(opaque, None)
            if sent is None:
                continue
            self._tally.answers[f"{sent.code} > {code}"] += 1
            if code == _SUCCESS and sent.code in _SENDS:
                self._acknowledged(sent, fields)
        return is_passed

    def _acknowledged(self, sent: Sent, fields: dict[str, str]) -> None:
        if _waits(sent.fields):
            return  # the answer names its place in the schedule topic, which nobody may read
        topic = sent.fields["b"] if "b" in sent.fields else sent.fields["topic"]
        place = (topic, int(fields["queueId"]))
        first = int(fields["queueOffset"])
        is_batch = sent.code == _BATCH or (sent.code != 10 and sent.fields.get("m") == "true")
        contents = _elements(sent.body) if is_batch else [sent.body]
        for number, content in enumerate(contents):
            self._ledger.note(place, first + number, content)


def _waits(fields: dict[str, str]) -> bool:
    """Tell whether a send that was acknowledged asked for a delay, in however many digits."""
    text = fields.get("i") or fields.get("properties") or ""
    waits = False
    for item in text.split("\x02"):
        name, _, value = item.partition("\x01")
        if name == "DELAY":
            digits = value.removeprefix("+").lstrip("0")
            waits = digits.isascii() and digits.isdigit()
    return waits


def _elements(body: bytes) -> list[bytes]:
    """Return the bodies in a batch that was acknowledged."""
    found, position = [], 0
    while position < len(body):
        (size,) = struct.unpack_from(">i", body, position)
        (length,) = struct.unpack_from(">i", body, position + 16)
        found.append(body[position + 20 : position + 20 + length])
        position += size
    return found


def _response(frame: bytes) -> tuple[int, int, dict[str, str]]:
    """Return code, opaque and fields of an answer."""
    word = int.from_bytes(frame[4:8], "big")
    header = frame[8 : 8 + (word & 0xFFFFFF)]
    if word >> 24 == 0:
        head = json.loads(header)
        return head["code"], head["opaque"], head.get("extFields") or {}
    code, _, _, opaque, _, remark = struct.unpack_from(">HBHiii", header)
    position = 17 + remark
    (left,) = struct.unpack_from(">i", header, position)
    position, end = position + 4, position + 4 + left
    fields: dict[str, str] = {}
    while position < end:
        (length,) = struct.unpack_from(">H", header, position)
        name = header[position + 2 : position + 2 + length].decode()
        position += 2 + length
        (length,) = struct.unpack_from(">I", header, position)
        fields[name] = header[position + 4 : position + 4 + length].decode()
        position += 4 + length
    return code, opaque, fields
