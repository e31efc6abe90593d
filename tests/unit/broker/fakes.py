"""Stand-ins behind the broker's Protocols, and builders of the frames that hot handlers take."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from broker.sends.room import LogRoom
from ledgermq.remoting.protocol.command import RemotingCommand, decode_command
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.protocol.limits import Limit
from store.results import GetResult, GetStatus, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.replicated_state import ReplicatedState
    from ledgermq.remoting.protocol.headers import SendHeader
    from store.results import BatchCallback, PutBatch, PutCallback, PutMessage, StateCallback


class FakeClock:
    """A clock that moves when told to."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def local(self, wall_ms: int) -> time.struct_time:
        return time.gmtime(wall_ms / 1000)


def free_room() -> LogRoom:
    """Return room in a log of which all is committed."""
    return LogRoom(lambda: 0, FakeClock())


async def no_wait() -> None:
    """Wait for nothing."""


class FakeRng:
    """Always the highest number."""

    def randint(self, low: int, high: int) -> int:
        assert low <= high
        return high

    def random(self) -> float:
        return 0.5


class FakeConnection:
    """Collects what is written and decodes it."""

    def __init__(self, number: int = 1) -> None:
        self.id = number
        self.closed = False
        self.slow = False
        self.remote = ("127.0.0.1", 4_000)
        self.state: dict[str, object] = {}
        self._decoder = FrameDecoder()
        self.answers: list[RemotingCommand] = []
        self.sent: list[RemotingCommand] = []

    def write(self, *buffers: bytes | memoryview) -> None:
        for frame in self._decoder.feed(b"".join(buffers)):
            self.answers.append(decode_command(frame))

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def send_oneway(self, command: RemotingCommand) -> None:
        self.sent.append(command)


class FakeStore:
    """Takes puts and answers them when asked; gives what `results` says."""

    def __init__(self) -> None:
        self.reader = self.writer = self
        self.writable = True
        self.puts: list[tuple[PutMessage, PutCallback]] = []
        self.batches: list[tuple[PutBatch, BatchCallback]] = []
        self.states: list[tuple[str, bytes, StateCallback]] = []
        self.results: list[GetResult] = []
        self.gets: list[tuple[Any, ...]] = []
        self.first_offset = 0

    @property
    def readable(self) -> bool:
        return self.writable

    def put(self, message: PutMessage, done: PutCallback) -> None:
        self.puts.append((message, done))

    def put_batch(self, batch: PutBatch, done: BatchCallback) -> None:
        self.batches.append((batch, done))

    def propose_state(self, kind: str, payload: bytes, done: StateCallback) -> None:
        self.states.append((kind, payload, done))

    def get(self, *arguments: Any) -> GetResult:
        self.gets.append(arguments)
        return self.results.pop(0)

    def begins_recently(self, _topic: str, _queue_id: int) -> bool:
        return self.first_offset == 0

    def finish(self, status: PutStatus = PutStatus.OK) -> None:
        """Complete every put that waits."""
        puts, self.puts = self.puts, []
        for number, (_, done) in enumerate(puts):
            done(status, number, 100 * number)


class ApplyingProposer:
    """Applies a proposal at once, as a leader that is alone."""

    def __init__(self, state: ReplicatedState | None = None) -> None:
        self.writable = True
        self.status = PutStatus.OK
        self.proposed: list[tuple[str, bytes]] = []
        self._state = state

    async def propose(self, kind: str, payload: bytes) -> PutStatus:
        self.proposed.append((kind, payload))
        if self.status is PutStatus.OK and self._state is not None:
            self._state.apply(len(self.proposed), kind.value, payload)
        return self.status


class FakePublisher:
    """Counts registrations."""

    def __init__(self) -> None:
        self.published = 0

    async def publish(self) -> None:
        self.published += 1


class RefusingMaker:
    """Creates no topic; remembers who asked."""

    def __init__(self, answer: tuple[int, str] | None = (17, "no such topic")) -> None:
        self.answer = answer
        self.resumes: list[Callable[[tuple[int, str] | None], object]] = []
        self.parked: dict[str, object] = {}

    def direct_retry(self, header: SendHeader) -> tuple[int, str] | None:
        return None

    def wait_behind(
        self, topic: str, resume: Callable[[tuple[int, str] | None], object], size_bytes: int
    ) -> tuple[int, str] | None:
        assert topic in self.parked
        assert size_bytes > 0
        self.resumes.append(resume)
        return None

    def topic_for_send(
        self,
        topic: str,
        default_topic: str,
        queues: int,
        resume: Callable[[tuple[int, str] | None], object],
        size_bytes: int,
    ) -> tuple[int, str] | None:
        self.resumes.append(resume)
        return self.answer


def smaller(limit: Limit, value: int) -> Limit:
    """Return a limit with another value, so that a test reaches it."""
    return Limit(value, limit.name, limit.unit, limit.scope, limit.beyond)


def found(*bodies: bytes, next_offset: int = 1) -> GetResult:
    views = [memoryview(body) for body in bodies]
    size = sum(map(len, bodies))
    return GetResult(GetStatus.FOUND, next_offset, 0, 9, views, len(views), size)


def nothing(status: GetStatus, next_offset: int = 0, max_offset: int = 9) -> GetResult:
    return GetResult(status, next_offset, 0, max_offset, [], 0, 0)


def frame(code: int, body: bytes = b"", flag: int = 0, /, **fields: object) -> Frame:
    """Return a JSON request frame."""
    header = {
        "code": code,
        "extFields": {name: str(value) for name, value in fields.items()},
        "flag": flag,
        "language": "JAVA",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 407,
    }
    return Frame(0, json.dumps(header).encode(), body)


def request(code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
    """Return a request command."""
    return RemotingCommand(
        code, opaque=7, ext_fields={name: str(value) for name, value in fields.items()}, body=body
    )


def is_there(topic: str) -> bool:
    """Tell that every topic exists but one."""
    return topic != "gone"
