"""A message as a row: the names that a Java client gives its fields, values that JSON knows.

What ``ledgermq admin queryMsg...`` and ``ledgermq store dump`` print, one spelling for both.
"""

from base64 import b64encode
from typing import Any

from ledgermq.remoting.protocol.hosts import unpack_host
from ledgermq.remoting.protocol.message import MessageExt


def message_row(message: MessageExt) -> dict[str, Any]:
    """Return the fields of a message; the body, as it is stored, in base64."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.size,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "bornTimestamp": message.born_timestamp,
        "bornHost": _address(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": "/" + _address(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_offset,
        "msgId": message.message_id(),
        "offsetMsgId": message.offset_message_id(),
        "properties": dict(sorted(message.property_map().items())),
        "bodyBase64": b64encode(message.body).decode(),
    }


def _address(packed: bytes) -> str:
    host, port = unpack_host(packed)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
