"""A recorded session of the real Java 4.9.7 with three transactions, replayed against our broker.

One is committed, one rolled back, of one the producer says nothing and then, asked twice, that it
is committed. Questions and consumed messages are compared with those of the real broker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvloop

from ledgermq.remoting.protocol.frame import PREFIX_BYTES
from ledgermq.remoting.protocol.message import decode_record, parse_offset_message_id
from tests.conformance.test_broker_replay import ANSWER_TIMEOUT_S, Replay, broker, stable, wire

if TYPE_CHECKING:
    from pathlib import Path

END, QUESTION = 37, 39
INTERVAL_MS = 2_500


class TransactionReplay(Replay):
    """Knows where our broker keeps each half; the real one stores it anew for each question."""

    def __init__(self, frames: list[dict[str, Any]], addresses: dict[str, int]) -> None:
        super().__init__(frames, addresses)
        self.places: dict[str, tuple[str, str]] = {}
        self.questions = 0
        self.consumed: list[bytes] = []

    async def _send(self, frame: dict[str, Any]) -> None:
        if frame["code"] == END:
            fields = frame["header"]["extFields"]
            ours = self.places[fields["msgId"]]
            header = bytes.fromhex(frame["hex"])[PREFIX_BYTES:]
            for name, value in zip(("commitLogOffset", "tranStateTableOffset"), ours, strict=True):
                old, new = f'"{name}":"{fields[name]}"', f'"{name}":"{value}"'
                header = header.replace(old.encode(), new.encode())
            raw = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
            frame |= {"hex": raw.hex()}
        await super()._send(frame)

    def _compare_fields(self, frame: Any, recorded: dict[str, str], ours: dict[str, str]) -> None:
        super()._compare_fields(frame, recorded, ours)
        properties = (
            self.requests[frame["conn"], frame["opaque"]]["header"].get("extFields", {}).get("i")
        )
        if properties is not None:
            key = properties.partition("UNIQ_KEY\x01")[2].partition("\x02")[0]
            physical = parse_offset_message_id(ours["msgId"])[2]
            self.places[key] = str(physical), ours["queueOffset"]

    async def _expect_notification(self, frame: dict[str, Any]) -> None:
        if frame["code"] != QUESTION:
            await super()._expect_notification(frame)
            return
        peer = self._peers[frame["conn"]]
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while not (asked := [one for one in peer.pushed if one.code == QUESTION]):
                peer.notification.clear()
                await peer.notification.wait()
        peer.pushed.remove(asked[0])
        fields, recorded = asked[0].ext_fields, frame["header"]["extFields"]
        assert set(fields) == set(recorded)
        for name in ("msgId", "transactionId"):
            assert fields[name] == recorded[name]
        place = fields["commitLogOffset"], fields["tranStateTableOffset"]
        assert self.places[fields["msgId"]] == place
        size = frame["body_bytes"]
        theirs = stable(decode_record(bytes.fromhex(frame["hex"])[-size:], check_crc=True))
        mine = stable(decode_record(asked[0].body, check_crc=True))
        assert mine | {"queue_offset": 0} == theirs | {"queue_offset": 0}
        self.questions += 1


def test_transactions_end_as_with_the_real_broker(tmp_path: Path) -> None:
    """What the name server was asked is left out: when it knew which topic was a matter of time."""

    async def scenario() -> None:
        settings = {"transaction_timeout_ms": 0, "transaction_check_interval_ms": INTERVAL_MS}
        async with broker(tmp_path / "n0", **settings) as controller:
            replay = TransactionReplay(wire("java497_tx"), {"broker": controller.server_port})
            await replay.run()
            assert replay.questions == 2
            assert replay.compared > 15

    uvloop.run(scenario())
