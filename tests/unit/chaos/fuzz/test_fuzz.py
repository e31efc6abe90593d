"""What the fuzzer sends, what it reads, and what it takes for a finding."""

import asyncio
import random
import socket

import pytest

from chaos.fuzz import storm
from chaos.fuzz.frames import binary, draw, json_frame, spoil
from chaos.fuzz.polite import Polite
from chaos.fuzz.processes import bad_lines
from chaos.fuzz.requests import AT_BROKERS, AT_NAME_SERVERS
from chaos.fuzz.run import FuzzOptions, FuzzRun
from chaos.fuzz.storm import Ledger, Storm, Tally, _elements, _response, _waits
from chaos.net.wire import FrameSplitter
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import FLAG_RESPONSE, RemotingCommand, encode_command
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.message import BatchElement, encode_batch
from tests.served import broker_codes


def sents(count: int, seed: int = 1):
    rng = random.Random(seed)
    requests = AT_BROKERS + AT_NAME_SERVERS
    weights = [request.weight for request in requests]
    return [draw(rng, requests, weights, opaque) for opaque in range(1, count + 1)]


def test_the_same_seed_draws_the_same_frames():
    assert [sent.data for sent in sents(300)] == [sent.data for sent in sents(300)]
    assert [sent.data for sent in sents(300)] != [sent.data for sent in sents(300, seed=2)]


def test_what_is_not_spoilt_is_one_whole_frame():
    for sent in sents(2_000):
        if not sent.is_spoilt and len(sent.data) < 16_777_216:
            assert len(FrameDecoder().feed(sent.data)) == 1, sent.code


def test_every_request_is_drawn_with_every_field_odd_at_some_time():
    drawn = {sent.code for sent in sents(5_000)}
    assert drawn == {request.code for request in AT_BROKERS + AT_NAME_SERVERS}
    flags = {sent.fields["f"] for sent in sents(20_000) if "f" in sent.fields}
    assert {"16", "32", "48", "-1", "2147483648"} <= flags
    assert any(len(sent.fields.get("i", "")) > 32_767 for sent in sents(5_000))
    assert any(b"$ref" in sent.body for sent in sents(5_000))


def test_every_code_that_brokers_or_name_servers_serve_is_drawn():
    served = broker_codes()
    left_out = {29004, 215, 207}
    assert served - left_out <= {request.code for request in AT_BROKERS}
    assert RequestCode.REGISTER_BROKER in {request.code for request in AT_NAME_SERVERS}


def test_spoilt_frames_come_in_every_shape():
    rng = random.Random(3)
    whole = json_frame(310, 0, 1, {"a": "b"}, b"body")
    found = {spoil(rng, whole)[:4] for _ in range(200)}
    assert len(found) > 5


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_answers_are_read_in_both_forms(serialize_type):
    answer = RemotingCommand(
        0, FLAG_RESPONSE, 77, remark="r", ext_fields={"queueId": "3", "x": "y"},
        serialize_type=serialize_type,
    )  # fmt: skip
    frame = b"".join(map(bytes, encode_command(answer)))
    code, opaque, fields = _response(frame)
    assert (code, opaque, fields["queueId"]) == (0, 77, "3")


def test_requests_have_the_form_that_servers_read():
    from ledgermq.remoting.protocol.command import decode_command

    for make in (json_frame, binary):
        (frame,) = FrameDecoder().feed(make(310, 2, 9, {"a": "b", "i": "k\x01v\x02"}, b"x"))
        command = decode_command(frame)
        assert (command.code, command.flag, command.opaque) == (310, 2, 9)
        assert command.ext_fields == {"a": "b", "i": "k\x01v\x02"}


def test_the_bodies_of_a_batch_are_told_apart():
    body = encode_batch(
        [BatchElement(b"one", b"k\x01v"), BatchElement(b"", b""), BatchElement(b"3", b"")]
    )
    assert _elements(body) == [b"one", b"", b"3"]


def test_two_messages_at_one_place_are_a_contradiction():
    ledger = Ledger()
    ledger.note(("t", 0), 5, b"a")
    ledger.note(("t", 0), 5, b"a")
    assert not ledger.contradictions
    ledger.note(("t", 0), 5, b"b")
    assert ledger.contradictions
    assert len(ledger) == 1


def test_acknowledged_sends_are_noted_with_their_places():
    ledger, tally = Ledger(), Tally()
    one = Storm("s", lambda: ("", 0), AT_BROKERS, "1", tally, ledger)
    sent = storm.Sent(b"", 320, {"b": "t", "m": "true"}, encode_batch([
        BatchElement(b"one", b""), BatchElement(b"two", b"")]), False, False)  # fmt: skip
    answer = RemotingCommand(0, FLAG_RESPONSE, 4, ext_fields={"queueId": "1", "queueOffset": "7"})
    frame = b"".join(map(bytes, encode_command(answer)))
    assert one._take(FrameSplitter().feed(frame), {4: sent}, fence=9) is False
    assert set(ledger.messages["t", 1]) == {7, 8}
    assert tally.answers == {"320 > 0": 1}


@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        ("", False), ("KEYS\x01k\x02", False), ("DELAY\x010\x02", False),
        ("DELAY\x01-1\x02", False),
        ("DELAY\x01\u0663\x02", False), ("DELAY\x013\x02", True), ("K\x01v\x02DELAY\x0118", True),
        ("DELAY\x01" + "9" * 5_000, True),
    ],
)  # fmt: skip
def test_a_send_that_waits_has_its_place_elsewhere(properties, waits):
    for name in ("properties", "i"):
        assert _waits({name: properties}) is waits


def test_traces_and_fatal_ends_are_bad_lines_and_refusals_are_not(tmp_path):
    log = tmp_path / "n0.log"
    log.write_text("WARNING event=bad_request code=3\nTraceback (most recent call last):\n"
                   "CRITICAL event=fatal exit_code=3\n")  # fmt: skip
    assert [line.split(":")[1] for line in bad_lines({"n0": log})] == ["2", "3"]


def test_a_leader_that_is_gone_at_the_end_is_a_finding(tmp_path, monkeypatch):
    """The run ended with a traceback, as if nothing could have been started."""
    made = FuzzRun(FuzzOptions(run=tmp_path, seconds=1, frames=1), print)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(made, "_leader_addr", free.getsockname)
        asyncio.run(made._read_back())
    (problem,) = made._outcome.problems
    assert problem.startswith("nothing can be read back: ConnectionRefusedError")


def test_the_longest_wait_is_reported_however_many_were_slow():
    polite = Polite()
    polite.slow = [(101.0, 0.0)] * 200 + [(900.0, 850.0), (400.0, 10.0)]
    assert polite.report()["slow"][:2] == [(400.0, 10.0), (101.0, 0.0)]
