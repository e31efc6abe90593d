"""Peers that send half frames or read no answers, and what they could take up without bounds."""

import asyncio

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.integration import test_remoting_limits as limits
from tests.integration.remoting_world import World, run, until


def test_without_a_bound_half_frames_take_any_amount() -> None:
    with planted(BY_TESTS["receive-buffers-unbounded"]), pytest.raises(AssertionError):
        limits.test_partial_frames_of_all_connections_are_bounded()


def test_without_a_bound_answers_take_any_amount(caplog: pytest.LogCaptureFixture) -> None:
    with planted(BY_TESTS["unsent-answers-unbounded"]), pytest.raises(AssertionError):
        limits.test_what_waits_for_all_peers_that_do_not_read_is_bounded(caplog)


def test_without_a_bound_answers_that_are_small_take_any_amount(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with planted(BY_TESTS["answers-on-their-way-unbounded"]), pytest.raises(AssertionError):
        limits.test_what_waits_for_many_peers_is_bounded_however_little_of_each_does(caplog)


def test_without_that_a_deaf_peer_is_read_on() -> None:
    with planted(BY_TESTS["deaf-peer-read-on"]), pytest.raises(AssertionError, match="stopped"):
        limits.test_a_client_that_does_not_read_its_answers_is_not_read_either()


async def is_closed_after(w: World, megabytes: int) -> bool:
    """Answer a peer that does not read; tell whether it was closed."""
    _, writer = await w.raw(b"")
    await until(lambda: len(w.server.connections) == 1)
    deaf = next(iter(w.server.connections.values()))
    for _ in range(megabytes):
        deaf.write(bytes(1_000_000))
        await asyncio.sleep(0)
    writer.close()
    return deaf.closed


def test_a_deaf_peer_is_closed_when_too_much_waits_for_it() -> None:
    async def test(w: World) -> None:
        assert await is_closed_after(w, 30)

    run(test, write_pause_bytes=1_000, write_close_bytes=5_000_000)


def test_without_that_it_is_kept() -> None:
    async def test(w: World) -> None:
        with planted(BY_TESTS["deaf-peer-kept"]):
            assert not await is_closed_after(w, 30)

    run(test, write_pause_bytes=1_000, write_close_bytes=5_000_000, close_timeout_ms=50)
