"""JSON bodies: routes, registration, heartbeats, locks, lists.

Members are in the order in which fastjson writes them (alphabetical); None is left out, empty
collections are not. Reading is tolerant (spec/wire.md 3.10): unknown members are ignored, null is a
missing member, `tolerant_json` takes what strict JSON refuses.

Source: TopicRouteData, RegisterBrokerBody, HeartbeatData and other RemotingSerializable classes.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.limits import (
    REGISTER_BYTES_MAX,
    ROUTE_VALUES_MAX,
    Int32,
    Int64,
)
from ledgermq.remoting.protocol.tolerant_json import (
    ANSWER,
    FILE,
    NOT_DECODED,
    REGISTRATION,
    REQUEST,
    Json,
    Reach,
    check_body,
    loads,
)

Body = TypeVar("Body")


class _Struct(msgspec.Struct, rename="camel"):
    """Camel-case names on the wire, snake case here."""


class QueueData(_Struct, kw_only=True, gc=False):
    """The queues of one topic on one broker group; ``perm`` bits: 4 read, 2 write, 1 inherit."""

    broker_name: str
    perm: Int32
    read_queue_nums: Int32
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32


class BrokerData(_Struct, kw_only=True):
    """One broker group: its addresses by broker id, 0 being the master or leader.

    ``enable_acting_master`` is RocketMQ 5's: a slave that serves in its master's place. Ours never
    does; the member is told all the same, since the Rust client reads no route without it.
    """

    broker_addrs: dict[Int64, str] = {}
    broker_name: str
    cluster: str = ""
    enable_acting_master: bool = False


class TopicRouteData(_Struct, kw_only=True):
    """Answer of 105."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []


class ClusterInfo(_Struct, kw_only=True):
    """Answer of 106."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicList(_Struct, kw_only=True):
    """Answer of 206, 224 and 304."""

    broker_addr: str | None = None
    topic_list: list[str] = []


class KvTable(_Struct, kw_only=True):
    """Answer of 103 and 219."""

    table: dict[str, str] = {}


class DataVersion(_Struct, kw_only=True):
    """Version of a table; two are the same when both members are."""

    counter: Int64 = 0
    timestamp: Int64 = 0


class TopicConfig(_Struct, kw_only=True):
    """One topic as a broker holds it."""

    order: bool = False
    perm: Int32 = 6
    read_queue_nums: Int32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16


class TopicConfigWrapper(_Struct, kw_only=True):
    """All topics of a broker, with the version of the table."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}


class RegisterBrokerBody(_Struct, kw_only=True):
    """Body of 103."""

    filter_server_list: list[str] = []
    topic_config_serialize_wrapper: TopicConfigWrapper = msgspec.field(
        default_factory=TopicConfigWrapper
    )


class SubscriptionData(_Struct, kw_only=True):
    """What a group wants of one topic; ``code_set`` holds the Java hashes of the tags."""

    class_filter_mode: bool = False
    code_set: list[Int32] = []
    expression_type: str | None = "TAG"
    sub_string: str = "*"
    sub_version: Int64 = 0
    tags_set: list[str] = []
    topic: str


class ConsumerData(_Struct, kw_only=True):
    """One consumer group of a client."""

    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    consume_type: str = "CONSUME_PASSIVELY"
    group_name: str
    message_model: str = "CLUSTERING"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(_Struct, kw_only=True):
    """One producer group of a client."""

    group_name: str


class HeartbeatData(_Struct, kw_only=True):
    """Body of 34."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = []
    producer_data_set: list[ProducerData] = []


class ConsumerIdList(_Struct, kw_only=True):
    """Answer of 38."""

    consumer_id_list: list[str] = []


class QueueKey(msgspec.Struct, rename="camel", frozen=True):
    """A message queue, as member and as map key."""

    broker_name: str
    queue_id: Int32
    topic: str


class LockBody(_Struct, kw_only=True):
    """Body of 41 and 42."""

    client_id: str
    consumer_group: str
    mq_set: list[QueueKey] = []


class LockResult(_Struct, kw_only=True):
    """Answer of 41."""

    lock_ok_mq_set: list[QueueKey] = msgspec.field(name="lockOKMQSet", default_factory=list)


class ClientConnection(_Struct, kw_only=True):
    """One connected client of a group."""

    client_addr: str
    client_id: str
    language: str
    version: Int32


class ConsumerConnection(_Struct, kw_only=True):
    """Answer of 203."""

    connection_set: list[ClientConnection] = []
    consume_from_where: str | None = None
    consume_type: str | None = None
    message_model: str | None = None
    subscription_table: dict[str, SubscriptionData] = {}


class _LooseConsumerData(ConsumerData, kw_only=True):
    """Enumerations by their number, as the published C++ client writes them and fastjson reads."""

    consume_from_where: Any = "CONSUME_FROM_LAST_OFFSET"
    consume_type: Any = "CONSUME_PASSIVELY"
    message_model: Any = "CLUSTERING"

    def __post_init__(self) -> None:
        self.consume_from_where = _member(_CONSUME_FROM_WHERE, self.consume_from_where)
        self.consume_type = _member(_CONSUME_TYPES, self.consume_type)
        self.message_model = _member(_MESSAGE_MODELS, self.message_model)


class _LooseHeartbeatData(HeartbeatData, kw_only=True):
    consumer_data_set: list[_LooseConsumerData] = []  # type: ignore[assignment]  # only read


class _LooseTopicConfig(TopicConfig, kw_only=True):
    topic_filter_type: Any = "SINGLE_TAG"

    def __post_init__(self) -> None:
        self.topic_filter_type = _member(_FILTER_TYPES, self.topic_filter_type)


_CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
_CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_LOOSE: Final[dict[Any, Any]] = {
    HeartbeatData: _LooseHeartbeatData,
    TopicConfig: _LooseTopicConfig,
}
"""What else of a kind is read, where the usual members do not fit."""


def _member(names: tuple[str, ...], value: object) -> str:
    """Return the name of an enumeration's member that is given by name or number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(f"{value} is not a number of {', '.join(names)}")
    return names[value]


def decode_body(data: bytes, kind: type[Body], reach: Reach = REQUEST) -> Body:
    """Return a body as ``kind``. Errors: `RemoteProtocolError` if it is none.

    A request's body has limits: decoding it must not hold up the others.
    """
    check_body(data, reach)
    loose: type[Body] = _LOOSE.get(kind, kind)
    if b'"$ref"' not in data:
        with suppress(*NOT_DECODED):
            return msgspec.json.decode(data, type=kind, strict=False)
        if loose is not kind:
            with suppress(*NOT_DECODED):
                return msgspec.json.decode(data, type=loose, strict=False)
    try:
        return msgspec.convert(_without_null(loads(data, reach)), loose, strict=False)
    except NOT_DECODED as error:
        raise RemoteProtocolError(f"body is not a {kind.__name__}: {error}") from error


def decode_file(data: bytes, kind: type[Body]) -> Body:
    """Return a file of a directory of ours as ``kind``. Errors: `RemoteProtocolError`."""
    return decode_body(data, kind, FILE)


def decode_answer(data: bytes, kind: type[Body]) -> Body:
    """Return the body of an answer to us as ``kind``. Errors: `RemoteProtocolError`."""
    return decode_body(data, kind, ANSWER)


def encode_body(body: msgspec.Struct) -> bytes:
    """Return the JSON of a body; None is left out."""
    values = ((name, getattr(body, field)) for field, name in _names_of(type(body)))
    members = {name: value for name, value in values if value is not None}
    text = msgspec.json.encode(members)
    if b":null" not in text:  # large lists have none, and the walk through them takes long
        return text
    return msgspec.json.encode({name: _shortened(value) for name, value in members.items()})


def _shortened(value: Any) -> Json:  # noqa: ANN401 - a member of any body
    """Return a member of a body without None; what holds text that was made before is whole."""
    with suppress(TypeError):
        return _without_null(msgspec.to_builtins(value))
    return value


@cache
def _names_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))


def decode_topic_route(data: bytes) -> TopicRouteData:
    """Return the body of a route answer. Errors: `RemoteProtocolError`."""
    values = data.count(b",") + data.count(b"{")
    if values > ROUTE_VALUES_MAX:
        raise RemoteProtocolError(f"route of {values} values, more than {ROUTE_VALUES_MAX}")
    return decode_answer(data, TopicRouteData)


def decode_heartbeat(data: bytes) -> HeartbeatData:
    """Return the body of a heartbeat. Errors: `RemoteProtocolError`."""
    return decode_body(data, HeartbeatData)


def queue_map(entries: Iterable[tuple[QueueKey, Any]]) -> msgspec.Raw:
    """Return a map with message queues as keys, as fastjson writes it: objects for keys.

    This is no JSON, but the only form that both fastjson generations read back.
    """
    encode = msgspec.json.encode
    parts = [encode(queue) + b":" + encode(value) for queue, value in entries]
    return msgspec.Raw(b"{" + b",".join(parts) + b"}")


def queue_key(key: Json) -> QueueKey:
    """Return the queue that a map key read by `tolerant_json` stands for.

    Errors: `RemoteProtocolError` for any other key.
    """
    try:
        if isinstance(key, str):
            return msgspec.json.decode(key, type=QueueKey)
        return msgspec.convert(dict(key), QueueKey)
    except (*NOT_DECODED, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"{key!r} is not a message queue") from error


def body_crc32(body: bytes) -> int:
    """Return the checksum of a registration: Java's CRC32 without its top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


class _RawWrapper(_Struct, kw_only=True):
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, msgspec.Raw] = {}


class _RawRegisterBody(_Struct, kw_only=True):
    """A registration whose topics are not read yet."""

    topic_config_serialize_wrapper: _RawWrapper = msgspec.field(default_factory=_RawWrapper)


def register_parts(
    data: bytes, *, compressed: bool
) -> tuple[DataVersion, Iterator[tuple[str, TopicConfig]]]:
    """Return the version of a registration, and its topics by name, each read when it is asked for.

    The compressed form is a zlib stream of: length 4 + DataVersion JSON; count 4; per topic
    length 4 + text ``name readQueues writeQueues perm filterType``; length 4 + filter server JSON.
    What follows (RocketMQ 5) is ignored. Errors: `RemoteProtocolError`, from the iterator, too.
    """
    if compressed:
        return _inflated_parts(data)
    if not data:
        return DataVersion(), iter(())
    if b'"$ref"' not in data:
        with suppress(*NOT_DECODED):
            raw = msgspec.json.decode(data, type=_RawRegisterBody, strict=False)
            wrapper = raw.topic_config_serialize_wrapper
            return wrapper.data_version, _read_topics(wrapper.topic_config_table)
    whole = decode_body(data, RegisterBrokerBody, REGISTRATION).topic_config_serialize_wrapper
    return whole.data_version, iter(whole.topic_config_table.items())


def _read_topics(table: dict[str, msgspec.Raw]) -> Iterator[tuple[str, TopicConfig]]:
    for name, raw in table.items():
        yield name, decode_body(bytes(raw), TopicConfig)


def _inflated_parts(data: bytes) -> tuple[DataVersion, Iterator[tuple[str, TopicConfig]]]:
    reader = _inflate(data)
    return decode_body(reader.block(), DataVersion), _text_topics(reader)


def _inflate(data: bytes) -> "_LengthReader":
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, REGISTER_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"registration is not a zlib stream: {error}") from error
    if not inflater.eof:
        raise RemoteProtocolError("registration is cut short or too large")
    return _LengthReader(plain)


def _text_topics(reader: "_LengthReader") -> Iterator[tuple[str, TopicConfig]]:
    for _ in range(reader.count()):
        config = _topic_of_text(reader.block())
        yield config.topic_name, config


def decode_register_body(data: bytes, *, compressed: bool) -> RegisterBrokerBody:
    """Return the body of a registration, see `register_parts`. Errors: `RemoteProtocolError`."""
    if not compressed:
        return decode_body(data, RegisterBrokerBody, REGISTRATION) if data else RegisterBrokerBody()
    reader = _inflate(data)
    version = decode_body(reader.block(), DataVersion)
    wrapper = TopicConfigWrapper(
        data_version=version, topic_config_table=dict(_text_topics(reader))
    )
    servers = decode_body(reader.block(), list[str], REGISTRATION)
    return RegisterBrokerBody(filter_server_list=servers, topic_config_serialize_wrapper=wrapper)


def encode_register_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Return the bytes of a registration, see `decode_register_body`."""
    if not compressed:
        return encode_body(body)
    wrapper = body.topic_config_serialize_wrapper
    blocks = [_block(encode_body(wrapper.data_version))]
    blocks.append(_INT32.pack(len(wrapper.topic_config_table)))
    for topic in wrapper.topic_config_table.values():
        text = (
            f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} "
            f"{topic.perm} {topic.topic_filter_type}"
        )
        blocks.append(_block(text.encode()))
    blocks.append(_block(msgspec.json.encode(body.filter_server_list)))
    return zlib.compress(b"".join(blocks))


_INT32: Final = struct.Struct(">i")


class _LengthReader:
    """Reads blocks that follow their length."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        """Read a number that is not negative and not beyond the bytes that are left."""
        left = len(self._data) - self._position - 4
        if left < 0:
            raise RemoteProtocolError("registration ends early")
        (number,) = _INT32.unpack_from(self._data, self._position)
        if not 0 <= number <= left:
            raise RemoteProtocolError(f"length {number} with {left} bytes left")
        self._position += 4
        return int(number)

    def block(self) -> bytes:
        """Read a length and as many bytes."""
        size = self.count()
        start, self._position = self._position, self._position + size
        return self._data[start : self._position]


def _block(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _topic_of_text(text: bytes) -> TopicConfig:
    words = text.decode("utf-8", "replace").split(" ")
    try:
        name, read, write, perm, kind = words[:5]
        return TopicConfig(
            topic_name=name, read_queue_nums=int(read), write_queue_nums=int(write),
            perm=int(perm), topic_filter_type=kind,
        )  # fmt: skip
    except ValueError as error:
        raise RemoteProtocolError(f"{text[:80]!r} is not a topic of a registration") from error


def _without_null(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return value
