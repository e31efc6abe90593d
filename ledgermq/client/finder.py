"""Finding single messages: by key, by unique key, by the id that holds their place.

Every broker of the topic is asked, its leader in a group. The answers are checked again, since the
index of a broker tells keys apart only by their hash. Source: RocketMQ MQAdminImpl.
"""

from ledgermq.client.broker_api import KeySelection
from ledgermq.client.config import ClientConfig
from ledgermq.client.instance import ClientInstance
from ledgermq.client.lifecycle import StartStop
from ledgermq.client.message import MessageQueue
from ledgermq.client.validation import check_topic
from ledgermq.remoting.protocol.bodies import HeartbeatData, ProducerData
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError, ResponseError
from ledgermq.remoting.protocol.message import MessageExt, parse_offset_message_id
from ledgermq.remoting.protocol.properties import KEYS
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng, SystemRng

_SYSTEM_CLOCK = SystemClock()
COUNT_MAX = 64


class MessageFinder(StartStop):
    """Finds messages; use it as an async context manager."""

    def __init__(
        self, config: ClientConfig, *, clock: Clock = _SYSTEM_CLOCK, rng: Rng | None = None
    ) -> None:
        self._config = config
        self._instance = ClientInstance(config, clock, rng or SystemRng())
        self._leaders = self._instance.leader_calls()

    async def start(self) -> None:
        """Begin route polling; contacts nobody yet."""
        self._instance.start(self._heartbeat)

    async def stop(self) -> None:
        """Close all connections."""
        await self._instance.stop(consumer=False, drained=lambda: True)

    async def by_key(
        self,
        topic: str,
        key: str,
        max_count: int = COUNT_MAX,
        begin_ms: int = 0,
        end_ms: int = (1 << 63) - 1,
    ) -> list[MessageExt]:
        """Return messages with ``key`` among their KEYS, oldest first, ``max_count`` a broker.

        Times are store times. Errors: ``RemotingError`` if any broker cannot answer.
        """
        if not 1 <= max_count <= COUNT_MAX:
            raise ValueError(f"max_count {max_count} is not in 1..{COUNT_MAX}")
        selection = KeySelection(max_count=max_count, begin_ms=begin_ms, end_ms=end_ms)
        found = await self._query(topic, key, selection)
        return [one for one in found if key in (one.maybe_property(KEYS) or "").split(" ")]

    async def by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """Return the messages that a producer gave this id; more than one if it was sent again."""
        found = await self._query(topic, unique_key, KeySelection(unique=True))
        return [one for one in found if one.message_id() == unique_key]

    async def by_id(self, offset_message_id: str) -> MessageExt | None:
        """Return the message that a broker gave this id, None if there is none.

        The id names the broker. Errors: ``LocalProtocolError`` if it is no such id.
        """
        self._check_running()
        try:
            host, port, physical = parse_offset_message_id(offset_message_id)
        except RemoteProtocolError as error:
            raise LocalProtocolError(str(error)) from error
        try:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            return await self._instance.api.view_message(address, physical)
        except ResponseError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                return None
            raise

    async def _query(self, topic: str, key: str, selection: KeySelection) -> list[MessageExt]:
        check_topic(topic)
        self._check_running()
        route = await self._instance.routes.refresh(topic)
        found: list[MessageExt] = []
        for broker in sorted({queue.broker_name for queue in route.subscribe_queues}):
            found += await self._leaders.call(
                MessageQueue(topic, broker, 0),
                lambda addr: self._instance.api.query_messages(addr, topic, key, selection),
                slaves=True,
            )
        found = [one for one in found if one.topic == topic]
        return sorted(found, key=lambda one: (one.store_timestamp, one.physical_offset))

    def _check_running(self) -> None:
        self._instance.check_running("finder")

    def _heartbeat(self) -> HeartbeatData:
        group = ProducerData(group_name=self._config.group)
        return HeartbeatData(client_id=self._instance.client_id, producer_data_set=[group])
