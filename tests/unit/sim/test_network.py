"""The network: delays, cuts, resets, patience, windows; and what is refused."""

import asyncio
import socket

import pytest

from sim.context import CURRENT
from sim.link import Delay
from sim.transport import KERNEL_BYTES, RESET, WINDOW_BYTES
from tests.unit.sim.machines import PORT, Pair

MS = 1_000_000
A, B = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def pair():
    pair = Pair(answer=False)
    yield pair
    pair.close()


@pytest.fixture
def network(pair):
    return pair.loop.network


def dial(pair, host="b", port=PORT):
    """Begin to connect; return a list that gets the outcome."""
    outcome = []

    async def main():
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(asyncio.Protocol, host, port)
        except OSError as error:
            outcome.append(type(error).__name__)
        else:
            outcome.append("connected")
        outcome.append(pair.loop.now_ns // MS)

    pair.loop.spawn(pair.client, main())
    return outcome


def test_bytes_keep_their_order_whatever_the_delay(pair, network):
    network.delay(A, B, Delay(100, 50_000))
    for number in range(200):
        pair.write(b"%03d" % number)
        pair.loop.run_for(1)
    pair.loop.run_for(10_000)
    assert b"".join(pair.server_log[1:]) == b"".join(b"%03d" % n for n in range(200))


def test_delay_is_what_was_asked_for(pair, network):
    network.delay(A, B, Delay(30_000, 0))
    pair.write(b"x")
    pair.loop.run_for(29)
    assert pair.server_log == ["made"]
    pair.loop.run_for(2)
    assert pair.server_log == ["made", b"x"]


def test_loss_is_a_stall(pair, network):
    network.delay(A, B, Delay(100, 0, loss=0.5))
    before = pair.loop.now_ns
    for _ in range(20):
        pair.write(b"x")
        pair.loop.run_until_true(lambda: pair.server_log.pop() == b"x", 100_000)
        pair.server_log.append("made")
    took_ms = (pair.loop.now_ns - before) // MS
    assert 1_000 < took_ms < 60_000
    assert took_ms % 200 < 60


def test_a_cut_holds_bytes_back_until_it_heals(pair, network):
    network.cut(A, B)
    pair.write(b"early ")
    pair.write(b"late")
    pair.loop.run_for(800)
    assert pair.server_log == ["made"]
    assert network.link(A, B).stopped == 2
    network.heal(A, B)
    pair.loop.run_for(1_100)
    assert pair.server_log == ["made", b"early ", b"late"]


def test_a_cut_is_of_one_direction_but_the_sender_of_the_other_hears_nothing_back(pair, network):
    pair.write(b"x")
    pair.loop.run_for(5)
    (there,) = network.link(B, A).sockets
    there.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_500)
    network.cut(A, B)
    pair.loop.call(pair.server, there.write, b"answer")
    pair.loop.run_for(5)
    assert pair.client_log == ["made", b"answer"]
    pair.loop.run_for(1_600)
    assert pair.server_log == ["made", b"x", "TimeoutError"]
    assert pair.client_log == ["made", b"answer", "ConnectionResetError"]


def test_a_cut_of_payloads_alone_leaves_the_other_direction_whole(pair, network):
    network.cut(A, B, acks=False)
    (there,) = network.link(B, A).sockets
    there.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_500)
    pair.write(b"question")
    pair.loop.call(pair.server, there.write, b"answer")
    pair.loop.run_for(10_000)
    assert pair.client_log == ["made", b"answer"]
    assert pair.server_log == ["made"]


def test_patience_ends_after_the_user_timeout(pair, network):
    option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_500)
    pair.loop.call(pair.client, pair.transport.get_extra_info("socket").setsockopt, *option)
    network.cut(A, B)
    pair.write(b"x")
    pair.loop.run_for(1_499)
    assert pair.client_log == ["made"]
    pair.loop.run_for(2)
    assert pair.client_log == ["made", "TimeoutError"]
    network.heal(A, B)
    pair.loop.run_for(5_000)
    assert pair.server_log == ["made"]  # half open: it hears nothing, and does not ask


def test_without_the_option_the_kernel_is_patient(pair, network):
    network.cut(A, B)
    pair.write(b"x")
    pair.loop.run_for(300_000)
    assert pair.client_log == ["made"]
    network.heal(A, B)
    pair.loop.run_for(1_100)
    assert pair.server_log == ["made", b"x"]


def test_a_close_behind_a_cut_arrives_when_it_heals(pair, network):
    network.cut(A, B)
    pair.write(b"x")
    pair.loop.call(pair.client, pair.transport.close)
    pair.loop.run_for(500)
    assert pair.client_log == ["made", "lost"]
    assert pair.server_log == ["made"]
    network.heal(A, B)
    pair.loop.run_for(1_100)
    assert pair.server_log == ["made", b"x", "eof", "lost"]
    assert not network.link(A, B).sockets
    assert not network.link(B, A).sockets


def test_a_reset_ends_both_ends(pair, network):
    assert network.reset(A, B) == 1
    pair.loop.run_for(1)
    assert pair.client_log == ["made", "ConnectionResetError"]
    assert pair.server_log == ["made", "ConnectionResetError"]
    assert network.resets == 1
    assert network.reset(A, B) == 0


def test_an_end_that_has_not_heard_of_the_others_is_half_open(pair, network):
    assert not network.has_half_open(A, B)
    network.cut(B, A)
    pair.loop.kill(pair.server, RESET)
    pair.loop.run_for(10)
    assert network.has_half_open(A, B)
    assert not network.has_half_open(B, A)
    network.heal(B, A)
    pair.write(b"x")  # and is told that nobody is there
    pair.loop.run_for(10)
    assert not network.has_half_open(A, B)


def test_connecting_to_nobody_is_refused(pair, network):
    outcome = dial(pair, port=81)
    pair.loop.run_for(10)
    assert outcome[0] == "ConnectionRefusedError"
    assert network.refused == 1
    outcome = dial(pair, host="nowhere")
    pair.loop.run_for(10)
    assert outcome[0] == "OSError"


@pytest.mark.parametrize("direction", [(A, B), (B, A)])
def test_a_handshake_needs_both_directions_and_is_repeated(pair, network, direction):
    network.cut(*direction)
    outcome = dial(pair)
    pair.loop.run_for(2_000)
    assert outcome == []
    network.heal(*direction)
    pair.loop.run_for(2_000)
    assert outcome[0] == "connected"
    assert 3_000 <= outcome[1] < 3_020  # the third attempt, 1 + 2 seconds after the first


def test_a_handshake_without_answer_ends_after_two_minutes(pair, network):
    network.power_off(B)
    outcome = dial(pair)
    pair.loop.run_for(200_000)
    assert outcome[0] == "TimeoutError"
    assert outcome[1] // 1000 == 127


def test_who_gives_up_connecting_leaves_nothing_behind(pair, network):
    async def main():
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await loop.create_connection(asyncio.Protocol, "b", PORT)

    network.cut(A, B)
    task = pair.loop.spawn(pair.client, main())
    pair.loop.run_for(600)
    network.heal(A, B)
    pair.loop.run_for(10_000)
    assert task.done()
    assert task.exception() is None
    assert network.connected == 1


def test_a_paused_machine_accepts_and_takes_bytes_up_to_the_window(pair, network):
    pair.loop.pause(pair.b)
    outcome = dial(pair)
    for _ in range(40):
        pair.write(bytes(16 * 1024))
    pair.loop.run_for(100)
    assert outcome[0] == "connected"
    assert pair.server_log == ["made"]
    waiting = pair.transport.get_write_buffer_size()
    assert waiting == 40 * 16 * 1024 - WINDOW_BYTES - KERNEL_BYTES
    pair.loop.resume(pair.b)
    pair.loop.run_for(100)
    assert pair.server_log.count("made") == 2
    assert sum(len(one) for one in pair.server_log if isinstance(one, bytes)) == 40 * 16 * 1024
    assert pair.transport.get_write_buffer_size() == 0


def test_a_connection_comes_from_the_address_it_is_told(pair):
    names = []

    async def main():
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            asyncio.Protocol, "b", PORT, local_addr=("10.9.9.9", 0)
        )
        names.append(transport.get_extra_info("sockname")[0])

    pair.loop.spawn(pair.client, main())
    pair.loop.run_for(5)
    assert names == ["10.9.9.9"]
    assert ("10.9.9.9", B) in pair.loop.network.links


def test_only_the_own_address_can_be_listened_on(pair):
    def listen(host):
        return pair.loop.network.listen(asyncio.Protocol, host, 0)

    assert pair.loop.call(pair.server, listen, "0.0.0.0").name[0] == B
    assert pair.loop.call(pair.server, listen, B).name[0] == B
    with pytest.raises(OSError, match="cannot assign"):
        pair.loop.call(pair.server, listen, A)
    assert CURRENT.get() is None


def test_an_error_of_a_protocol_ends_its_connection(pair, caplog):
    (there,) = pair.loop.network.link(B, A).sockets
    echo = there.get_protocol()
    del echo.log
    pair.write(b"x")
    echo.connection_lost = lambda error: pair.server_log.append(type(error).__name__)
    pair.loop.run_for(5)
    assert pair.server_log == ["made", "AttributeError"]
    assert pair.client_log == ["made", "eof", "lost"]
    assert len(pair.loop.uncaught) == 1
    assert "event=uncaught" in caplog.text


def test_everything_is_healed_at_once(pair, network):
    network.cut(A, B)
    network.cut(B, A)
    network.delay(A, B, Delay(1_000_000, 0))
    network.heal_all()
    pair.write(b"x")
    pair.loop.run_for(5)
    assert pair.server_log == ["made", b"x"]


def test_a_write_may_come_in_pieces(pair, network):
    network.delay(A, B, Delay(100, 0, split=1.0))
    for _ in range(50):
        pair.write(b"abcdefgh")
        pair.loop.run_for(1)
    pieces = pair.server_log[1:]
    assert len(pieces) == 100
    assert b"".join(pieces) == b"abcdefgh" * 50
    assert len(set(pieces)) > 5


def test_a_narrow_link_makes_bytes_wait_for_their_turn(pair, network):
    network.delay(A, B, Delay(100, 0, bytes_per_ms=10))
    before = pair.loop.now_ns
    for _ in range(4):
        pair.write(bytes(500))
    pair.loop.run_until_true(lambda: len(pair.server_log) == 5, 10_000)
    assert (pair.loop.now_ns - before) // MS == 200


def test_patience_counts_from_the_first_byte_that_waits(pair, network):
    option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_500)
    pair.loop.call(pair.client, pair.transport.get_extra_info("socket").setsockopt, *option)
    network.cut(A, B)
    for _ in range(4):
        pair.write(b"x")
        pair.loop.run_for(100)
    network.heal(A, B)
    pair.loop.run_for(500)
    assert pair.server_log[1:] == [b"x"] * 4
    network.cut(A, B)
    pair.write(b"y")
    pair.loop.run_for(1_400)
    assert pair.client_log == ["made"]
