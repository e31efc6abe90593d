"""Who wants replies and who gives them: what the record has of both, and wrong replies found."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from chaos.checker import check_history
from chaos.generator import Op
from chaos.history.payload import decode_body, encode_body, make_key
from chaos.workload import requests
from chaos.workload.producer import RETRY_TIMES, Sender
from chaos.workload.requests import Asker, Endings, Replier, wanted, words_of
from ledgermq.client import (
    ClientConfig,
    Message,
    NoReply,
    SendFailed,
    Sending,
    SendKind,
    TooManyPending,
)
from ledgermq.runtime.clock import SystemClock
from tests.unit.chaos.histories import clean
from tests.unit.chaos.test_word import REFUSED, SPEC, STORED, TIMED_OUT, result_of
from tests.unit.chaos.test_workloads import Notes, message

KEY = make_key(1, 7)
REQUEST = Message("t", encode_body(bytes(16), KEY, 64), keys=str(KEY))
REPLY = wanted(bytes(REQUEST.body))


class Library:
    """A producer whose requests end by script: how the send ended, then the reply if any."""

    def __init__(self, endings: Endings, result: Any = None, reply: bytes | Exception = REPLY):
        self._endings = endings
        self._result = result
        self._reply = reply

    async def request(self, message: Message, timeout_ms: int) -> Any:
        if self._result is not None:
            sending = Sending(
                group="g", messages=(message,), kind=SendKind.NORMAL, t_start_ms=0
            )  # fmt: skip
            failed = isinstance(self._result, BaseException)
            sending.error, sending.result = (self._result, None) if failed else (None, self._result)
            self._endings.after_send(sending)
        if isinstance(self._reply, Exception):
            raise self._reply
        return SimpleNamespace(content=lambda: self._reply)


def asker_of(result: Any, reply: Any = REPLY) -> tuple[Asker, Notes]:
    notes, endings = Notes(), Endings()
    library = Library(endings, result, reply)
    return Asker("p", library, endings, notes, SystemClock()), notes  # type: ignore[arg-type]


def row_of(result: Any, reply: Any = REPLY) -> Any:
    """Return how a request is recorded that ends so."""
    asker, _ = asker_of(result, reply)
    spec = msgspec.structs.replace(SPEC, chosen_queues=0)
    sender = Sender(spec, None, SystemClock(), asker)  # type: ignore[arg-type]
    op = Op(f="send", value={"size": 200}, process=6)
    return asyncio.run(sender.invoke(op, sender.prepare(op)))


NO_REPLY = NoReply("t", "c", 1)


@pytest.mark.parametrize(
    ("result", "reply", "outcome"),
    [
        (result_of(STORED), REPLY, "ok"),
        (result_of(STORED), NO_REPLY, "ok"),
        (SendFailed("given up", (REFUSED,)), SendFailed("given up", (REFUSED,)), "fail"),
        (SendFailed("given up", (TIMED_OUT,)), REPLY, "info"),
        (asyncio.CancelledError(), NO_REPLY, "info"),
        (None, NO_REPLY, "info"),
        (None, TooManyPending("too many"), "fail"),
    ],
    ids=str,
)
def test_a_request_is_recorded_as_its_send_ended_with_a_reply_or_without(result, reply, outcome):
    done = row_of(result, reply)
    assert done.type == outcome
    if outcome == "ok":
        assert (done.value["queue_id"], done.value["queue_offset"]) == (2, 7)
    if reply is NO_REPLY and outcome == "info":  # each of the tries may have been stored
        assert len(done.value["attempts"]) == RETRY_TIMES + 1


def verdict_of(notes: Notes) -> str:
    return check_history(clean(answers=notes.of("answers"))).results["A50"].verdict


def test_a_reply_is_held_against_its_request_and_a_wrong_one_is_found():
    other = wanted(encode_body(bytes(16), KEY + 1, 64))
    for reply, verdict in ((REPLY, "valid"), (other, "invalid"), (REPLY[:-1], "invalid"),
                           (b"", "invalid")):  # fmt: skip
        asker, notes = asker_of(result_of(STORED), reply)
        asyncio.run(asker.send(REQUEST, 100))
        assert (asker.replied, verdict_of(notes)) == (1, verdict)
    (row,) = notes.of("answers")
    assert row["expected"].split()[0] == str(KEY)
    assert row["told"].split()[0] == "nobody"


def test_once_all_is_quiet_half_of_the_requests_have_their_replies(monkeypatch):
    monkeypatch.setattr(requests, "REPLY_WITHIN_S", 0.3)

    async def ends(replied: str) -> list[dict[str, Any]]:
        asker, notes = asker_of(result_of(STORED), NO_REPLY)
        for _ in range(12):
            await asker.send(REQUEST, 100)  # of before, which do not count
        task = asyncio.create_task(asker.end())
        await asyncio.sleep(0.1)
        for one in replied:
            asker._producer._reply = REPLY if one == "y" else NO_REPLY  # type: ignore[attr-defined]
            await asker.send(REQUEST, 100)
        await task
        asked = [row for row in notes.of("answers") if "quiet" in row["subject"]]
        return [row | {"wrong": row["told"] != row["expected"]} for row in asked]

    for replied, wrong in (
        ("y", False),
        ("yn", False),
        ("ynn", True),
        ("n" * 10, True),
        ("n" * 6 + "y" * 9, True),
    ):
        (row,) = asyncio.run(ends(replied))
        assert row["wrong"] is wrong
        assert f"{min(10, len(replied))} requests" in row["subject"]
    assert asyncio.run(ends("")) == [], "nobody asked"


def test_a_member_replies_to_each_message_of_ours_and_counts_whom_it_does_not_reach(monkeypatch):
    replier = Replier(ClientConfig(namesrv_addrs=("ns:1",), group="g"))
    replied: list[bytes] = []

    async def reply(request: Any, body: bytes) -> None:
        replied.append(body)
        if len(replied) == 2:
            raise SendFailed("gone", (REFUSED,))

    monkeypatch.setattr(replier._producer, "reply", reply)
    odd = msgspec.structs.replace(message(3), body=b"odd")
    asyncio.run(replier.reply([message(1), odd, message(2)]))
    assert [words_of(body).split()[0] for body in replied] == [
        str(make_key(1, seq)) for seq in (1, 2)
    ]
    assert replier.failed == 1


def test_a_reply_is_not_its_request():
    assert decode_body(REPLY) is None
    assert REPLY[4:] == REQUEST.body[4:]
    with pytest.raises(ValueError, match="somebody else"):
        wanted(b"odd")
