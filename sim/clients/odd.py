"""The host of odd and hostile clients: one operation, one connection, frames of its own making.

Whatever a broker acknowledges to it is judged like any other message. Nothing that it does may end
a process, hold up polite clients, or lose what was acknowledged. What is drawn depends on the
number of the operation alone, so that any of them can be left out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from chaos.history.outcome import Outcome, is_definite
from chaos.history.payload import encode_body, make_key
from ledgermq.client import MessageQueue
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode, SerializeType
from ledgermq.remoting.protocol.errors import RemotingError
from sim.clients import shapes
from sim.clients.forged import forged_peer_frames, forged_registration
from sim.clients.wire import MS_PER_S, RawConnection, frame_of
from sim.kinds import Odd
from sim.validators import ALONE_NAME
from sim.workload import ODD_TOPIC, TOPIC, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledgermq.remoting.protocol.command import RemotingCommand
    from sim.context import Host
    from sim.record import Row
    from sim.rng import SplitRng
    from sim.validators import Validators

PID: Final = 1 << 21
"""The producer id in the keys of these clients' messages."""
KEY_BITS: Final = 14
"""Bits that an operation has for the keys of its messages."""
LEADER_P: Final = 0.8
"""How often a request goes to the leader; else to any broker."""
ONEWAY: Final = 2
MIB: Final = 1 << 20
FLOOD_MAX: Final = 150
BATCHES: Final = ((2, 32), (40, 40), (300, 28), (12, 100_000), (5_000, 28), (3, 28))
"""Messages, and bytes of each."""
ODD_ELEMENTS_MAX: Final = 40
"""Longer batches have messages with the usual properties."""
HOLD_MS_MAX: Final = 6_000


class Places(NamedTuple):
    """Where things are; a hostile client knows the network."""

    leader: Callable[[], str | None]
    """The address of the leading broker, as the harness knows it."""
    group: str
    brokers: tuple[str, ...]
    alone: str
    """The broker outside the group, empty for none."""
    peers: dict[str, str]
    """By id, where replicas listen for each other."""
    namesrvs: tuple[str, ...]


class OddApp:
    """Carries out the odd operations of a run."""

    def __init__(self, name: str, machine: Host, validators: Validators, places: Places) -> None:
        self.name = name
        self._machine = machine
        self._validators = validators
        self._record = record = validators.record
        self._places = places
        self._tag = bytes.fromhex(record.tag)
        self._tasks: set[asyncio.Task[None]] = set()
        self._actions = {
            Odd.SEND: self._send,
            Odd.BATCH: self._batch,
            Odd.LARGE: self._large,
            Odd.PULL: self._pull,
            Odd.QUERY: self._query,
            Odd.ADMIN: self._admin,
            Odd.OFFSETS: self._offsets,
            Odd.HEARTBEAT: self._heartbeat,
            Odd.LOCK: self._lock,
            Odd.GARBAGE: self._garbage,
            Odd.DEAF: self._deaf,
            Odd.SILENT: self._silent,
            Odd.PEER: self._peer,
            Odd.REGISTER: self._register,
        }
        self._all_begun = False

    @property
    def is_busy(self) -> bool:
        """Whether it has operations under way, or to begin."""
        return bool(self._tasks) or not self._all_begun

    async def run(self, operations: Sequence[Op]) -> None:
        """Begin each operation at its time, whatever became of the others."""
        loop = asyncio.get_running_loop()
        for op in operations:
            wait_ms = op.at_ms - self._machine.clock.monotonic_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / MS_PER_S)
            task = loop.create_task(self._perform(op))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._all_begun = True
        await loop.create_future()

    async def _perform(self, op: Op) -> None:
        assert isinstance(op.kind, Odd)
        rng = self._machine.rng.split(f"op{op.number}")
        address = self._address(rng, op)
        connection = await RawConnection.dial(address, self._machine.address)
        if connection is None:
            self._record.count("odd_refused_connections")
            return
        try:
            await self._actions[op.kind](op, rng, connection)
        except RemotingError:  # no frame carries that
            self._record.count("odd_unframed")
        finally:
            connection.close()
        self._record.count(op.kind.value)

    def _address(self, rng: SplitRng, op: Op) -> str:
        places = self._places
        if op.kind is Odd.REGISTER:
            return rng.choice(places.namesrvs)
        if op.kind is Odd.PEER:
            return places.peers[rng.choice(tuple(places.peers))]
        if op.kind in {Odd.GARBAGE, Odd.SILENT} and rng.chance(0.4):
            return rng.choice((*places.namesrvs, *places.peers.values()))
        leader = places.leader()
        return leader if leader and rng.chance(LEADER_P) else rng.choice(places.brokers)

    # Messages

    async def _send(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        key = self._key(op, 0)
        odd = shapes.odd_send(rng, self._properties(key))
        if not rng.chance(0.05):
            body = encode_body(self._tag, key, op.size_bytes)
            await self._store(op, odd, [(key, body)], (connection, self._encoded(rng), body))
            return
        await connection.ask(
            frame_of(RequestCode.SEND_MESSAGE_V2, op.number, odd.fields), op.number
        )

    async def _batch(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        """Send a batch: tiny messages, ones that go across a span, or with odd properties."""
        odd = shapes.odd_send(rng, "WAIT\x01true")
        odd.fields["m"] = "true"
        count, size = rng.choice(
            ((2, 32), (40, 40), (300, 28), (12, 100_000), (5_000, 28), (3, 28))
        )
        keys = [self._key(op, at) for at in range(count)]
        bodies = [(key, encode_body(self._tag, key, size)) for key in keys]
        texts = [self._properties(key) for key in keys]
        if odd.topic != TOPIC:
            few = count <= ODD_ELEMENTS_MAX
            texts = [shapes.odd_properties(rng, text) if few else text for text in texts]
        whole = shapes.elements(
            [
                (body, text.encode("utf-8", "replace")[:32_767])
                for (_, body), text in zip(bodies, texts, strict=True)
            ]
        )
        if rng.chance(0.1):
            whole = shapes.garbled(rng, whole)
            code = RequestCode.SEND_BATCH_MESSAGE
            # What is taken of it are bytes that nobody has sent: it goes where none is judged.
            fields = odd.fields | ({"b": ODD_TOPIC} if odd.topic == TOPIC else {})
            await self._ask_any(code, op, connection, fields, whole)
            return
        how: dict[str, int] = {"code": RequestCode.SEND_BATCH_MESSAGE}
        await self._store(op, odd, bodies, (connection, how, whole))

    async def _large(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        """Send a body of megabytes, to the limit and beyond it."""
        size = rng.choice((MIB, MIB + 1, 2 * MIB, 4 * MIB - 512, 4 * MIB, 4 * MIB + 1, 9 * MIB))
        key = self._key(op, 0)
        topic = rng.choice((TOPIC, ODD_TOPIC))
        fields = {"b": topic, "e": "0", "f": "0", "i": self._properties(key)}
        odd = shapes.odd_send(rng, "")
        odd = shapes.OddSend(topic, 0, odd.fields | fields)
        body = encode_body(self._tag, key, size)
        await self._store(op, odd, [(key, body)], (connection, {}, body))

    async def _store(
        self,
        op: Op,
        odd: shapes.OddSend,
        bodies: list[tuple[int, bytes]],
        request: tuple[RawConnection, dict[str, int], bytes],
    ) -> None:
        """Send, and take down what came of it if that can be judged."""
        connection, how, body = request
        code = how.get("code", RequestCode.SEND_MESSAGE_V2)
        kind = how.get("serialize_type", SerializeType.JSON)
        rows = self._record.sending(op.number, odd.topic, bodies) if odd.is_plain else []
        try:
            frame = frame_of(code, op.number, odd.fields, body=body, serialize_type=kind)
        except RemotingError:
            self._note(rows, Outcome.FAIL, None)
            raise
        answer = await connection.ask(frame, op.number)
        if answer is None:
            self._note(rows, Outcome.INFO, None)
        elif answer.code == ResponseCode.SUCCESS:
            self._acknowledged(rows, odd.topic, answer, connection.address)
        else:
            outcome = Outcome.FAIL if is_definite(answer.code) else Outcome.INFO
            self._note(rows, outcome, answer.code)

    def _acknowledged(
        self, rows: list[Row], topic: str, answer: RemotingCommand, address: str
    ) -> None:
        is_alone = address == self._places.alone
        broker = ALONE_NAME if is_alone else self._places.group
        self._record.count("odd_acknowledged")
        fields = answer.ext_fields
        queue_id, offset = int(fields["queueId"]), int(fields["queueOffset"])
        for number, row in enumerate(rows):
            place = {"queue_id": queue_id, "queue_offset": offset + number, "broker": broker}
            self._record.sent([row], "ok", err_code=None, attempts=1, possible=1, **place)
        if rows:
            keys = [row["msg_key"] for row in rows]
            validator = self._validators.of(MessageQueue(topic, broker, queue_id))
            validator.on_acknowledged((topic, queue_id), offset, keys)

    def _note(self, rows: list[Row], outcome: Outcome, code: int | None) -> None:
        possible = 0 if outcome is Outcome.FAIL else 1
        if rows:
            self._record.sent(rows, outcome.value, err_code=code, attempts=1, possible=possible)

    def _key(self, op: Op, at: int) -> int:
        return make_key(PID, op.number << KEY_BITS | at)

    def _properties(self, key: int) -> str:
        """Return the properties that a message is judged by; those of the library have an order."""
        message = self._validators.message(TOPIC, key, b"")
        parts = [f"KEYS\x01{message.keys}"]
        parts += [f"{name}\x01{value}" for name, value in message.properties.items()]
        if message.tags:
            parts.insert(0 if key % 2 else len(parts), f"TAGS\x01{message.tags}")
        return "\x02".join(parts)

    @staticmethod
    def _encoded(rng: SplitRng) -> dict[str, int]:
        return {"serialize_type": SerializeType.ROCKETMQ if rng.chance(0.2) else SerializeType.JSON}

    # Everything else

    async def _pull(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        fields = {
            "consumerGroup": "odd", "topic": rng.choice((TOPIC, ODD_TOPIC)), "queueId": "0",
            "queueOffset": "0", "maxMsgNums": "32", "sysFlag": str(rng.choice((0, 2, 4, 6, 15))),
            "commitOffset": "0", "suspendTimeoutMillis": rng.choice(("0", "500", "15000", "-1")),
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        odd = shapes.odd_fields(rng, fields)
        if rng.chance(0.3):
            odd["subscription"] = "||".join(f"t{at}" for at in range(rng.choice((3, 3_000))))
        await self._ask_any(RequestCode.PULL_MESSAGE, op, connection, odd)

    async def _query(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        code = rng.choice(QUERIES)
        fields = {
            "topic": rng.choice((TOPIC, ODD_TOPIC)), "queueId": "0", "timestamp": "0",
            "offset": "0", "key": "1", "maxNum": "32", "beginTimestamp": "0",
            "endTimestamp": str(shapes.INT64_MAX), "consumerGroup": "odd", "group": "odd",
        }  # fmt: skip
        body = rng.choice((b"", b"", b"{}", b"[1", b"\xff"))
        await self._ask_any(code, op, connection, shapes.odd_fields(rng, fields), body)

    async def _admin(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        fields = {
            "topic": f"{ODD_TOPIC}-{rng.randint(0, 9)}", "defaultTopic": "TBW102",
            "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        odd = shapes.odd_fields(rng, fields)
        if odd.get("topic") == TOPIC:
            return
        if rng.chance(0.1):
            odd["topicFilterType"] = "F" * rng.choice((1_000, 70_000, 3 * MIB))
        await self._ask_any(RequestCode.UPDATE_AND_CREATE_TOPIC, op, connection, odd)

    async def _offsets(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        """Commit many offsets at once, most of them without waiting for an answer."""
        length = rng.choice((3, 200, 255, 5_000, 50_000))
        topic = rng.choice((TOPIC, ODD_TOPIC, "none"))
        for at in range(rng.randint(2, FLOOD_MAX if length < MIB // 1000 else FLOOD_MAX // 3)):
            fields = {
                "consumerGroup": f"odd-{op.number}-{at}-" + "g" * length,
                "topic": topic,
                "queueId": str(rng.choice((0, 1, shapes.INT32_MAX - at, -1, at))),
                "commitOffset": str(rng.choice((0, 1, shapes.INT64_MAX, -1))),
            }
            connection.write(frame_of(RequestCode.UPDATE_CONSUMER_OFFSET, at, fields, flag=ONEWAY))
        await self._ask_any(RequestCode.UPDATE_CONSUMER_OFFSET, op, connection, fields)

    async def _heartbeat(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        body = shapes.odd_heartbeat(rng, op.number)
        await self._ask_any(RequestCode.HEART_BEAT, op, connection, {}, body)
        if rng.chance(0.3):
            fields = {"clientID": f"odd-{op.number}", "producerGroup": "odd"}
            await self._ask_any(RequestCode.UNREGISTER_CLIENT, op, connection, fields)

    async def _lock(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        body = shapes.odd_lock(rng, op.number, self._places.group)
        await self._ask_any(RequestCode.LOCK_BATCH_MQ, op, connection, {}, body)
        if rng.chance(0.5):
            await self._ask_any(RequestCode.UNLOCK_BATCH_MQ, op, connection, {}, body)

    async def _ask_any(
        self,
        code: int,
        op: Op,
        connection: RawConnection,
        fields: dict[str, str],
        body: bytes = b"",
    ) -> None:
        binary = SerializeType.ROCKETMQ if op.messages == 2 else SerializeType.JSON
        frame = frame_of(code, op.number, fields, body=body, serialize_type=binary)
        await connection.ask(frame, op.number)

    async def _garbage(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        fields = {"topic": ODD_TOPIC, "queueId": "0", "consumerGroup": "odd"}
        code = rng.choice(QUERIES)
        for at in range(rng.randint(1, 6)):
            connection.write(shapes.garbled(rng, frame_of(code, at, fields, body=b"{}")))
        await self._stay(op, 10)

    async def _deaf(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        """Ask for much, and read nothing of it; or all of it a while later, and ask on."""
        connection.go_deaf()
        fields = {
            "consumerGroup": "odd", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "subVersion": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "expressionType": "TAG",
        }  # fmt: skip
        for at in range(rng.choice((3, 60, 600))):
            connection.write(frame_of(RequestCode.PULL_MESSAGE, at, fields))
        await self._stay(op, 1)
        if rng.split("hears").chance(HEARS_P):
            connection.hear_again()
            for at in range(HEARD_MAX):
                number = ASKED_ON + at
                frame = frame_of(RequestCode.PULL_MESSAGE, number, fields)
                await connection.ask(frame, number)

    async def _silent(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        """Hold connections on which nothing is said, or not all of it."""
        address, opened = self._address(rng, op), [connection]
        for _ in range(rng.randint(0, 70)):
            more = await RawConnection.dial(address, self._machine.address)
            if more is None:
                break
            opened.append(more)
        frame = frame_of(RequestCode.GET_MAX_OFFSET, 0, {"topic": TOPIC, "queueId": "0"})
        for one in opened:
            one.write(frame[: rng.choice((0, 0, 3, 7, 30))])
        await self._stay(op, 1)
        for one in opened:
            one.close()

    async def _peer(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        places = self._places
        for frame in forged_peer_frames(rng, places.group, tuple(places.peers)):
            connection.write(frame)
        await self._stay(op, 8)

    async def _register(self, op: Op, rng: SplitRng, connection: RawConnection) -> None:
        own = f"{self._machine.address}:10911"
        code, fields, body = forged_registration(rng, self._places.group, own)
        await self._ask_any(code, op, connection, fields, body)

    async def _stay(self, op: Op, parts: int) -> None:
        """Keep the connection open for a while."""
        await asyncio.sleep(op.choice % HOLD_MS_MAX / MS_PER_S / parts)


HEARS_P: Final = 0.5
"""How often who was deaf listens at last."""
HEARD_MAX: Final = 2
ASKED_ON: Final = 1_000
"""Behind the numbers of what it asks for before."""
QUERIES: Final = (
    12, 14, 21, 28, 29, 30, 31, 32, 33, 36, 37, 38, 43, 45, 46, 105, 106, 200, 201, 202, 203, 204,
    208, 224, 300, 303, 307, 308, 999, -1, 0, 29001,
)  # fmt: skip
"""Codes that change nothing that polite clients need."""
