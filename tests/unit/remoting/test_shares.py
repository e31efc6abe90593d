"""Which connection goes when a server is full, and when frames that come in take too much."""

from dataclasses import dataclass

from ledgermq.remoting.transport.shares import one_to_close, slowest_sender


@dataclass(eq=False)
class Held:
    host: str = "a"
    has_spoken: bool = True
    quiet_sweeps: int = 0
    receive_bytes: int = 16_384
    partial_bytes: int = 0

    @property
    def remote(self):
        return (self.host, 1)


def test_the_oldest_silent_one_of_the_largest_address_goes():
    silent = Held(has_spoken=False, quiet_sweeps=1)
    later = Held(has_spoken=False, quiet_sweeps=1)
    other = Held("b", has_spoken=False, quiet_sweeps=9)
    assert one_to_close([Held(), silent, other, later], Held()) is silent


def test_the_idlest_goes_where_all_have_spoken():
    idle = Held(quiet_sweeps=3)
    assert one_to_close([Held(), Held(quiet_sweeps=2), idle], Held()) is idle


def test_busy_connections_are_not_closed_for_one_more_of_their_own_address():
    assert one_to_close([Held(), Held(quiet_sweeps=1)], Held()) is None
    assert one_to_close([Held(has_spoken=False)], Held(has_spoken=False)) is None


def test_a_smaller_address_takes_one_from_a_larger_even_if_all_are_busy():
    crowd = [Held() for _ in range(10)]
    few = [Held("b") for _ in range(4)]
    assert one_to_close([*crowd, *few], Held("b")) in crowd
    more = [Held("b") for _ in range(5)]
    assert one_to_close([*crowd, *more], Held("b")) is None


def test_the_largest_half_of_a_frame_goes_of_the_address_that_takes_most():
    whole = Held(receive_bytes=1 << 24)
    half = Held(receive_bytes=1 << 23, partial_bytes=5)
    other = Held("b", receive_bytes=1 << 23, partial_bytes=1 << 22)
    assert slowest_sender([whole, half, other]) is half
