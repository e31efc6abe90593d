"""The requests a name server answers, each a plain function of connection and command.

Source: DefaultRequestProcessor, ClientRequestProcessor 4.9.7 (spec/wire.md 3.1, 3.2).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import msgspec

from ledgermq.remoting.protocol.bodies import (
    DataVersion,
    TopicRouteData,
    decode_body,
    encode_body,
)
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import (
    BrokerHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicHeader,
    KvHeader,
    RegisterBrokerHeader,
    RouteHeader,
    decode_header,
)
from ledgermq.remoting.protocol.limits import SETTINGS_BYTES_MAX
from ledgermq.remoting.transport.requests import Permission, Requests, ServedBy, serves
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.settings import refused_change, shown_settings
from namesrv.admission import Admission, Peer
from namesrv.config import NamesrvConfig
from namesrv.guard import Guard
from namesrv.kv_config import ORDER_NAMESPACE, KvConfig
from namesrv.limits import BROKERS_MAX, ROUTES_BYTES_MAX
from namesrv.listing import Listing
from namesrv.route_table import Registered, RouteTable

_log = logging.getLogger(__name__)

Answered = RemotingCommand | Awaitable[RemotingCommand]
FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


class Processor:
    """Answers requests from the route table and the key-value configuration."""

    def __init__(
        self,
        config: NamesrvConfig,
        table: RouteTable,
        kv_config: KvConfig,
        clock: Clock,
        find_connection: Callable[[int], Peer | None],
    ) -> None:
        self._config = config
        self._table = table
        self._kv = kv_config
        self._clock = clock
        self._admission = Admission(table, clock, find_connection, self._registered)
        self._listing = Listing(table)
        self._refused: dict[tuple[str, int, str], str] = {}
        self._routes: dict[str, bytes] = {}
        self._routes_version = -1
        self._routes_bytes = 0

    def requests(self, guard: Guard) -> Requests:
        """Return what a name server serves, asked for permission by ``guard``."""
        requests = Requests(guard.wrap)
        requests.add(self, self._admission)
        return requests

    def _registered(
        self, command: RemotingCommand, header: RegisterBrokerHeader, done: Registered
    ) -> RemotingCommand:
        """Return the answer of a registration (103)."""
        if done.refusal:
            self._tell_refusal(header, done.refusal)
            return make_response(command, ResponseCode.SYSTEM_ERROR, done.refusal)
        self._refused.pop(_broker(header), None)
        if done.is_new:
            _log.info(
                "event=broker_registered broker=%s id=%d addr=%s term=%d",
                header.broker_name, header.broker_id, header.broker_addr, header.raft_term,
            )  # fmt: skip
        fields = {"haServerAddr": done.ha_addr, "masterAddr": done.master_addr}
        ext_fields = {name: value for name, value in fields.items() if value is not None}
        order = self._kv.table(ORDER_NAMESPACE) if self._config.return_order_topic_config else None
        body = b"" if order is None else encode_body(order)
        return make_response(command, ResponseCode.SUCCESS, None, ext_fields, body)

    def _tell_refusal(self, header: RegisterBrokerHeader, reason: str) -> None:
        """Tell once why a broker is refused; it comes again and again."""
        broker = _broker(header)
        if self._refused.get(broker) == reason:
            return
        if len(self._refused) >= BROKERS_MAX:
            self._refused.clear()
        self._refused[broker] = reason
        _log.warning("event=register_refused broker=%s id=%d addr=%s reason=%r", *broker, reason)

    @serves(
        RequestCode.UNREGISTER_BROKER,
        what="a broker leaves",
        header=BrokerHeader,
        permission=Permission.REGISTRATION,
    )
    def unregister(self, connection: Peer, command: RemotingCommand) -> RemotingCommand:
        """104. A broker is taken out by the connection that registered it, and by no other."""
        header = decode_header(command, BrokerHeader)
        if not self._table.is_registered_by(header.broker_addr, connection.id):
            remark = f"{header.broker_addr} is not registered over this connection"
            return make_response(command, ResponseCode.SYSTEM_ERROR, remark)
        if self._table.unregister(header.broker_name, header.broker_addr):
            _log.info("event=broker_left broker=%s addr=%s", header.broker_name, header.broker_addr)
        return make_response(command, ResponseCode.SUCCESS)

    @serves(RequestCode.GET_ROUTEINFO_BY_TOPIC, what="route of a topic", header=RouteHeader)
    def route(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """105. Numeric keys are always quoted: every client reads that, some read nothing else."""
        topic = decode_header(command, RouteHeader).topic
        body = self._remembered(f"105 {topic}", lambda: self._route(topic))
        if body is None:
            remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
            return make_response(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        return make_response(command, ResponseCode.SUCCESS, body=body)

    def _route(self, topic: str) -> TopicRouteData | None:
        route = self._table.route(topic)
        if route is not None and self._config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_NAMESPACE, topic)
        return route

    def _remembered(self, key: str, make: Callable[[], msgspec.Struct | None]) -> bytes | None:
        """Return the body of an answer, made once for each state of the table."""
        body = self._recall(key)
        if body is None:
            made = make()
            if made is None:
                return None
            body = encode_body(made)
            self._remember(key, body)
        return body

    def _recall(self, key: str) -> bytes | None:
        if self._routes_version != self._table.version or self._routes_bytes > ROUTES_BYTES_MAX:
            self._routes.clear()
            self._routes_version, self._routes_bytes = self._table.version, 0
        return self._routes.get(key)

    def _remember(self, key: str, body: bytes) -> None:
        self._routes[key] = body
        self._routes_bytes += len(body)

    def _list(
        self, command: RemotingCommand, make: Callable[[], msgspec.Struct]
    ) -> RemotingCommand:
        body = self._remembered(str(command.code), make)
        return make_response(command, ResponseCode.SUCCESS, body=body or b"")

    @serves(RequestCode.GET_BROKER_CLUSTER_INFO, what="clusters and addresses")
    def cluster_info(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """106."""
        return self._list(command, self._table.cluster_info)

    @serves(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, what="all topics")
    def topics(self, _connection: object, command: RemotingCommand) -> Answered:
        """206."""
        return self._names(command, None)

    @serves(RequestCode.GET_TOPICS_BY_CLUSTER, what="topics of a cluster", header=ClusterHeader)
    def topics_by_cluster(self, _connection: object, command: RemotingCommand) -> Answered:
        """224."""
        return self._names(command, decode_header(command, ClusterHeader).cluster)

    def _names(self, command: RemotingCommand, cluster: str | None) -> Answered:
        key = f"{command.code} {cluster}"
        body = self._recall(key)
        if body is None:
            body = self._listing.small(cluster)
            if body is None:
                return self._many_names(command, cluster)
            self._remember(key, body)
        return make_response(command, ResponseCode.SUCCESS, body=body)

    async def _many_names(self, command: RemotingCommand, cluster: str | None) -> RemotingCommand:
        version = self._table.version
        body = await self._listing.large(cluster)
        key = f"{command.code} {cluster}"
        if self._recall(key) is None and version == self._table.version:
            self._remember(key, body)
        return make_response(command, ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, what="system topics")
    def system_topics(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """304."""
        return self._list(command, self._table.system_topics)

    @serves(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        what="delete a topic here",
        header=DeleteTopicHeader,
        permission=Permission.ADMINISTRATION,
    )
    def delete_topic(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """216. Succeeds for a topic that is not there, too; an empty cluster stands for all."""
        header = decode_header(command, DeleteTopicHeader)
        self._table.delete_topic(header.topic, header.cluster_name or None)
        return make_response(command, ResponseCode.SUCCESS)

    @serves(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        what="take write permission of a broker",
        header=BrokerNameHeader,
        permission=Permission.ADMINISTRATION,
    )
    def wipe_write_perm(self, _connection: object, command: RemotingCommand) -> Answered:
        """205. Lasts until the broker registers with a changed table."""
        name = decode_header(command, BrokerNameHeader).broker_name
        count, steps = self._table.set_write_perm(name, allowed=False)
        fields = {"wipeTopicCount": str(count)}
        return _after(steps, make_response(command, ResponseCode.SUCCESS, None, fields))

    @serves(
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        what="give write permission of a broker",
        header=BrokerNameHeader,
        permission=Permission.ADMINISTRATION,
    )
    def add_write_perm(self, _connection: object, command: RemotingCommand) -> Answered:
        """327."""
        name = decode_header(command, BrokerNameHeader).broker_name
        count, steps = self._table.set_write_perm(name, allowed=True)
        fields = {"addTopicCount": str(count)}
        return _after(steps, make_response(command, ResponseCode.SUCCESS, None, fields))

    @serves(
        RequestCode.QUERY_DATA_VERSION,
        what="has my topic table changed? Also a sign of life",
        header=BrokerHeader,
        permission=Permission.REGISTRATION,
    )
    def query_data_version(self, connection: Peer, command: RemotingCommand) -> RemotingCommand:
        """322. Who registered it is heard of by this."""
        header = decode_header(command, BrokerHeader)
        version = decode_body(command.body, DataVersion)
        changed, known = True, None
        if self._table.is_registered_by(header.broker_addr, connection.id):
            now_ms = self._clock.monotonic_ms()
            changed, known = self._table.touch(header.broker_addr, version, now_ms)
        fields = {"changed": "true" if changed else "false"}
        body = b"" if known is None else encode_body(known)
        return make_response(command, ResponseCode.SUCCESS, None, fields, body)

    @serves(
        RequestCode.PUT_KV_CONFIG,
        what="key-value configuration: put",
        header=KvHeader,
        permission=Permission.ADMINISTRATION,
    )
    def put_kv(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """100."""
        header = decode_header(command, KvHeader)
        refusal = self._kv.put(header.namespace, header.key, header.value)
        if refusal is not None:
            return make_response(command, ResponseCode.SYSTEM_ERROR, refusal)
        self._table.version += 1
        return make_response(command, ResponseCode.SUCCESS)

    @serves(RequestCode.GET_KV_CONFIG, what="key-value configuration: get", header=KvHeader)
    def get_kv(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """101."""
        header = decode_header(command, KvHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return make_response(command, ResponseCode.QUERY_NOT_FOUND, remark, {})
        return make_response(command, ResponseCode.SUCCESS, None, {"value": value})

    @serves(
        RequestCode.DELETE_KV_CONFIG,
        what="key-value configuration: delete",
        header=KvHeader,
        permission=Permission.ADMINISTRATION,
    )
    def delete_kv(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """102."""
        header = decode_header(command, KvHeader)
        self._kv.delete(header.namespace, header.key)
        self._table.version += 1
        return make_response(command, ResponseCode.SUCCESS)

    @serves(
        RequestCode.GET_KVLIST_BY_NAMESPACE, what="key-value configuration: list", header=KvHeader
    )
    def kv_list(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """219."""
        namespace = decode_header(command, KvHeader).namespace
        table = self._kv.table(namespace)
        if table is None:
            remark = f"No config item, Namespace: {namespace}"
            return make_response(command, ResponseCode.QUERY_NOT_FOUND, remark)
        return _with_body(command, table)

    @serves(RequestCode.GET_NAMESRV_CONFIG, what="settings, but for keys and certificates")
    def settings(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """319."""
        return make_response(command, ResponseCode.SUCCESS, body=shown_settings(self._config))

    @serves(
        RequestCode.UPDATE_NAMESRV_CONFIG,
        what="change of settings",
        limits=(SETTINGS_BYTES_MAX,),
        served_by=ServedBy.NOBODY,
    )
    def change_settings(self, _connection: object, command: RemotingCommand) -> RemotingCommand:
        """318. Refused, as a broker's 25."""
        if len(command.body) > SETTINGS_BYTES_MAX:
            return make_response(command, ResponseCode.SYSTEM_ERROR, "too large a body")
        is_known, remark = refused_change(self._config, bytes(command.body))
        code = ResponseCode.NO_PERMISSION if is_known else ResponseCode.SYSTEM_ERROR
        return make_response(command, code, remark)


def _after(steps: Iterator[None], answer: RemotingCommand) -> Answered:
    """Return the answer of what is done in steps: at once, if there is one step only."""
    next(steps, None)
    return answer if next(steps, steps) is steps else _after_all(steps, answer)


async def _after_all(steps: Iterator[None], answer: RemotingCommand) -> RemotingCommand:
    for _ in steps:
        await asyncio.sleep(0)
    return answer


def _with_body(command: RemotingCommand, body: msgspec.Struct) -> RemotingCommand:
    return make_response(command, ResponseCode.SUCCESS, body=encode_body(body))


def _broker(header: RegisterBrokerHeader) -> tuple[str, int, str]:
    return header.broker_name, header.broker_id, header.broker_addr
