"""Which connection goes when a server is full, and when frames that come in take too much."""

from dataclasses import dataclass

import pytest

from ledgermq.remoting.protocol import hosts
from ledgermq.remoting.transport import shares
from ledgermq.remoting.transport.shares import (
    ByAddress,
    one_to_close,
    slowest_reader,
    slowest_sender,
    spare_ones,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted


@dataclass(eq=False)
class Held:
    host: str = "a"
    has_spoken: bool = True
    quiet_sweeps: int = 0
    partial_sweeps: int = 0
    receive_bytes: int = 16_384
    partial_bytes: int = 0

    @property
    def remote(self):
        return (self.host, 1)


def of(connections):
    by_address = ByAddress()
    for one in connections:
        by_address.add(one)
    return by_address


def test_the_oldest_silent_one_of_the_largest_address_goes():
    silent = Held(has_spoken=False, quiet_sweeps=1)
    later = Held(has_spoken=False, quiet_sweeps=1)
    other = Held("b", has_spoken=False, quiet_sweeps=9)
    assert one_to_close(of([Held(), silent, other, later]), Held()) is silent


def test_the_idlest_goes_where_all_have_spoken():
    idle = Held(quiet_sweeps=3)
    assert one_to_close(of([Held(), Held(quiet_sweeps=2), idle]), Held()) is idle


def test_busy_connections_are_not_closed_for_one_more_of_their_own_address():
    assert one_to_close(of([Held(), Held(quiet_sweeps=1)]), Held()) is None
    assert one_to_close(of([Held(has_spoken=False)]), Held(has_spoken=False)) is None


def test_a_smaller_address_takes_one_from_a_larger_even_if_all_are_busy():
    crowd = [Held() for _ in range(10)]
    few = [Held("b") for _ in range(4)]
    assert one_to_close(of([*crowd, *few]), Held("b")) in crowd
    more = [Held("b") for _ in range(5)]
    assert one_to_close(of([*crowd, *more]), Held("b")) is None


def test_silent_ones_may_go_then_those_that_are_idle_longest_of_any_address():
    silent = [
        Held("a", has_spoken=False, quiet_sweeps=1),
        Held("b", has_spoken=False, quiet_sweeps=3),
    ]
    idle = [Held("c", quiet_sweeps=4), Held("d", quiet_sweeps=7), Held("c", quiet_sweeps=5)]
    others = [Held("e", quiet_sweeps=3), Held("f", has_spoken=False), Held("g")]
    order = spare_ones([*idle, *others, *silent])[::-1]
    assert order == [*silent, idle[1], idle[2], idle[0]]


def test_the_largest_half_of_a_frame_goes_of_the_address_that_takes_most():
    whole = Held(receive_bytes=1 << 24)
    half = Held(receive_bytes=1 << 23, partial_bytes=5)
    other = Held("b", receive_bytes=1 << 23, partial_bytes=1 << 22)
    assert slowest_sender([whole, half, other]) is half


def one_that_goes():
    """Return who goes where a large frame comes in beside parts of frames that are stuck."""
    stuck = [Held(f"a{n}", receive_bytes=1 << 17, partial_bytes=9, partial_sweeps=3) for n in "12"]
    large = Held("b", receive_bytes=1 << 23, partial_bytes=1 << 22, partial_sweeps=1)
    return stuck.index(shares.slowest_sender([large, *stuck]))


def test_a_frame_that_is_stuck_goes_before_a_large_one_that_comes_in():
    assert one_that_goes() == 0
    with planted(BY_TESTS["stuck-frames-stay"]), pytest.raises(ValueError, match="not in list"):
        one_that_goes()


def test_the_connection_for_which_most_waits_goes_of_the_address_for_which_most_does():
    largest, many = Held("b"), [Held() for _ in range(5)]
    unsent = {largest: 400, **dict.fromkeys(many, 100), many[3]: 101}
    assert slowest_reader(unsent) is many[3]


def test_addresses_without_connections_are_forgotten():
    one, two = Held(), Held("b")
    by_address = of([one, two])
    by_address.remove(one)
    assert (by_address.count("a"), by_address.count("b")) == (0, 1)
    assert list(by_address.largest()) == [two]
    by_address.remove(two)
    assert not by_address._all


def looked_at():
    """Return how often a full server looks at its connections to take one more."""
    looks = []

    class Seen(Held):
        @property
        def remote(self):
            looks.append(self)
            return (self.host, 1)

    full = of([Seen(has_spoken=False) for _ in range(1_000)])
    looks.clear()
    assert one_to_close(full, Held("b")) is not None
    return len(looks)


def test_a_full_server_does_not_look_at_all_for_each_new_one():
    assert looked_at() <= 1


def test_looks_at_all_are_found_here():
    with planted(BY_TESTS["all-counted-for-each-connection"]), pytest.raises(AssertionError):
        assert looked_at() <= 1


@pytest.mark.parametrize(
    ("address", "party"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::/64"),
        ("?", "?"),
        ("no:address", "no:address"),
    ],
)
def test_addresses_of_ipv6_share_by_network(address, party):
    assert hosts.party_of(address) == party


def test_a_network_of_ipv6_is_one_address_to_a_full_server():
    crowd = [Held(f"2001:db8::{number:x}") for number in range(1, 11)]
    other = Held("2001:db8:0:1::1", quiet_sweeps=9)
    full = of([*crowd, other])
    assert one_to_close(full, Held("192.0.2.1")) in crowd
    assert one_to_close(full, Held("2001:db8::ffff")) is None, "it is one of the crowd"
    for one in crowd:
        full.remove(one)
    assert full.count("2001:db8::1") == 0
    with planted(BY_TESTS["ipv6-by-address"]):
        assert one_to_close(of([*crowd, other]), Held("192.0.2.1")) is None
