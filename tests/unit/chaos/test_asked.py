"""What a run asks: keys of what waited, routes between faults, and who stands still at the end."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import rest, routes
from chaos.closing import _leader_of, may_be_asked_for
from chaos.probe import NodeStatus
from chaos.rest import behind, come_to_rest, rows_of
from chaos.routes import RouteQuestions, words_of


def sends(*kinds: str) -> list[dict[str, Any]]:
    return [{"msg_key": number, "kind": kind} for number, kind in enumerate(kinds)]


def test_what_waited_is_asked_for_once_somebody_read_it_where_it_was_sent_to():
    made = sends("plain", "batch", "delay", "txn", "txn")
    assert [one["msg_key"] for one in may_be_asked_for(made, {3}, is_taken=False)] == [0, 1, 3]
    assert [one["msg_key"] for one in may_be_asked_for(made, {1, 3}, is_taken=True)] == [1, 3]


def status(node: str, commit: int, role: str = "follower", *, ok: bool = True) -> NodeStatus:
    return NodeStatus(node=node, t_ns=0, ok=ok, role=role, commit=commit, last_index=commit)


def test_who_has_committed_less_is_behind_where_somebody_leads():
    states = [status("n0", 9, "leader"), status("n1", 9), status("n2", 4)]
    assert behind(states) == {"n2": 4}
    assert behind([status("n0", 9), status("n2", 4)]) == {}
    assert behind([status("n0", 9, "leader"), status("n2", 4, ok=False)]) == {}
    (row,) = rows_of({"n2": 4}, {one.node: one for one in states})
    assert (row["expected"], row["node"]) == ("committed up to 9", "n2")
    assert row["told"] != row["expected"]


class Notes:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, table: str, row: dict[str, Any]) -> None:
        assert table == "answers"
        self.rows.append(row)


class Ticking:
    now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 10**9
        return self.now_ns


def rested(laggard: Any, *, lost_alone: int = 0) -> list[dict[str, Any]]:
    """Return what is told of a member that answers so, each time it is asked."""

    async def ask(node: str) -> NodeStatus:
        return status("n0", 9, "leader") if node == "n0" else laggard()

    notes = Notes()
    parts = SimpleNamespace(
        probe=SimpleNamespace(ask=ask), cluster=SimpleNamespace(nodes=("n0", "n1")),
        statuses={}, clock=Ticking(), recorder=notes, lost_alone=lost_alone,
        view=SimpleNamespace(notice=lambda _text: None),
    )  # fmt: skip
    asyncio.run(come_to_rest(parts))  # type: ignore[arg-type]
    return notes.rows


def test_a_member_that_stands_still_before_the_end_is_told_of(monkeypatch):
    monkeypatch.setattr(rest, "SETTLE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(rest, "REST_S_MAX", 5.0)
    monkeypatch.setattr(rest, "STANDS_S", 3)
    assert rested(lambda: status("n1", 9)) == []
    assert [row["subject"] for row in rested(lambda: status("n1", 4))] == ["n1"]
    monkeypatch.setattr(rest, "REST_S_MAX", 0.3)
    assert rested(lambda: status("n1", 4), lost_alone=1) == []
    assert rested(lambda: status("n1", 4, ok=False)) == []
    places = iter(range(-10_000, 0))
    assert rested(lambda: status("n1", next(places))) == [], "it moves"


ADDRS = {"n0": ("127.0.0.1", 1), "n1": ("127.0.0.1", 2)}
RIGHT = {"0": "127.0.0.1:1", "1": "127.0.0.1:2"}


@pytest.mark.parametrize(
    ("told", "is_right"),
    [(RIGHT, True), ({"0": "127.0.0.1:1"}, False), ({"0": "127.0.0.1:2"}, False), ({}, False)],
)
def test_a_route_names_who_leads_and_all_others_while_all_is_well(monkeypatch, told, is_right):
    monkeypatch.setattr(routes, "SETTLED_S", 0.05)

    class Server:
        def __init__(self, host: str, port: int) -> None:
            assert (host, port) == ("127.0.0.1", 9)

        async def ask(self, *_: object) -> dict[str, Any]:
            return {"brokerDatas": [{"brokerAddrs": told}] if told else []}

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(routes, "StatusConnection", Server)
    notes = Notes()
    cluster = SimpleNamespace(
        nodes=("n0", "n1"), client_addr=ADDRS.__getitem__,
        name_server_addrs=lambda: ("127.0.0.1:9",),
    )  # fmt: skip
    probe = SimpleNamespace(leader=lambda: "n0", healthy=lambda: True)
    parts = SimpleNamespace(
        probe=probe, cluster=cluster, recorder=notes, clock=Ticking(),
        plan=SimpleNamespace(topics=("t",)),
    )  # fmt: skip
    asyncio.run(RouteQuestions(parts).ask())  # type: ignore[arg-type]
    (row,) = notes.rows
    assert (row["told"] == row["expected"]) is is_right
    probe.healthy = lambda: False
    asyncio.run(RouteQuestions(parts).ask())  # type: ignore[arg-type]
    assert len(notes.rows) == 1, "nobody can tell what is right"


def test_words_of_a_route_do_not_depend_on_ids():
    one = words_of([{"brokerAddrs": {"0": "a", "2": "c", "1": "b"}}])
    assert one == words_of([{"brokerAddrs": {"0": "a", "5": "b", "4": "c"}}])


@pytest.mark.parametrize(
    ("route", "leader"),
    [
        ({}, None),
        ({"brokerDatas": None}, None),
        ({"brokerDatas": [{"brokerName": "b"}]}, "None"),
        ({"brokerDatas": [{"brokerAddrs": {"0": "a:1"}}]}, "a:1"),
    ],
)
def test_a_route_without_what_it_should_have_is_a_wrong_answer_and_ends_no_run(route, leader):
    async def ask(*_):
        return route

    server = SimpleNamespace(ask=ask)
    assert asyncio.run(_leader_of(server, "t")) == leader
    assert ("nobody leads" in words_of(route.get("brokerDatas") or ())) is (leader != "a:1")
