"""The bugs that were planted late: the rule each breaks holds, and with the bug it does not."""

import asyncio
import json
import struct
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from broker.delays import copies
from broker.delays.progress import DelayProgress
from broker.sends import send_back
from broker.state.consumer_offset import ConsumerOffsetTable
from broker.state.subscription import SubscriptionGroupConfig
from dledger.core.model import NO_INDEX
from dledger.core.progress import Progress
from dledger.driver import Driver, HeldReplies, Sync
from dledger.storage.log_store import DirtyFiles
from ledgermq.client import send_codec
from ledgermq.client.group_member import GroupMember
from ledgermq.client.message import MessageQueue, SendStatus
from ledgermq.client.orderly import OrderlyService
from ledgermq.client.rebalance import allocate_averagely
from ledgermq.remoting.protocol.codes import SerializeType
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command
from ledgermq.remoting.protocol.frame import Frame
from ledgermq.remoting.protocol.headers import SendBackHeader
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from mutants.late import LATE
from mutants.patches import ALL
from mutants.planting import Mutant, planted
from namesrv.route_table import RouteTable
from store.ha.gate import Gate, Lack
from store.index.keys import KeyHashes
from store.layout import tags_code
from tests.unit.namesrv.test_route_table import addrs, registration


def every_queue_has_a_reader() -> bool:
    queues = [MessageQueue("t", "b", number) for number in range(4)]
    ids = ["c0", "c1", "c2"]

    async def members(_: object) -> list[str]:
        return ids

    def share(client_id: str) -> list[MessageQueue]:
        options = SimpleNamespace(allocate=allocate_averagely)
        member: Any = SimpleNamespace(
            local=None, options=options, client_id=client_id, _group_members=members
        )
        member._ask_any = partial(GroupMember._ask_any, member)
        return asyncio.run(GroupMember._share(member, queues))

    return sorted(queue for one in ids for queue in share(one)) == queues


def nothing_is_known_of_a_follower() -> bool:
    return Progress("n1", 9, 0).match_index == NO_INDEX


def what_was_accepted_is_told() -> bool:
    table = ConsumerOffsetTable()
    table.commit("g", "t", 0, 5)
    for payload in table.take_proposals():
        table.apply(payload)
    table.commit("g", "t", 0, 9)
    return table.query("g", "t", 0) == 9


MESSAGE = MessageExt(
    topic="t", queue_id=0, flag=0, sys_flag=0, queue_offset=0, physical_offset=0,
    born_timestamp=0, born_host=bytes(8), store_timestamp=0, store_host=bytes(8),
    reconsume_times=0, prepared_offset=0,
    properties=b"TAGS\x01red\x02REAL_TOPIC\x01t\x02REAL_QID\x010", body=b"",
)  # fmt: skip


def a_level_that_was_asked_for_counts() -> bool:
    group = SubscriptionGroupConfig(group_name="g")
    header = SendBackHeader(offset=0, group="g", delay_level=7)
    return send_back.destination_of(MESSAGE, group, header).delay_level == 7


def a_delayed_copy_has_its_tag() -> bool:
    copy = copies.scheduled_of(encode_record(MESSAGE)).copy
    assert copy is not None
    return copy.tags_code == tags_code(b"TAGS\x01red") != 0


def what_is_committed_is_indexed() -> bool:
    indexed = [
        len(KeyHashes().rows([(b"t", b"KEYS\x01k", 1, 1, flags)], -1)) for flags in (0, 8, 12)
    ]
    return indexed == [1, 1, 0]


def what_no_slave_confirmed_is_told_so() -> bool:
    gate = Gate(wait_ms=1_000, behind_max=10_000)
    gate.on_slaves([100])
    assert not gate.pass_time(0, 200)
    assert gate.pass_time(1_000, 200)
    return gate.limit(200, 200) == (200, Lack.TIMEOUT)


def an_answer_waits_for_a_sync_of_its_own() -> bool:
    sent: list[str] = []
    sync = Sync(DirtyFiles({}, {}, 1), 1, 1)
    driver: Any = SimpleNamespace(
        _writes_synced=0, _writes=2, _under_way=[sync], synced_index=0, _is_sync=True,
        _store=SimpleNamespace(on_synced=lambda _: None),
        _raft=SimpleNamespace(persisted=lambda _: None, state=SimpleNamespace(term=1)),
        _held=deque([HeldReplies(1, 1, ["first"]), HeldReplies(2, 1, ["second"])]),
        _send=sent.append,
    )  # fmt: skip
    Driver.end_sync(driver, sync)
    return sent == ["first"]


def stored_alone_is_told_so() -> bool:
    fields = {"msgId": "id", "queueId": "0", "queueOffset": "5"}
    answer = RemotingCommand(SendStatus.FLUSH_SLAVE_TIMEOUT, 1, ext_fields=fields)
    whole = b"".join(encode_command(answer))
    size = struct.unpack_from(">I", whole, 4)[0] & 0xFFFFFF
    frame = Frame(SerializeType.JSON, whole[8 : 8 + size], b"")
    return send_codec.decode_acknowledgement(frame)[0] is SendStatus.FLUSH_SLAVE_TIMEOUT


def a_snapshot_has_all_levels() -> bool:
    progress = DelayProgress()
    for level in (0, 4):
        progress.apply(json.dumps([level, 6]).encode())
    told = json.loads(b"".join(progress.snapshot_steps()))
    return told == {"offsetTable": {"1": 7, "5": 7}}


def an_orderly_call_waits_as_long_as_was_asked_for() -> bool:
    async def took_s() -> float:
        line = SimpleNamespace(wake=asyncio.Event(), process_queue=SimpleNamespace(dropped=False))
        begun = time.monotonic()
        await OrderlyService._suspend(SimpleNamespace(_stopping=False), line, 60)  # type: ignore[arg-type]
        return time.monotonic() - begun

    return asyncio.run(took_s()) > 0.05


def a_group_stays_with_its_last_broker() -> bool:
    table = RouteTable()
    table.register(registration(), 0)
    table.register(registration(1, "b:1", connection=2), 0)
    table.on_connection_closed(1)
    return addrs(table) == {1: "b:1"}


RULES: tuple[tuple[Mutant, Callable[[], bool]], ...] = (
    (ALL["odd-queues-without-a-reader"], every_queue_has_a_reader),
    (ALL["followers-believed-equal"], nothing_is_known_of_a_follower),
    (ALL["offset-told-as-replicated"], what_was_accepted_is_told),
    (ALL["asked-level-ignored"], a_level_that_was_asked_for_counts),
    (ALL["delayed-without-its-tag"], a_delayed_copy_has_its_tag),
    (ALL["committed-not-found-by-key"], what_is_committed_is_indexed),
    (ALL["released-counts-as-confirmed"], what_no_slave_confirmed_is_told_so),
    (
        ALL["sync-counts-for-what-came-meanwhile"],
        an_answer_waits_for_a_sync_of_its_own,
    ),
    (ALL["client-stored-alone-is-ok"], stored_alone_is_told_so),
    (ALL["snapshot-lacks-a-level"], a_snapshot_has_all_levels),
    (ALL["orderly-called-again-at-once"], an_orderly_call_waits_as_long_as_was_asked_for),
    (ALL["group-goes-before-its-last"], a_group_stays_with_its_last_broker),
)


def test_each_late_bug_has_a_rule() -> None:
    assert tuple(mutant for mutant, _ in RULES) == LATE


@pytest.mark.parametrize(("mutant", "holds"), RULES, ids=[mutant.name for mutant, _ in RULES])
def test_rule_holds_and_is_broken_by_the_bug(mutant: Mutant, holds: Callable[[], bool]) -> None:
    assert holds()
    with planted(mutant):
        assert not holds()
    assert holds()
