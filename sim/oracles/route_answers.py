"""What a name server answers about routes (105), and whether those who registered are in its table.

The table itself is judged by `routes`; here is what goes out of the door: answers are remembered
there, and one that is remembered for too long names brokers, or queues, that are no more. Compared
are the bytes of the answer, read with code of its own, with the table as it was when the request
was heard, or when it was answered.

Of a group an address has one place, and a leader of an older term takes the place of none that is
there: by the registrations that were heard and taken, not by what the table remembers of them.

What the table itself has is compared with a model of it, made of the registrations that were taken
(`route_model`).

A broker whose registration (103) was taken is in the table as long as the connection of its last
one is open and it has not taken its leave (104); that an older connection of it ends says nothing.
Source: spec/wire.md 3.2; RouteInfoManager.pickupTopicRouteData, onChannelDestroy.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sim.oracles.base import Violation
from sim.oracles.route_model import RouteModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from namesrv.server import NameServer
    from sim.oracles.wire import Said, Tap

NAME: Final = "A45 answer that is not what the table says"
GONE_NAME: Final = "A45 registered and not there"
PLACES_NAME: Final = "A45 a broker at two places"
OLDER_NAME: Final = "A45 leader of an older term taken"
MODEL_NAME: Final = "A45 route otherwise than was registered"
REFUSED_NAME: Final = "A45 follower refused again and again"
REFUSALS_MAX: Final = 3
"""So often in a row is a follower refused: it comes again over a connection of its own."""
MASTER_ID: Final = "0"
ROUTE, REGISTER, UNREGISTER = 105, 103, 104
SUCCESS, REFUSED = 0, 1

Told = tuple[dict[str, dict[str, str]], dict[str, tuple[int, int, int]]]
"""Addresses by broker name and id; read queues, write queues and permissions by broker name."""
NOTHING: Final[Told] = ({}, {})


class RouteAnswers:
    """Listens at a name server's end of all its connections; a `wire.Listener`."""

    def __init__(self, name: str, servers: Mapping[str, NameServer]) -> None:
        self._name = name
        self._servers = servers
        self._registered: dict[str, tuple[Tap, NameServer | None, int]] = {}
        """By address of a broker: over which connection it registered last, where, and when."""
        self._leaders: dict[str, tuple[NameServer, str, int]] = {}
        """By name of a group: where its last leader registered, its address, and its term."""
        self._refusals: Counter[tuple[str, str]] = Counter()
        """By group and address of a follower: how often in a row its registration was refused."""
        self._model: tuple[NameServer | None, RouteModel] = (None, RouteModel())
        """Of which life of the name server, and what its table should be."""

    def on_request(self, tap: Tap, request: Said) -> None:
        """A request comes in."""
        self._known().on_request(tap, request)
        if request.code == ROUTE:
            request.note = self._say(request.text("topic"))
        elif request.code == REGISTER:
            request.note = self._leader_of(request.text("brokerName"))
        elif request.code == UNREGISTER:
            its = self._registered.get(request.text("brokerAddr"))
            if its is not None and its[0] is tap:  # nobody takes leave for another one
                del self._registered[request.text("brokerAddr")]

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """It is answered. Errors: `Violation`."""
        model = self._known()
        model.on_answer(tap, request, answer.at_ns, is_success=answer.code == SUCCESS)
        if request.code == REGISTER and answer.code == SUCCESS:
            place = (tap, self._servers.get(self._name), answer.at_ns)
            self._registered[request.text("brokerAddr")] = place
            self._check_leader(request)
        if request.code == REGISTER:
            self._check_refusal(request, answer)
        if request.code != ROUTE or request.note is None:
            return
        topic = request.text("topic")
        told = read_route(answer.body) if answer.code == SUCCESS else NOTHING
        held = self._say(topic)
        if told not in (request.note, held):
            text = f"{self._name} tells {told} of {topic}, its table has {held}"
            raise Violation(NAME, text, node=self._name)
        wrong = model.find_wrong(topic, told, answer.at_ns)
        if wrong:
            raise Violation(MODEL_NAME, f"{self._name}: {wrong}", node=self._name)
        for group, places in told[0].items():
            if len(set(places.values())) < len(places):
                text = f"{self._name} tells {places} of {group}: a broker is at two places"
                raise Violation(PLACES_NAME, text, node=self._name)

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """What comes too late is heard by nobody."""

    def check_present(self) -> None:
        """Look for brokers that are registered, and not in the table. Errors: `Violation`."""
        server = self._servers.get(self._name)
        for addr, (tap, where, at_ns) in list(self._registered.items()):
            if server is None or where is not server or tap.is_closed:
                del self._registered[addr]
            elif addr not in server.table.broker_addrs():
                text = f"{self._name} knows nothing of {addr}, which registered at"
                text = f"{text} {at_ns / 1e9:.3f} s over a connection that is open"
                raise Violation(GONE_NAME, text, node=self._name)

    def _known(self) -> RouteModel:
        """Return the model of the table, begun anew with each life of the name server."""
        server = self._servers.get(self._name)
        if self._model[0] is not server:
            self._model = (server, RouteModel())
        return self._model[1]

    def _leader_of(self, group: str) -> str:
        """Return the address that a group's leader has in the table now, empty for none."""
        server = self._servers.get(self._name)
        known = None
        if server is not None:
            known = server.table.cluster_info().broker_addr_table.get(group)
        return "" if known is None else known.broker_addrs.get(int(MASTER_ID), "")

    def _check_leader(self, request: Said) -> None:
        """Judge who was taken for a leader; a group that is gone begins anew."""
        server, group = self._servers.get(self._name), request.text("brokerName")
        addr, term = request.text("brokerAddr"), request.number("raftTerm")
        known = self._leaders.get(group)
        if server is None or request.text("brokerId") != MASTER_ID:
            if known is not None and known[1] == addr:
                del self._leaders[group]  # it says itself that it leads no more
            return
        self._leaders[group] = (server, addr, term)
        if known is None or known[0] is not server or known[1] == addr:
            return
        its = self._registered.get(known[1])
        is_there = its is not None and its[1] is server and not its[0].is_closed
        if is_there and request.note == known[1] and -1 < term <= known[2]:
            text = f"{self._name} takes {addr} of term {term} for the leader of {group}"
            text = f"{text}, which {known[1]} of term {known[2]} is"
            raise Violation(OLDER_NAME, text, node=self._name)

    def _check_refusal(self, request: Said, answer: Said) -> None:
        """Judge a follower of a known leader that is told "no": it takes nobody's place."""
        group, addr = request.text("brokerName"), request.text("brokerAddr")
        known = self._leaders.get(group)
        is_follower = request.text("brokerId") != MASTER_ID and known is not None
        if answer.code != REFUSED or not is_follower or request.number("raftTerm") < 0:
            self._refusals.pop((group, addr), None)
            return
        self._refusals[group, addr] += 1
        if self._refusals[group, addr] > REFUSALS_MAX:
            text = f"{self._name} takes no registration of {addr}, a follower of {group}"
            raise Violation(REFUSED_NAME, f"{text}: {answer.remark}", node=self._name)

    def _say(self, topic: str) -> Told | None:
        server = self._servers.get(self._name)
        if server is None:
            return None
        route = server.table.route(topic)
        if route is None:
            return NOTHING
        return (
            {
                one.broker_name: {str(key): addr for key, addr in one.broker_addrs.items()}
                for one in route.broker_datas
            },
            {
                one.broker_name: (one.read_queue_nums, one.write_queue_nums, one.perm)
                for one in route.queue_datas
            },
        )


def read_route(body: bytes) -> Told:
    """Return what the body of an answer tells."""
    route: dict[str, Any] = json.loads(body)
    return (
        {one["brokerName"]: dict(one["brokerAddrs"]) for one in route["brokerDatas"]},
        {
            one["brokerName"]: (one["readQueueNums"], one["writeQueueNums"], one["perm"])
            for one in route["queueDatas"]
        },
    )
