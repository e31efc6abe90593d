"""The recorded session of a listener that always failed, replayed: the same retries, in the end.

The consumer names messages by their places in the log, which are others here; so they are exchanged
for ours, in what it asks for and in what it got.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import uvloop

from ledgermq.remoting.protocol.message import MessageExt, decode_records, offset_message_id
from tests.conformance.test_broker_replay import Replay, broker, stable, wire

if TYPE_CHECKING:
    from pathlib import Path

SEND_BACK = 36
PULL = 11
HEARTBEAT = 34
PREFIX = struct.Struct(">II")


def as_overtaken(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the frames with each pull that was answered 25 before the heartbeat it overtook.

    The heartbeat had been sent before it, and would have made its subscription known.
    """
    ordered = list(frames)
    for answer in [one for one in frames if one["kind"] == "response" and one["code"] == 25]:
        key = (answer["conn"], answer["opaque"])
        pull = next(
            one for one in frames if one["from"] == "client" and (one["conn"], one["opaque"]) == key
        )
        beats = [
            one
            for one in ordered[: ordered.index(pull)]
            if (one["conn"], one["code"], one["kind"]) == (pull["conn"], HEARTBEAT, "request")
        ]
        for one in (pull, answer):
            ordered.remove(one)
            ordered.insert(ordered.index(beats[-1]), one)
    return ordered


class RetryReplay(Replay):
    """Plays a recording whose requests name places in the log."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.places: dict[int, MessageExt] = {}
        """Our messages by the place that they had in the recorded log."""
        self.times: list[int] = []
        """Deliveries counted in what was pulled."""

    async def _send(self, frame: dict[str, Any]) -> None:
        if frame["code"] == SEND_BACK:
            raw = bytes.fromhex(frame["hex"])
            recorded = frame["header"]["extFields"]["offset"]
            ours = self.places[int(recorded)].physical_offset
            header = raw[PREFIX.size :].replace(
                f'"offset":"{recorded}"'.encode(), f'"offset":"{ours}"'.encode()
            )
            raw = PREFIX.pack(4 + len(header), len(header)) + header
            frame |= {"hex": raw.hex()}
        await super()._send(frame)

    def _compare_body(self, frame: dict[str, Any], raw: bytes, ours: Any) -> None:
        if frame["answers"] != PULL:
            super()._compare_body(frame, raw, ours)
            return
        body = raw[len(raw) - (frame.get("body_bytes") or 0) :]
        recorded, got = decode_records(body, check_crc=True), decode_records(ours.body)
        assert len(recorded) == len(got), frame["n"]
        for one, our in zip(recorded, got, strict=True):
            self.places[one.physical_offset] = our
            self.times.append(our.reconsume_times)
            first = min(self.places)
            theirs = offset_message_id(one.store_host, first).encode()
            mine = offset_message_id(our.store_host, self.places[first].physical_offset).encode()
            expected = stable(one)
            expected["properties"] = one.properties.replace(theirs, mine)
            assert stable(our) == expected, frame["n"]


def test_a_message_comes_again_and_dies_as_with_the_real_broker(tmp_path: Path) -> None:
    """What the name server was asked is left out: when it knew which topic was a matter of time."""

    async def scenario() -> None:
        frames = as_overtaken(wire("java497_retry_dlq"))
        async with broker(tmp_path / "n0") as controller:
            replay = RetryReplay(frames, {"broker": controller.server_port})
            await replay.run()
            assert replay.times == [0, 1, 2, 3]
            assert replay.compared > 30

    uvloop.run(scenario())
