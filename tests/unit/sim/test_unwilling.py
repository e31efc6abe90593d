"""Brokers that fail at what members ask, by chance."""

from types import SimpleNamespace

import pytest

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import (
    FLAG_ONEWAY,
    RemotingCommand,
    decode_command,
    encode_command,
)
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.transport.dispatch import hot_keys
from sim.faults.draw import draw
from sim.faults.unwilling import Unwilling, draw_unwilling
from sim.oracles.failing import BY_CHANCE
from sim.rng import SplitRng
from sim.unwilling import UnwillingBrokers

COMMIT, LOCK = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.LOCK_BATCH_MQ
EVERY = {"commits": 1.0, "offsets": 1.0, "members": 1.0, "locks": 1.0}


def server(served):
    """A server whose handlers note what they serve."""

    def serve(_connection, request):
        served.append(request)
        return "an answer"

    plain = [code for code in RequestCode if code is not COMMIT]
    return SimpleNamespace(
        _handlers=dict.fromkeys(plain, serve),
        _hot_by_code={COMMIT: serve},
        hot=dict.fromkeys(hot_keys(COMMIT), serve),
    )


def broker(settings, *, is_over=False):
    """The server of a broker that fails, what it has served, and what is heard of failures."""
    served, heard = [], []
    one = server(served)
    brokers = UnwillingBrokers(settings, lambda: is_over, heard.append)
    brokers.listen(SimpleNamespace(server=one), SplitRng(1))
    return one, served, heard


def frame_of(command):
    """A command as it comes."""
    decoder = FrameDecoder()
    return next(iter(decoder.feed(b"".join(map(bytes, encode_command(command))))))


@pytest.mark.parametrize(
    ("settings", "is_over"), [(None, False), (Unwilling(), False), (Unwilling(**EVERY), True)]
)
def test_who_is_willing_serves(settings, is_over):
    one, served, heard = broker(settings, is_over=is_over)
    assert one._handlers[LOCK]("a connection", "a request") == "an answer"
    one.hot[hot_keys(COMMIT)[0]]("a connection", "a frame")
    assert served == ["a request", "a frame"]
    assert heard == []


@pytest.mark.parametrize("is_busy", [False, True])
def test_what_fails_was_not_served(is_busy):
    one, served, heard = broker(Unwilling(**EVERY, is_busy=is_busy))
    answer = one._handlers[LOCK]("a connection", RemotingCommand(LOCK, opaque=7))
    code = ResponseCode.SYSTEM_BUSY if is_busy else ResponseCode.SYSTEM_ERROR
    assert (answer.code, answer.remark, answer.opaque) == (code, BY_CHANCE, 7)
    assert (served, heard) == ([], ["failed_by_chance"])


@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY])
def test_a_commit_that_fails_is_answered_if_it_wants_an_answer(flag):
    one, served, _ = broker(Unwilling(commits=1.0))
    written = []
    connection = SimpleNamespace(write=lambda *parts: written.append(b"".join(map(bytes, parts))))
    one._hot_by_code[COMMIT](connection, frame_of(RemotingCommand(COMMIT, flag, opaque=9)))
    assert served == []
    if flag:
        assert written == []
    else:
        answer = decode_command(next(iter(FrameDecoder().feed(written[0]))))
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 9)


def test_some_plans_with_members_have_it():
    drawn = [draw_unwilling(SplitRng(seed), has_members=True) for seed in range(300)]
    assert 25 < sum(one is not None for one in drawn) < 70
    assert not any(draw_unwilling(SplitRng(seed), has_members=False) for seed in range(50))
    workloads = [draw(seed).workload for seed in range(1, 301)]
    having = [one for one in workloads if one.unwilling is not None]
    assert len(having) >= 12
    assert all(one.late or one.retrying or one.orderly for one in having)
