"""Draws requests: what a client or a tool may send, and, now and then, what none should."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ledgermq.remoting.protocol.message import BatchElement, encode_batch
from ledgermq.remoting.protocol.properties import format_properties, java_string_hash
from tests.interop.differential.sides import BROKER, Ref
from tests.interop.differential.words import (
    APART,
    BORN_MS,
    CARELESS,
    CLIENTS,
    EXPRESSIONS,
    EXPRESSIONS_OF_MEMBERS,
    GROUPS,
    LONG,
    LONGS,
    NO_BOOLS,
    NO_NUMBERS,
    NUMBERS,
    ODD_GROUPS,
    ODD_TOPICS,
    SCHEDULE_TOPIC,
    SINGLE,
    SPOILING,
    SPOILT,
    TAGS,
    TOPICS,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Step:
    """A request as drawn; values may be `Ref`. ``odd`` says what was spoilt of it."""

    code: int
    fields: dict[str, Any]
    body: Any = b""
    target: str = "broker"
    link: int = 0
    binary: bool = False
    oneway: bool = False
    odd: str = ""
    odd_field: str = ""
    then: Step | None = None
    """What is sent while this one, a pull from the end of a queue, is held."""

    def described(self) -> str:
        """Return it as one line."""
        marks = "".join(
            f" {name}"
            for name, is_so in (("binary", self.binary), ("oneway", self.oneway), (self.odd, True))
            if is_so and name
        )
        body = repr(self.body)[: 2_000 if self.code == 34 else 300] if self.body else ""
        fields = {
            name: (value if len(str(value)) < 400 else f"{str(value)[:20]}...({len(str(value))})")
            for name, value in self.fields.items()
        }
        return f"{self.target} {self.code}{marks} {fields} {body}"


@dataclass
class Draw:
    """Draws step after step.

    ``sent`` is how many messages the sides know places of; ``plain`` are those anybody may read.
    """

    seed: int
    sent: int = 0
    plain: list[int] = field(default_factory=list)
    halves: list[tuple[int, str]] = field(default_factory=list)
    joined: set[tuple[int, str]] = field(default_factory=set)
    """Which client is in which group; who is in none tells nobody by leaving."""
    numbers: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def steps(self) -> list[Step]:
        """Return what prepares a run: two topics, a group."""
        return [
            self._made(TOPICS[0], 4), self._made(TOPICS[1], 2), self._made(APART, 4),
            self._made(SINGLE, 1), Step(200, {}, self._group_body(GROUPS[0])),
            Step(200, {}, self._group_body(CARELESS)),
            # Their retry topics are made when first needed, ours not by what is refused then.
            Step(34, {}, json.dumps(self._heartbeat(0, GROUPS)).encode()),
        ]  # fmt: skip

    def step(self) -> Step:
        """Return the next request."""
        kinds, weights = zip(*_KINDS, strict=True)
        made: Step = self.rng.choices(kinds, weights)[0](self)
        made = replace(made, binary=made.binary or self._chance(0.15))
        if made.fields and made.then is None and self._chance(0.12):
            made = self._spoilt(made)
        return made

    def last_steps(self) -> list[Step]:
        """Return what ends a run: all messages and tables are read, then things are removed.

        After a removal RocketMQ drops what others still use.
        """
        kept = [
            *TOPICS,
            SCHEDULE_TOPIC,
            *(f"{p}{name}" for p in ("%RETRY%", "%DLQ%") for name in GROUPS),
        ]
        reads = [
            self._read(topic, queue, first)
            for topic in kept
            for queue in range(4)
            for first in (0, 32)
        ]
        tables = [Step(code, {}) for code in (21, 201, 43, 305, 317)]
        groups = [Step(207, {"groupName": name}) for name in (*GROUPS[2:], "nobody", "", "a b")]
        topics = [Step(215, {"topic": topic}) for topic in (*TOPICS[3:], *ODD_TOPICS[:12], "")]
        cleaning = [Step(code, {}) for code in (201, 21, 306, 316, 329)]
        routes = [Step(105, {"topic": topic}, target="namesrv") for topic in TOPICS]
        names = [Step(206, {}, target="namesrv")]
        return reads + tables + groups + topics + cleaning + names + routes

    def _read(self, topic: str, queue: int, first: int) -> Step:
        return Step(
            11,
            {
                "consumerGroup": GROUPS[0], "topic": topic, "queueId": queue, "queueOffset": first,
                "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                "subscription": "*", "subVersion": 0, "expressionType": "TAG",
            },
        )  # fmt: skip

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _topic(self, odd: float = 0.12) -> str:
        return self.rng.choice(ODD_TOPICS if self._chance(odd) else TOPICS)

    def _group(self, odd: float = 0.1) -> str:
        return self.rng.choice(ODD_GROUPS if self._chance(odd) else GROUPS)

    def _queue(self) -> int:
        return self.rng.choice(NUMBERS) if self._chance(0.1) else self.rng.randrange(4)

    def _place(self, part: str) -> Any:
        if not self.plain or self._chance(0.12):
            # Any other place may hold a message of the one side's own.
            return self.rng.choice((-1, -(2**63), 2**40, 2**63 - 1)) if part != "id" else "00"
        plus = self.rng.choice((0, 0, 0, 0, 0, 0, 0, 1)) if part == "physical" else 0
        return Ref(self.rng.choice(self.plain), part, plus)

    def _spoilt(self, step: Step) -> Step:
        fields = dict(step.fields)
        texts = [str(value) for value in fields.values()]
        if step.code in {35, 324, 325} or any(
            "TRAN_MSG" in text or "DELAY" in text for text in texts
        ):
            return step
        name = self.rng.choice(list(fields))
        _put_apart(step.code, fields)
        name = "offset" if name == "delayLevel" else name
        kind = self.rng.randrange(4)
        if kind == 0:
            del fields[name]
            return replace(step, fields=fields, odd="missing", odd_field=name)
        if kind == 1:
            fields["unknown"] = self.rng.choice(("x", 7, True, None))
            return replace(step, fields=fields, odd="extra", odd_field="unknown")
        value = fields[name]
        if isinstance(value, bool) or value in {"true", "false"}:
            fields[name] = self.rng.choice(NO_BOOLS)
        elif isinstance(value, (int, Ref)):
            fields[name] = self.rng.choice((*NO_NUMBERS, *LONGS))
        else:
            fields[name] = self.rng.choice((7, True, 1.5, None, ""))
        return replace(step, fields=fields, odd="other", odd_field=name)

    # Topics and groups.

    def _made(self, topic: str, queues: int, **more: Any) -> Step:
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues,
            "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": False, **more,
        }  # fmt: skip
        return Step(17, fields)

    def make_topic(self) -> Step:
        more: dict[str, Any] = {}
        if self._chance(0.4):
            more = self.rng.choice(
                (
                    {"perm": self.rng.choice((0, 1, 2, 4, 6, 7))},
                    {"readQueueNums": self.rng.choice((0, 1, 8))},
                    {"writeQueueNums": self.rng.choice((0, 1, 8))},
                    {"topicFilterType": "MULTI_TAG"},
                    {"topic": APART, "perm": self.rng.choice((8, -1))},
                    {"topic": APART, "readQueueNums": -1},
                    {"topic": APART, "writeQueueNums": -1},
                    {"topic": APART, "topicFilterType": self.rng.choice(("x", "single_tag"))},
                    {"topicSysFlag": self.rng.choice((1, 2, 3, None))},
                    {"order": True},
                )
            )
        queues = self.rng.choice((4, 4, 4, 8))
        topic = self.rng.choice(ODD_TOPICS if self._chance(0.3) else TOPICS[2:])
        return self._made(more.pop("topic", topic), queues, **more)

    def _group_body(self, name: str, **more: Any) -> bytes:
        return json.dumps(
            {
                "groupName": name, "consumeEnable": True, "consumeFromMinEnable": True,
                "consumeBroadcastEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16,
                "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
                "notifyConsumerIdsChangedEnable": True, **more,
            }
        ).encode()  # fmt: skip

    def make_group(self) -> Step:
        more: dict[str, Any] = {}
        if self._chance(0.4):
            more = self.rng.choice(
                (
                    {"consumeEnable": False}, {"consumeBroadcastEnable": False},
                    {"retryQueueNums": self.rng.choice((0, 2))},
                    {"retryMaxTimes": self.rng.choice((0, 1, 2))},
                    {"groupName": CARELESS, "retryQueueNums": -1},
                    {"groupName": CARELESS, "retryMaxTimes": self.rng.choice((-1, -2))},
                    {"brokerId": 1}, {"unknown": 7}, {"notifyConsumerIdsChangedEnable": False},
                )
            )  # fmt: skip
        body = self._group_body(more.pop("groupName", self._group(0.2)), **more)
        if self._chance(0.05):
            body = self.rng.choice((b"", b"{}", b"[]", b"{", b"null"))
        return Step(200, {}, body)

    def delete_group(self) -> Step:
        """Only of what has no offsets: ours go with the group, RocketMQ's stay."""
        return Step(207, {"groupName": self.rng.choice(("nobody", "nosuch", "goners"))})

    # Messages.

    def _properties(self) -> dict[str, str]:
        rng = self.rng
        self.numbers += 1
        found = {"UNIQ_KEY": f"{self.numbers:032X}", "WAIT": rng.choice(("true", "false"))}
        if self._chance(0.05):
            del found["UNIQ_KEY"]
        for name, values, odds in (
            ("TAGS", TAGS, 0.6), ("KEYS", ("k1", "k2 k3", " k4  k5 ", "k" * 90), 0.5),
            ("price", ("1", "5", "x"), 0.4),
            ("DELAY", ("0", "1", "2", "4", "5", "99", "-1", "x"), 0.07),
            ("TRAN_MSG", ("true", "false"), 0.05), ("PGROUP", ("makers",), 0.05),
            ("RETRY_TOPIC", (TOPICS[0],), 0.03), ("RECONSUME_TIME", ("2",), 0.03),
            ("MSG_REGION", ("elsewhere",), 0.03), ("TRACE_ON", ("false",), 0.03),
            ("CLUSTER", ("other",), 0.03), ("MAX_RECONSUME_TIMES", ("1",), 0.02),
            ("REAL_TOPIC", (TOPICS[1],), 0.02), ("REAL_QID", ("1",), 0.02),
            ("ORIGIN_MESSAGE_ID", ("AB",), 0.02), ("__transactionId__", ("tx",), 0.02),
            ("BUYER_ID", ("me",), 0.02), ("MSG_TYPE", ("reply",), 0.02),
        ):  # fmt: skip
            if self._chance(odds):
                found[name] = rng.choice(values)
        if "TRAN_MSG" in found:
            found["PGROUP"] = "makers"
            found.pop("DELAY", None)
        return found

    def _sent(self, code: int, topic: str, properties: Any, body: bytes, **more: Any) -> Step:
        if isinstance(properties, dict):
            properties = format_properties(properties).decode()
        short = {
            "a": "makers", "b": topic, "c": "TBW102", "d": 4, "e": self._queue(), "f": 0,
            "g": BORN_MS + self.numbers, "h": self.rng.choice((0, 0, 7, -1)), "i": properties,
            "j": 0, "k": False, "m": code == 320, **more,
        }  # fmt: skip
        if short["e"] < 0:
            short["b"] = SINGLE  # any queue
        is_part_of_none = short["f"] in {4, 8, 12} and "TRAN_MSG" not in str(properties)
        is_no_batch = code != 320 and short["m"]
        if not body or is_no_batch or is_part_of_none:
            short["b"] = APART
        if code in {10, 324}:
            short = {LONG[name]: value for name, value in short.items()}
        return Step(code, short, body, oneway=self._chance(0.03))

    def send(self) -> Step:
        more: dict[str, Any] = {}
        if self._chance(0.25):
            more = self.rng.choice(
                (
                    {"f": self.rng.choice((1, 2, 4, 8, 12, 0x301, 0x100))},
                    {"j": self.rng.choice((1, 16, -1))}, {"l": self.rng.choice((0, 3, -1))},
                    {"c": self.rng.choice(("nosuch", TOPICS[0]))},
                    {"d": self.rng.choice((0, 1, 16, -1))}, {"k": True}, {"g": 0}, {"g": -1},
                    {"a": self._group(1)}, {"m": True},
                    {"i": self.rng.choice(("", "noseparator", "\x01\x02", "a\x01b", None))},
                )
            )  # fmt: skip
        body = self.rng.choice((b"a", b"hello", b"\x00" * 100, b"x" * 5_000, b""))
        found = self._properties()
        if more.get("m") or more.get("f") in {4, 8, 12}:
            found.pop("DELAY", None)
        if not body:
            found = {"UNIQ_KEY": found.get("UNIQ_KEY", "")}
        code = self.rng.choice((310, 310, 310, 10))
        return self._sent(code, self._topic(), found, body, **more)

    def half(self) -> Step:
        found = self._properties() | {"TRAN_MSG": "true", "PGROUP": "makers"}
        found.pop("DELAY", None)
        return replace(self._sent(310, self._topic(0.03), found, b"half", f=4), oneway=False)

    def end_transaction(self) -> Step:
        if not self.plain or not self.halves:
            return self.half()
        number, unique = self.rng.choice(self.plain), "none"
        if self._chance(0.85):
            # RocketMQ may end a transaction twice.
            number, unique = self.halves.pop(self.rng.randrange(len(self.halves)))
        fields = {
            "producerGroup": self.rng.choice(("makers", "makers", "makers", "others")),
            "tranStateTableOffset": Ref(number, "offset", self.rng.choice((0, 0, 0, 0, 1))),
            "commitLogOffset": Ref(number, "physical", self.rng.choice((0, 0, 0, 0, 1))),
            "commitOrRollback": self.rng.choice((8, 8, 12, 0, 4, 99)),
            "fromTransactionCheck": self._chance(0.3),
            "msgId": unique, "transactionId": unique,
        }  # fmt: skip
        return Step(37, fields)

    def batch(self) -> Step:
        topic = APART if self._chance(0.05) else self._topic(0.08)
        elements: list[BatchElement] = []
        for _ in range(self.rng.choice((1, 2, 3, 8))):
            found = self._properties()
            if topic != APART:
                for name in ("DELAY", "TRAN_MSG"):
                    found.pop(name, None)
            elements.append(
                BatchElement(self.rng.choice((b"1", b"two", b"x" * 300)), format_properties(found))
            )
        self.numbers += 1
        whole = {"UNIQ_KEY": f"{self.numbers:032X}", "WAIT": "true"}
        body = encode_batch(elements)
        if topic == APART and self._chance(0.5):
            body = self.rng.choice((b"", b"\x00", body[:-1], body + b"\x00\x00"))
        return replace(self._sent(320, topic, whole, body), oneway=False)

    def reply(self) -> Step:
        found = self._properties() | {"MSG_TYPE": "reply", "CORRELATION_ID": "c"}
        if self._chance(0.9):
            found["REPLY_TO_CLIENT"] = self.rng.choice((*CLIENTS, "nobody"))
        for name in ("DELAY", "TRAN_MSG"):
            found.pop(name, None)
        topic = "DifferCluster_REPLY_TOPIC" if self._chance(0.8) else APART
        code = self.rng.choice((325, 325, 324))
        return replace(self._sent(code, topic, found, b"answer", e=0), oneway=False)

    def send_back(self) -> Step:
        fields = {
            "offset": self._place("physical"), "group": self._group(0),
            "delayLevel": self.rng.choice((0, 0, 0, 1, 3, 4, 5, 99, -1)), "originMsgId": "AB",
            "originTopic": self._topic(0.1), "unitMode": False,
            "maxReconsumeTimes": self.rng.choice((16, 16, 1, 0, 2**31 - 1)),
        }  # fmt: skip
        if self._chance(0.3):
            for name in self.rng.sample(("originMsgId", "originTopic", "maxReconsumeTimes"), 2):
                del fields[name]
        return Step(36, fields)

    # Reads.

    def pull(self) -> Step:
        expression, kind = self.rng.choice(EXPRESSIONS)
        fields = {
            "consumerGroup": self._group(), "topic": self._topic(), "queueId": self._queue(),
            "queueOffset": self.rng.choice((0, 0, 0, 1, 2, 3, 5, 10, -1, 2**31, 2**63 - 1)),
            "maxMsgNums": self.rng.choice((32, 32, 1, 2, 0, -1, 1_000)),
            "sysFlag": self.rng.choice((4, 4, 4, 0, 1, 5, 8, 20, 21)),
            "commitOffset": self.rng.choice((0, 1, 2, -1, 2**40)),
            "suspendTimeoutMillis": 15_000,
            "subscription": expression,
            "subVersion": self.rng.choice((0, 5, 10, 11, 2**62)),
            "expressionType": kind,
        }  # fmt: skip
        if self._chance(0.1):
            del fields["subscription"]
        if expression == "price >" or kind not in {"TAG", "SQL92"} or fields["maxMsgNums"] < 0:
            # RocketMQ hands out all messages, or none; neither counts, and nothing is committed.
            fields.update(sysFlag=4, consumerGroup=CARELESS)
        fields = {name: value for name, value in fields.items() if value is not None}
        return Step(11, fields)

    def held(self) -> Step:
        tag, queue = self.rng.choice(TAGS[:3]), self.rng.randrange(2)
        found = {"UNIQ_KEY": f"{self.numbers:032X}", "TAGS": tag}
        self.numbers += 1
        sent = replace(self._sent(310, TOPICS[0], found, b"wakes", e=queue), oneway=False)
        fields = {
            "consumerGroup": GROUPS[0], "topic": TOPICS[0], "queueId": queue, "queueOffset": 0,
            "maxMsgNums": self.rng.choice((1, 32)), "sysFlag": 6, "commitOffset": 0,
            "suspendTimeoutMillis": 15_000, "subscription": self.rng.choice(("*", tag)),
            "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip
        return Step(11, fields, link=1, then=sent)

    def offset_of(self) -> Step:
        fields = {"consumerGroup": self._group(), "topic": self._topic(), "queueId": self._queue()}
        if self._chance(0.2):
            fields["setZeroIfNotFound"] = self.rng.choice((True, False))
        return Step(14, fields)

    def commit(self) -> Step:
        place = {
            "consumerGroup": self._group(0), "topic": self.rng.choice(TOPICS[:2]),
            "queueId": self.rng.randrange(2),
        }  # fmt: skip
        if self._chance(0.2):
            place["consumerGroup"], place["queueId"] = CARELESS, self._queue()
            place["topic"] = self.rng.choice((APART, *ODD_TOPICS))
        return Step(
            15,
            {
                **place,
                "commitOffset": self.rng.choice((0, 1, 2, 5, 100, -1, -5, 2**40, 2**63 - 1)),
            },
            oneway=self._chance(0.3),
        )  # fmt: skip

    def limit(self) -> Step:
        code = self.rng.choice((30, 31, 32))
        return Step(code, {"topic": self._topic(0.25), "queueId": self._queue()})

    def by_time(self) -> Step:
        when = self.rng.choice((0, -1, 1, BORN_MS, 2**62, 2**63 - 1, 4_000_000_000_000))
        return Step(29, {"topic": self._topic(), "queueId": self._queue(), "timestamp": when})

    def by_key(self) -> Step:
        key = self.rng.choice(("k1", "k2", "k3", "k4", "", "k", "k2 k3", "k" * 90))
        fields = {
            "topic": self._topic(),
            "key": key,
            "maxNum": self.rng.choice((32, 1, 64, 0, -1)),
            "beginTimestamp": self.rng.choice((0, 0, 0, 2**62, -1)),
            "endTimestamp": self.rng.choice((2**63 - 1, 2**63 - 1, 0, 2**62)),
        }
        if self._chance(0.4):
            fields["key"] = f"{self.rng.randrange(1, self.numbers + 2):032X}"
            fields["_UNIQUE_KEY_QUERY"] = self.rng.choice(("true", "true", "false", "TRUE"))
        return Step(12, fields)

    def by_id(self) -> Step:
        return Step(33, {"offset": self._place("physical")})

    # Members.

    def heartbeat(self) -> Step:
        link = self.rng.randrange(2)
        told = self._heartbeat(link, self.rng.sample(GROUPS, self.rng.randrange(3)))
        body = json.dumps(told).encode()
        if not told["consumerDataSet"] and self._chance(0.1):
            body = self.rng.choice((b"", b"{}", b"[]", b"{", b"null", body[:-3]))
        return Step(34, {}, body, link=link)

    def _heartbeat(self, link: int, groups: Sequence[str]) -> dict[str, Any]:
        self.joined |= {(link, name) for name in groups}
        return {
            "clientID": CLIENTS[link],
            "consumerDataSet": [
                {
                    "groupName": name,
                    "consumeType": self.rng.choice(("CONSUME_PASSIVELY", "CONSUME_ACTIVELY")),
                    "messageModel": "BROADCASTING" if name == GROUPS[3] else "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": self._subscriptions(name), "unitMode": False,
                }
                for name in groups
            ],
            "producerDataSet": [{"groupName": "makers"}] if self._chance(0.7) else [],
        }  # fmt: skip

    def _subscriptions(self, group: str) -> list[dict[str, Any]]:
        expression, kind = self.rng.choice(EXPRESSIONS_OF_MEMBERS)
        topics = self.rng.sample(TOPICS, self.rng.randrange(3))
        wanted = [*((topic, expression, kind) for topic in topics), (f"%RETRY%{group}", "*", "TAG")]
        found = []
        for topic, text, language in wanted:
            by_tags = language == "TAG" and text != "*"
            tags = [tag.strip() for tag in text.split("||")] if by_tags else []
            found.append(
                {
                    "topic": topic, "subString": text, "expressionType": language,
                    "subVersion": self.rng.choice((5, 10, 11)), "classFilterMode": False,
                    "tagsSet": tags, "codeSet": [java_string_hash(tag) for tag in tags],
                }
            )  # fmt: skip
        return found

    def leave(self) -> Step:
        link = self.rng.randrange(2)
        fields = {"clientID": CLIENTS[link]}
        groups = sorted(name for number, name in self.joined if number == link)
        if groups and self._chance(0.7):
            fields["consumerGroup"] = self.rng.choice(groups)
            self.joined.remove((link, fields["consumerGroup"]))
        if self._chance(0.3):
            fields["producerGroup"] = "makers"
        return Step(35, fields, link=link)

    def members(self) -> Step:
        return Step(38, {"consumerGroup": self._group(0.2)})

    def lock(self) -> Step:
        queues = [
            {
                "topic": self.rng.choice((*TOPICS[:2], "nosuch")),
                "queueId": self.rng.choice((0, 1)), "brokerName": BROKER,
            }
            for _ in range(self.rng.randrange(4))
        ]  # fmt: skip
        if self._chance(0.1):
            queues.append({"topic": TOPICS[0], "queueId": 9, "brokerName": "other"})
        told = {
            "consumerGroup": self._group(0.05), "clientId": self.rng.choice(CLIENTS),
            "mqSet": queues,
        }  # fmt: skip
        return Step(self.rng.choice((41, 41, 42)), {}, json.dumps(told).encode())

    def check_expression(self) -> Step:
        expression, kind = self.rng.choice(EXPRESSIONS)
        told = {
            "clientId": CLIENTS[0], "group": self._group(),
            "subscriptionData": {
                "topic": TOPICS[0], "subString": expression, "expressionType": kind,
                "subVersion": 5,
            },
        }  # fmt: skip
        return Step(46, {}, json.dumps(told).encode())

    # Tools.

    def tool(self) -> Step:
        rng, group, topic = self.rng, self._group(0.2), self._topic(0.25)
        return rng.choice(
            (
                Step(21, {}), Step(43, {}), Step(45, {}), Step(28, {}), Step(26, {}),
                Step(201, {}), Step(305, {}), Step(202, {"topic": topic}),
                Step(203, {"consumerGroup": group}),
                Step(204, {"producerGroup": rng.choice(("makers", "nobody", ""))}),
                Step(208, {"consumerGroup": group}),
                Step(208, {"consumerGroup": group, "topic": topic}),
                Step(300, {"topic": topic}), Step(303, {"topic": topic, "group": group}),
                Step(308, {"topic": topic, "compareGroup": group, "filterGroups": ""}),
                Step(307, {"consumerGroup": group, "clientId": rng.choice((*CLIENTS, "x")),
                           "jstackEnable": False}),
                Step(309, {"consumerGroup": group, "clientId": rng.choice((*CLIENTS, "x")),
                           "msgId": self._place("id"), "brokerName": BROKER}),
                Step(222, {"topic": topic, "group": group, "isForce": rng.choice((True, False)),
                           "timestamp": rng.choice((-1, 0, 2**62))}),
                Step(223, {"topic": topic, "group": group, "clientAddr": ""}),
                Step(314, {"srcGroup": group, "destGroup": rng.choice((CARELESS, *ODD_GROUPS)),
                           "topic": topic, "offline": rng.choice((True, False))}),
                Step(315, {"statsName": rng.choice(("TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "X")),
                           "statsKey": rng.choice((topic, f"{topic}@{group}", ""))}),
                Step(317, {"isOrder": rng.choice((True, False))}),
                Step(321, {"topic": topic, "queueId": self._queue(), "index": rng.choice((0, 1)),
                           "count": rng.choice((10, 1, 0)), "consumerGroup": group}),
                Step(rng.choice((13, 22, 60, 209, 301, 400, 999, -5)), {}),
            )
        )  # fmt: skip

    def name_server(self) -> Step:
        rng, topic = self.rng, self._topic(0.3)
        space, key = rng.choice(("ORDER_TOPIC_CONFIG", "space")), rng.choice(("k1", "k2"))
        return replace(
            rng.choice(
                (
                    Step(105, {"topic": topic}), Step(105, {"topic": topic}),
                    Step(105, {"topic": topic, "acceptStandardJsonOnly": True}),
                    Step(106, {}), Step(206, {}), Step(304, {}),
                    Step(224, {"cluster": rng.choice(("DifferCluster", "nosuch"))}),
                    Step(100, {"namespace": space, "key": key, "value": rng.choice(("v", "w;x"))}),
                    Step(101, {"namespace": space, "key": key}),
                    Step(102, {"namespace": space, "key": key}), Step(219, {"namespace": space}),
                    Step(311, {}), Step(312, {}), Step(313, {}), Step(319, {}),
                    Step(205, {"brokerName": "nosuch"}), Step(327, {"brokerName": BROKER}),
                    Step(rng.choice((10, 11, 34, 999)), {}),
                )
            ),
            target="namesrv",
        )  # fmt: skip


def _put_apart(code: int, fields: dict[str, Any]) -> None:
    """Have a request that is spoilt change nothing that others look at."""
    if code in SPOILING:
        for key, apart in SPOILT.items():
            if key in fields and not (code == 11 and apart == APART):
                fields[key] = apart
    if code == 11:
        fields["sysFlag"] = 4  # commits nothing
    if code == 36:
        fields["delayLevel"] = -1  # waits nowhere


_KINDS: tuple[tuple[Callable[[Draw], Step], int], ...] = (
    (Draw.send, 22), (Draw.batch, 5), (Draw.half, 4), (Draw.end_transaction, 6), (Draw.reply, 3),
    (Draw.send_back, 7), (Draw.pull, 18), (Draw.held, 2), (Draw.offset_of, 5), (Draw.commit, 6),
    (Draw.limit, 6), (Draw.by_time, 3), (Draw.by_key, 6), (Draw.by_id, 3), (Draw.heartbeat, 7),
    (Draw.leave, 3), (Draw.members, 3), (Draw.lock, 6), (Draw.check_expression, 2),
    (Draw.make_topic, 5), (Draw.make_group, 5), (Draw.delete_group, 2), (Draw.tool, 18),
    (Draw.name_server, 8),
)  # fmt: skip
