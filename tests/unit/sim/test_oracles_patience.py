"""Nobody is told that a send waits for too long before it has."""

from types import SimpleNamespace

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.oracles.alone_disk import AloneEnd, LogFiles, Timing
from sim.oracles.base import Findings, Violation
from sim.oracles.patience import NAME, NO_MAJORITY, find_haste
from sim.oracles.taking import Taking
from sim.oracles.wire import Said
from store.results import PutStatus
from store.write.uncommitted import OwnMessage, Uncommitted

LIMIT_MS = 2_500
BUSY = f"[PC_SYNCHRONIZED]broker busy, {NO_MAJORITY}, outcome unknown"


def said(code, remark="", note=None):
    one = Said(code, {}, b"", 0, b"", remark)
    one.note = note
    return one


GIVEN_UP = [(10, "flush disk timeout"), (12, "flush slave timeout"), (2, BUSY)]


@pytest.mark.parametrize(("code", "remark"), GIVEN_UP)
def test_who_gives_a_send_up_has_waited(code, remark):
    answer = said(code, remark)
    assert find_haste(answer, LIMIT_MS - 1, LIMIT_MS)
    assert not find_haste(answer, LIMIT_MS, LIMIT_MS)


@pytest.mark.parametrize(("code", "remark"), [(0, ""), (2, "start flow control"), (14, "full")])
def test_other_answers_may_come_at_once(code, remark):
    assert not find_haste(said(code, remark), 0, LIMIT_MS)


@pytest.mark.parametrize("waited_ms", [100, LIMIT_MS])
def test_a_replica_is_judged_by_its_own_clock(waited_ms):
    replica = SimpleNamespace(name="n0", wait_ack_ms=LIMIT_MS, now_ms=lambda: 7_000 + waited_ms)
    request = said(310, note=SimpleNamespace(now_ms=7_000))
    if waited_ms >= LIMIT_MS:
        Taking().on_answer(replica, request, said(2, BUSY))
        return
    with pytest.raises(Violation, match=NAME):
        Taking().on_answer(replica, request, said(2, BUSY))


@pytest.mark.parametrize(("waited_ms", "is_sound"), [(100, False), (LIMIT_MS, True)])
@pytest.mark.parametrize("is_sync", [True, False])
def test_so_is_a_broker_alone_however_it_flushes(waited_ms, is_sound, is_sync):
    now = SimpleNamespace(ms=7_000)
    disk = SimpleNamespace(has_failed_syncs=lambda: False)
    findings, timing = Findings(), Timing(lambda: now.ms, LIMIT_MS, lambda: 0)
    end = AloneEnd(disk, LogFiles("/s", 4096, 0), findings, timing, is_sync=is_sync)
    request = said(310)
    end.on_request(None, request)
    now.ms += waited_ms
    end.on_answer(None, request, said(10))
    assert (findings.first is None) is is_sound


@pytest.mark.parametrize(
    ("waited_ms", "calm_since_ms", "is_sound"),
    [(150, 0, True), (300, 0, False), (300, 7_000, False), (300, 7_001, True)],
)
def test_a_broker_alone_to_which_nothing_happens_answers_a_send_at_once(
    waited_ms, calm_since_ms, is_sound
):
    disk = SimpleNamespace(has_failed_syncs=lambda: True)
    timing = Timing(lambda: 0, LIMIT_MS, lambda: calm_since_ms * 1_000_000)
    findings = Findings()
    end = AloneEnd(disk, LogFiles("/s", 4096, 0), findings, timing)
    request, answer = said(310), said(0)
    request.at_ns = 7_000 * 1_000_000
    answer.at_ns = request.at_ns + waited_ms * 1_000_000
    end.on_request(None, request)
    end.on_answer(None, request, answer)
    assert (findings.first is None) is is_sound
    assert is_sound or "A41 slow while nothing happens" in str(findings.first)


def answered_ms():
    """When a message is given up that is put where a full disk has refused a larger one.

    It is put 900 ms after that one was, and would have to wait for a second.
    """
    waits, heard = Uncommitted(0), []
    queue = SimpleNamespace(next_offset=0)

    def put(size, name, now_ms):
        def done(status, *_):
            heard.append((name, status, now_ms[0]))

        waits.add(OwnMessage(100, queue, 0, size, 0, (), done))

    now = [0]
    put(500, "large", now)
    waits.expire(0, 1_000, PutStatus.FLUSH_TIMEOUT)
    waits.forget_from(100)
    assert heard == [("large", PutStatus.DISK_FULL, 0)]
    now[0] = 900
    put(50, "small", now)
    for now_ms in range(900, 2_000, 50):
        now[0] = now_ms
        waits.expire(now_ms, 1_000, PutStatus.FLUSH_TIMEOUT)
    assert heard[1][:2] == ("small", PutStatus.FLUSH_TIMEOUT)
    return heard[1][2]


def test_what_is_put_in_the_place_of_what_was_refused_waits_as_long_as_others():
    assert answered_ms() == 1_900
    with planted(BY_TESTS["lateness-of-what-was-refused"]):
        assert answered_ms() == 1_000
