"""What name servers say of the group: who leads, who is there, and which topics there are.

`Heard` notes what those have been told who asked: a topic, or a part of its queues, that nobody has
registered yet is new to them.

While faults come, a broker whose process has ended, and whose kernel said so, is told to nobody a
moment later. In the end, with everything healed, each name server names the leader, only brokers
that run, and each topic that the log has made, with its queues. Source: spec/wire.md 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from namesrv.route_table import RouteTable
    from sim.oracles.wire import Said, Tap

MASTER_ID: Final = 0
GONE_NS: Final = 1_500_000_000
"""A connection that was reset is known to be gone after so long, on any link that works."""
NAME: Final = "A45 route"
KEPT_NAME: Final = "A45 counted otherwise than registered"
ROUTE_OF_TOPIC: Final = 105


def check_gone(name: str, table: RouteTable, gone: Mapping[str, int], now_ns: int) -> None:
    """Compare a table with the addresses of brokers that ended, and when. Errors: `Violation`."""
    for addr in table.broker_addrs():
        since_ns = gone.get(addr, now_ns)
        if now_ns - since_ns > GONE_NS:
            text = f"{name} tells of {addr}, which ended at {since_ns / 1e9:.3f} s and said so"
            raise Violation(NAME, text, node=name)
    for group in table.cluster_info().broker_addr_table.values():
        strangers = sorted(set(group.broker_addrs.values()) - set(table.broker_addrs()))
        if strangers:
            text = f"{name} tells of {strangers} in {group.broker_name}, and knows none of them"
            raise Violation(NAME, text, node=name)


def check_kept(name: str, table: RouteTable) -> None:
    """Compare what a table counts with what it has. Errors: `Violation`.

    What stays counted when it has gone is refused to others in the end. A group that is gone has
    no rows but those that wait to be swept.
    """
    rows, groups = table.rows, table._groups
    swept = {group.number for group in rows._gone}
    numbers = {number for its in rows.topics.values() for number in its}
    live = sorted((live.connection, addr) for addr, live in table._live.items())
    for what, counted, held in (
        ("groups", set(rows._living), {group.number for group in groups.values()}),
        ("groups with rows", numbers - swept, numbers & set(rows._living)),
        ("rows", rows.count, sum(len(group.topics) for group in groups.values())),
        ("bytes of topics", rows.names_bytes, sum(map(len, rows.topics))),
        ("bytes of brokers", table._names_bytes, sum(group.weight for group in groups.values())),
        ("brokers by connection", sorted((c, a) for c, its in table._by_connection.items()
                                         for a in its), live),
    ):  # fmt: skip
        if counted != held:
            text = f"{name} counts as its {what} {counted}, and has {held}"
            raise Violation(KEPT_NAME, text, node=name)


def missing(
    table: RouteTable, group: str, leader: str, topics: Mapping[str, Mapping[str, Any]]
) -> str:
    """Say what a table does not tell yet of a group that is as it should be; empty for nothing."""
    known = table.cluster_info().broker_addr_table.get(group)
    if known is None:
        return f"{group} is in no route"
    if known.broker_addrs.get(MASTER_ID) != leader:
        return f"{known.broker_addrs} is told of {group}, which {leader} leads"
    for topic, config in topics.items():
        route = table.route(topic)
        queues = [] if route is None else [q for q in route.queue_datas if q.broker_name == group]
        if len(queues) != 1:
            return f"{topic} has no route to {group}"
        told = (queues[0].read_queue_nums, queues[0].write_queue_nums)
        if told != (config["readQueueNums"], config["writeQueueNums"]):
            return f"{topic} has {told} queues by the route, by the log {config}"
    return ""


class Heard:
    """Listens to those who ask name servers for routes; a `wire.Listener`."""

    def __init__(self, group: str) -> None:
        self._named = f'"brokerName":"{group}"'.encode()
        self._without: set[tuple[str, str]] = set()

    def lacked(self, address: str, topic: str) -> bool:
        """Tell whether somebody at an address was ever told that the group has no such topic."""
        return (address, topic) in self._without

    def on_request(self, tap: Tap, request: Said) -> None:
        """What is asked says nothing."""

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """A name server has answered."""
        del tap
        if request.code == ROUTE_OF_TOPIC and self._named not in answer.body:
            self._without.add((request.asker, request.text("topic")))

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """What comes too late is heard by nobody."""
