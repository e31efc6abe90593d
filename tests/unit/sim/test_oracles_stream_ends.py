"""What a slave tells it has, and what a master counts it was told."""

from types import SimpleNamespace

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.oracles.base import Violation
from sim.oracles.stream_ends import StreamEnds
from sim.oracles.streams import BEHIND, LOOKS, Streams
from store.ha.gate import Gate
from store.ha.switch.in_sync import InSync


def link(position, *, one=0, is_confirming=True):
    return SimpleNamespace(position=position, slave_id=one, is_confirming=is_confirming)


def master(links, gate=None, in_sync=None):
    """A master's broker, whose log has 900 bytes and counts 500 of them."""
    log = SimpleNamespace(
        _gate=gate, own_position=900, end_position=900, committed_position=500
    )  # fmt: skip
    ha = SimpleNamespace(_links=dict.fromkeys(map(Hashed, links)), log=log)
    if in_sync is not None:
        ha._in_sync = in_sync
    mode = SimpleNamespace(_ha=ha, log=log)
    return SimpleNamespace(mode=mode, _mode=mode)


class Hashed:
    """A connection, as a key."""

    _transport = None

    def __init__(self, inner):
        self.__dict__.update(inner.__dict__)


def look(controller):
    StreamEnds(None).look("a0", controller, None, is_synced=True)


def gate_of(*positions):
    gate = Gate(1_000, 10_000)
    gate.on_slaves(positions)
    return gate


def in_sync_of(**confirmed):
    in_sync = InSync(1, 15_000, members=frozenset({1, 2}))
    for one, position in confirmed.items():
        in_sync.on_connected(int(one[1:]), 0)
        in_sync.on_confirmed(int(one[1:]), position, 0, 900)
    return in_sync


def test_a_gate_counts_the_best_of_those_that_confirm():
    links = (link(300), link(700), link(900, is_confirming=False))
    look(master(links, gate_of(300, 700)))
    look(master((), gate_of()))
    look(master(links))  # an asynchronous master counts on nobody
    for gate in (gate_of(300), gate_of(900), gate_of()):
        with pytest.raises(Violation, match="have told it"):
            look(master(links, gate))


def test_a_gate_that_takes_any_slave_is_found():
    with planted(BY_TESTS["first-slave-is-the-best"]), pytest.raises(Violation):
        look(master((link(300), link(700)), gate_of(300, 700)))


def test_what_counts_as_confirmed_is_what_the_present_connection_has_told():
    look(
        master(
            (link(700, one=2), link(5, one=3, is_confirming=False)), None, in_sync_of(_2=700, _3=0)
        )
    )
    for links in ((link(600, one=2),), (), (link(700, one=2), link(0, one=3))):
        with pytest.raises(Violation):
            look(master(links, None, in_sync_of(_2=700)))


@pytest.mark.parametrize(
    ("told", "durable", "is_sound"), [(500, True, True), (500, False, False), (900, True, False)]
)
def test_a_slave_reports_what_it_has_and_would_keep(told, durable, is_sound):
    files = SimpleNamespace(
        disk=SimpleNamespace(blocked=False), is_durable=lambda _at, _size: durable
    )
    copy = SimpleNamespace(files=files, base=0, end=500, lines={0})
    line = SimpleNamespace(between=lambda *_: [0, 400], rows={400: SimpleNamespace(data=b"x")})
    ends = StreamEnds(SimpleNamespace(lines=[line]))
    ha = SimpleNamespace(
        _link=SimpleNamespace(_reported=told, is_verified=True),
        log=SimpleNamespace(next_position=500),
    )
    slave = SimpleNamespace(mode=SimpleNamespace(_ha=ha))
    if is_sound:
        ends.look("a1", slave, copy, is_synced=True)
        ends.look("a1", SimpleNamespace(mode=SimpleNamespace(_ha=None)), copy, is_synced=True)
    else:
        with pytest.raises(Violation, match="reports"):
            ends.look("a1", slave, copy, is_synced=True)


@pytest.mark.parametrize(
    ("controller", "is_late"),
    [
        (master((link(700, one=2),), None, in_sync_of(_2=700)), True),
        (master((link(500, one=2),), None, in_sync_of(_2=500)), False),
        (master((), None, in_sync_of(_2=700)), False),
        (master((link(700),), gate_of(700)), True),
        (master((link(500),), gate_of(500)), False),
        (master((), gate_of()), True),
        (master((), None), True),
    ],
)
def test_what_all_have_counts_though_nobody_reports_again(controller, is_late):
    streams = Streams(lambda _name: False, lambda _what: None)
    for number in range(LOOKS):
        is_last = number == LOOKS - 1
        if is_last and is_late:
            with pytest.raises(Violation, match=BEHIND):
                streams.look([("a0", controller)])
        else:
            streams.look([("a0", controller)])
