"""Answers as they are compared: without times, addresses and places, which must differ."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.message import decode_records
from ledgermq.remoting.protocol.tolerant_json import ANSWER, loads

if TYPE_CHECKING:
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.protocol.message import MessageExt

RECORDS: Final = frozenset({11, 361, 12, 33})
"""Codes whose answers carry stored messages."""
SETTINGS: Final = frozenset({26, 28, 318, 319})
"""Codes whose answers each server has of its own."""
STATUSES: Final = frozenset({19, 20, 21})
"""Codes whose remark a client may look at."""
UNSET: Final = "not set any response code"
"""RocketMQ's remark of an answer to which nobody gave a code."""
PLACES: Final = frozenset({
    "msgId", "transactionId", "offsetMsgId", "commitLogOffset", "indexLastUpdateTimestamp",
    "indexLastUpdatePhyoffset", "timestamp", "storeTimestamp", "bornHost", "storeHost", "version",
    "addTopicCount", "wipeTopicCount", "jstackEnable",
})  # fmt: skip
"""Fields that say where, when and by whom."""
TIMES: Final = re.compile(
    r"(?i).*timestamp.*|delaytime|dataversion|lasttime.*|physicoffset|physicsize|consumetps|tps|"
    r"sum|avgpt|.*version|brokeraddr|clientaddr|remoteip"
)
"""Members of a body that do so."""
LEFT_OUT: Final = frozenset({
    # RocketMQ 5 adds them.
    "enableActingMaster", "pullOffset",
    # fastjson writes them because there is a getter, and reads them into nothing.
    "consumeTimeStampStr", "maxTimeStampStr", "minTimeStampStr", "messageQueueTable",
    # Of rows that are left out, too; and what ours makes of an expression, a client of its own.
    "totalDiff", "tagsSet", "codeSet",
})  # fmt: skip
NAMES_APART: Final = frozenset({
    "", "null", "apart", "careless", "nobody", "nosuch", "other", "a b", "a.b", "7", "true", "1.5",
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "rmq_sys_LEDGER_STATE",
})  # fmt: skip
"""Topics and groups that the one side makes and the other does not, see `draw`; rows of such are
left out, and so are those of names that no client takes."""
NAME: Final = re.compile(r"(?:%RETRY%|%DLQ%)?([%|a-zA-Z0-9_.-]{0,100})")
NO_QUEUE: Final = 9
ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")
BODY_SHOWN: Final = 40


def compared(code: int, answer: RemotingCommand | None) -> dict[str, Any] | None:
    """Return what has to be the same at both sides, by name."""
    if answer is None:
        return None
    return {
        "code": answer.code,
        "fields": _fields(answer),
        "body": _body(code, answer) if answer.body else None,
        "remark": _remark(answer),
    }


def asked(command: RemotingCommand) -> dict[str, Any]:
    """Return a request of a server to a client, likewise."""
    fields = {**_fields(command), "jstackEnable": "..."}
    fields.pop("unknown", None)  # RocketMQ passes on what it does not know
    fields.pop("isForce", None)  # and tells clients that it is false, whatever a tool has said
    if "properties" in fields:
        fields["properties"] = sorted(re.findall("(\\w+)\x01", fields["properties"]))
    body = _records(command.body) if command.code in {39, 309} else _plain(command.body)
    return {"code": command.code, "oneway": command.is_oneway, "fields": fields, "body": body}


def record(message: MessageExt) -> dict[str, Any]:
    """Return what a stored message says, but for where and when."""
    names = {
        name: value for name, value in message.property_map().items() if not _is_made(name, value)
    }
    if names.get("REAL_TOPIC", "").startswith("%RETRY%"):
        names.pop("REAL_QID", None)  # drawn by the broker, where a group has several
    return {
        "topic": message.topic, "queue": message.queue_id, "offset": message.queue_offset,
        "flag": message.flag, "sysFlag": message.sys_flag, "born": message.born_timestamp,
        "retries": message.reconsume_times, "prepared": message.prepared_offset > 0,
        "body": message.body if len(message.body) < BODY_SHOWN else len(message.body),
        "properties": names,
    }  # fmt: skip


def differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Return where two compared answers differ, one line each."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for name in sorted({*theirs, *ours}):
            at = f"{path}.{name}" if path else name
            if name not in theirs:
                found.append(f"{at}: ours alone {_short(ours[name])}")
            elif name not in ours:
                found.append(f"{at}: theirs alone {_short(theirs[name])}")
            else:
                found += differences(theirs[name], ours[name], at)
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [
            line
            for number, pair in enumerate(zip(theirs, ours, strict=True))
            for line in differences(*pair, f"{path}[{number}]")
        ]
    return [] if theirs == ours else [f"{path}: theirs {_short(theirs)} ours {_short(ours)}"]


def _fields(command: RemotingCommand) -> dict[str, Any]:
    fields = command.ext_fields.items()
    return {name: "..." if name in PLACES else value for name, value in fields}


def _remark(answer: RemotingCommand) -> str | bool | None:
    """Return the status of a pull as text; of errors, whether there is a remark."""
    if answer.code in STATUSES:
        # Which of the two depends on whether somebody has asked for the queue before.
        return (answer.remark or "").replace("NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE")
    if answer.code == 0:
        return None if answer.remark in {UNSET, ""} else answer.remark
    return answer.remark is not None


def _body(code: int, answer: RemotingCommand) -> Any:
    if answer.code == 0 and code in RECORDS:
        return _records(answer.body)
    return "settings" if code in SETTINGS else _plain(answer.body)


def _plain(body: bytes) -> Any:
    return _settled(loads(body, ANSWER)) if body[:1] in {b"{", b"["} else body


def _records(body: bytes) -> list[dict[str, Any]]:
    try:
        return [record(message) for message in decode_records(body, check_crc=True)]
    except RemoteProtocolError as error:
        return [{"broken": str(error).partition(" ")[0]}]


def _is_made(name: str, value: str) -> bool:
    """Tell whether a broker made an id: ours gives one to each message, as RocketMQ 5 does."""
    is_id = name in {"UNIQ_KEY", "ORIGIN_MESSAGE_ID"} and len(value) == 32
    return is_id and not value.startswith("0" * 20)


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        if "brokerAddrs" in value:  # a group has its followers there
            value = {**value, "brokerAddrs": min(map(str, value["brokerAddrs"]))}
        return {
            str(key): "..." if TIMES.fullmatch(str(key)) else _settled(item)
            for key, item in sorted(value.items(), key=str)
            if key not in LEFT_OUT and not _is_apart(dict(key) if isinstance(key, tuple) else key)
        }
    if isinstance(value, list):
        items = [_settled(item) for item in value if not _is_apart(item)]
        return sorted((item for item in items if item != {}), key=str)
    return ADDRESS.sub("ADDRESS", value) if isinstance(value, str) else value


def _is_apart(item: Any) -> bool:
    """Tell whether a row is one that is known to differ, or says nothing."""
    if isinstance(item, str):
        parts = [NAME.fullmatch(part) for part in ADDRESS.sub("ADDRESS", item).split("@")]
        return any(part is None or part[1] in NAMES_APART for part in parts)
    if isinstance(item, dict):
        names = {str(item[name]) for name in ("topic", "groupName", "brokerName") if name in item}
        is_of_nothing = len(item) == 1 and list(item.values()) == [[]]
        return item.get("queueId") == NO_QUEUE or bool(names & NAMES_APART) or is_of_nothing
    return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 240 else f"{text[:240]}...({len(text)})"
