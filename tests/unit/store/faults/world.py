"""Brokers in virtual time on disks that tests may damage: started, used, killed, read through.

The brokers are the production's own; only time, network and chance are the simulator's. `Sent` is
what a test knows: which messages it gave to which queue, in which order, and which of them were
acknowledged. `check` reads everything back and compares.
"""

import asyncio
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from broker.config import BrokerConfig
from broker.controller import BrokerController
from broker.state.kinds import StateKind
from dledger.config import FlushDiskType
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.tasks import Supervisor
from sim.context import SimCrash
from sim.loop import SimLoop
from store.config import IndexConfig
from store.layout import UNIT, tags_code
from store.results import GetStatus, PutMessage, PutStatus
from tests.time_limit import AGAIN, TestHangs
from tests.unit.store.fakes import BORN, batch_of

ROOT = "/store"
SEGMENT = 4096
QUEUE_FILE = 400
INDEX_SEGMENT = 32 * 16
EVENT_FILE = 64 * 1024
LIMIT_MS = 20_000
"""Virtual: how long a start, or an answer, may take."""
HANG_S = 20
"""Of processor time: after so long a case hangs."""


class SmallConfig(BrokerConfig):
    """A broker whose files are so small that some hundred messages fill several of each kind."""

    __slots__ = ()

    def dledger_config(self):
        return replace(
            BrokerConfig.dledger_config(self),
            index_segment_bytes=INDEX_SEGMENT,
            checkpoint_interval_ms=200,
            flush_interval_ms=100,
            recovery_bytes=2 * SEGMENT,
        )

    def store_config(self):
        config = BrokerConfig.store_config(self)
        index = IndexConfig(slots=16, entries=40, flush_ms=100, checkpoint_ms=300)
        return replace(config, checkpoint_ms=300, tick_ms=20, open_files_max=4, index=index)


REFUSALS = frozenset(
    {PutStatus.NOT_LEADER, PutStatus.FULL, PutStatus.DISK_FULL, PutStatus.MESSAGE_ILLEGAL}
)
"""What is answered so is in no queue, ever."""


@dataclass
class Sent:
    """What was given to the store, and what it said to that."""

    bodies: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    """By queue, in the order sent: of every message that may be in it."""
    acknowledged: dict[tuple[str, int, int], tuple[int, bytes]] = field(default_factory=dict)
    """By queue and offset: where it lies, and its body."""
    properties: dict[bytes, bytes] = field(default_factory=dict)
    """By body."""
    states: list[bytes] = field(default_factory=list)
    """Payloads of state records that were acknowledged."""
    proposed: int = 0
    """How many state records were proposed."""
    lives: list[list[bytes]] = field(default_factory=list)
    """By life of the broker: the bodies it was given, in order, the refused ones left out."""

    def send(self, topic, queue_id, body, properties):
        self.bodies.setdefault((topic, queue_id), []).append(body)
        self.properties[body] = properties
        self.lives[-1].append(body)

    def forget(self, topic, queue_id, body):
        """Take that a message was refused: it can be in no queue."""
        self.bodies[topic, queue_id].remove(body)
        self.lives[-1].remove(body)


@contextmanager
def no_hang(seconds=HANG_S):
    """Fail, with the stack of where it hangs, instead of hanging.

    In virtual time, what hangs is busy. The failure is one that no loop takes for a callback's, and
    comes again: in the middle of a garbage collection it is told of and lost.
    """

    def ring(_signal, _frame):
        raise TestHangs(f"hangs for {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds * AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Cluster:
    """Machines with a broker each; ``disks`` by name: one broker alone, or a group of them."""

    def __init__(self, disks, *, raft=True, flush="SYNC_FLUSH", seed=1, segment_bytes=SEGMENT):
        self.loop = SimLoop(seed)
        self.loop.set_exception_handler(_raise)
        self.raft = raft
        self.flush = FlushDiskType(flush)
        self.segment_bytes = segment_bytes
        self.disks = disks
        self.names = tuple(disks)
        self.hosts, self.brokers, self.mains = {}, {}, {}
        for number, name in enumerate(self.names):
            host = self.hosts[name] = self.loop.add_host(name, f"10.0.0.{number + 1}")
            if hasattr(disks[name], "crash"):
                host.disk = disks[name]
        self.sent = Sent()
        self.heads_may_differ = False
        """Whether a plain log was damaged: it has a CRC of bodies, and of nothing else."""
        self.begins = {0}
        """Where the log has begun so far."""

    def config(self, name):
        peers = ";".join(f"{peer}-{self.hosts[peer].address}:40911" for peer in self.names)
        return SmallConfig(
            broker_name="alone",
            broker_ip1="10.0.0.1",
            bind_address=self.hosts[name].address,
            store_path=ROOT if self.hosts[name].disk is not None else self.disks[name].root,
            segment_bytes=self.segment_bytes,
            queue_file_bytes=QUEUE_FILE,
            flush_disk_type=self.flush,
            event_file_bytes=EVENT_FILE,
            enable_dledger=self.raft,
            dledger_group="group",
            dledger_self_id=name,
            dledger_peers=peers,
            process_id=1,
        )

    # Lives

    def boot(self, name="n0"):
        """Begin a life of a broker; `error` says how it ended, if it has."""
        process = self.loop.boot(self.hosts[name])
        self.sent.lives.append([])
        self.brokers.pop(name, None)
        self.mains[name] = self.loop.spawn(process, self._main(name, process))
        return process

    async def _main(self, name, process):
        error, code = None, 0
        host = self.hosts[name]
        try:
            controller = BrokerController(
                self.config(name),
                disk=self.disks[name],
                clock=host.clock,
                rng=host.rng.split(f"life{host.incarnation}"),
                tasks=Supervisor(),
            )
            self.brokers[name] = controller
            try:
                await controller.start()
                await self.loop.create_future()
            except asyncio.CancelledError:
                await controller.stop()
        except FatalError as fatal:
            error, code = fatal, fatal.exit_code
        except Exception as crash:  # noqa: BLE001  # as the last resort of a process does
            error, code = crash, EXIT_ENVIRONMENT
        self.loop.exit(process, error, code)

    def is_alive(self, name="n0"):
        return self.hosts[name].alive

    def error(self, name="n0"):
        return self.hosts[name].process.error

    def start(self, name="n0", limit_ms=LIMIT_MS):
        """Start, until it takes sends or has ended; returns why it ended, None if it lives."""
        process = self.boot(name)
        self.loop.run_until_true(lambda: not process.alive or self.is_writable(name), limit_ms)
        return process.error

    def is_writable(self, name="n0"):
        broker = self.brokers.get(name)
        return broker is not None and broker._started and broker.store.writer.writable

    def writable(self):
        """Return the name of who takes sends, None if nobody does."""
        return next((n for n in self.names if self.is_alive(n) and self.is_writable(n)), None)

    def stop(self, name="n0", limit_ms=LIMIT_MS):
        """Stop cleanly; returns the error it ended with, if any."""
        process = self.hosts[name].process
        self.mains[name].cancel()
        assert self.loop.run_until_true(lambda: not process.alive, limit_ms), "stop hangs"
        return process.error

    def kill(self, name="n0"):
        if self.is_alive(name):
            self.loop.kill(self.hosts[name].process)

    def close(self):
        self.loop.close()

    def store(self, name="n0"):
        return self.brokers[name].store

    def log(self, name="n0"):
        return self.brokers[name]._mode.log

    def run_for(self, ms):
        self.loop.run_for(ms)

    # Work

    def do(self, function, *arguments, name="n0"):
        """Call something as the process of the broker, if it lives; None if it dies of it."""
        if not self.is_alive(name):
            return None
        process = self.hosts[name].process
        try:
            return self.loop.call(process, function, *arguments)
        except SimCrash:
            return None
        except FatalError as fatal:
            with suppress(SimCrash):
                self.loop.exit(process, fatal, fatal.exit_code)
            return None

    def put_many(self, messages, *, name="n0", limit_ms=LIMIT_MS):
        """Send ``(topic, queue_id, body, properties)`` at once; returns the statuses, in order.

        None for what was not answered.
        """
        answers = [None] * len(messages)

        def put():
            for number, (topic, queue_id, body, properties) in enumerate(messages):
                self.sent.send(topic, queue_id, body, properties)
                self.store(name).writer.put(
                    make(topic, queue_id, body, properties),
                    lambda *answer, number=number: self._on_answer(
                        answers, number, messages, answer
                    ),
                )

        self.do(put, name=name)
        self.loop.run_until_true(lambda: None not in answers or not self.is_alive(name), limit_ms)
        self._forget_refused(messages, answers)
        return [answer and answer[0] for answer in answers]

    def put(self, topic, queue_id, body, properties=b"", **options):
        return self.put_many([(topic, queue_id, body, properties)], **options)[0]

    def put_batch(self, topic, queue_id, bodies, *, name="n0"):
        """Send a batch; returns its status, None if it was not answered."""
        answers = []

        def put():
            for body in bodies:
                self.sent.send(topic, queue_id, body, b"")
            self.store(name).writer.put_batch(
                batch_of([make(topic, queue_id, body, b"") for body in bodies]),
                lambda *answer: answers.append(answer),
            )

        self.do(put, name=name)
        self.loop.run_until_true(lambda: answers or not self.is_alive(name), LIMIT_MS)
        if not answers:
            return None
        status, offset, physicals = answers[0]
        if status is PutStatus.OK:
            for number, body in enumerate(bodies):
                place = (topic, queue_id, offset + number)
                self.sent.acknowledged[place] = (physicals[number], body)
        elif status in REFUSALS:
            for body in bodies:
                self.sent.forget(topic, queue_id, body)
        return status

    def propose(self, payload, kind=StateKind.TOPIC.value, *, name="n0"):
        answers = []
        self.sent.proposed += 1
        self.do(
            lambda: self.store(name).writer.propose_state(kind, payload, answers.append), name=name
        )
        self.loop.run_until_true(lambda: answers or not self.is_alive(name), LIMIT_MS)
        if answers == [PutStatus.OK]:
            self.sent.states.append(payload)
        return answers[0] if answers else None

    def _on_answer(self, answers, number, messages, answer):
        assert answers[number] is None, "answered twice"
        answers[number] = answer
        status, offset, physical = answer
        if status is PutStatus.OK:
            topic, queue_id, body, _ = messages[number]
            self.sent.acknowledged[topic, queue_id, offset] = (physical, body)

    def _forget_refused(self, messages, answers):
        """A message that was refused can not be in the queue."""
        for (topic, queue_id, body, _), answer in zip(messages, answers, strict=True):
            if answer is not None and answer[0] in REFUSALS:
                self.sent.forget(topic, queue_id, body)

    # Looking

    def read(self, name="n0"):
        """Read everything back: by queue, ``{offset: message or None}``; None for damaged ones."""
        return self.do(self._read_all, name, name=name)

    def find_by_key(self, topic, key, name="n0"):
        """Return what a query by key finds."""
        records = self.do(
            lambda: self.store(name).reader.messages_of_key(topic, key, 64, (0, 1 << 60)).records,
            name=name,
        )
        return [decode_records(bytes(record), check_crc=True)[0] for record in records]

    def _read_all(self, name):
        store = self.store(name)
        found = {}
        for queue in list(store._queues.by_key.values()):
            place = (queue.topic, queue.queue_id)
            messages = found[place] = {}
            offset, end = store.reader.min_offset(*place), store.reader.max_offset(*place)
            while offset < end:
                result = store.reader.get(*place, offset, 32, 1 << 20, None)
                if result.status in {GetStatus.DAMAGED, GetStatus.LOST}:
                    messages[offset] = None
                    offset += 1
                    continue
                assert result.status is GetStatus.FOUND, (place, offset, result)
                records = decode_records(b"".join(result.buffers), check_crc=True)
                assert len(records) == result.next_offset - offset == result.count, (place, offset)
                try:
                    units = list(UNIT.iter_unpack(queue.read(offset, result.count)))
                except DamagedEntry:
                    units = []  # a unit behind these names another message: the block is refused
                for number, record in enumerate(records):
                    messages[offset + number] = record
                for record, unit in zip(records, units, strict=False):
                    assert record.physical_offset == unit[0], (record, unit)
                    assert self.heads_may_differ or unit[2] == tags_code(record.properties)
                offset += len(records)
        return found


def make(topic, queue_id, body, properties):
    return PutMessage(
        topic.encode(), queue_id, 0, 0, 1_600_000_000_000, BORN, 0, 0, properties, body,
        tags_code(properties),
    )  # fmt: skip


def check(found, sent, *, acknowledged=True, heads_may_differ=False):
    """Compare what was read with what was sent: nothing wrong, invented, doubled or out of order.

    Args:
        found: of `Cluster.read`.
        sent: what is known.
        acknowledged: whether all that was acknowledged must be there.
        heads_may_differ: whether topics and properties may be corrupt unseen.
    """
    for place, messages in found.items():
        bodies = sent.bodies.get(place, [])
        assert list(messages) == list(
            range(min(messages, default=0), max(messages, default=-1) + 1)
        )
        at = 0
        for offset, record in messages.items():
            known = sent.acknowledged.get((*place, offset))
            if record is None:
                continue
            if heads_may_differ:
                assert record.body in sent.properties, (place, offset)
                continue
            assert (record.topic, record.queue_id, record.queue_offset) == (*place, offset)
            assert record.body in bodies[at:], (place, offset, record.body, bodies[at:])
            at = bodies.index(record.body, at) + 1
            assert record.properties == sent.properties[record.body], (place, offset)
            if known is not None:
                assert (record.physical_offset, record.body) == known, (place, offset)
    if acknowledged:
        for topic, queue_id, offset in sent.acknowledged:
            assert offset in found.get((topic, queue_id), {}), (topic, queue_id, offset)


def _raise(_loop, context):
    raise context.get("exception") or RuntimeError(str(context.get("message")))
