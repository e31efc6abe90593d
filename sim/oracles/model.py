"""The broker's replicated tables, made once more from the bytes of the committed log.

It decodes records of state with code of its own, so that tables of replicas are compared with what
the log says and not only with each other. Topics and groups are kept as the JSON objects that the
log holds; what is absent there has its default in the table. A kind of record that it does not
know ends its knowledge (`Model.knows`): replicas are then compared with each other only.
Pure. Source: spec/wire.md 3.7; spec/disk.md 5.6; RocketMQ ConsumerOffsetManager,
RebalanceLockManager.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sim.oracles.records import KIND, body_of, properties_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.history.segment import EntryRow
    from sim.oracles.records import Parts

NOT_TABLES: Final = frozenset({"noop", "raft_config"})
"""Records of state that no table is made of."""

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COPIED: Final = -1
"""Stands for how often was asked for a half that has its copy."""

Lock = tuple[str, str, int]
"""Group, topic, queue id."""


class Statement(NamedTuple):
    """A committed record of state."""

    entry: int
    committed_ns: int
    """Virtual time at which it was first seen committed."""
    kind: str
    content: Any
    """Its payload, None if that is no JSON."""


class Held(NamedTuple):
    """A lock."""

    owner: str
    since_ns: int


class Model:
    """What some first statements of a log make."""

    def __init__(self) -> None:
        self.count = 0
        """How many statements it includes."""
        self.topics: dict[str, dict[str, Any]] = {}
        self.topics_gone: set[str] = set()
        """Those that were removed once."""
        self.topic_version = (0, 0)
        """Time stamp and counter; no time before the first change."""
        self.groups: dict[str, dict[str, Any]] = {}
        self.group_version = (0, 0)
        self.offsets: dict[str, dict[int, int]] = {}
        self.locks: dict[Lock, Held] = {}
        self.delivered: dict[int, int] = {}
        """By queue of the schedule topic, the first offset that is not delivered."""
        self.halves: dict[int, int] = {}
        """Open halves: how often was asked, by offset."""
        self._places: dict[int, int] = {}
        """Their offsets, by their place in the log."""
        self.knows = True

    @property
    def rows(self) -> int:
        """How many rows all tables have."""
        return len(self.topics) + len(self.groups) + len(self.offsets) + len(self.locks)

    def apply(self, statement: Statement) -> None:
        """Take the next statement."""
        self.count += 1
        content = statement.content
        match statement.kind:
            case kind if kind in NOT_TABLES:
                return
            case "topic" | "forget-topic" if _is_object(content, "timestamp"):
                self._apply_topic(content)
            case "group" if _is_object(content, "config", "timestamp"):
                self.groups[content["config"]["groupName"]] = content["config"]
                self.group_version = (content["timestamp"], self.group_version[1] + 1)
            case "offset" if isinstance(content, dict):
                for key, queues in content.items():
                    table = self.offsets.setdefault(key, {})
                    table.update((int(queue_id), offset) for queue_id, offset in queues.items())
            case "forget-offsets" if _is_object(content, "offsets"):
                self._forget_offsets(content["offsets"])
            case "lock" | "unlock" if _is_object(content, "group", "clientId", "queues"):
                self._apply_lock(statement)
            case "delivered" if isinstance(content, list):
                self.delivered[content[0]] = content[1] + 1
            case kind if kind.startswith("tx-"):
                self._apply_half(kind, content)
            case _:
                self.knows = False

    def _apply_topic(self, content: dict[str, Any]) -> None:
        if "config" in content:
            self.topics[content["config"]["topicName"]] = content["config"]
        else:
            self.topics.pop(content["topic"], None)
            self.topics_gone.add(content["topic"])
        self.topic_version = (content["timestamp"], self.topic_version[1] + 1)

    def _forget_offsets(self, gone: dict[str, list[int]]) -> None:
        for key, queue_ids in gone.items():
            table = self.offsets.get(key, {})
            for queue_id in queue_ids:
                table.pop(queue_id, None)
            if not table:
                self.offsets.pop(key, None)

    def _apply_half(self, kind: str, content: Any) -> None:  # noqa: ANN401  # what JSON holds
        match kind:
            case "tx-half":
                self.halves[content[0]] = 0
                self._places[content[1]] = content[0]
            case "tx-copied":
                offset = self._places.get(content)
                if offset in self.halves:
                    self.halves[offset] = COPIED
            case "tx-op":
                for offset in content:
                    self.halves.pop(offset, None)
            case "tx-asked":
                open_ones = [one for one in content if self.halves.get(one[0], COPIED) != COPIED]
                self.halves.update((offset, asked) for offset, asked in open_ones)
            case _:
                self.knows = False

    def _apply_lock(self, statement: Statement) -> None:
        content = statement.content
        held = Held(content["clientId"], statement.committed_ns)
        if statement.kind == "lock":
            self.locks.update((key, held) for key in _locks(content))
            return
        for key in _locks(content):
            if key in self.locks and self.locks[key].owner == held.owner:
                del self.locks[key]


def read_statement(index: int, committed_ns: int, data: bytes) -> Statement:
    """Return the record of state in an entry."""
    try:
        content = json.loads(body_of(data))
    except ValueError:
        content = None
    return Statement(index, committed_ns, properties_of(data).get(KIND, ""), content)


def said_by(row: EntryRow, parts: Parts) -> tuple[str, Any] | None:
    """Return kind and content of the record of state that a message stands for, if for any.

    A copy says what it is a copy of; a half, and what says that halves are over, lie in topics of
    their own.
    """
    if parts.origin is not None:
        return "delivered", list(parts.origin)
    if row.topic == HALF_TOPIC and not row.queue_id:
        return "tx-half", (row.queue_offset, parts.physical)
    if row.topic == OP_TOPIC and not row.queue_id:
        return "tx-op", [int(one) for one in parts.body.split(b",") if one.isdigit()]
    return None if parts.half is None else ("tx-copied", parts.half)


def covers(table: object, stated: dict[str, Any]) -> bool:
    """Tell whether a row of a table has all that the log states for it."""
    return all(
        getattr(table, _snake(name), value) == value
        for name, value in stated.items()
        if value is not None
    )


@functools.cache
def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _is_object(content: object, *members: str) -> bool:
    return isinstance(content, dict) and all(member in content for member in members)


def _locks(content: dict[str, Any]) -> Iterable[Lock]:
    return [(content["group"], queue["topic"], queue["queueId"]) for queue in content["queues"]]
