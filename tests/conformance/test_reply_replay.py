"""The recorded session of a request and its reply: the same answers, and the same is passed on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from ledgermq.remoting.protocol.command import (
    FLAG_RESPONSE,
    RemotingCommand,
    encode_command,
)
from ledgermq.remoting.protocol.properties import parse_properties
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.conformance.test_broker_replay import ANSWER_TIMEOUT_S, Replay, broker, wire

if TYPE_CHECKING:
    from pathlib import Path

SEND_REPLY, PUSH_REPLY = 325, 326
OF_ITS_TIME = {"storeTimestamp", "bornHost", "storeHost", "properties"}


class ReplyReplay(Replay):
    """Plays a recording in which the broker asks, too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.passed_on = 0
        self._taken: dict[int, RemotingCommand] = {}

    async def _send(self, frame: dict[str, Any]) -> None:
        conn = frame["conn"]
        if frame["kind"] == "response":
            answer = RemotingCommand(0, FLAG_RESPONSE, self._taken.pop(conn).opaque)
            self._peers[conn].writer.write(b"".join(encode_command(answer)))
            return
        await super()._send(frame)

    async def _expect_notification(self, frame: dict[str, Any]) -> None:
        if frame["code"] != PUSH_REPLY:
            await super()._expect_notification(frame)
            return
        peer = self._peers[frame["conn"]]
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while not (asked := [one for one in peer.pushed if one.code == PUSH_REPLY]):
                peer.notification.clear()
                await peer.notification.wait()
        (ours,) = asked
        self._taken[frame["conn"]] = ours
        recorded = frame["header"]["extFields"]
        assert set(ours.ext_fields) == set(recorded)
        for name in set(recorded) - OF_ITS_TIME:
            assert ours.ext_fields[name] == recorded[name], name
        assert ours.ext_fields["bornHost"].startswith("127.0.0.1:")
        assert ours.ext_fields["storeHost"].startswith("127.0.0.1:")
        mine, theirs = (
            parse_properties(fields["properties"].encode())
            for fields in (ours.ext_fields, recorded)
        )
        assert mine.pop("PUSH_REPLY_TIME") == ours.ext_fields["storeTimestamp"]
        theirs.pop("PUSH_REPLY_TIME")
        assert mine == theirs
        assert bytes(ours.body).decode() == frame["body"]
        # The sender of the reply has no answer before this one is taken.
        senders = [one for one in self.requests.values() if one["code"] == SEND_REPLY]
        sent = self._peers[senders[-1]["conn"]].answer(senders[-1]["opaque"])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(sent), 0.05)
        assert not sent.done()
        self.passed_on += 1


def answered_in_order(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the frames without what the clients pulled: who has what when is another matter."""
    ids = {
        (frame["conn"], frame["opaque"])
        for frame in frames
        if frame["from"] == "client" and frame["kind"] == "request" and frame["code"] == 11
    }
    return [
        frame
        for frame in frames
        if not ((frame["conn"], frame["opaque"]) in ids and frame.get("answers", 11) == 11)
        or frame["code"] == PUSH_REPLY
    ]


def replay(directory: Path) -> None:
    async def scenario() -> None:
        async with broker(directory) as controller:
            played = ReplyReplay(
                answered_in_order(wire("java497_request_reply")),
                {"broker": controller.server_port},
            )
            await played.run()
            assert played.passed_on == 1
            assert played.compared > 10

    uvloop.run(scenario())


def test_a_reply_is_passed_on_as_by_the_real_broker(tmp_path: Path) -> None:
    replay(tmp_path / "n0")


def test_a_reply_answered_before_it_was_taken_is_found(tmp_path: Path) -> None:
    with planted(BY_TESTS["reply-answered-before-it-is-taken"]), pytest.raises(AssertionError):
        replay(tmp_path / "n0")
