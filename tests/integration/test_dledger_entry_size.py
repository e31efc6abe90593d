"""Nothing is appended that no frame can carry to the other members; where it is, nobody ends."""

import pytest

from dledger.codec.entry import HEADER_BYTES
from dledger.codec.peer import PeerCodec
from dledger.config import DLedgerConfig
from dledger.core.messages import Append
from dledger.core.model import Role, Span
from dledger.errors import EntryTooLarge
from dledger.limits import ENTRY_BYTES_MAX, entry_bytes_max
from ledgermq.remoting.protocol.frame import MAX_FRAME_BYTES
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration.dledger_group import Group, run

SMALL_FRAME = 16 * 1024
LARGE = 20_000


def frame_bytes(span):
    codec = PeerCodec("g" * 80, "n" * 60 + "1", ())
    message = Append("n" * 60 + "1", "n" * 60 + "2", 1, span.first_index - 1, 1, -1, span)
    return sum(map(len, codec.encode(message)))


@pytest.mark.parametrize("span_bytes_max", [1, 1 << 20, 8 << 20])
def test_the_largest_entry_behind_the_longest_span_fits_in_a_frame(span_bytes_max):
    data = bytes(span_bytes_max - 1 + entry_bytes_max(span_bytes_max))
    assert frame_bytes(Span(0, 1, 1, 0, data, bytes(64))) <= MAX_FRAME_BYTES


def test_a_hint_without_room_beside_its_entries_stays_behind():
    data = bytes(MAX_FRAME_BYTES - 8_000)
    hinted, bare = (Span(0, 3, 1, 0, data, bytes(128), hint=hint) for hint in (bytes(9_000), b""))
    assert frame_bytes(hinted) == frame_bytes(bare) <= MAX_FRAME_BYTES


async def largest_entry_is_replicated(path):
    group = Group(path, data_segment_bytes=64 << 20)
    try:
        await group.start()
        body_bytes = entry_bytes_max(DLedgerConfig.span_bytes_max) - HEADER_BYTES
        assert body_bytes + HEADER_BYTES == ENTRY_BYTES_MAX
        node = await group.leader()
        with pytest.raises(EntryTooLarge):
            node.reserve(body_bytes + 1)
        with pytest.raises(EntryTooLarge):
            node.reserve(3 * (body_bytes // 2) + 2 * HEADER_BYTES)
        await group.append(1, body_bytes)
        await group.append(3)
        await group.settle()
        assert not group.fatal
    finally:
        await group.stop()


def test_an_entry_that_no_frame_carries_is_refused_and_the_largest_is_replicated(tmp_path):
    run(largest_entry_is_replicated(tmp_path))


def test_planted_without_the_bound_an_entry_is_taken_that_no_frame_carries(tmp_path):
    with planted(BY_TESTS["unbounded-entry"]), pytest.raises(pytest.fail.Exception):
        run(largest_entry_is_replicated(tmp_path))


async def unsendable_entry_is_dropped(path):
    group = Group(path)
    try:
        await group.start()
        first = await group.append(5)
        await group.settle()
        first._appender._entry_bytes_max = LARGE * 2
        first.reserve(LARGE)
        index = first.append((bytes(LARGE),), LARGE)
        await group.until(lambda: first.end_index == index)
        assert first.commit_index < index
        await group.stop(first.self_id)
        await group.leader()
        await group.stop()  # all of them forget who leads
        await group.start()
        again = group.nodes[first.self_id]
        node = await group.append(5, tag=b"later ")
        assert node is not again
        await group.settle()
        await group.until(lambda: again._raft.state.blocked is None)
        assert [again.reader.body_view(i) for i in range(again.end_index + 1)] == [
            node.reader.body_view(i) for i in range(node.end_index + 1)
        ]
        assert not group.fatal
        assert all(role is not Role.LEADER for role, _, _ in group.listeners[again.self_id].roles)
    finally:
        await group.stop()


def test_who_holds_an_entry_that_no_frame_carries_neither_dies_nor_leads(tmp_path, monkeypatch):
    monkeypatch.setattr("dledger.codec.peer.PEER_FRAME_BYTES_MAX", SMALL_FRAME)
    monkeypatch.setattr("dledger.repair.SENDABLE_BYTES_MAX", SMALL_FRAME)
    run(unsendable_entry_is_dropped(tmp_path))
