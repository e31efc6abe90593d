"""Who sets the order of topics at name servers, and who speaks there in another one's name.

An order that was set is in the next route of its topic, and one that was deleted is in none, also
where the route was asked for before, and once the name server was started again. A broker is taken
out by the connection that it registered over last, and by no other; who claims its name and id has
to wait until it was asked. The brokers of this client have no topics: no route leads to them.
Source: spec/wire.md 3.1, 3.2; docs/security.md, Name servers.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from ledgermq.client import Producer
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, encode_command, make_response
from ledgermq.remoting.protocol.signing import NAMESRV_AUDIENCE, KeyCredentials, sign
from sim.clients.wire import RawConnection
from sim.layout import PEER_KEY
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

ORDER: Final = "A45 the order of a topic otherwise than it was set"
STRANGER: Final = "A45 a broker is taken out by somebody else"
UNASKED: Final = "A45 a broker is displaced unasked"
NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
TOPICS: Final = 3
ORDER_P: Final = 0.7
"""How often a step is about an order, rather than about brokers."""
CHANGED_P: Final = 0.6
PORT: Final = 10_911
SOON_S: Final = 0.3
"""Sooner than a name server gives up whom it asks."""
WAITS_S: Final = (0.0, 0.0, 0.02, 0.3)


class Broker(RawConnection):
    """The connection of what passes for a broker."""

    broker_id = 0
    is_silent = False
    """Whether it does not say that it lives."""
    asked = 0
    """How often it was asked whether it does."""

    def _take_request(self, command: RemotingCommand) -> None:
        self.asked += 1
        if not self.is_silent:
            fields = {"brokerId": str(self.broker_id)}
            answer = make_response(command, ResponseCode.SUCCESS, None, fields)
            self.write(b"".join(encode_command(answer)))


class Names:
    """One client that does so."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._asked = self._made = 0
        self._producer = Producer(
            life.named("names"), clock=life.machine.clock, rng=life.rng.split("names")
        )
        self._topics = [f"{life.name}-order-{at}" for at in range(TOPICS)]
        self._known: dict[tuple[str, str], str | None] = {}
        """By name server and topic: the order that it was told last, None for none."""
        self._lost: set[tuple[str, str]] = set()
        """Of which nobody knows, since an answer did not come."""

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        for topic in self._topics:
            await self._life.make_topic(self._producer, topic, 1)

    async def step(self, rng: SplitRng) -> None:
        """Set or look at an order, or be brokers that disturb each other."""
        server = rng.split("server").choice(self._life.namesrvs)
        connection = await self._dial(server)
        if connection is None:
            return
        try:
            if rng.split("what").chance(ORDER_P):
                await self._order(rng, server, connection)
            else:
                await self._brokers(rng, server, connection)
        finally:
            connection.close()

    # Orders

    async def _order(self, rng: SplitRng, server: str, connection: RawConnection) -> None:
        """Look at the order of all topics, change that of one, and look again."""
        await self._look(server, connection)
        if not rng.split("change").chance(CHANGED_P):
            return
        topic = rng.split("topic").choice(self._topics)
        place = (server, topic)
        fields = {"namespace": NAMESPACE, "key": topic}
        value, code = None, RequestCode.DELETE_KV_CONFIG
        if self._known.get(place) is None or rng.split("again").chance(0.3):
            value = fields["value"] = f"{GROUP_NAME}:{rng.split('queues').randint(1, 4)}"
            code = RequestCode.PUT_KV_CONFIG
        told = await self._ask(connection, code, fields, signs=True)
        if told is None or told.code != ResponseCode.SUCCESS:
            self._lost.add(place)
            return
        self._known[place] = value
        self._life.count("orders_set")
        await self._look(server, connection)

    async def _look(self, server: str, connection: RawConnection) -> None:
        """Judge the routes of all topics whose order is known."""
        for topic in self._topics:
            place = (server, topic)
            if place in self._lost:
                continue
            told = await self._ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            if told is None or told.code != ResponseCode.SUCCESS:
                continue
            self._life.count("orders_looked_at")
            known = self._known.get(place)
            found = json.loads(bytes(told.body)).get("orderTopicConf")
            if (found or None) != known:
                text = f"{server} tells order {found!r} of {topic}, and was told {known!r}"
                self._life.report(ORDER, text)

    # Brokers

    async def _brokers(self, rng: SplitRng, server: str, other: RawConnection) -> None:
        """Register a broker, and disturb it."""
        self._made += 1
        name = f"{self._life.name}-broker-{self._made}"
        broker_id = rng.split("id").choice((0, 1, 2))
        first = await self._register(server, name, broker_id)
        if first is None:
            return
        try:
            await asyncio.sleep(rng.split("wait").choice(WAITS_S))
            episode = rng.split("episode").choice((self._farewell, self._second, self._former))
            await episode(first, other, (server, name))
            await self._leave(first, name)
        finally:
            first.close()

    async def _farewell(self, first: Broker, other: RawConnection, where: tuple[str, str]) -> None:
        """Have a stranger take leave for it."""
        told = await self._ask_as_broker(other, RequestCode.UNREGISTER_BROKER, where[1], first, 1)
        await self._check_there(first, where, told, "a stranger")

    async def _former(self, first: Broker, _other: RawConnection, where: tuple[str, str]) -> None:
        """Have it register anew at the same address, and then the former process take leave."""
        first.is_silent = True
        server, name = where
        second = await self._register(server, name, first.broker_id)
        if second is None:
            return
        told = await self._ask_as_broker(first, RequestCode.UNREGISTER_BROKER, name, first, 1)
        await self._check_there(second, where, told, "who was there before")
        await self._leave(second, name)
        second.close()

    async def _check_there(
        self, broker: Broker, where: tuple[str, str], told: RemotingCommand | None, who: str
    ) -> None:
        """Judge a farewell that another one has said for a broker."""
        self._life.count("farewells_of_others")
        is_taken = told is not None and told.code == ResponseCode.SUCCESS
        is_gone = await self._is_listed(broker, where[1]) is False
        if is_taken or is_gone:
            self._life.report(STRANGER, f"{where[0]} has it from {who} that {where[1]} leaves")

    async def _second(self, first: Broker, other: RawConnection, where: tuple[str, str]) -> None:
        """Have another one register by its name and id."""
        server, name = where
        asked, began_ms = first.asked, self._life.now_ms()
        told = await self._ask_as_broker(other, RequestCode.REGISTER_BROKER, name, first, 2)
        took_s = (self._life.now_ms() - began_ms) / 1_000
        if told is None or told.code != ResponseCode.SUCCESS:
            return
        self._life.count("brokers_displaced")
        listed = await self._is_listed(first, name)
        if listed is None:
            return  # its connection may have been gone by then
        if first.asked == asked or took_s < SOON_S:
            said = "was not asked" if first.asked == asked else "has answered"
            self._life.report(UNASKED, f"{server} takes another {name}, whose first one {said}")

    async def _register(self, server: str, name: str, broker_id: int) -> Broker | None:
        """Return the connection of a broker that is registered."""
        made = await self._dial(server)
        if made is None:
            return None
        made.broker_id = broker_id
        told = await self._ask_as_broker(made, RequestCode.REGISTER_BROKER, name, made, 1)
        if told is None or told.code != ResponseCode.SUCCESS:
            made.close()
            return None
        return made

    async def _leave(self, broker: Broker, name: str) -> None:
        """Take leave in its own name: it is gone then."""
        told = await self._ask_as_broker(broker, RequestCode.UNREGISTER_BROKER, name, broker, 1)
        if told is not None and told.code == ResponseCode.SUCCESS:
            self._life.count("farewells")
            if await self._is_listed(broker, name):
                self._life.report(STRANGER, f"{broker.address} lists {name}, which took its leave")

    async def _is_listed(self, broker: Broker, name: str) -> bool | None:
        """Tell whether a broker is in the table, None if nobody says so over its connection."""
        told = await self._ask(broker, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        if told is None or told.code != ResponseCode.SUCCESS:
            return None
        table: dict[str, Any] = json.loads(bytes(told.body)).get("brokerAddrTable") or {}
        addrs = (table.get(name) or {}).get("brokerAddrs") or {}
        return self._addr_of(1) in addrs.values()

    def _addr_of(self, number: int) -> str:
        return f"{self._life.machine.address}:{PORT + self._made * 2 + number}"

    async def _ask_as_broker(
        self, connection: RawConnection, code: RequestCode, name: str, broker: Broker, number: int
    ) -> RemotingCommand | None:
        fields = {
            "brokerName": name, "brokerAddr": self._addr_of(number), "clusterName": "fitful",
            "brokerId": str(broker.broker_id), "haServerAddr": "", "compressed": "false",
        }  # fmt: skip
        body = b""
        if code == RequestCode.REGISTER_BROKER:
            body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}},"filterServerList":[]}'
        return await self._ask(connection, code, fields, body=body, signs=True)

    # Requests

    async def _dial(self, server: str) -> Broker | None:
        made = await Broker.dial(server, self._life.machine.address)
        assert made is None or isinstance(made, Broker)
        return made

    async def _ask(
        self, connection: RawConnection, code: RequestCode, fields: dict[str, str], *,
        body: bytes = b"", signs: bool = False,
    ) -> RemotingCommand | None:  # fmt: skip
        self._asked += 1
        command = RemotingCommand(code, opaque=self._asked, ext_fields=fields, body=body)
        if signs:
            command = sign(
                command, KeyCredentials(PEER_KEY.encode(), self._life.name),
                now_ms=self._life.machine.clock.wall_ms(),
                nonce=f"{self._life.name}-names-{self._asked}",
                audience=NAMESRV_AUDIENCE,
            )  # fmt: skip
        return await connection.ask(b"".join(encode_command(command)), self._asked)

    def missing(self) -> str:
        """Nothing is under way."""
        return ""
