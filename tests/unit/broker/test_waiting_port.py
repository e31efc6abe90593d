"""A broker without a role answers on its port, and leaves the port to the one that gets a role."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from broker.config import Role
from broker.modes.assignment import AsMaster
from broker.modes.switched import SwitchedMaster
from broker.switch import waiting
from chaos.backends.ports import take_port_block
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.rng import SystemRng
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.ha.switch.in_sync import InSync
from tests.unit.broker.test_switching_broker import broker_in
from tests.unit.store.plain.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WAIT_S = 10


async def answers(port: int, codes: Sequence[int]) -> list[tuple[int, str]]:
    """Return what is answered there, once something is."""
    client = RemotingClient()
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    found = [
                        await client.request(f"127.0.0.1:{port}", RemotingCommand(code), 1_000)
                        for code in codes
                    ]
                except RemotingError:
                    await asyncio.sleep(0.02)
                else:
                    return [(one.code, one.remark or "") for one in found]
    finally:
        await client.close()


def check_waits_and_begins(path: Path) -> None:
    async def run() -> None:
        port = take_port_block(4) + 2
        broker = broker_in(path, {"listenPort": str(port), "bindAddress": "127.0.0.1"})
        broker._rng = SystemRng(1)
        await broker.start()
        try:
            codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.RAFT_STATUS)
            for code, remark in await answers(port, codes):
                assert code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "has no role" in remark
                assert "a majority of the name servers" in remark
            in_sync = InSync(2, 15_000)
            in_sync.on_decided(frozenset({2}), 1)
            role = AsMaster(own_id=2, epoch=5, in_sync=in_sync)
            config = dataclasses.replace(broker._config, broker_role=Role.ASYNC_MASTER, broker_id=0)
            await broker._begin_role(role, config)
            assert [code for code, _ in await answers(port, codes[1:])] == [0]
        finally:
            await broker.stop()
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(run())


def test_a_broker_without_a_role_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_MS", 0)
    check_waits_and_begins(tmp_path)


def test_a_port_that_is_kept_from_the_broker_of_a_role_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_MS", 0)
    with planted(BY_TESTS["switch-port-kept"]), pytest.raises(FatalError, match="in use"):
        check_waits_and_begins(tmp_path)


def test_a_port_that_answers_nothing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_MS", 0)
    with planted(BY_TESTS["switch-waits-in-silence"]), pytest.raises(AssertionError):
        check_waits_and_begins(tmp_path)


def test_a_change_of_role_opens_no_port_in_between() -> None:
    class Clock:
        now_ms = 0

        def monotonic_ms(self) -> int:
            return self.now_ms

    async def run() -> list[bool]:
        clock, found = Clock(), []
        address = "127.0.0.1", take_port_block(1)
        port = waiting.WaitingPort(address, clock, lambda: "a master", None)  # type: ignore[arg-type]
        for clock.now_ms in (5_000, 5_000 + waiting.PATIENCE_MS - 1, 5_000 + waiting.PATIENCE_MS):
            await port.look()
            found.append(port._server is not None)
        await port.close()
        clock.now_ms += 60_000
        await port.look()
        found.append(port._server is not None)
        return found

    assert asyncio.run(run()) == [False, False, True, False]


def check_keys_outlive_a_switch(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    key = tmp_path / "key"
    key.write_text("a key that is long enough\n")

    async def run() -> None:
        port = take_port_block(4) + 2
        broker = broker_in(
            tmp_path / "store",
            {"listenPort": str(port), "bindAddress": "127.0.0.1", "peerSharedKeyFile": str(key)},
        )
        broker._rng = SystemRng(1)
        broker._credentials.load()
        config = dataclasses.replace(broker._config, broker_role=Role.ASYNC_MASTER, broker_id=0)
        for epoch in (5, 6):
            in_sync = InSync(2, 15_000)
            in_sync.on_decided(frozenset({2}), epoch)
            role = AsMaster(own_id=2, epoch=epoch, in_sync=in_sync)
            running = await broker._begin_role(role, config)
            assert running.mode.credentials.keys == (b"a key that is long enough",)
            await broker._end_role("there is another master")
            key.write_text("")
        await broker._client.close()

    asyncio.run(run())


def test_a_key_file_that_has_become_bad_does_not_end_a_broker_at_a_switch(tmp_path: Path) -> None:
    """What was read before goes on to count, as where nothing switches."""
    check_keys_outlive_a_switch(tmp_path)
    with (
        planted(BY_TESTS["switch-keys-read-anew"]),
        pytest.raises(FatalError, match="no key in it"),
    ):
        check_keys_outlive_a_switch(tmp_path / "b")


def end_told_after(path: Path) -> tuple[int, int]:
    """Return what a broker says of its log that took a message as it closed, and what is so."""

    async def run() -> tuple[int, int]:
        port = take_port_block(4) + 2
        broker = broker_in(path, {"listenPort": str(port), "bindAddress": "127.0.0.1"})
        broker._rng = SystemRng(1)
        in_sync = InSync(2, 15_000)
        in_sync.on_decided(frozenset({2}), 1)
        role = AsMaster(own_id=2, epoch=5, in_sync=in_sync)
        config = dataclasses.replace(broker._config, broker_role=Role.ASYNC_MASTER, broker_id=0)
        running = await broker._begin_role(role, config)
        mode, stop = running.mode, running.stop
        assert isinstance(mode, SwitchedMaster)
        before = broker._progress.of(running)[1]

        async def stop_later() -> None:
            data = record(mode.log.reserve(len(record(0))))
            mode.log.append((data,), len(data))
            await stop()

        running.stop = stop_later  # type: ignore[method-assign]
        await broker._end_role("it gives way")
        end = broker._progress.of(None)[1]
        await broker._client.close()
        return end, before + len(record(0))

    return asyncio.run(run())


def test_what_was_on_its_way_when_a_role_ended_counts(tmp_path: Path) -> None:
    end, written = end_told_after(tmp_path / "a")
    assert end == written
    with planted(BY_TESTS["switch-progress-before-the-last-writes"]):
        end, written = end_told_after(tmp_path / "b")
        assert end < written
