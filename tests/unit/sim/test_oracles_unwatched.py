"""What loses nothing at once: connections given up, logs trimmed too far, ends not written."""

import asyncio
from types import SimpleNamespace

import pytest

from dledger.core.model import Role
from sim.oracles import heard_ends, keeping, trimming
from sim.oracles.base import Findings, Violation
from sim.oracles.heard_ends import TAKEN_TICKS, WRITTEN_TICKS, HeardEnds
from sim.oracles.keeping import Keeping
from sim.oracles.transactions import HALF_TOPIC, OP_TOPIC, PARK_TOPIC, End, Transactions
from sim.oracles.trimming import Trimming
from sim.oracles.wire import Said
from tests.unit.sim.logs import Log, parts

LEADER, OTHER = "10.0.0.1:10911", "10.0.0.2:10911"


class Client:
    """A client that knows one leader, and has one connection."""

    def __init__(self, address=LEADER, leader=LEADER, runs=True, is_stopping=False):
        host, port = address.split(":")
        self.transport = SimpleNamespace(on_left=bool)
        self.connection = SimpleNamespace(
            _transport=self.transport, _closing=False, remote=(host, int(port))
        )
        self.opened = []
        self._instance = SimpleNamespace(
            client=SimpleNamespace(on_open=self.opened.append),
            client_id="p0",
            running=runs,
            stopping=SimpleNamespace(begun=is_stopping),
            routes=SimpleNamespace(brokers={"g": {0: leader}}, master=lambda _name: leader),
        )

    def end(self, is_on_this_side):
        """End the connection, as production does it, or as the kernel tells."""
        findings, others = Findings(), []
        Keeping(findings, others.append).follow(self)
        assert others == [self]
        self._instance.client.on_open(self.connection)
        assert self.opened == [self.connection]
        self.connection._closing = is_on_this_side
        self.transport.on_left()
        return findings.first


@pytest.mark.parametrize(
    ("client", "is_on_this_side", "is_sound"),
    [
        (Client(), True, False),
        (Client(), False, True),
        (Client(address=OTHER), True, True),
        (Client(leader=None), True, True),
        (Client(runs=False), True, True),
        (Client(is_stopping=True), True, True),
    ],
)
def test_a_client_keeps_its_connection_to_the_leader(client, is_on_this_side, is_sound):
    found = client.end(is_on_this_side)
    assert (found is None) == is_sound
    assert is_sound or found.oracle == keeping.NAME


@pytest.mark.parametrize(("leads", "is_sound"), [(LEADER, True), (None, True), (OTHER, False)])
def test_whoever_waits_for_a_connection_gets_one_to_who_leads_by_then(leads, is_sound):
    client, findings = Client(leader=leads), Findings()

    async def connect(_broker_name, _timeout_ms):
        return SimpleNamespace(addr=LEADER)

    client.links = SimpleNamespace(connect=connect)
    Keeping(findings).follow(client)
    assert asyncio.run(client.links.connect("g", 100)).addr == LEADER
    assert (findings.first is None) == is_sound
    assert is_sound or findings.first.oracle == keeping.FORMER


TIMEOUT = 10
FIRST = 50


def trimmed(
    *,
    held=40, acknowledged=40, silent=3, is_up=True, role=Role.LEADER, first=FIRST, limit=90
):  # fmt: skip
    """Plan to trim a log of which a follower holds so much, and a leader would let go so much."""
    trimmer = SimpleNamespace(
        plan=lambda _limit: None if first is None else SimpleNamespace(first_index=first),
        limit=lambda: SimpleNamespace(last_index=limit),
    )
    progress = SimpleNamespace(contact_tick=100 - silent, match_index=acknowledged)
    state = SimpleNamespace(
        role=role, tick=100, progress={"n1": progress}, delivered_index=90,
        config=SimpleNamespace(election_ticks_min=TIMEOUT, election_ticks_max=TIMEOUT),
    )  # fmt: skip
    leader = SimpleNamespace(name="n0", node=SimpleNamespace(trimmer=trimmer), state=state)
    findings = Findings()
    follower = SimpleNamespace(is_up=is_up, last_index=held)
    Trimming(findings, {"n0": leader, "n1": follower}).on_boot(leader)
    planned = leader.node.trimmer.plan(60)
    assert (planned is None) == (first is None)
    return findings.first


def test_a_log_is_not_trimmed_past_a_follower_that_lives():
    found = trimmed()
    assert isinstance(found, Violation)
    assert found.oracle == trimming.NAME


@pytest.mark.parametrize(
    "said",
    [
        {"held": FIRST - 1},
        {"acknowledged": FIRST - 1},
        {"silent": TIMEOUT},
        {"is_up": False},
        {"role": Role.FOLLOWER},
        {"first": None},
    ],
)
def test_a_log_may_be_trimmed_where_nobody_who_lives_needs_it(said):
    assert trimmed(**said) is None


GONE = {"is_up": False, "silent": 2 * TIMEOUT}


def test_a_log_is_not_kept_for_a_follower_that_is_gone():
    found = trimmed(**GONE, limit=40, first=None)
    assert isinstance(found, Violation)
    assert found.oracle == trimming.KEPT


@pytest.mark.parametrize(
    "said", [{"silent": 2 * TIMEOUT - 1}, {"is_up": True}, {"limit": 90}, {"role": Role.FOLLOWER}]
)
def test_a_log_may_be_kept_for_who_may_yet_come(said):
    assert trimmed(**{**GONE, "limit": 40, "first": None, **said}) is None


KEY = 91
PLACE = 4_848
SENT = {
    "REAL_TOPIC": "payments", "REAL_QID": "1", "TRAN_MSG": "true", "KEYS": str(KEY),
    "PGROUP": "payers",
}  # fmt: skip


class Heard(Log):
    """A leader that is told how a half ends."""

    def __init__(self):
        super().__init__()
        self.transactions = Transactions(self.truth, "payments", (1, 500), {})
        self.transactions.decide(KEY, End.COMMIT)
        self.add(HALF_TOPIC, 0, KEY, parts(physical=PLACE, properties=SENT))
        self.leader = SimpleNamespace(
            name="n0", incarnation=1, applied_index=0, last_index=0, is_corrupt=False,
            hangs=lambda: False, disk=SimpleNamespace(is_watched=False),
            controller=SimpleNamespace(
                store=SimpleNamespace(writer=SimpleNamespace(writable=True))
            ),
            state=SimpleNamespace(
                role=Role.LEADER, term=1, tick=0, transfer=None, blocked=None
            ),
        )  # fmt: skip
        self.oracle = HeardEnds(self.truth, self.transactions)

    def tell(self, **said):
        """Have a producer tell the leader."""
        fields = {
            "commitLogOffset": PLACE, "tranStateTableOffset": 0, "commitOrRollback": 8,
            "producerGroup": "payers",
        }  # fmt: skip
        self.oracle.on_request(self.leader, Said(37, fields | said, b"", 0, b""))
        return self

    def tick(self, count):
        """Let ticks pass."""
        self.leader.state.tick += count
        self.oracle.on_tick(self.leader)
        return self

    def come(self, *more):
        """Let the log go on, and time until the end must be in it."""
        self.tick(TAKEN_TICKS)
        self.leader.last_index = len(self.truth.committed)
        self.add("other", 0, 1)
        for add in more:
            add(self)
        return self.tick(WRITTEN_TICKS)

    def copy(self):
        """Commit its copy."""
        self.add("payments", 1, KEY, parts(half=PLACE, sys_flag=8, properties=SENT))

    def finish(self):
        """Commit its op message."""
        self.add(OP_TOPIC, 0, None, parts(body=b"0"), body_hash=1)

    def park(self):
        """Put it aside."""
        self.state("tx-asked", [[0, 1]])
        self.add(PARK_TOPIC, 0, KEY, parts(half=PLACE, properties=SENT))


def test_an_end_that_was_heard_is_written():
    with pytest.raises(Violation, match=heard_ends.NAME):
        Heard().tell().come()


def test_a_half_is_not_parked_once_its_end_was_heard():
    with pytest.raises(Violation, match="was parked"):
        Heard().tell().come(Heard.park)


@pytest.mark.parametrize("end", [Heard.copy, Heard.finish])
def test_a_half_that_has_ended_is_sound(end):
    one = Heard()
    if end is Heard.finish:
        one.transactions.decisions[KEY] = End.ROLLBACK
    one.tell().come(end)


def test_who_is_told_behind_the_parking_need_not_write_it():
    one = Heard()
    one.park()
    one.tell().come()


@pytest.mark.parametrize(
    "said",
    [
        {"commitOrRollback": 0},
        {"commitLogOffset": PLACE + 1},
        {"tranStateTableOffset": 1},
        {"producerGroup": "others"},
    ],
)
def test_what_names_no_open_half_is_no_end(said):
    Heard().tell(**said).come()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: setattr(one.leader, "applied_index", -1),
        lambda one: setattr(one.leader, "is_corrupt", True),
        lambda one: setattr(one.leader.disk, "is_watched", True),
        lambda one: setattr(one.leader.state, "role", Role.FOLLOWER),
        lambda one: setattr(one.leader.state, "transfer", "n1"),
        lambda one: setattr(one.leader.controller.store.writer, "writable", False),
    ],
)
def test_who_cannot_take_it_need_not(spoil):
    one = Heard()
    spoil(one)
    one.tell().come()


@pytest.mark.parametrize("change", [{"term": 2}, {"role": Role.FOLLOWER}, {"transfer": "n1"}])
def test_who_leads_no_more_owes_nothing(change):
    one = Heard().tell()
    for name, value in change.items():
        setattr(one.leader.state, name, value)
    one.come()


def test_it_may_still_come_as_long_as_nothing_behind_it_is_committed():
    one = Heard().tell()
    one.leader.last_index = 5
    one.tick(TAKEN_TICKS).tick(WRITTEN_TICKS)
