"""Somebody who sends what no client of ours would: odd, broken and endless frames.

It talks to brokers and name servers on connections of its own, about a topic and groups of its own,
so that nothing it does may show in the history: the checks judge everybody else. It records only
what it has sent, and ends when it is told to.

Run: ``python -m chaos.workload.hostile SPEC.json``.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.net.wire import PREFIX, encode_request
from chaos.record import Recorder
from chaos.workload.worker import WorkerSpec, run_worker, say, until_stopped
from ledgermq.runtime.cancel import timeout

TOPIC = "chaos-hostile"
SEND, HEARTBEAT, PULL, COMMIT, CREATE_TOPIC = 10, 34, 11, 15, 17
EVERY_S = 0.1
ANSWER_S = 0.5
CROWD = 20
"""Connections that are opened and never speak, or never read."""

Frame = Callable[[random.Random], bytes]


def frame_of(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """Return a request with a body."""
    plain = encode_request(code, 7, fields)
    return (len(plain) - 4 + len(body)).to_bytes(4, "big") + plain[4:] + body


def send_fields(**changes: str) -> dict[str, str]:
    """Return the header of a send to our own topic."""
    fields = {
        "producerGroup": "hostile", "topic": TOPIC, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "0",
        "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip
    return fields | changes


def odd_flag(rng: random.Random) -> bytes:
    """A send whose system flag says IPv6 hosts, a transaction, or nonsense."""
    flag = rng.choice((0x10, 0x20, 0x30, 0x4, 0x8, 0xC, 1 << 30, -1))
    return frame_of(SEND, send_fields(sysFlag=str(flag)), b"hostile")


def odd_property(rng: random.Random) -> bytes:
    """A send with a delay of many digits, or properties without end."""
    text = rng.choice(
        (
            "DELAY\x01" + "9" * 5_000 + "\x02",
            "".join(f"k{n}\x01v\x02" for n in range(3_000)),
            "TAGS\x01" + "t" * 20_000 + "\x02",
            "\x01\x02\x01\x01",
        )
    )
    return frame_of(SEND, send_fields(properties=text), b"hostile")


def odd_batch(rng: random.Random) -> bytes:
    """A batch whose lengths do not add up."""
    body = rng.randbytes(200)
    return frame_of(SEND, send_fields(batch="true"), body)


def odd_heartbeat(rng: random.Random) -> bytes:
    """A heartbeat whose references double, nest, or are no JSON at all."""
    doubled: list[Any] = [{"$ref": "$"}, {"$ref": "@"}, {"$ref": "$.consumerDataSet"}] * 8
    body = rng.choice(
        (
            json.dumps({"clientID": "h", "consumerDataSet": doubled, "producerDataSet": []}),
            "[" * 5_000,
            '{"clientID":"h","producerDataSet":[{"groupName":"' + "g" * 40_000 + '"}]}',
            "not json",
        )
    )
    return frame_of(HEARTBEAT, {}, body.encode())


def odd_names(rng: random.Random) -> bytes:
    """A commit or a topic with a name, or a queue, that cannot be."""
    if rng.random() < 0.5:
        queue = rng.choice(("-1", "2147483647", "x", ""))
        fields = {"consumerGroup": "h" * rng.choice((1, 300, 20_000)), "topic": TOPIC}
        return frame_of(COMMIT, fields | {"queueId": queue, "commitOffset": "-7"})
    return frame_of(CREATE_TOPIC, {"topic": rng.choice(("", "a b", "t" * 5_000, "%s"))})


def garbage(rng: random.Random) -> bytes:
    """Bytes that are no frame: random ones, a huge length, a header longer than its frame."""
    return rng.choice(
        (
            rng.randbytes(64),
            b"\x7f\xff\xff\xff" + rng.randbytes(32),
            PREFIX.pack(20, 0x00FFFFFF) + rng.randbytes(16),
            b"GET / HTTP/1.1\r\n\r\n",
        )
    )


FRAMES: dict[str, Frame] = {
    "odd_flag": odd_flag,
    "odd_property": odd_property,
    "odd_batch": odd_batch,
    "odd_heartbeat": odd_heartbeat,
    "odd_names": odd_names,
    "garbage": garbage,
}
NAME_SERVER_FRAMES = ("odd_heartbeat", "garbage")


async def throw(addr: str, frame: bytes) -> bool:
    """Send one frame on a connection of its own and look at what comes back, for a moment.

    Return whether it left.
    """
    host, _, port = addr.rpartition(":")
    left = False
    with contextlib.suppress(OSError, TimeoutError):
        async with timeout(ANSWER_S * 2):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(frame)
                await writer.drain()
                left = True
                async with timeout(ANSWER_S):
                    await reader.read(1 << 16)
            finally:
                writer.transport.abort()
    return left


async def crowd(addr: str, rng: random.Random) -> None:
    """Open connections that never speak, and some that ask and never read; hold them a while."""
    host, _, port = addr.rpartition(":")
    writers = []
    try:
        for at in range(CROWD):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writers.append(writer)
                if at % 2:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads
                    for _ in range(20):
                        writer.write(frame_of(CREATE_TOPIC, {"topic": "t" * 300}))
        await asyncio.sleep(rng.uniform(1, 3))
    finally:
        for writer in writers:
            writer.transport.abort()


async def attack(spec: WorkerSpec, rng: random.Random, sent: Counter[str]) -> None:
    """Send for ever."""
    brokers, servers = sorted(spec.node_by_addr), list(spec.namesrv_addrs)
    while True:
        name = rng.choice(sorted(FRAMES))
        to_server = name in NAME_SERVER_FRAMES and rng.random() < 0.3
        target = rng.choice(servers if to_server else brokers)
        sent[name] += await throw(target, FRAMES[name](rng))
        if rng.random() < 0.02:
            await crowd(rng.choice(brokers + servers), rng)
            sent["crowd"] += 1
        await asyncio.sleep(EVERY_S)


async def main(spec: WorkerSpec) -> None:
    """Attack until told to stop."""
    sent: Counter[str] = Counter()

    def report(*, done: bool = False) -> dict[str, Any]:
        return {"counts": {"hostile": sent.total()}, "done": done}

    with Recorder(Path(spec.raw)) as recorder:
        rng = random.Random(spec.seed)
        task = asyncio.create_task(attack(spec, rng, sent))
        ended = asyncio.Event()
        task.add_done_callback(lambda _: ended.set())
        await until_stopped(spec.seconds_max, report, ended)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task  # what ended it is an error of the run
        row = {"worker": spec.worker, "process": spec.first_process, "role": "hostile"}
        row |= {"type": "info", "f": "frames", "op_id": spec.worker << 40}
        loop = asyncio.get_running_loop()
        row |= {"t_mono_ns": int(loop.time() * 1e9), "value": dict(sent)}
        recorder.write("events", row)
        say(report(done=True))


if __name__ == "__main__":
    raise SystemExit(run_worker(main))
