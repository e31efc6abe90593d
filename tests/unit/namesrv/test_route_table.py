"""Which brokers and queues a route shows after registrations, failovers and silence."""

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ledgermq.remoting.protocol.bodies import DataVersion, TopicConfig, TopicConfigWrapper
from ledgermq.remoting.protocol.limits import Limit, Scope, Unit
from mutants.patches import BY_TESTS
from mutants.planting import planted
from namesrv.listing import Listing
from namesrv.route_table import EXPIRY_MS, Registration, RouteTable


def topics(counter: int = 0, **queues: int) -> TopicConfigWrapper:
    return TopicConfigWrapper(
        data_version=DataVersion(counter=counter, timestamp=1),
        topic_config_table={
            name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
            for name, count in queues.items()
        },
    )


def registration(broker_id: int = 0, addr: str = "a:1", **changes: object) -> Registration:
    fields = {
        "cluster": "c",
        "broker_name": "b",
        "ha_addr": f"ha-{addr}",
        "topics": topics(T=4),
        "connection": 1,
    }
    return Registration(broker_id=broker_id, addr=addr, **(fields | changes))


def addrs(table: RouteTable, topic: str = "T") -> dict[int, str]:
    route = table.route(topic)
    return {} if route is None else route.broker_datas[0].broker_addrs


def names(table: RouteTable, cluster: str | None = None) -> list[str]:
    return json.loads(Listing(table).small(cluster))["topicList"]


def test_a_master_brings_its_topics():
    table = RouteTable()
    result = table.register(registration(), 0)
    assert (result.is_new, result.master_addr, result.ha_addr) == (True, None, None)
    route = table.route("T")
    assert route.broker_datas[0].broker_addrs == {0: "a:1"}
    assert route.queue_datas[0].read_queue_nums == 4
    assert table.route("other") is None
    assert not table.register(registration(), 1).is_new


def test_a_slave_learns_its_master_and_never_changes_topics():
    table = RouteTable()
    assert table.register(registration(1, "s:1"), 0).master_addr is None
    assert table.route("T") is None
    table.register(registration(), 0)
    result = table.register(registration(1, "s:1", topics=topics(9, T=99, X=1)), 0)
    assert (result.master_addr, result.ha_addr) == ("a:1", "ha-a:1")
    assert table.route("X") is None
    assert table.route("T").queue_datas[0].read_queue_nums == 4
    assert addrs(table) == {0: "a:1", 1: "s:1"}


def test_queues_change_only_with_the_version_of_the_table():
    table = RouteTable()
    table.register(registration(), 0)
    table.register(registration(topics=topics(0, T=8)), 0)
    assert table.route("T").queue_datas[0].read_queue_nums == 4
    table.register(registration(topics=topics(1, T=8)), 0)
    assert table.route("T").queue_datas[0].read_queue_nums == 8


def test_topics_that_a_registration_no_longer_names_stay():
    table = RouteTable()
    table.register(registration(), 0)
    table.register(registration(topics=topics(1, X=1)), 0)
    assert table.route("T") is not None
    assert names(table) == ["T", "X"]


def test_an_address_has_one_broker_id():
    table = RouteTable()
    table.register(registration(1, "a:1"), 0)
    table.register(registration(0, "a:1"), 0)
    assert addrs(table) == {0: "a:1"}


def test_a_new_leader_replaces_the_old_and_the_old_ones_end_does_not_touch_it():
    table = RouteTable()
    table.register(registration(0, "a:1", connection=1, raft_term=1), 0)
    table.register(registration(0, "n:1", connection=2, raft_term=2), 0)
    assert addrs(table) == {0: "n:1"}
    assert table.on_connection_closed(1) == ["a:1"]
    assert addrs(table) == {0: "n:1"}
    assert not table.unregister("b", "a:1")


def test_a_leader_of_an_older_term_cannot_take_the_group_back():
    table = RouteTable()
    table.register(registration(0, "n:1", raft_term=2), 0)
    result = table.register(registration(0, "a:1", raft_term=1), 0)
    assert "2" in result.refusal
    assert addrs(table) == {0: "n:1"}
    assert list(table.broker_addrs()) == ["n:1"]
    table.register(registration(3, "a:1", raft_term=2), 0)
    assert addrs(table) == {0: "n:1", 3: "a:1"}
    assert "terms" in table.register(registration(0, "m:1"), 0).refusal
    assert "2" in table.register(registration(0, "m:1", raft_term=2), 0).refusal, "a term has one"
    assert addrs(table) == {0: "n:1", 3: "a:1"}


def test_the_end_of_a_connection_removes_what_it_registered_at_once():
    table = RouteTable()
    table.register(registration(connection=7), 0)
    table.register(registration(0, "z:1", broker_name="z", connection=8), 0)
    assert table.on_connection_closed(6) == []
    assert table.on_connection_closed(7) == ["a:1"]
    assert [data.broker_name for data in table.route("T").broker_datas] == ["z"]
    assert table.cluster_info().cluster_addr_table == {"c": ["z"]}
    assert table.on_connection_closed(8) == ["z:1"]
    assert table.route("T") is None
    assert names(table) == []


def test_a_broker_that_came_back_over_a_new_connection_stays_when_the_old_one_ends():
    table = RouteTable()
    table.register(registration(connection=7), 0)
    table.register(registration(connection=8), 0)
    assert table.on_connection_closed(7) == []
    assert addrs(table) == {0: "a:1"}


def test_silence_of_120_seconds_removes_a_broker():
    table = RouteTable()
    table.register(registration(connection=7), 0)
    table.register(registration(1, "s:1"), 1)
    assert table.expire(EXPIRY_MS) == []
    assert table.expire(EXPIRY_MS + 1) == [("a:1", 7)]
    assert addrs(table) == {1: "s:1"}


def test_a_broker_that_leaves_is_removed():
    table = RouteTable()
    table.register(registration(), 0)
    assert not table.unregister("other", "a:1")
    assert table.unregister("b", "a:1")
    assert table.route("T") is None


def test_an_equal_version_proves_that_a_broker_lives():
    table = RouteTable()
    version = topics().data_version
    assert table.touch("a:1", version, 0) == (True, None)
    table.register(registration(), 0)
    assert table.touch("a:1", version, 100) == (False, version)
    assert table.touch("a:1", DataVersion(counter=5), 200) == (True, version)
    assert table.expire(EXPIRY_MS + 100) == []
    assert table.expire(EXPIRY_MS + 101) == [("a:1", 1)]


def test_topics_are_deleted_everywhere_or_in_one_cluster():
    table = RouteTable()
    table.register(registration(), 0)
    table.register(registration(0, "z:1", broker_name="z", cluster="d"), 0)
    table.delete_topic("absent")
    table.delete_topic("T", "d")
    assert [data.broker_name for data in table.route("T").broker_datas] == ["b"]
    table.delete_topic("T")
    assert names(table) == []


def set_perm(table: RouteTable, name: str, *, allowed: bool) -> int:
    count, steps = table.set_write_perm(name, allowed=allowed)
    assert len(list(steps)) == bool(count)
    return count


def test_write_permission_is_wiped_until_it_is_added_again():
    table = RouteTable()
    table.register(registration(topics=topics(T=1, U=1)), 0)
    assert set_perm(table, "absent", allowed=False) == 0
    assert set_perm(table, "b", allowed=False) == 2
    assert table.route("T").queue_datas[0].perm == 4
    assert set_perm(table, "b", allowed=True) == 2
    assert table.route("T").queue_datas[0].perm == 6


def test_lists_of_topics_clusters_and_groups():
    table = RouteTable()
    assert table.system_topics().broker_addr is None
    table.register(registration(), 0)
    table.register(registration(0, "z:1", broker_name="z", cluster="d", topics=topics(Z=1)), 0)
    assert names(table, "c") == ["T"]
    assert names(table, "x") == []
    assert table.system_topics().topic_list == ["c", "d", "b", "z"]
    assert table.system_topics().broker_addr == "a:1"
    info = table.cluster_info()
    assert info.cluster_addr_table == {"c": ["b"], "d": ["z"]}
    assert info.broker_addr_table["z"].broker_addrs == {0: "z:1"}


@pytest.mark.parametrize(
    "change", ["register", "topics", "unregister", "close", "expire", "delete"]
)
def test_every_change_of_an_answer_changes_the_version(change):
    table = RouteTable()
    table.register(registration(), 0)
    before = table.version
    table.register(registration(), 0)
    assert table.version == before
    {
        "register": lambda: table.register(registration(1, "s:1"), 0),
        "topics": lambda: table.register(registration(topics=topics(5, X=1)), 0),
        "unregister": lambda: table.unregister("b", "a:1"),
        "close": lambda: table.on_connection_closed(1),
        "expire": lambda: table.expire(EXPIRY_MS * 2),
        "delete": lambda: table.delete_topic("T"),
    }[change]()
    assert table.version > before


class RouteTableMachine(RuleBasedStateMachine):
    """Brokers of two groups come, change roles and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = 0

    @rule(
        group=st.sampled_from(["b", "c"]),
        broker_id=st.integers(0, 2),
        host=st.integers(0, 2),
        connection=st.integers(1, 3),
        term=st.integers(-1, 3),
    )
    def register(self, group, broker_id, host, connection, term):
        self.table.register(
            registration(
                broker_id,
                f"{group}:{host}",
                broker_name=group,
                connection=connection,
                raft_term=term,
            ),
            self.now_ms,
        )

    @rule(connection=st.integers(1, 3))
    def close(self, connection):
        self.table.on_connection_closed(connection)

    @rule(group=st.sampled_from(["b", "c"]), host=st.integers(0, 2))
    def leave(self, group, host):
        self.table.unregister(group, f"{group}:{host}")

    @rule(step_ms=st.integers(0, EXPIRY_MS))
    def wait(self, step_ms):
        self.now_ms += step_ms
        self.table.expire(self.now_ms)

    @invariant()
    def routes_name_living_brokers_only_and_each_address_once(self):
        living = set(self.table.broker_addrs())
        info = self.table.cluster_info()
        for data in info.broker_addr_table.values():
            values = list(data.broker_addrs.values())
            assert values
            assert len(values) == len(set(values))
            assert set(values) <= living
        route = self.table.route("T")
        if route is not None:
            assert [data.broker_name for data in route.broker_datas] == [
                queues.broker_name for queues in route.queue_datas
            ]


TestRouteTableMachine = RouteTableMachine.TestCase
TestRouteTableMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


class Unwalked(dict):
    """A table that nobody may walk through."""

    def __iter__(self):
        raise AssertionError("walked through")


def test_the_end_of_a_connection_costs_what_it_registered_however_many_others_there_are():
    table = RouteTable()
    table.register(registration(), 0)
    for number in range(50):
        table.register(registration(0, f"z:{number}", broker_name=f"z{number}", connection=7), 0)
    table.rows.topics, table._live = Unwalked(table.rows.topics), Unwalked(table._live)
    assert len(table.on_connection_closed(7)) == 50
    assert addrs(table) == {0: "a:1"}


def test_a_planted_walk_at_the_end_of_a_connection_is_seen():
    with planted(BY_TESTS["closing-scans-all-brokers"]), pytest.raises(AssertionError):
        test_the_end_of_a_connection_costs_what_it_registered_however_many_others_there_are()


def test_brokers_members_and_topics_are_bounded(monkeypatch):
    for name, value in (
        ("BROKERS_MAX", 3), ("MEMBERS_MAX", 2), ("TOPIC_ROWS_MAX", 3), ("TOPIC_NAMES_BYTES_MAX", 8),
        ("BROKERS_PER_CONNECTION_MAX", 2),
    ):  # fmt: skip
        limit = Limit(value, name, Unit.COUNT, Scope.PROCESS, "1")
        monkeypatch.setattr(f"namesrv.route_table.{name}", limit)
    table = RouteTable()
    assert not table.register(registration(), 0).refusal
    assert not table.register(registration(1, "s:1", connection=2), 0).refusal
    assert "of this name" in table.register(registration(2, "s:2", connection=3), 0).refusal
    long = registration(0, "y:1", broker_name="y", topics=topics(TTTTTTTT=1), connection=4)
    assert "names" in table.register(long, 0).refusal
    many = registration(0, "y:1", broker_name="y", topics=topics(A=1, B=1, C=1), connection=4)
    assert "topics" in table.register(many, 0).refusal
    few = registration(0, "y:1", broker_name="y", topics=topics(T=1, B=1), connection=1)
    assert not table.register(few, 0).refusal
    assert "brokers are" in table.register(registration(0, "x:1", broker_name="x"), 0).refusal
    table.on_connection_closed(2)
    third = registration(0, "x:1", broker_name="x", topics=topics(), connection=1)
    assert "a connection may" in table.register(third, 0).refusal
    assert [used for used, _ in table.used.values()] == [2, 2 * 108, 3, 2]
    table.on_connection_closed(1)
    assert [used for used, _ in table.used.values()] == [0, 0, 0, 0]


def test_the_topics_of_a_large_registration_are_taken_step_by_step(monkeypatch):
    monkeypatch.setattr("namesrv.route_table.TOPICS_PER_TURN", 2)
    table = RouteTable()
    large = registration(topics=topics(**{f"T{i}": 1 for i in range(5)}))
    first = table.register(large, 0)
    assert names(table) == ["T0", "T1"]
    assert table.touch("a:1", large.topics.data_version, 0)[0], "not all of it is here yet"
    later = table.register(registration(topics=topics(3, U0=1, U1=1, U2=1)), 0)
    assert list(first.rest) == []
    assert "T2" not in names(table), "a later registration has come"
    assert len(list(later.rest)) == 0
    assert names(table) == ["T0", "T1", "U0", "U1", "U2"]


def test_a_slave_keeps_the_routes_of_a_master_that_is_gone_and_gives_them_back():
    table = RouteTable()
    table.register(registration(), 0)
    table.register(registration(1, "s:1", connection=2), 0)
    assert table.on_connection_closed(1) == ["a:1"]
    assert addrs(table) == {1: "s:1"}
    result = table.register(registration(1, "s:1", connection=2, topics=topics(9, X=1)), 1)
    assert (result.master_addr, result.ha_addr) == (None, None)
    assert table.route("X") is None
    assert table.route("T").queue_datas[0].write_queue_nums == 4
    table.register(registration(connection=3, topics=topics(1, T=8)), 2)
    assert addrs(table) == {0: "a:1", 1: "s:1"}
    assert table.route("T").queue_datas[0].read_queue_nums == 8


def test_a_slave_that_leaves_or_expires_takes_nothing_of_its_master_along():
    for leave in (
        lambda table: table.unregister("b", "s:1"),
        lambda table: table.on_connection_closed(2),
        lambda table: table.expire(EXPIRY_MS + 1),
    ):
        table = RouteTable()
        table.register(registration(1, "s:1", connection=2), 0)
        table.register(registration(), 5)
        leave(table)
        assert addrs(table) == {0: "a:1"}
        assert table.cluster_info().broker_addr_table["b"].broker_addrs == {0: "a:1"}


def test_masters_of_two_names_and_their_slaves_share_a_topic():
    table = RouteTable()
    for name in ("a", "b"):
        table.register(registration(0, f"{name}:1", broker_name=name, connection=1), 0)
        table.register(registration(1, f"{name}:2", broker_name=name, connection=2), 0)
    route = table.route("T")
    assert [one.broker_addrs for one in route.broker_datas] == [
        {0: "a:1", 1: "a:2"}, {0: "b:1", 1: "b:2"},
    ]  # fmt: skip
    assert table.cluster_info().cluster_addr_table == {"c": ["a", "b"]}
    assert set_perm(table, "a", allowed=False) == 1
    assert [one.perm for one in table.route("T").queue_datas] == [4, 6]
    table.register(registration(1, "a:2", broker_name="a", connection=2), 1)
    assert table.route("T").queue_datas[0].perm == 4, "a slave's registration changes no topic"
