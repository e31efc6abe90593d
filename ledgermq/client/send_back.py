"""Giving a message back that the listener could not consume, to have it again later.

The broker is asked to copy it (36): it has the message, and the copy is made of what it stored.
Where that fails, the copy is sent from here, to the retry topic of the group on any broker that
takes it. Only if that fails, too, is the message kept, and tried again here
(`ledgermq.client.consume`). Both ways are at least once: where the outcome of one is unknown, the
other may make a second copy. A broker that does not know 36 keeps no retries; nothing is sent then.
Source: DefaultMQPushConsumerImpl.sendMessageBack (spec/wire.md 3.4, 7.5).
"""

import logging

from ledgermq.client.broker_api import BrokerApi
from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import NoRoute
from ledgermq.client.leader import LeaderCalls
from ledgermq.client.message import MessageQueue
from ledgermq.client.route import RouteCache
from ledgermq.client.subscription import retry_topic
from ledgermq.remoting.protocol.compression import COMPRESSED_ZLIB, TYPE_MASK, compress
from ledgermq.remoting.protocol.errors import RemotingError, RequestCodeNotSupported
from ledgermq.remoting.protocol.message import FLAG_COMPRESSED, MessageExt
from ledgermq.remoting.protocol.properties import (
    CLUSTER,
    DELAY,
    MAX_OFFSET,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
    format_properties,
)

_log = logging.getLogger(__name__)

FIRST_LEVEL = 3
"""The delay level of the first retry where nobody asks for another; one higher each time."""
PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""Whose sends retries are, to brokers."""
_OF_THE_STORED = frozenset(
    {CLUSTER, DELAY, MAX_OFFSET, MIN_OFFSET, REAL_QID, REAL_TOPIC, TRAN_MSG, WAIT}
)
"""Properties that say how this copy was stored, and nothing of the next one."""


class SendBack:
    """Gives back what the listener of one push consumer could not consume."""

    def __init__(
        self, api: BrokerApi, routes: RouteCache, leaders: LeaderCalls, config: ClientConfig,
        reconsume_times_max: int,
    ) -> None:  # fmt: skip
        self._api = api
        self._routes = routes
        self._leaders = leaders
        self._config = config
        self._retry_topic = retry_topic(config.group)
        self._maybe_times_max = None if reconsume_times_max < 0 else reconsume_times_max
        """None: the broker goes by the settings of the group."""

    async def give(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> None:
        """Have ``message`` of ``queue`` delivered again later; level 0: as late as is usual.

        Errors: ``RemotingError`` if that is not sure, and the message must be kept.
        """
        api, call = self._api, self._leaders.call
        try:
            await call(
                queue, lambda addr: api.send_back(addr, message, delay_level, self._maybe_times_max)
            )
        except RequestCodeNotSupported:
            raise
        except RemotingError as error:
            _log.info(
                "queue=%s offset=%d event=retry_sent_from_here error=%s",
                queue, message.queue_offset, error,
            )  # fmt: skip
            await self._send_copy(queue.broker_name, message, delay_level)

    async def _send_copy(self, broker_name: str, message: MessageExt, delay_level: int) -> None:
        """Send a copy to the retry topic, on the broker that had the message if it can be."""
        route = await self._routes.get(self._retry_topic)
        queues = route.publish_queues
        if not queues:
            raise NoRoute(f"topic {self._retry_topic} has no writable queue")
        queue = next((one for one in queues if one.broker_name == broker_name), queues[0])
        # A body that could not be decompressed goes as it came.
        body, sys_flag = message.body, message.sys_flag & (FLAG_COMPRESSED | TYPE_MASK)
        if not sys_flag and 0 < self._config.compress_over_bytes < len(body):
            body, sys_flag = compress(body), COMPRESSED_ZLIB
        fields = self._fields(queue, message, delay_level) | {"f": str(sys_flag)}
        times_max = message.reconsume_times if delay_level < 0 else self._maybe_times_max
        await self._leaders.call(
            queue, lambda addr: self._api.send_retry(addr, fields, body, times_max)
        )

    def _fields(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> dict[str, str]:
        """Return the header of a send of the copy, without sysFlag and limit.

        The broker compares the deliveries, with the one that this copy is for, with the limit.
        """
        times = message.reconsume_times
        return {
            "a": PRODUCER_GROUP,
            "b": queue.topic,
            "c": "",
            "d": "0",
            "e": str(queue.queue_id),
            "g": str(message.born_timestamp),
            "h": str(message.flag),
            "i": _copy_properties(message, max(delay_level, 0) or FIRST_LEVEL + times),
            "j": str(times + 1),
            "k": "false",
            "m": "false",
            "n": queue.broker_name,
        }


def _copy_properties(message: MessageExt, delay_level: int) -> str:
    properties = {
        name: value for name, value in message.property_map().items() if name not in _OF_THE_STORED
    }
    properties[RETRY_TOPIC] = message.topic
    properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_message_id())
    properties[DELAY] = str(delay_level)
    return format_properties(properties).decode()
