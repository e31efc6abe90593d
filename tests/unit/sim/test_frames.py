"""Rules about frames: what is done, to which, and how often."""

import pytest

from ledgermq.remoting.protocol.command import RemotingCommand, encode_command, make_response
from sim.frames import split_frames
from sim.rules import Action, FrameRule, peer_codes
from tests.unit.sim.machines import Pair

A, B = "10.0.0.1", "10.0.0.2"


def frame(code, opaque=0, serialize_type=0):
    command = RemotingCommand(code=code, opaque=opaque, body=b"body")
    command.serialize_type = serialize_type
    return b"".join(encode_command(command))


def response(code, opaque=0):
    request = RemotingCommand(code=310, opaque=opaque)
    return b"".join(encode_command(make_response(request, code)))


SEND, PULL, BINARY = frame(310), frame(11), frame(31005, serialize_type=1)
GARBAGE = b"\0\0\0\1no frame at all"


@pytest.fixture
def pair():
    pair = Pair(answer=False)
    yield pair
    pair.close()


def heard(pair):
    return b"".join(one for one in pair.server_log if isinstance(one, bytes))


def send(pair, *frames, run_ms=500):
    for one in frames:
        pair.write(one)
        pair.loop.run_for(1)
    pair.loop.run_for(run_ms)
    return heard(pair)


def test_frames_of_one_write_are_told_apart():
    assert split_frames(SEND + BINARY + PULL) == [SEND, BINARY, PULL]
    assert split_frames(SEND + SEND[:-1]) == [SEND, SEND[:-1]]
    assert split_frames(b"xyz") == [b"xyz"]
    assert split_frames(b"") == []


def test_peer_messages_are_named_by_their_classes():
    assert peer_codes("Append", "Heartbeat") == {31005, 31014, 31008}
    with pytest.raises(KeyError):
        peer_codes("Nothing")


def test_a_dropped_frame_is_gone_and_the_others_pass(pair):
    rule = FrameRule(Action.DROP, A, B, codes=frozenset({310, 31005}))
    pair.loop.network.add_rule(rule)
    assert send(pair, SEND + PULL + BINARY, SEND, GARBAGE) == PULL + GARBAGE
    assert rule.applied == 3
    pair.loop.network.remove_rule(rule)
    assert send(pair, SEND) == PULL + GARBAGE + SEND


def test_a_rule_is_for_its_link_only(pair):
    pair.loop.network.add_rule(FrameRule(Action.DROP, B, None))
    assert send(pair, SEND) == SEND
    assert pair.loop.network.link(B, "10.0.0.3").rules
    assert not pair.loop.network.link(A, "10.0.0.3").rules


def test_a_rule_may_be_about_responses(pair):
    rule = FrameRule(Action.DROP, responses=True)
    pair.loop.network.add_rule(rule)
    assert send(pair, SEND, response(0), PULL) == SEND + PULL
    pair.loop.network.remove_rule(rule)
    pair.loop.network.add_rule(FrameRule(Action.DROP, codes=frozenset({0})))
    answer = response(0)
    assert send(pair, answer) == SEND + PULL + answer


def test_a_duplicate_follows_its_frame(pair):
    pair.loop.network.add_rule(FrameRule(Action.DUPLICATE, codes=frozenset({310})))
    assert send(pair, SEND, PULL) == SEND + SEND + PULL


def test_a_delayed_frame_is_overtaken(pair):
    rule = FrameRule(Action.DELAY, codes=frozenset({310}), delay_ms=(100, 200))
    pair.loop.network.add_rule(rule)
    assert send(pair, SEND, PULL, run_ms=50) == PULL
    assert send(pair) == PULL + SEND


def test_a_replayed_frame_is_an_old_one_of_its_kind(pair):
    pair.loop.network.add_rule(FrameRule(Action.REPLAY, codes=frozenset({310}), limit=3))
    sent = [frame(310, opaque) for opaque in range(5)]
    frames = split_frames(send(pair, *sent, PULL))
    assert len(frames) == 5 + 3 + 1
    assert set(frames) == {*sent, PULL}
    assert frames[1] == sent[0]
    assert pair.loop.network.link(A, B).frames


def test_a_corrupt_frame_differs_in_one_byte_and_keeps_its_length(pair):
    pair.loop.network.add_rule(FrameRule(Action.CORRUPT, limit=1))
    got = send(pair, BINARY, PULL)
    assert got[len(BINARY) :] == PULL
    assert got[:4] == BINARY[:4]
    assert sum(x != y for x, y in zip(got, BINARY, strict=False)) == 1


def test_a_rule_by_chance_meets_a_share(pair):
    rule = FrameRule(Action.DROP, probability=0.3)
    pair.loop.network.add_rule(rule)
    got = send(pair, *[SEND] * 400)
    assert 80 <= rule.applied <= 160
    assert len(got) == (400 - rule.applied) * len(SEND)


def test_two_rules_do_both(pair):
    network = pair.loop.network
    network.add_rule(FrameRule(Action.DUPLICATE, codes=frozenset({310})))
    network.add_rule(FrameRule(Action.DROP, codes=frozenset({11})))
    assert send(pair, SEND + PULL) == SEND + SEND
    network.heal_all()
    assert send(pair, PULL) == SEND + SEND + PULL


def test_a_delayed_frame_of_a_closed_connection_is_lost(pair):
    pair.loop.network.add_rule(FrameRule(Action.DELAY))
    pair.write(SEND)
    pair.loop.call(pair.client, pair.transport.close)
    pair.loop.run_for(500)
    assert pair.server_log == ["made", "eof", "lost"]
