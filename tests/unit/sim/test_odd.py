"""Odd and hostile clients: what they send is drawn from the seed, and judged if acknowledged."""

import contextlib

import pytest

from dledger.codec.peer import PeerCodec
from dledger.errors import DLedgerError
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.frame import FrameDecoder
from sim.clients import shapes
from sim.clients.forged import forged_peer_frames
from sim.clients.wire import frame_of
from sim.faults.draw import ODD_KINDS, draw
from sim.faults.plan import Options, Plan, Workload
from sim.kinds import Odd
from sim.rng import SplitRng
from sim.run import VALID, run_plan
from sim.workload import draw_operations


def quiet(odd, seed=3, **workload):
    """Return a short plan without faults whose clients do little else."""
    return Plan(
        seed=seed,
        options=Options(safety_ms=4_000, segment_bytes=64 * 1024, peer_key=True),
        workload=Workload(rate_per_s=8.0, producers=1, odd=odd, **workload),
    )


def test_odd_operations_change_no_other_operation_and_can_be_left_out():
    plain, more = Workload(), Workload(odd=dict.fromkeys(Odd, 0.2))
    drawn = draw_operations(SplitRng(7), more, 60_000)
    assert {op.kind for op in drawn} >= set(Odd)
    rest = [op for op in drawn if not isinstance(op.kind, Odd)]
    assert rest == draw_operations(SplitRng(7), plain, 60_000)
    numbers = [op.number for op in drawn]
    assert len(set(numbers)) == len(numbers)


def test_default_plans_have_every_kind_that_is_switched_on():
    seen = {kind for seed in range(1, 121) for kind in draw(seed).workload.odd}
    assert seen == set(ODD_KINDS)


def test_odd_sends_set_every_flag_and_go_to_new_topics():
    sends = [shapes.odd_send(SplitRng(n), "KEYS\x017") for n in range(1_500)]
    flags = 0
    for send in sends:
        flags |= send.sys_flag
    assert flags == shapes.INT32_MAX
    topics = {send.topic for send in sends}
    assert {"orders", "odd", "odd-1", "a" * 127, "a" * 128} <= topics
    shared = [send for send in sends if send.topic == "orders"]
    assert all(send.is_plain for send in shared)
    assert any(send.sys_flag & 0x30 for send in shared)


def test_properties_keep_what_a_message_is_checked_by():
    for number in range(100):
        text = shapes.odd_properties(SplitRng(number), "KEYS\x017")
        assert "KEYS\x017" in text


def test_forged_messages_are_well_made():
    receivers = [PeerCodec("g", name, ("n2",)) for name in ("n0", "n1")]
    kinds = set()
    for number in range(60):
        for data in forged_peer_frames(SplitRng(number), "g", ("n0", "n1")):
            for codec in receivers:
                (frame,) = FrameDecoder().feed(data)
                with contextlib.suppress(DLedgerError):
                    kinds.add(type(codec.decode(frame)).__name__)
    wanted = {"Heartbeat", "HeartbeatReply", "VoteRequest", "TimeoutNow", "InstallSnapshot"}
    assert kinds >= wanted | {"Append", "Hello"}


def test_what_no_frame_carries_is_refused_before_it_is_sent():
    with pytest.raises(RemotingError):
        frame_of(10, 1, {"a": "b"}, body=bytes(17 << 20))


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_a_kind_is_harmless_and_the_run_repeats(kind):
    plan = quiet({kind: 0.5})
    first, second = run_plan(plan), run_plan(plan)
    assert first.verdict == VALID, first.text
    assert first.digest == second.digest
    assert first.counters[kind.value] > 0
