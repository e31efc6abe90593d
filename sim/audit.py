"""The end of a run: is the cluster alive, and does it hand out everything it promised?

The auditor is one more client, on a host of its own. It sends until a message is acknowledged,
waits until all replicas have applied the same log and the group has consumed everything, and reads
every queue from its first message to its last. Source: spec/proof.md 3.0 (Auditor, DRAINED).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from chaos.checker.model import History, Replica
from chaos.history.payload import encode_body, make_key
from dledger.errors import DLedgerError
from ledgermq.client import ClientConfig, MessageQueue, Producer, PullConsumer, RemotingError
from sim.client_app import ClientApp
from sim.consumer_app import ConsumerApp, LateApp
from sim.everyday.app import HabitsApp
from sim.oracles.base import Violation
from sim.oracles.records import entry_rows
from sim.record import AUDITOR
from sim.validators import GROUP_NAME
from sim.workload import GROUP, TOPIC, topics_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dledger.node import DLedgerNode
    from sim.context import Host
    from sim.world import World

RETRY_S: Final = 0.1
AUDITOR_PID: Final = 1 << 20
PULL_COUNT: Final = 64
LAST_TOPIC: Final = TOPIC
NOWHERE: Final = {"queue_id": None, "queue_offset": None, "node": None}


class Auditor:
    """Runs on the host ``auditor`` of the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._host: Host = world.hosts[AUDITOR]
        self.stage = "operations of clients are under way"
        self.is_done = False
        self.ends: dict[MessageQueue, tuple[int, int]] = {}
        self._sequence = 0
        self._alone_ends: dict[MessageQueue, int] = {}

    def start(self) -> None:
        """Begin, in virtual time."""
        loop = self._world.loop
        process = loop.boot(self._host)
        loop.spawn(process, self._run())

    def describe(self) -> str:
        """Say what is still missing."""
        world = self._world
        states = []
        for name in world.brokers():
            node = world.node(name)
            if node is None:
                states.append(f"{name} down")
            else:
                applied = world.controllers[name].applied_index
                states.append(
                    f"{name} {node.role.value} term {node.term} commit {node.commit_index} "
                    f"applied {applied} end {node.end_index}"
                )
        return f"{self.stage}; {'; '.join(states)}; routes: {world.health.wrong_route() or 'right'}"

    async def _run(self) -> None:
        world, host = self._world, self._host
        config = ClientConfig(
            namesrv_addrs=tuple(world.namesrv_addrs()),
            group=AUDITOR,
            instance_name=AUDITOR,
            source_address=host.address,
            process_id=host.number,
        )
        rng = host.rng.split("auditor")
        producer = Producer(config, clock=host.clock, rng=rng.split("producer"))
        puller = PullConsumer(config, clock=host.clock, rng=rng.split("pull"))
        await producer.start()
        await puller.start()
        await _until(self._is_quiet)  # else messages come to queues that were read already
        self.stage = "no leader takes a message"
        await self._send(producer)
        if world.validators.alone is not None:
            self.stage = "the broker outside the group takes no message"
            await self._send_alone(producer)
        self.stage = "a producer gets nothing acknowledged"
        await self._send_by_clients()
        self.stage = "replicas have not come to the same log"
        await _until(self._is_level)
        self.stage = "a member that lost its directory does not count again"
        await _until(self._is_whole)
        self.stage = "the leader confirms no read"
        await self._confirm_read()
        self.stage = "name servers do not tell what is so"
        await _until(lambda: not world.health.wrong_route())
        self.stage = "name servers do not tell of all members"
        await _until(lambda: not world.health.lacks_follower())
        await _until(self._is_done_with)
        self.stage = "queues are not readable to their ends"
        for topic in topics_of(world.plan.workload):
            if any(queue[0] == topic for queue in world.watch.truth.queues):
                await self._read(puller, topic)
        self.stage = "the group has not consumed everything"
        await _until(self._is_drained)
        self.stage = "members of the group do not share its queues"
        await _until(self._is_shared)
        self._check_group()
        self.is_done = True

    async def _send(self, producer: Producer) -> None:
        """Send messages, each once, until the group has acknowledged one."""
        while True:
            queue = await self._send_one(producer, None)
            if queue is not None and self._world.validators.is_known(queue):
                return
            await asyncio.sleep(RETRY_S)

    async def _send_by_clients(self) -> None:
        """Have each producer send, with the routes and connections that it has by now."""
        world = self._world
        apps: dict[str, ClientApp] = {}
        for name in world.layout.producers:
            app = world.apps[name]
            assert isinstance(app, ClientApp), name
            if world.run_on(name, app.send_last()) is not None:
                apps[name] = app
        await _until(lambda: all(app.has_sent_last for app in apps.values()))

    async def _send_alone(self, producer: Producer) -> None:
        """Likewise with the broker outside the group."""
        while True:
            with contextlib.suppress(RemotingError):
                for queue in await producer.fetch_publish_queues(LAST_TOPIC):
                    if self._world.validators.is_known(queue):
                        continue
                    if await self._send_one(producer, queue) is not None:
                        return
            await asyncio.sleep(RETRY_S)

    async def _send_one(
        self, producer: Producer, chosen: MessageQueue | None
    ) -> MessageQueue | None:
        """Send a message; return where it lies, None unless it was acknowledged."""
        record, validators = self._world.record, self._world.validators
        key = make_key(AUDITOR_PID, self._sequence)
        self._sequence += 1
        body = encode_body(bytes.fromhex(record.tag), key, 64)
        rows = record.sending(-self._sequence, LAST_TOPIC, [(key, body)])
        try:
            result = await producer.send(validators.message(LAST_TOPIC, key, body), chosen)
        except RemotingError:
            return None
        queue = result.queue
        record.sent(
            rows, "ok", queue_id=queue.queue_id, queue_offset=result.queue_offset,
            attempts=len(result.attempts), err_code=None, broker=queue.broker_name,
        )  # fmt: skip
        place = (queue.topic, queue.queue_id)
        validators.of(queue).on_acknowledged(place, result.queue_offset, [key])
        return queue

    def _is_quiet(self) -> bool:
        """Whether no running client waits for an answer any more."""
        world = self._world
        return not any(
            app.is_busy
            for name, app in world.apps.items()
            if (process := world.hosts[name].process) is not None and process.alive
        )

    def _is_done_with(self) -> bool:
        """Whether messages that waited, were given back, or belong to a group of their own, are."""
        self.stage = self._world.judges.missing() or self._left()
        return not self.stage

    def _left(self) -> str:
        """Say what clients with habits still wait for; empty for nothing."""
        apps = [app for app in self._world.apps.values() if isinstance(app, HabitsApp)]
        return next(filter(None, (app.missing() for app in apps)), "")

    def _is_level(self) -> bool:
        """Whether every running member has applied the whole committed log."""
        world = self._world
        leader = world.leader()
        if leader is None:
            return False
        node = world.node(leader)
        assert node is not None
        members = world.watch.truth.voters_of(world.watch.replicas[leader])
        for name in members:
            one = world.node(name)
            if one is None or one.end_index != node.end_index or one.commit_index != one.end_index:
                return False
            if world.controllers[name].applied_index != one.commit_index:
                return False
        return True

    def _is_whole(self) -> bool:
        """Whether every member votes and is counted, whatever it has lost meanwhile."""
        world = self._world
        leader = world.leader()
        node = None if leader is None else world.node(leader)
        if leader is None or node is None:
            return False
        members = world.watch.truth.voters_of(world.watch.replicas[leader])
        rejoining = node._raft.state.rejoining
        return not any(world.is_recovering(one) or one in rejoining for one in members)

    async def _confirm_read(self) -> None:
        """Have the leader say once that it leads still, as it is asked for a read."""
        world, confirmed = self._world, list[int]()
        while not confirmed:
            leader = world.leader()
            node = None if leader is None else world.node(leader)
            if leader is not None and node is not None:
                asked = world.run_on(leader, _read_index(node, confirmed))
                await _until(lambda: asked is None or asked.done())  # noqa: B023  # waited for here
            await asyncio.sleep(RETRY_S)

    async def _read(self, puller: PullConsumer, topic: str) -> None:
        while True:
            try:
                for queue in await puller.fetch_subscribe_queues(topic):
                    await self._read_queue(puller, queue)
            except RemotingError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _read_queue(self, puller: PullConsumer, queue: MessageQueue) -> None:
        if queue in self.ends or queue in self._alone_ends:
            return
        if not self._world.validators.is_known(queue):
            await self._read_alone(puller, queue)
            return
        record, oracle = self._world.record, self._world.clients_oracle
        place = (queue.topic, queue.queue_id)
        committed = len(self._world.watch.truth.queues.get(place, ()))
        offset = first = await puller.min_offset(queue)
        end = await puller.max_offset(queue)
        messages = []
        while offset < end:
            result = await puller.pull(queue, offset=offset, max_count=PULL_COUNT)
            messages += result.messages
            offset = max(offset, result.next_offset)
        for message in messages:
            key, digest = record.delivered(message, AUDITOR, AUDITOR)
            oracle.on_delivered(place, message.queue_offset, key, digest)
            oracle.on_audited(place, message.queue_offset)
        oracle.on_audit_end(place, first, committed)
        self.ends[queue] = (first, end)

    async def _read_alone(self, puller: PullConsumer, queue: MessageQueue) -> None:
        """Read a queue of the broker outside the group."""
        validators = self._world.validators
        assert validators.alone is not None
        offset = first = await puller.min_offset(queue)
        end = await puller.max_offset(queue)
        messages: dict[int, int | None] = {}
        while offset < end:
            result = await puller.pull(queue, offset=offset, max_count=PULL_COUNT)
            for message in result.messages:
                validators.note(message, queue, AUDITOR, AUDITOR)
                messages[message.queue_offset] = self._world.record.deliveries[-1]["msg_key"]
            offset = max(offset, result.next_offset)
        validators.alone.on_audited((queue.topic, queue.queue_id), messages, first, end)
        self._alone_ends[queue] = end

    def _is_alone_drained(self) -> bool:
        """Whether the group has committed every message of the broker outside the group."""
        world = self._world
        for name in world.alone():
            offsets = world.controllers[name].tables.offsets
            for queue, end in self._alone_ends.items():
                told = offsets.query(GROUP, queue.topic, queue.queue_id)
                if queue.topic == TOPIC and (told or 0) < end:
                    self.stage = f"the group has not consumed {queue}: {told} of {end}"
                    return False
        return True

    def _is_drained(self) -> bool:
        """Whether the group has committed every message of its topic, by the leader's table.

        A client may die before it hears that its commit was taken.
        """
        world = self._world
        leader = world.leader()
        if not world.plan.workload.consumers:
            return True
        if leader is None or not self._is_alone_drained():
            return False
        # What a leader was only told is lost with it: it is to be in the log, too.
        offsets = world.controllers[leader].tables.offsets._applied
        applied = offsets.get(f"{TOPIC}@{GROUP}", {})
        for name, app in world.apps.items():
            if isinstance(app, LateApp):
                for queue in self.ends:
                    missing = app.missing(queue) if queue.topic == TOPIC else []
                    if missing:
                        self.stage = f"the group of {name} lacks {queue} {missing[:3]}"
                        return False
                if app.has_begun and not self._is_committed(app, offsets):
                    return False
        return all(
            applied.get(queue.queue_id, 0) >= end
            for queue, (_, end) in self.ends.items()
            if queue.topic == TOPIC
        )

    def _is_committed(self, app: LateApp, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """Whether a group has committed past all that it wants.

        It need not hear of what lies behind that: a pull that waits for its tags tells nothing.
        """
        applied = offsets.get(f"{TOPIC}@{app.group}", {})
        for queue in self.ends:
            told = applied.get(queue.queue_id, 0)
            if queue.topic == TOPIC and (left := app.wanted(queue, told)):
                self.stage = f"the group of {app.name} has committed {told} in {queue}, not {left}"
                return False
        return True

    def _is_shared(self) -> bool:
        """Whether each queue of the topic is held by one member of the group, and by one only."""
        apps = [app for app in self._world.apps.values() if isinstance(app, ConsumerApp)]
        members = [one for app in apps if not isinstance(app, LateApp) for one in app.members]
        held = Counter(queue for member in members for queue in member.assigned_queues)
        for queue in (*self.ends, *self._alone_ends):
            if members and queue.topic == TOPIC and held[queue] != 1:
                self.stage = f"{held[queue]} members of the group hold {queue}"
                return False
        return True

    def _check_group(self) -> None:
        """What the group has committed past, a listener of it has finished: at least once."""
        world = self._world
        if not world.plan.workload.consumers:
            return
        done: set[tuple[int, int]] = {
            (row["queue_id"], row["queue_offset"])
            for row in world.record.deliveries
            if row["grp"] == GROUP and row.get("broker", GROUP_NAME) == GROUP_NAME
        }
        for queue, (first, end) in sorted(self.ends.items()):
            if queue.topic != TOPIC:
                continue
            dropped = world.clients_oracle.dropped.get((queue.topic, queue.queue_id), 0)
            for offset in range(max(first, dropped), end):
                if (queue.queue_id, offset) not in done:
                    text = f"{queue.topic}/{queue.queue_id}@{offset} was committed past, unfinished"
                    world.findings.report(Violation("A1 lost to the group", text, offset=offset))
                    return


async def _read_index(node: DLedgerNode, confirmed: list[int]) -> None:
    with contextlib.suppress(DLedgerError):
        confirmed.append(await node.operations.read_index())


async def _until(holds: Callable[[], bool]) -> None:
    """Ask again and again: what is asked about has no event."""
    while not holds():  # noqa: ASYNC110 - see above
        await asyncio.sleep(RETRY_S)


def is_of_group(row: Mapping[str, Any]) -> bool:
    """Whether a row may be of the replicated group; what ended without an answer may."""
    return bool(row.get("broker", GROUP_NAME) == GROUP_NAME)


def run_history(world: World, ends: Mapping[MessageQueue, tuple[int, int]]) -> History:
    """Return the run as `chaos.checker` judges it; ``ends`` of the queues as the auditor saw."""
    record, dropped = world.record, world.clients_oracle.dropped
    sends = [
        # What another broker acknowledged may lie here as well, from an earlier attempt.
        row if is_of_group(row) else {**row, "outcome": "info", **NOWHERE}
        for row in record.sends
        if row["topic"] == TOPIC
    ]
    deliveries = [row for row in record.deliveries if row["topic"] == TOPIC and is_of_group(row)]
    drain = [
        {
            "grp": GROUP, "topic": queue.topic, "queue_id": queue.queue_id,
            "min_off": max(first, dropped.get((queue.topic, queue.queue_id), 0)),
            "end_off": end, "read_to": end, "empty_polls": 2,
            "drained": world.plan.workload.consumers > 0,
        }
        for queue, (first, end) in sorted(ends.items())
        if queue.topic == TOPIC
    ]  # fmt: skip
    replicas = [
        _replica(world, name)
        for name in world.brokers()
        # What was corrupted and was never asked for may stay so.
        if world.node(name) and not world.watch.replicas[name].is_corrupt
    ]
    unread = len(world.voters) - sum(one.node in world.voters for one in replicas)
    return History(
        topic=TOPIC,
        group=GROUP,
        run_ids=frozenset({record.tag}),
        quorum=max(1, len(world.voters) // 2 + 1 - unread),
        sends=sends,
        deliveries=deliveries,
        drain=drain,
        replicas=replicas,
    )


def _replica(world: World, name: str) -> Replica:
    """Read a replica's log from the bytes of its segments, as the checkers do."""
    replica = world.watch.replicas[name]
    rows: list[Any] = []
    first_index = world.controllers[name].node.first_index
    for index, mark in enumerate(replica.marks, replica.base):
        if index < first_index:
            continue  # dropped since
        data = replica.entry_bytes(mark)
        rows += [row._replace(entry_index=index) for row in entry_rows(data, mark.position)]
    node = world.node(name)
    assert node is not None
    return Replica(
        node=name,
        rows=rows,
        commit_index=node.commit_index,
        first_index=first_index,
        end_index=replica.last_index,
    )
