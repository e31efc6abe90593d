"""A producer process: an interpreter whose logical processes send unique messages.

The outcome on record is the library's own word: ok, fail if it says that nothing was stored, else
info. Beside it stands how each attempt ended by the code that came back, read by a table of our own
(`chaos.history.outcome`): a checker holds the one against the other. A library that lies about an
outcome is a bug to be found, not to be corrected here.

Run: ``python -m chaos.workload.producer SPEC.json``.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.generator import Emit, Generator, Mix, Op, Stagger, Stream, TimeLimit, constant
from chaos.history.outcome import (
    INVALID_LOCALLY,
    NO_ROUTE,
    NOT_CONNECTED,
    TIMED_OUT,
    UNFORESEEN,
    classify,
)
from chaos.history.payload import body_hash, encode_body, make_key, run_tag
from chaos.interpreter import Completion, Interpreter, Slots
from chaos.record import Recorder
from chaos.workload.requests import Asker, Endings, UnansweredError
from chaos.workload.transactions import OPTIONS, Decider
from chaos.workload.worker import TAG_NUMBER, WorkerSpec, run_worker, say, until_stopped
from ledgermq.client import (
    Attempt,
    ClientConfig,
    InvalidMessage,
    Message,
    MessageQueue,
    NoRoute,
    Outcome,
    Producer,
    RemotingError,
    SendFailed,
    SendResult,
    SendStatus,
    TransactionProducer,
)
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock, SystemClock

NOTHING_SENT = frozenset({
    "ConnectFailed", "NoRoute", "NameServersUnreachable", "InvalidMessage", "NotRunning",
    "TooManyPending", "LocalProtocolError",
})  # fmt: skip
"""Errors of an attempt that came before its first byte left."""
SYSTEM_BUSY = 2
LARGE_BODY_BYTES, LARGE_BODIES = 60_000, 20
"""Together beyond 1 MiB, where a broker cuts a batch into spans."""
RETRY_TIMES = 2
ABANDONED_S = 0.004
"""After so long nobody waits for a send any more that is to be abandoned."""


class Sender:
    """Performs ``send`` operations with one client library producer."""

    def __init__(
        self, spec: WorkerSpec, producer: Producer, clock: Clock, asker: Asker | None = None
    ) -> None:
        self.errors: dict[str, int] = {}
        self._spec = spec
        self._producer = producer
        self._asker = asker
        self._clock = clock
        self._tag = bytes.fromhex(run_tag(spec.run_id))
        self._sent: dict[int, int] = {}
        self._bodies: dict[int, bytes] = {}
        self._ops = 0

    def prepare(self, op: Op) -> Mapping[str, Any]:
        """Choose the messages: a key is the logical process and its next number."""
        spec = self._spec
        self._ops += 1
        size, count = int(str(op.value["size"])), spec.batch
        if spec.large_every and count > 1 and self._ops % spec.large_every == 0:
            size, count = LARGE_BODY_BYTES, LARGE_BODIES
        members = [self._make(op.process, size) for _ in range(count)]
        prepared: dict[str, Any] = {"topic": spec.topic, **members[0]}
        if spec.chosen_queues:
            prepared["asked_queue"] = op.process % spec.chosen_queues
            prepared |= {"kind": "orderly", "shard_key": str(op.process)}
        elif spec.transactional:
            prepared["kind"] = "txn"
        elif spec.delay_every and count == 1 and self._ops % spec.delay_every == 0:
            turn = self._ops // spec.delay_every
            level = spec.delay_levels[turn % len(spec.delay_levels)]
            prepared |= {"kind": "delay", "level": level, "delay_ms": spec.delays_ms[level - 1]}
        return prepared if len(members) == 1 else {**prepared, "members": members}

    def _make(self, process: int, size: int) -> dict[str, Any]:
        seq = self._sent.get(process, 0)
        self._sent[process] = seq + 1
        key = make_key(process, seq)
        body = encode_body(self._tag, key, size)
        self._bodies[key] = body
        tag = self._spec.tags[(process + seq) % len(self._spec.tags)] or None
        return {"msg_key": key, "body_hash": body_hash(body), "body_len": len(body), "tag": tag}

    async def invoke(self, op: Op, prepared: Mapping[str, Any]) -> Completion:
        """Send the messages, several as one batch, and say how it ended."""
        key = prepared["msg_key"]
        level = prepared.get("level", 0)
        members = prepared.get("members", (prepared,))
        messages = [self._message(member, level) for member in members]
        every = self._spec.cancel_every
        try:
            if every and key % every == 0:
                async with timeout(ABANDONED_S):
                    result = await self._send(messages, prepared.get("asked_queue"))
            else:
                result = await self._send(messages, prepared.get("asked_queue"))
        except TimeoutError:
            return Completion(
                type="info",
                value={"msg_key": key, "error": "abandoned"},
                err_code=TIMED_OUT,
                err_class="Abandoned",
                time_ns=self._clock.monotonic_ns(),
            )
        except UnansweredError:
            return self._unanswered(key)
        except SendFailed as failed:
            return self._failed(key, failed)
        except RemotingError as error:
            definite = error.outcome is Outcome.FAILED
            self._note(error)
            return Completion(
                type="fail" if definite else "info",
                value={"msg_key": key, "error": str(error), "tries": []},
                err_code=local_code(error),
                err_class=type(error).__name__,
                time_ns=self._clock.monotonic_ns(),
            )
        return self._stored(key, result, waits=level > 0 or self._spec.transactional)

    def _message(self, member: Mapping[str, Any], level: int) -> Message:
        key = member["msg_key"]
        more = {"trace": f"t{key}"} if key % 3 == 0 else {}
        if member["tag"]:
            more[TAG_NUMBER] = str(self._spec.tags.index(member["tag"]))
        body, tag, topic = self._bodies.pop(key), member["tag"] or "", self._spec.topic
        return Message(topic, body, tags=tag, keys=str(key), properties=more, delay_level=level)

    async def _send(self, messages: list[Message], asked: int | None) -> SendResult:
        spec, timeout_ms = self._spec, self._spec.send_timeout_ms
        queue = None if asked is None else MessageQueue(spec.topic, spec.broker_name, asked)
        if isinstance(self._producer, TransactionProducer):
            key = int(messages[0].keys)
            return await self._producer.send_in_transaction(messages[0], key, timeout_ms=timeout_ms)
        if self._asker is not None:
            return await self._asker.send(messages[0], timeout_ms)
        if len(messages) == 1:
            return await self._producer.send(messages[0], queue, timeout_ms=timeout_ms)
        return await self._producer.send_batch(messages, queue, timeout_ms=timeout_ms)

    def _stored(self, key: int, result: SendResult, *, waits: bool) -> Completion:
        now_ns = self._clock.monotonic_ns()
        # Stored on one node but not confirmed elsewhere is not an acknowledgement.
        ok = result.status is SendStatus.SEND_OK
        tries = [try_of(attempt) for attempt in result.attempts]
        return Completion(
            type="ok" if ok else "info",
            value={
                "msg_key": key,
                # What waits lies elsewhere until it is due; its place is not told.
                "queue_id": None if waits else result.queue.queue_id,
                "queue_offset": None if waits else result.queue_offset,
                "msg_id": result.offset_msg_id,
                "node": self._node_of(result.attempts),
                "attempts": [attempt_row(attempt) for attempt in result.attempts],
                "tries": tries,
            },
            err_code=None if ok else int(result.status),
            time_ns=now_ns,
        )

    def _unanswered(self, key: int) -> Completion:
        self.errors["NoReply"] = self.errors.get("NoReply", 0) + 1
        # How often it was tried nobody says: as often as the library would, and each may be stored.
        tries = RETRY_TIMES + 1
        return Completion(
            type="info",
            value={"msg_key": key, "error": "no reply", "attempts": [{"stored": True}] * tries},
            err_code=TIMED_OUT,
            err_class="NoReply",
            time_ns=self._clock.monotonic_ns(),
        )

    def _failed(self, key: int, failed: SendFailed) -> Completion:
        self._note(failed)
        last = failed.attempts[-1] if failed.attempts else None
        definite = failed.outcome is Outcome.FAILED
        node = self._node_of(failed.attempts)
        attempts = [attempt_row(attempt) for attempt in failed.attempts]
        return Completion(
            type="fail" if definite else "info",
            value={
                "msg_key": key,
                "node": node,
                "attempts": attempts,
                "tries": [try_of(attempt) for attempt in failed.attempts],
                "error": str(failed),
            },
            err_code=attempt_code(last) if last is not None else NO_ROUTE,
            err_class=last.error_class if last is not None else "SendFailed",
            time_ns=self._clock.monotonic_ns(),
        )

    def _node_of(self, attempts: Sequence[Attempt]) -> str | None:
        """Return the node that the last attempt asked; None where there was none."""
        return self._spec.node_by_addr.get(attempts[-1].broker_addr) if attempts else None

    def _note(self, error: Exception) -> None:
        attempts = error.attempts if isinstance(error, SendFailed) else ()
        name = attempts[-1].error_class if attempts else type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1


def try_of(attempt: Attempt) -> str:
    """Return how an attempt ended: ok, fail (certainly nothing stored) or info.

    By the code that came back, and by the library only where that says less. The remark of code 2,
    which an attempt does not keep, is the library's to read: it tells back-pressure from the rest.
    """
    if attempt.outcome is Outcome.UNKNOWN:
        return "info"
    if attempt.code is not None and not (attempt.code == SYSTEM_BUSY and attempt.outcome):
        return classify(attempt.code).value
    return "fail" if attempt.code or attempt.error_class in NOTHING_SENT else "info"


def attempt_code(attempt: Attempt) -> int:
    """Return the response code of an attempt, or our negative code for what happened instead."""
    if attempt.code is not None:
        return attempt.code
    if "Timeout" in attempt.error_class:
        return TIMED_OUT
    if attempt.error_class in {"ConnectFailed", "NoRoute"}:
        return NOT_CONNECTED if attempt.error_class == "ConnectFailed" else NO_ROUTE
    return UNFORESEEN


def local_code(error: RemotingError) -> int:
    """Return our code for an error that came before any attempt."""
    if isinstance(error, NoRoute):
        return NO_ROUTE
    return INVALID_LOCALLY if isinstance(error, InvalidMessage) else UNFORESEEN


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as the event's value holds it."""
    return {
        "addr": attempt.broker_addr,
        "t0": attempt.t_start_ns,
        "t1": attempt.t_end_ns,
        "code": attempt.code,
        "error": attempt.error_class,
        "outcome": None if attempt.outcome is None else attempt.outcome.value,
        "stored": try_of(attempt) != "fail",
    }


def workload(spec: WorkerSpec) -> Generator:
    """Return the operations of one producer: sends of mixed sizes at the rate."""
    stream = Stream(spec.seed, f"workload/{spec.name}")
    parts = tuple((weight, Emit("send", constant(size=size))) for weight, size in spec.sizes)
    mixed = Mix(parts, stream.split("mix"))
    paced = Stagger(spec.rate, mixed, stream.split("pace"))
    return TimeLimit(int(spec.seconds_max * 1e9), paced)


async def main(spec: WorkerSpec) -> None:
    """Send until told to stop, then wait for what is in flight."""
    clock = SystemClock()
    endings = Endings() if spec.asks else None
    kind = "transactions" if spec.transactional else "requests" if spec.asks else "producers"
    config = ClientConfig(
        namesrv_addrs=spec.namesrv_addrs,
        group=f"{spec.group}-{kind}",
        instance_name=spec.name,
        send_timeout_ms=spec.send_timeout_ms,
        retry_times=RETRY_TIMES,
        hooks=() if endings is None else (endings,),
    )
    slots = Slots(
        worker=spec.worker,
        role="producer",
        count=spec.processes,
        first_process=spec.first_process,
    )
    with Recorder(Path(spec.raw)) as recorder:
        decider = Decider(recorder, clock)
        made = (
            TransactionProducer(config, decider, OPTIONS)
            if spec.transactional
            else Producer(config)
        )
        async with made as producer:
            asker = None
            if endings is not None:
                asker = Asker(spec.name, producer, endings, recorder, clock)
            sender = Sender(spec, producer, clock, asker)
            interpreter = Interpreter(client=sender, recorder=recorder, clock=clock, slots=slots)
            tally = interpreter.tally

            def report(*, done: bool = False) -> dict[str, Any]:
                ops = {"sent": tally.invoked, "ok": tally.ok, "fail": tally.fail}
                ops["info"] = tally.info
                counts = {name: number * spec.batch for name, number in ops.items()}
                status: dict[str, Any] = {"counts": counts, "errors": sender.errors}
                return status | {"last_ack_ns": tally.last_ok_inv_ns, "done": done}

            ended = asyncio.Event()
            running = asyncio.create_task(interpreter.run(workload(spec)))
            running.add_done_callback(lambda _: ended.set())
            quiet = await until_stopped(spec.seconds_max, report, ended)
            if asker is not None and quiet:
                await asker.end()
            interpreter.stop()
            await running
            await asyncio.sleep(spec.linger_s)
            say(report(done=True))


if __name__ == "__main__":
    raise SystemExit(run_worker(main))
