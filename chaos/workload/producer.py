"""A producer process: an interpreter whose logical processes send unique messages.

Every attempt that the client library made is recorded. The outcome is ``fail`` only if the library
and our own table (`chaos.history.outcome`) both say that no attempt can have been stored; every
timeout, lost connection and unforeseen error is ``info``.

Run: ``python -m chaos.workload.producer SPEC.json``.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.generator import Emit, Generator, Mix, Op, Stagger, Stream, TimeLimit, constant
from chaos.history.outcome import (
    INVALID_LOCALLY,
    NO_ROUTE,
    NOT_CONNECTED,
    TIMED_OUT,
    UNFORESEEN,
    is_definite,
)
from chaos.history.payload import body_hash, encode_body, make_key, run_tag
from chaos.interpreter import Completion, Interpreter, Slots
from chaos.record import Recorder
from chaos.workload.worker import WorkerSpec, run_worker, say, until_stopped
from client import (
    Attempt,
    ClientConfig,
    InvalidMessage,
    Message,
    NoRoute,
    Outcome,
    Producer,
    RemotingError,
    SendFailed,
    SendResult,
    SendStatus,
)
from runtime.clock import Clock, SystemClock


class Sender:
    """Performs ``send`` operations with one client library producer."""

    def __init__(self, spec: WorkerSpec, producer: Producer, clock: Clock) -> None:
        self.errors: dict[str, int] = {}
        self._spec = spec
        self._producer = producer
        self._clock = clock
        self._tag = bytes.fromhex(run_tag(spec.run_id))
        self._sent: dict[int, int] = {}
        self._bodies: dict[int, bytes] = {}

    def prepare(self, op: Op) -> Mapping[str, Any]:
        """Choose the messages: a key is the logical process and its next number."""
        members = [self._make(op) for _ in range(self._spec.batch)]
        prepared = {"topic": self._spec.topic, **members[0]}
        return prepared if len(members) == 1 else {**prepared, "members": members}

    def _make(self, op: Op) -> dict[str, Any]:
        seq = self._sent.get(op.process, 0)
        self._sent[op.process] = seq + 1
        key = make_key(op.process, seq)
        body = encode_body(self._tag, key, int(str(op.value["size"])))
        self._bodies[key] = body
        return {"msg_key": key, "body_hash": body_hash(body), "body_len": len(body)}

    async def invoke(self, op: Op, prepared: Mapping[str, Any]) -> Completion:
        """Send the messages, several as one batch, and say how it ended."""
        key = prepared["msg_key"]
        messages = [
            Message(self._spec.topic, self._bodies.pop(member["msg_key"]), keys=str(key))
            for member in prepared.get("members", (prepared,))
        ]
        timeout_ms = self._spec.send_timeout_ms
        try:
            if len(messages) == 1:
                result = await self._producer.send(messages[0], timeout_ms=timeout_ms)
            else:
                result = await self._producer.send_batch(messages, timeout_ms=timeout_ms)
        except SendFailed as failed:
            return self._failed(key, failed)
        except RemotingError as error:
            definite = error.outcome is Outcome.FAILED
            self._note(error)
            return Completion(
                type="fail" if definite else "info",
                value={"msg_key": key, "error": str(error)},
                err_code=local_code(error),
                err_class=type(error).__name__,
                time_ns=self._clock.monotonic_ns(),
            )
        return self._stored(key, result)

    def _stored(self, key: int, result: SendResult) -> Completion:
        now_ns = self._clock.monotonic_ns()
        # Stored on one node but not confirmed elsewhere is not an acknowledgement.
        ok = result.status is SendStatus.SEND_OK
        return Completion(
            type="ok" if ok else "info",
            value={
                "msg_key": key,
                "queue_id": result.queue.queue_id,
                "queue_offset": result.queue_offset,
                "msg_id": result.offset_msg_id,
                "node": self._spec.node_by_addr.get(result.attempts[-1].broker_addr),
                "attempts": [attempt_row(attempt) for attempt in result.attempts],
            },
            err_code=None if ok else int(result.status),
            time_ns=now_ns,
        )

    def _failed(self, key: int, failed: SendFailed) -> Completion:
        self._note(failed)
        last = failed.attempts[-1] if failed.attempts else None
        definite = failed.outcome is Outcome.FAILED and all(map(surely_not_stored, failed.attempts))
        node = None if last is None else self._spec.node_by_addr.get(last.broker_addr)
        attempts = [attempt_row(attempt) for attempt in failed.attempts]
        return Completion(
            type="fail" if definite else "info",
            value={"msg_key": key, "node": node, "attempts": attempts, "error": str(failed)},
            err_code=attempt_code(last) if last is not None else NO_ROUTE,
            err_class=last.error_class if last is not None else "SendFailed",
            time_ns=self._clock.monotonic_ns(),
        )

    def _note(self, error: Exception) -> None:
        attempts = error.attempts if isinstance(error, SendFailed) else ()
        name = attempts[-1].error_class if attempts else type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1


def surely_not_stored(attempt: Attempt) -> bool:
    """Return whether an attempt certainly stored nothing, by the library and by our own table."""
    if attempt.outcome is not Outcome.FAILED:
        return False
    return attempt.code is None or is_definite(attempt.code)


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
        "stored": not surely_not_stored(attempt),
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
    config = ClientConfig(
        namesrv_addrs=spec.namesrv_addrs,
        group=f"{spec.group}-producers",
        instance_name=spec.name,
        send_timeout_ms=spec.send_timeout_ms,
    )
    slots = Slots(
        worker=spec.worker,
        role="producer",
        count=spec.processes,
        first_process=spec.first_process,
    )
    with Recorder(Path(spec.raw)) as recorder:
        async with Producer(config) as producer:
            sender = Sender(spec, producer, clock)
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
            await until_stopped(spec.seconds_max, report, ended)
            interpreter.stop()
            await running
            say(report(done=True))


if __name__ == "__main__":
    raise SystemExit(run_worker(main))
