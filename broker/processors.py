"""Builds the processors of one broker and registers what they serve.

Adding a processor is a line in `build_processors`; which requests it serves it declares itself
(`ledgermq.remoting.transport.requests`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker.config import Role
from broker.delays.progress import DelayProgress
from broker.groups.new_groups import NewGroups
from broker.limits import (
    ASKED_GROUPS_MAX,
    FORWARDED_MAX,
    RECENT_HALVES_BYTES_MAX,
    REPLIES_BYTES_MAX,
    REPLIES_MAX,
    TRANSACTIONS_ASKED_MAX,
    WALKS_MAX,
    WALKS_WAITING_MAX,
)
from broker.offsets.moved import OffsetMovedEvents
from broker.offsets.removal import OffsetRemoval
from broker.processor.access import AccessProcessor
from broker.processor.admin import AdminProcessor
from broker.processor.clean import CleanProcessor
from broker.processor.client import ClientProcessor
from broker.processor.filter import FilterProcessor
from broker.processor.forward import ForwardProcessor
from broker.processor.groups import GroupsProcessor
from broker.processor.lock import LockProcessor
from broker.processor.members import MembersProcessor
from broker.processor.offset import OffsetProcessor
from broker.processor.other_groups import OtherGroupsProcessor
from broker.processor.pull import PullProcessor
from broker.processor.query import QueryProcessor
from broker.processor.reply import ReplyProcessor
from broker.processor.reset import ResetProcessor
from broker.processor.resume import ResumeProcessor
from broker.processor.runtime import RuntimeProcessor
from broker.processor.send import SendProcessor
from broker.processor.send_back import SendBackProcessor
from broker.processor.slave_tables import SlaveTablesProcessor
from broker.processor.stats import StatsProcessor
from broker.processor.timers import TimersProcessor
from broker.processor.topics import TopicsProcessor
from broker.processor.traffic import TrafficProcessor
from broker.processor.transaction import TransactionProcessor
from broker.requests import broker_requests
from broker.retention.service import DiskUse
from broker.sends.creation import Creator
from broker.sends.door import Door
from broker.sends.properties import PropertyRewriter
from broker.sends.schedule import scheduled, scheduled_if_delayed
from broker.state.replicated_state import LogProposer
from broker.stats.walks import Walks
from broker.transactions.service import Settings, Transactions
from ledgermq.remoting.protocol.unique_id import UniqueIdGenerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.access.file import AccessFile
    from broker.cluster.guard import Guard
    from broker.core import Core
    from broker.retention.service import Retention
    from broker.sends.creation import Publisher
    from broker.stats.counts import TrafficCounts
    from ledgermq.remoting.transport.requests import Requests
    from store.results import PutMessage


class Around(NamedTuple):
    """What processors need of a broker besides its core."""

    guard: Guard
    publisher: Publisher
    retention: Retention
    status: Callable[[], dict[str, Any]]
    access: AccessFile | None = None
    """Where access control is on."""


class Processors(NamedTuple):
    """What the rest of a broker talks to: all that is served, and who keeps clients."""

    requests: Requests
    pull: PullProcessor
    client: ClientProcessor
    moved: OffsetMovedEvents
    counts: TrafficCounts
    transactions: Transactions


def build_processors(core: Core, around: Around, of_mode: tuple[object, ...]) -> Processors:
    """Return the processors of a broker; ``of_mode``: those that its mode brings along."""
    tables, store, clock = core.tables, core.store, core.clock
    proposer = LogProposer(store.writer)
    creator = _build_creator(core, proposer, around.publisher)
    new_groups = NewGroups(creator.group_for_request, creator.is_creating_group, clock)
    config, counts = core.config, tables.counts
    moved = OffsetMovedEvents(
        store.writer, clock, broker_name=config.registered_name, broker_host=config.store_host
    )
    pull = _build_pull(core, new_groups, moved, counts)
    client = ClientProcessor(
        producers=tables.producers,
        consumers=tables.consumers,
        groups=tables.groups,
        locks=tables.locks,
        creator=creator,
        new_groups=new_groups,
        is_writable=lambda: store.writer.writable,
        clock=clock,
        alarm=lambda function: core.tasks.alarm("members of groups", function),
        serve=core.tasks.serve,
    )
    requests = broker_requests(around.guard, lambda: store.writer.writable, lambda: store.readable)
    transactions = _build_transactions(core)
    door = _build_door(core, transactions)
    requests.add(
        _build_send(core, door, creator, counts, transactions.recent.note),
        _build_reply(core, door, creator, counts),
        TransactionProcessor(
            transactions=transactions,
            store=store,
            schedule=partial(scheduled_if_delayed, level_max=len(core.config.delay_levels_ms)),
            clock=clock,
            puts=counts.puts,
            room=core.room,
        ),
        ResumeProcessor(store, transactions.let_in, tables.copies, core.room),
        pull,
        client,
        OffsetProcessor(tables, store, new_groups.for_request),
        _build_queries(core),
        LockProcessor(tables, proposer, clock),
        FilterProcessor(enabled=config.enable_property_filter),
        SendBackProcessor(
            tables=tables,
            store=store,
            creator=creator,
            on_new_group=new_groups.for_request,
            schedule=partial(scheduled, level_max=len(core.config.delay_levels_ms)),
            room=core.room,
            rng=core.rng,
        ),
        _build_admin(core, around, creator, proposer),
        AccessProcessor(around.access, config),
        CleanProcessor(around.retention, store.log_start, core.tasks.serve),
        *_build_tools(core, creator, proposer, counts, new_groups),
        *of_mode,
    )
    return Processors(requests, pull, client, moved, counts, transactions)


def _build_queries(core: Core) -> QueryProcessor:
    topics, is_slave = core.tables.topics, core.config.broker_role == Role.SLAVE

    def exists(topic: str) -> bool:
        # A slave that was never told its master's topics has their queues all the same.
        return topics.exists(topic) or (is_slave and topics.is_bare)

    return QueryProcessor(
        core.store.reader,
        exists,
        subscribed=core.tables.consumers.subscription,
        unique_max=core.config.default_query_max_num,
    )


def _build_admin(
    core: Core, around: Around, creator: Creator, proposer: LogProposer
) -> AdminProcessor:
    return AdminProcessor(
        topics=core.tables.topics,
        creator=creator,
        proposer=proposer,
        guard=around.guard,
        status=around.status,
    )


def _build_tools(
    core: Core,
    creator: Creator,
    proposer: LogProposer,
    counts: TrafficCounts,
    new_groups: NewGroups,
) -> tuple[object, ...]:
    """Return what only tools ask."""
    config, tables, store, clock = core.config, core.tables, core.store, core.clock

    def writable() -> bool:
        return store.writer.writable

    walks = Walks(clock, writable)
    tables.usage.add(WALKS_MAX, lambda: walks.running)
    tables.usage.add(WALKS_WAITING_MAX, lambda: walks.waiting)
    forward = ForwardProcessor(tables.consumers, store.reader, config.registered_name)
    tables.usage.add(FORWARDED_MAX, lambda: forward.running)
    reset = ResetProcessor(tables, store.reader, config.registered_name, walks)
    tables.usage.add(ASKED_GROUPS_MAX, lambda: reset.asking)
    removal = OffsetRemoval(tables.offsets, proposer)
    disk = DiskUse(core.machine.disk, config.partitions)

    def delays() -> DelayProgress:
        return cast("DelayProgress", tables.state.tables[DelayProgress.file])

    return (
        StatsProcessor(tables, store.reader, config, clock, counts, walks),
        TrafficProcessor(counts, config.broker_cluster_name, clock),
        MembersProcessor(tables, clock, walks),
        GroupsProcessor(tables.groups, creator, writable, walks, removal.of_group),
        TopicsProcessor(tables.topics, creator, writable),
        reset,
        OtherGroupsProcessor(tables, store.reader, walks, new_groups.for_request),
        forward,
        RuntimeProcessor(config, store, counts, clock, disk.fullest, delays),
        SlaveTablesProcessor(tables.state, tables.offsets, walks),
        TimersProcessor(clock),
    )


def _build_creator(core: Core, proposer: LogProposer, publisher: Publisher) -> Creator:
    creator = Creator(
        topics=core.tables.topics,
        groups=core.tables.groups,
        proposer=proposer,
        publisher=publisher,
        clock=core.clock,
        serve=core.tasks.serve,
        enter=partial(core.room.enter, ""),
        is_orderly=core.tables.locks.has_some,
    )
    for limit, used in creator.waiting.gauges():
        core.tables.usage.add(limit, used)
    return creator


def _build_transactions(core: Core) -> Transactions:
    config, tables, store = core.config, core.tables, core.store
    settings = Settings(
        config.registered_name,
        config.store_host,
        config.transaction_timeout_ms,
        config.transaction_check_interval_ms,
        config.transaction_check_max,
        rejected=config.reject_transactions,
        takes_over=not config.enable_dledger,
    )
    transactions = Transactions(settings, store, tables.producers, tables.offsets, core.tasks.alarm)
    tables.usage.add(TRANSACTIONS_ASKED_MAX, lambda: transactions.asked)
    tables.usage.add(RECENT_HALVES_BYTES_MAX, lambda: transactions.recent.size_bytes)
    return transactions


def _build_door(core: Core, transactions: Transactions) -> Door:
    config = core.config
    name = config.broker_cluster_name
    rewriter = PropertyRewriter(name, _unique_ids(core), core.clock.wall_ms)
    levels = len(config.delay_levels_ms)
    return Door(rewriter, config.max_message_bytes, levels, transactions.let_in)


def _build_reply(core: Core, door: Door, creator: Creator, counts: TrafficCounts) -> ReplyProcessor:
    config, tables = core.config, core.tables
    reply = ReplyProcessor(
        topics=tables.topics.entries,
        maker=creator,
        producers=tables.producers,
        store=core.store.writer if config.store_reply_message_enable else None,
        door=door,
        clock=core.clock,
        store_host=config.store_host,
        puts=counts.puts,
        room=core.room,
        region=config.region_id,
        trace_on=config.trace_on,
    )
    tables.usage.add(REPLIES_MAX, lambda: reply.running)
    tables.usage.add(REPLIES_BYTES_MAX, lambda: reply.running_bytes)
    return reply


def _build_send(
    core: Core,
    door: Door,
    creator: Creator,
    counts: TrafficCounts,
    on_half: Callable[[int, PutMessage], None],
) -> SendProcessor:
    config = core.config
    return SendProcessor(
        topics=core.tables.topics.entries,
        store=core.store.writer,
        maker=creator,
        door=door,
        on_half=on_half,
        rng=core.rng,
        store_host=config.store_host,
        puts=counts.puts,
        room=core.room,
        region=config.region_id,
        trace_on=config.trace_on,
    )


def _unique_ids(core: Core) -> Callable[[], bytes]:
    first = core.rng.randint(0, 2**31 - 1)
    generator = UniqueIdGenerator(core.config.store_host[:-4], core.config.process_id, first)
    return lambda: generator.next(core.clock.wall_ms()).encode()


def _build_pull(
    core: Core, new_groups: NewGroups, moved: OffsetMovedEvents, counts: TrafficCounts
) -> PullProcessor:
    config, tables = core.config, core.tables
    return PullProcessor(
        topics=tables.topics.entries,
        groups=tables.groups,
        consumers=tables.consumers,
        offsets=tables.offsets,
        store=core.store,
        held=tables.held,
        clock=core.clock,
        on_new_group=new_groups.for_request,
        on_moved=moved.on_moved,
        counts=counts,
        max_bytes=config.get_bytes_max,
        max_count=config.get_messages_max,
        slave_read_enable=config.slave_read_enable,
        is_slave=config.is_slave,
        enable_property_filter=config.enable_property_filter,
    )
