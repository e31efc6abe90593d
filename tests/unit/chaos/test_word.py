"""A client library that lies is recorded as it speaks, and found out; planted bugs show it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.processor.query import QueryProcessor
from chaos.checker import check_history
from chaos.convert import make_sends
from chaos.generator import Op
from chaos.load import load_history
from chaos.nemesis.process import Kill
from chaos.workload.producer import Sender
from chaos.workload.worker import WorkerSpec
from ledgermq.client import (
    Attempt,
    ClientConfig,
    MessageQueue,
    Outcome,
    Producer,
    SendFailed,
    SendResult,
    SendStatus,
)
from ledgermq.client.assignment import Assignment, Held
from ledgermq.client.delivery import Delivery
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.remoting.protocol.errors import ConnectFailed, RequestTimeout
from ledgermq.runtime.clock import SystemClock
from mutants.clients import KILL_WITNESS
from mutants.patches import ALL
from mutants.planting import planted
from tests.spark.minimal import VIOLATIONS, write_minimal
from tests.unit.chaos.histories import clean, delivery
from tests.unit.chaos.test_witness import World, lives, setting_of

SPEC = WorkerSpec(
    run_id="ab" * 16, name="p", worker=1, raw="", namesrv_addrs=(), topic="t", group="g", seed=1,
    node_by_addr={"a:1": "n0"}, seconds_max=1, chosen_queues=4, broker_name="b",
)  # fmt: skip
TIMED_OUT = Attempt("a:1", 0, 1, None, "RequestTimeout", Outcome.UNKNOWN)
REFUSED = Attempt("a:1", 0, 1, 14, "ServiceNotAvailable", Outcome.FAILED)
STORED = Attempt("a:1", 0, 1, 0, "", None)


class Library:
    """A producer that answers by script: a result, or attempts that all failed."""

    def __init__(self, answer: SendResult | tuple[Attempt, ...]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def send(self, message: object, queue: object, **_options: object) -> SendResult:
        self.asked.append(queue)
        if isinstance(self.answer, SendResult):
            return self.answer
        raise SendFailed("given up", self.answer)


def sent(answer: SendResult | tuple[Attempt, ...]) -> dict[str, Any]:
    """Return the row of ``sends`` that a send with this answer leaves."""
    sender = Sender(SPEC, Library(answer), SystemClock())  # type: ignore[arg-type]
    op = Op(f="send", value={"size": 200}, process=6)
    prepared = sender.prepare(op)
    done = asyncio.run(sender.invoke(op, prepared))
    about = {"op_id": 1, "process": 6, "f": "send", "phase": "main"}
    events = [
        about | {"type": "invoke", "value": prepared, "t_mono_ns": 1},
        about | {"type": done.type, "value": done.value, "t_mono_ns": 2, "err_code": done.err_code},
    ]
    (row,) = make_sends(events, SPEC.run_id)
    return row


def result_of(*attempts: Attempt, queue_id: int = 2) -> SendResult:
    queue = MessageQueue("t", "b", queue_id)
    return SendResult(SendStatus.SEND_OK, "u", "id", queue, 7, attempts)


def found(row: dict[str, Any], check: str = "A49") -> str:
    history = clean(sends=[*clean().sends, row])
    return check_history(history).results[check].verdict


def test_honest_words_stand():
    for answer, outcome in (
        (result_of(TIMED_OUT, STORED), "ok"),
        ((REFUSED, REFUSED), "fail"),
        ((REFUSED, TIMED_OUT), "info"),
    ):
        row = sent(answer)
        assert row["outcome"] == outcome
        assert found(row) == "valid"


def test_success_without_an_answer_is_recorded_and_found():
    row = sent(result_of())
    assert (row["outcome"], row["tries"]) == ("ok", [])
    assert found(row) == "invalid"


def test_ids_are_asked_for_where_a_history_has_any():
    row = {**sent(result_of(STORED)), "msg_id": None}
    sends = [{**send, "msg_id": None} for send in clean().sends]
    assert check_history(clean(sends=[*sends, row])).results["A49"].verdict == "valid"
    sends[0]["msg_id"] = "id"
    assert check_history(clean(sends=[*sends, row])).results["A49"].verdict == "invalid"
    without_place = {**row, "queue_offset": None}
    assert check_history(clean(sends=[without_place])).results["A49"].verdict == "invalid"


def test_queue_that_was_not_asked_for_is_found():
    assert sent(result_of(STORED))["asked_queue"] == 2
    assert found(sent(result_of(STORED, queue_id=3))) == "invalid"


def test_failure_of_what_may_be_stored_is_recorded_as_the_library_says_and_found():
    """The planted library calls a timeout a certain failure; the message is in the logs."""

    def failure() -> tuple[Attempt, ...]:
        trying = Delivery(Retrying(), OUTGOING, CHOSEN, 0)  # type: ignore[arg-type]
        for error in (ConnectFailed("refused"), RequestTimeout("no answer")):
            trying._record(error, "a:1", 0, 1)
        return trying._failure(RequestTimeout("no answer")).attempts

    assert sent(failure())["outcome"] == "info"
    with planted(ALL["client-failed-though-stored"]):
        row = sent(failure())
    assert (row["outcome"], row["tries"]) == ("fail", ["fail", "info"])
    assert found(row) == "invalid"
    key = row["msg_key"]
    read = [*clean().deliveries, delivery(key, offset=4, body_hash=row["body_hash"])]
    history = clean(sends=[*clean().sends, row], deliveries=read)
    assert check_history(history).results["A7"].verdict == "invalid"


def test_witness_that_believes_itself_would_count_a_kill_that_killed_nothing():
    """The planted witness takes the command for the deed: the test of the witness sees it."""
    with planted(KILL_WITNESS):
        assert lives(World(broken={"kill"}), Kill(setting_of(World(broken={"kill"})), "n0"))
    world = World(broken={"kill"})
    assert not lives(world, Kill(setting_of(world), "n0"))


class Retrying:
    """What a send needs of its producer: the first attempt is never answered, the next one is."""

    def __init__(self) -> None:
        self.config, self.clock = ClientConfig(namesrv_addrs=("a:1",), group="g"), SystemClock()
        self.routes = self.links = self.stopping = self
        self.asked: list[MessageQueue | None] = []
        self.begun, self.slow = False, None
        self.addr, self._pending, self._pending_bytes = "a:1", 0, 0

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        yield

    async def get(self, topic: str) -> None:
        return None

    async def refresh(self, *_arguments: object, **_options: object) -> None:
        return None

    async def connect(self, *_arguments: object) -> "Retrying":
        return self

    def master(self, name: str) -> str:
        return "a:2"

    def peek(self, topic: str) -> None:
        return None

    def select(self, topic: str, queue: MessageQueue | None, avoid: object) -> SimpleNamespace:
        self.asked.append(queue)
        return SimpleNamespace(broker_name="b", queue=queue or MessageQueue("t", "b", 0))

    async def attempt(self, link: object, target: SimpleNamespace, *rest: object) -> SendResult:
        earlier = rest[-1]
        if not earlier and len(self.asked) < 2:
            raise RequestTimeout("no answer")
        return SendResult(SendStatus.SEND_OK, "u", "id", target.queue, 7, (*earlier, STORED))

    def _admit(self, _size_bytes: int) -> None:
        return None

    def _maybe_targets(self, topic: str) -> SimpleNamespace:
        target = SimpleNamespace(broker_name="b", queue=MessageQueue("t", "b", 2))
        return SimpleNamespace(all=[target], next_any=lambda: target, find=lambda queue: target)

    def maybe_link(self, name: str) -> "Retrying":
        return self


CHOSEN = MessageQueue("t", "b", 2)
OUTGOING = SimpleNamespace(topic="t", body=b"x", msg_id="u")


def retried() -> SendResult:
    sender = Retrying()
    limit_ns = SystemClock().monotonic_ns() + 3_000_000_000
    return asyncio.run(Delivery(sender, OUTGOING, CHOSEN, limit_ns).run())  # type: ignore[arg-type]


def test_send_that_is_tried_again_on_another_queue_is_found():
    assert found(sent(retried())) == "valid"
    with planted(ALL["client-retried-on-another-queue"]):
        lied = retried()
    assert lied.queue.queue_id != CHOSEN.queue_id
    assert found(sent(lied)) == "invalid"


def delivered() -> SendResult:
    return asyncio.run(Producer.deliver(Retrying(), OUTGOING, CHOSEN, 3_000))  # type: ignore[arg-type]


def test_success_that_a_library_makes_of_silence_is_found():
    assert found(sent(delivered())) == "valid"
    with planted(ALL["client-ok-without-answer"]):
        lied = delivered()
    assert (lied.status, lied.attempts) == (SendStatus.SEND_OK, ())
    assert found(sent(lied)) == "invalid"


def released() -> tuple[bool, bool]:
    """Give a queue up; return whether its pull loop ended and its messages were dropped."""

    async def settled(_queue: ProcessQueue) -> bool:
        return True

    async def body() -> tuple[bool, bool]:
        host = SimpleNamespace(settled=settled, locks=None, claims=False)
        assignment = Assignment(host, None)  # type: ignore[arg-type]
        pulling = asyncio.create_task(asyncio.sleep(60))
        process_queue = ProcessQueue(CHOSEN, 0)
        assignment._held[CHOSEN] = Held(process_queue, None, pulling)  # type: ignore[arg-type]
        await assignment._release(CHOSEN)
        ended = pulling.cancelled()
        pulling.cancel()
        return ended, process_queue.dropped

    return asyncio.run(body())


def test_revoked_queue_that_is_still_pulled_is_found(tmp_path):
    """What such a consumer leaves behind is a history of `tests.spark.minimal`."""
    assert released() == (True, True)
    with planted(ALL["client-revoked-queue-pulled"]):
        assert released() == (False, False)
    check, verdict, spoil = VIOLATIONS["revoked queue pulled"]
    checked = check_history(load_history(write_minimal(spoil, tmp_path)))
    assert (check, checked.results["A9"].verdict) == ("A9", verdict)


def told_end() -> int:
    told = SimpleNamespace(
        _store=SimpleNamespace(max_offset=lambda topic, queue_id: 6),
        _number=lambda request, name, ask: ask("orders", 0),
    )
    return QueryProcessor.handle_max_offset(told, None, None)  # type: ignore[arg-type,return-value]


def test_end_of_a_queue_told_one_short_is_found(tmp_path):
    """Six were acknowledged; a drain that was told five would have called the rest read."""
    assert told_end() == 6
    with planted(ALL["queue-end-one-short"]):
        assert told_end() == 5
    check, verdict, spoil = VIOLATIONS["short end"]
    checked = check_history(load_history(write_minimal(spoil, tmp_path)))
    assert (check, checked.results["A50"].verdict) == ("A50", verdict)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch) -> None:
    monkeypatch.setattr("chaos.nemesis.process.RESTART_TIMEOUT_S", 0.15)
